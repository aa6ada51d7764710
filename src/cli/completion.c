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

static bool takes_id(const struct operands *o)
{
    return str_eqc(o->first, "id") || str_eqc(o->others, "id");
}

static void append_names(struct buf *b, const struct command *const *commands)
{
    for (size_t i = 0; commands[i]; i++)
        buf_printf(b, "%s%s", i ? " " : "", commands[i]->name);
}

/* ---- bash ---- */

static void append_bash_words(struct buf *b, const struct command *c)
{
    const struct flag *f;
    for (size_t i = 0; (f = command_flag(c, i)); i++) {
        if (f->letter)
            buf_printf(b, "-%c ", f->letter);
        buf_printf(b, "--%s ", f->name);
    }
}

static const char bash_head[] =
    "# bash completion for cove: source <(cove completion bash)\n"
    "# compgen -W expands what it is given: only what can be an id gets there, whatever a service says.\n"
    "_cove_ids() {\n"
    "    local id\n"
    "    while IFS= read -r id; do\n"
    "        [[ ! $id =~ ^[a-z0-9]+$ ]] || printf '%s\\n' \"$id\"\n"
    "    done < <(cove ls -q 2>/dev/null)\n"
    "}\n"
    "_cove() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} cmd=${COMP_WORDS[1]} flags='' operands='' words='' others='' word\n"
    "    COMPREPLY=()\n"
    "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
    "        mapfile -t COMPREPLY < <(compgen -W '";

static const char bash_tail[] =
    "    esac\n"
    "    case $cur in\n"
    "    -*) mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$cur\") ;;\n"
    "    *)\n"
    "        for word in \"${COMP_WORDS[@]:2:COMP_CWORD-2}\"; do\n"
    "            [[ $word == -* ]] || { words='' operands=${others:-$operands}; break; }\n"
    "        done\n"
    "        case $operands in\n"
    "        id) mapfile -t COMPREPLY < <(compgen -W \"$words $(_cove_ids)\" -- \"$cur\") ;;\n"
    "        command) mapfile -t COMPREPLY < <(compgen -c -- \"$cur\") ;;\n"
    "        file) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"; compgen -S : -W \"$(_cove_ids)\" -- \"$cur\") ;;\n"
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
        buf_printf(b, "    %s) operands='%.*s' words='%.*s' others='%.*s' flags='", commands[i]->name, STR_ARG(o.first),
                   STR_ARG(o.words), STR_ARG(o.others));
        append_bash_words(b, commands[i]);
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
        if (strchr(special, *text))
            buf_append_char(b, '\\');
        buf_append_char(b, *text);
    }
}

static void append_zsh_operands(struct buf *b, struct operands o)
{
    static const struct {
        const char *kind, *spec; /* spec: behind its place */
    } kinds[] = {
        {"id", ":sandbox:_cove_ids'"},
        {"command", ":::command:_normal'"},
        {"file", ":file:_cove_files'"},
        {"shell", ":shell:(bash zsh fish)'"},
        {"subcommand", ":command:_describe command commands'"},
    };
    if (o.words.n && o.first.n)
        buf_printf(b, " \\\n        '1:sandbox or action: _cove_ids_or %.*s'", STR_ARG(o.words));
    else if (o.words.n)
        buf_printf(b, " \\\n        '1:action:(%.*s)'", STR_ARG(o.words));
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        bool is_first = str_eqc(o.first, kinds[i].kind), is_other = str_eqc(o.others, kinds[i].kind);
        if (is_first && !o.words.n)
            buf_printf(b, " \\\n        '%s%s", o.others.n || i >= 3 ? "1" : "*", kinds[i].spec);
        if (is_other)
            buf_printf(b, " \\\n        '*%s", kinds[i].spec);
    }
}

static void write_zsh(const struct command *const *commands, struct buf *b)
{
    const struct flag *f;
    buf_append_cstr(
        b, "#compdef cove\n# zsh completion for cove: source <(cove completion zsh)\n"
           "_cove_ids() { local -a ids; ids=(${(f)\"$(cove ls -q 2>/dev/null)\"}); compadd -a ids }\n"
           "_cove_ids_or() { compadd -- $@; _cove_ids }\n"
           "_cove_files() { _files; local -a ids; ids=(${(f)\"$(cove ls -q 2>/dev/null)\"}); compadd -S : -a ids }\n"
           "_cove() {\n    local -a commands\n    commands=(\n");
    for (size_t i = 0; commands[i]; i++) {
        buf_printf(b, "        '%s:", commands[i]->name);
        append_quoted(b, commands[i]->summary, ":");
        buf_append_cstr(b, "'\n");
    }
    buf_append_cstr(
        b, "    )\n    if (( CURRENT == 2 )); then\n        _describe command commands\n        return\n    fi\n"
           "    local cmd=$words[2]\n    shift words\n    (( CURRENT-- ))\n    case $cmd in\n");
    for (size_t i = 0; commands[i]; i++) {
        buf_printf(b, "    %s) _arguments -s", commands[i]->name);
        for (size_t k = 0; (f = command_flag(commands[i], k)); k++) {
            if (f->letter)
                buf_printf(b, " \\\n        '(--%s)-%c[", f->name, f->letter), append_quoted(b, f->help, "[]:"),
                    buf_printf(b, f->argument ? "]:%s:'" : "]'", f->argument);
            buf_printf(b, " \\\n        '--%s%s[", f->name, f->argument ? "=" : "");
            append_quoted(b, f->help, "[]:");
            buf_printf(b, f->argument ? "]:%s:'" : "]'", f->argument);
        }
        append_zsh_operands(b, operands_of(commands[i]));
        buf_append_cstr(b, "\n        ;;\n");
    }
    buf_append_cstr(b, "    esac\n}\ncompdef _cove cove\n");
}

static void write_fish(const struct command *const *commands, struct buf *b)
{
    const struct flag *f;
    buf_append_cstr(b, "# fish completion for cove: cove completion fish | source\ncomplete -c cove -f\n");
    for (size_t i = 0; commands[i]; i++) {
        const struct command *c = commands[i];
        buf_printf(b, "complete -c cove -n __fish_use_subcommand -a %s -d '", c->name);
        append_quoted(b, c->summary, "");
        buf_append_cstr(b, "'\n");
        for (size_t k = 0; (f = command_flag(c, k)); k++) {
            buf_printf(b, "complete -c cove -n '__fish_seen_subcommand_from %s' -l %s", c->name, f->name);
            if (f->letter)
                buf_printf(b, " -s %c", f->letter);
            buf_printf(b, "%s -d '", f->argument ? " -x" : "");
            append_quoted(b, f->help, "");
            buf_append_cstr(b, "'\n");
        }
        const struct operands o = operands_of(c);
        if (takes_id(&o) || str_eqc(o.first, "file"))
            buf_printf(b, "complete -c cove -n '__fish_seen_subcommand_from %s' %s-a '(cove ls -q 2>/dev/null)'\n",
                       c->name, takes_id(&o) ? "" : "-F ");
        if (str_eqc(o.first, "shell"))
            buf_printf(b, "complete -c cove -n '__fish_seen_subcommand_from %s' -a 'bash zsh fish'\n", c->name);
        if (o.words.n)
            buf_printf(b, "complete -c cove -n '__fish_seen_subcommand_from %s' -a '%.*s'\n", c->name,
                       STR_ARG(o.words));
        if (str_eqc(o.first, "subcommand")) {
            buf_printf(b, "complete -c cove -n '__fish_seen_subcommand_from %s' -a '", c->name);
            append_names(b, commands);
            buf_append_cstr(b, " exit-codes'\n");
        }
    }
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
