/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/completion.h"

/* What command.h says of operands, apart. */
struct operands {
    struct str first, words, others;
};

static struct operands operands_of(const struct command *c)
{
    struct str text = str_of(c->operands), head = STR("");
    struct operands o = {0};
    (void)str_split(&text, '|', &head);
    o.others = text.p ? text : STR("");
    (void)str_split(&head, '=', &o.first);
    o.words = head.p ? head : STR("");
    return o;
}

static void append_names(struct buf *b, const struct command *const *commands)
{
    for (size_t i = 0; commands[i]; i++)
        buf_printf(b, "%s%s", i ? " " : "", commands[i]->name);
}

/* ---- bash ---- */

/* "-u --user ...": the options, or of these those alone that take a value, each with a blank behind it. */
static void append_flags(struct buf *b, const struct command *c, bool valued)
{
    const struct flag *f;
    for (size_t i = 0; (f = command_flag(c, i)); i++) {
        if (valued && !f->argument)
            continue;
        if (f->letter)
            buf_printf(b, "-%c ", f->letter);
        buf_printf(b, "--%s ", f->name);
    }
}

static const char bash_head[] =
    "# bash completion for cove: source <(cove completion bash)\n# compgen -W expands what it is given: only what "
    "can be an id gets there, whatever a service says.\n_cove_ids() {\n    local id\n    while IFS= read -r id; do\n "
    "       [[ ! $id =~ ^[a-z0-9]+$ ]] || printf '%s\\n' \"$id\"\n    done < <(cove ls -q 2>/dev/null)\n}\n_cove() "
    "{\n    local cur=${COMP_WORDS[COMP_CWORD]} cmd=${COMP_WORDS[1]} flags='' valued='' operands='' words='' "
    "others='' ends='' word i\n    COMPREPLY=()\n    if [ \"$COMP_CWORD\" -eq 1 ]; then\n        mapfile -t "
    "COMPREPLY < <(compgen -W '";

/* Readline cuts --user=root into three words. What is no operand of ours is left to its own completion, of files. */
static const char bash_tail[] =
    "    esac\n"
    "    for ((i = 2; i < COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if [[ $valued == *\" $word \"* ]]; then\n"
    "            i=$((i + 1))\n"
    "            [[ ${COMP_WORDS[i]} != = ]] || i=$((i + 1))\n"
    "            [ \"$i\" -lt \"$COMP_CWORD\" ] || return 0\n"
    "        elif [[ $word != -* ]]; then\n"
    "            words='' operands=${others:-$operands}\n"
    "            [ -z \"$ends\" ] || flags=''\n"
    "            break\n"
    "        fi\n"
    "    done\n"
    "    case $cur in\n"
    "    -*) mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$cur\") ;;\n"
    "    *)\n"
    "        case $operands in\n"
    "        id) mapfile -t COMPREPLY < <(compgen -W \"$words $(_cove_ids)\" -- \"$cur\") ;;\n"
    "        command) mapfile -t COMPREPLY < <(compgen -c -- \"$cur\") ;;\n"
    "        file)\n"
    "            mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"; compgen -S : -W \"$(_cove_ids)\" -- \"$cur\")\n"
    "            [[ ${#COMPREPLY[@]} -ne 1 || ${COMPREPLY[0]} != *: ]] || compopt -o nospace 2>/dev/null\n"
    "            ;;\n"
    "        shell) mapfile -t COMPREPLY < <(compgen -W 'bash zsh fish' -- \"$cur\") ;;\n"
    "        subcommand) mapfile -t COMPREPLY < <(compgen -W \"$commands exit-codes\" -- \"$cur\") ;;\n"
    "        *) mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\") ;;\n"
    "        esac\n"
    "        ;;\n"
    "    esac\n"
    "}\n"
    "complete -o default -F _cove cove\n";

static void write_bash(const struct command *const *commands, struct buf *b)
{
    buf_append_cstr(b, bash_head);
    append_names(b, commands);
    buf_append_cstr(b, "' -- \"$cur\")\n        return\n    fi\n    local commands='");
    append_names(b, commands);
    buf_append_cstr(b, "'\n    case $cmd in\n");
    for (size_t i = 0; commands[i]; i++) {
        const struct operands o = operands_of(commands[i]);
        buf_printf(b, "    %s) operands='%.*s' words='%.*s' others='%.*s'%s valued=' ", commands[i]->name,
                   STR_ARG(o.first), STR_ARG(o.words), STR_ARG(o.others),
                   commands[i]->flags_end_at_operand ? " ends=1" : "");
        append_flags(b, commands[i], true);
        buf_append_cstr(b, "' flags='");
        append_flags(b, commands[i], false);
        buf_append_cstr(b, "' ;;\n");
    }
    buf_append_cstr(b, bash_tail);
}

/* ---- zsh and fish quote their descriptions ---- */

/* Within single quotes; zsh's specs also give colons and brackets a meaning. */
static void append_quoted(struct buf *b, const char *text, const char *special)
{
    for (; *text; text++) {
        if (*text == '\'') {
            buf_append_cstr(b, "'\\''");
            continue;
        }
        if (*text == '\\' || strchr(special, *text))
            buf_append_char(b, '\\');
        buf_append_char(b, *text);
    }
}

static bool is_file(const struct flag *f)
{
    return f->argument && strcmp(f->argument, "FILE") == 0;
}

/* ---- zsh ---- */

/* Behind the name of an option: what it is, and what its value is. */
static void append_zsh_meaning(struct buf *b, const struct flag *f)
{
    buf_append_char(b, '[');
    append_quoted(b, f->help, "[]:");
    buf_append_char(b, ']');
    if (f->argument) {
        buf_append_char(b, ':');
        append_quoted(b, f->argument, ":");
        buf_append_cstr(b, is_file(f) ? ":_files" : ":");
    }
    buf_append_char(b, '\'');
}

static void append_zsh_flag(struct buf *b, const struct flag *f)
{
    bool again = f->argument && strstr(f->help, "several times");
    if (f->letter) {
        if (again)
            buf_printf(b, " \\\n        '*-%c", f->letter);
        else
            buf_printf(b, " \\\n        '(--%s)-%c", f->name, f->letter);
        append_zsh_meaning(b, f);
    }
    buf_printf(b, " \\\n        '%s--%s%s", again ? "*" : "", f->name, f->argument ? "=" : "");
    append_zsh_meaning(b, f);
}

static void append_zsh_operands(struct buf *b, struct operands o)
{
    static const struct {
        const char *kind, *spec; /* spec: behind its place */
    } kinds[] = {
        {"id", ":sandbox:_cove_ids'"}, {"command", ":::command:_normal'"},   {"file", ":file:_cove_files'"},
        {"path", ":file:_files'"},     {"shell", ":shell:(bash zsh fish)'"}, {"subcommand", ":command:_cove_topics'"},
    };
    if (o.words.n && o.first.n)
        buf_printf(b, " \\\n        '1:sandbox or action: _cove_ids_or %.*s'", STR_ARG(o.words));
    else if (o.words.n)
        buf_printf(b, " \\\n        '1:action:(%.*s)'", STR_ARG(o.words));
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        bool is_first = str_eqc(o.first, kinds[i].kind), is_other = str_eqc(o.others, kinds[i].kind);
        if (is_first && !o.words.n)
            buf_printf(b, " \\\n        '%s%s", o.others.n || i >= 4 ? "1" : "*", kinds[i].spec);
        if (is_other)
            buf_printf(b, " \\\n        '*%s", kinds[i].spec);
        else if (is_first && o.words.n)
            buf_printf(b, " \\\n        '*%s", kinds[i].spec);
    }
}

static const char zsh_head[] =
    "#compdef cove\n"
    "# zsh completion for cove: source <(cove completion zsh)\n"
    "# Only what can be an id is offered, whatever a service says.\n"
    "_cove_ids() { local -a ids; ids=(${${(f)\"$(cove ls -q 2>/dev/null)\"}:#*[^a-z0-9]*}); compadd \"$@\" -a ids }\n"
    "_cove_ids_or() { compadd -- $@; _cove_ids }\n"
    "_cove_files() { _files; _cove_ids -S : }\n"
    "_cove_topics() { _describe command verbs -- '(exit-codes:\"what an exit code means\")' }\n"
    "_cove() {\n"
    "    local -a verbs\n"
    "    verbs=(\n";

/* Loaded from $fpath, the whole is the function, and this its first call. */
static const char zsh_tail[] = "    esac\n"
                               "}\n"
                               "if [ \"$funcstack[1]\" = _cove ]; then _cove \"$@\"; else compdef _cove cove; fi\n";

static void write_zsh(const struct command *const *commands, struct buf *b)
{
    const struct flag *f;
    buf_append_cstr(b, zsh_head);
    for (size_t i = 0; commands[i]; i++) {
        buf_printf(b, "        '%s:", commands[i]->name);
        append_quoted(b, commands[i]->summary, ":");
        buf_append_cstr(b, "'\n");
    }
    buf_append_cstr(b,
                    "    )\n    if (( CURRENT == 2 )); then\n        _describe command verbs\n        return\n    fi\n"
                    "    local cmd=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $cmd in\n");
    for (size_t i = 0; commands[i]; i++) {
        buf_printf(b, "    %s) _arguments -s%s", commands[i]->name,
                   commands[i]->flags_end_at_operand ? " -A '-*'" : "");
        for (size_t k = 0; (f = command_flag(commands[i], k)); k++)
            append_zsh_flag(b, f);
        append_zsh_operands(b, operands_of(commands[i]));
        buf_append_cstr(b, "\n        ;;\n");
    }
    buf_append_cstr(b, zsh_tail);
}

/* ---- fish ---- */

static const char fish_head[] =
    "# fish completion for cove: cove completion fish | source\n"
    "# Only what can be an id is offered, whatever a service says.\n"
    "function __cove_ids\n"
    "    cove ls -q 2>/dev/null | string match -r '^[a-z0-9]+$'\n"
    "end\n"
    "function __cove_begins\n"
    "    set -l words (commandline -opc)\n"
    "    test (count $words) -eq 1\n"
    "end\n"
    "# Is this the command, and its first operand what is completed, or one of the others?\n"
    "function __cove_at -a command place\n"
    "    set -l words (commandline -opc)\n"
    "    set -l valued (__cove_valued $command)\n"
    "    set -l found first\n"
    "    set -l i 3\n"
    "    test (count $words) -ge 2; and test \"$words[2]\" = $command; or return 1\n"
    "    while test $i -le (count $words)\n"
    "        if contains -- $words[$i] $valued\n"
    "            set i (math $i + 1)\n"
    "        else if not string match -q -- '-*' $words[$i]\n"
    "            set found other\n"
    "            break\n"
    "        end\n"
    "        set i (math $i + 1)\n"
    "    end\n"
    "    test -z \"$place\"; or test $place = $found\n"
    "end\n"
    "function __cove_valued -a command\n"
    "    switch $command\n";

/* What is offered in this place of the command: "first", "other". */
static void append_fish_operand(struct buf *b, const struct command *const *commands, const struct command *c,
                                const char *place, struct str kind)
{
    static const struct {
        const char *kind, *offer;
    } kinds[] = {
        {"id", "-a '(__cove_ids)'"},
        {"command", "-a '(__fish_complete_command)'"},
        {"file", "-F -a '(__cove_ids | string replace -r \\$ :)'"},
        {"path", "-F"},
        {"shell", "-a 'bash zsh fish'"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        if (str_eqc(kind, kinds[i].kind))
            buf_printf(b, "complete -c cove -n '__cove_at %s %s' %s\n", c->name, place, kinds[i].offer);
    if (str_eqc(kind, "subcommand")) {
        buf_printf(b, "complete -c cove -n '__cove_at %s %s' -a '", c->name, place);
        append_names(b, commands);
        buf_append_cstr(b, " exit-codes'\n");
    }
}

static void append_fish_command(struct buf *b, const struct command *const *commands, const struct command *c)
{
    const struct operands o = operands_of(c);
    const struct flag *f;
    buf_printf(b, "complete -c cove -n __cove_begins -a %s -d '", c->name);
    append_quoted(b, c->summary, "");
    buf_append_cstr(b, "'\n");
    for (size_t k = 0; (f = command_flag(c, k)); k++) {
        buf_printf(b, "complete -c cove -n '__cove_at %s%s' -l %s", c->name, c->flags_end_at_operand ? " first" : "",
                   f->name);
        if (f->letter)
            buf_printf(b, " -s %c", f->letter);
        buf_printf(b, "%s -d '", is_file(f) ? " -r -F" : f->argument ? " -x" : "");
        append_quoted(b, f->help, "");
        buf_append_cstr(b, "'\n");
    }
    if (o.words.n)
        buf_printf(b, "complete -c cove -n '__cove_at %s first' -a '%.*s'\n", c->name, STR_ARG(o.words));
    append_fish_operand(b, commands, c, "first", o.first);
    append_fish_operand(b, commands, c, "other",
                        o.others.n || str_eqc(o.first, "shell") || str_eqc(o.first, "subcommand") ? o.others : o.first);
}

static void write_fish(const struct command *const *commands, struct buf *b)
{
    buf_append_cstr(b, fish_head);
    for (size_t i = 0; commands[i]; i++) {
        buf_printf(b, "        case %s\n            string split ' ' -- '", commands[i]->name);
        append_flags(b, commands[i], true);
        buf_append_cstr(b, "'\n");
    }
    buf_append_cstr(b, "    end\nend\ncomplete -c cove -f\n");
    for (size_t i = 0; commands[i]; i++)
        append_fish_command(b, commands, commands[i]);
}

int completion_write(const char *shell, const struct command *const *commands, struct buf *b)
{
    if (strcmp(shell, "bash") == 0)
        write_bash(commands, b);
    else if (strcmp(shell, "zsh") == 0)
        write_zsh(commands, b);
    else if (strcmp(shell, "fish") == 0)
        write_fish(commands, b);
    else
        return -EINVAL;
    return buf_error(b);
}
