/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/completion.h"

static bool takes_id(const struct command *c)
{
    return str_starts(str_of(c->operands), STR("id"));
}

/* Every flag of a command, then those that all have. */
static const struct flag *flag_at(const struct command *c, size_t i)
{
    if (i < c->n_flags)
        return &c->flags[i];
    return i - c->n_flags < n_common_flags ? &common_flags[i - c->n_flags] : NULL;
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
    for (size_t i = 0; (f = flag_at(c, i)); i++) {
        if (f->letter)
            buf_printf(b, "-%c ", f->letter);
        buf_printf(b, "--%s ", f->name);
    }
}

static const char bash_head[] = "# bash completion for cove: source <(cove completion bash)\n"
                                "_cove_ids() { cove ls -q 2>/dev/null; }\n"
                                "_cove() {\n"
                                "    local cur=${COMP_WORDS[COMP_CWORD]} cmd=${COMP_WORDS[1]} flags='' operands=''\n"
                                "    COMPREPLY=()\n"
                                "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                                "        mapfile -t COMPREPLY < <(compgen -W '";

static const char bash_tail[] =
    "    esac\n"
    "    case $cur in\n"
    "    -*) mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$cur\") ;;\n"
    "    *)\n"
    "        case $operands in\n"
    "        id*) mapfile -t COMPREPLY < <(compgen -W \"$(_cove_ids)\" -- \"$cur\") ;;\n"
    "        command) mapfile -t COMPREPLY < <(compgen -c -- \"$cur\") ;;\n"
    "        file) mapfile -t COMPREPLY < <(compgen -f -- \"$cur\"; compgen -S : -W \"$(_cove_ids)\" -- \"$cur\") ;;\n"
    "        shell) mapfile -t COMPREPLY < <(compgen -W 'bash zsh fish' -- \"$cur\") ;;\n"
    "        =*) mapfile -t COMPREPLY < <(compgen -W \"${operands#=}\" -- \"$cur\") ;;\n"
    "        subcommand) mapfile -t COMPREPLY < <(compgen -W \"$commands exit-codes\" -- \"$cur\") ;;\n"
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
        buf_printf(b, "    %s) operands='%s' flags='", commands[i]->name, commands[i]->operands);
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

static void write_zsh(const struct command *const *commands, struct buf *b)
{
    const struct flag *f;
    buf_append_cstr(
        b, "#compdef cove\n# zsh completion for cove: source <(cove completion zsh)\n"
           "_cove_ids() { local -a ids; ids=(${(f)\"$(cove ls -q 2>/dev/null)\"}); compadd -a ids }\n"
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
        for (size_t k = 0; (f = flag_at(commands[i], k)); k++) {
            if (f->letter)
                buf_printf(b, " \\\n        '(--%s)-%c[", f->name, f->letter), append_quoted(b, f->help, "[]:"),
                    buf_printf(b, f->argument ? "]:%s:'" : "]'", f->argument);
            buf_printf(b, " \\\n        '--%s%s[", f->name, f->argument ? "=" : "");
            append_quoted(b, f->help, "[]:");
            buf_printf(b, f->argument ? "]:%s:'" : "]'", f->argument);
        }
        if (strcmp(commands[i]->operands, "id command") == 0)
            buf_append_cstr(b, " \\\n        '1:sandbox:_cove_ids' '*:::command:_normal'");
        else if (takes_id(commands[i]))
            buf_append_cstr(b, " \\\n        '*:sandbox:_cove_ids'");
        else if (strcmp(commands[i]->operands, "command") == 0)
            buf_append_cstr(b, " \\\n        '*:::command:_normal'");
        else if (strcmp(commands[i]->operands, "file") == 0)
            buf_append_cstr(b, " \\\n        '*:file:_cove_files'");
        else if (strcmp(commands[i]->operands, "shell") == 0)
            buf_append_cstr(b, " \\\n        '1:shell:(bash zsh fish)'");
        else if (commands[i]->operands[0] == '=')
            buf_printf(b, " \\\n        '1:action:(%s)'", commands[i]->operands + 1);
        else if (strcmp(commands[i]->operands, "subcommand") == 0)
            buf_append_cstr(b, " \\\n        '1:command:_describe command commands'");
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
        for (size_t k = 0; (f = flag_at(c, k)); k++) {
            buf_printf(b, "complete -c cove -n '__fish_seen_subcommand_from %s' -l %s", c->name, f->name);
            if (f->letter)
                buf_printf(b, " -s %c", f->letter);
            buf_printf(b, "%s -d '", f->argument ? " -x" : "");
            append_quoted(b, f->help, "");
            buf_append_cstr(b, "'\n");
        }
        if (takes_id(c) || strcmp(c->operands, "file") == 0)
            buf_printf(b, "complete -c cove -n '__fish_seen_subcommand_from %s' %s-a '(cove ls -q 2>/dev/null)'\n",
                       c->name, takes_id(c) ? "" : "-F ");
        if (strcmp(c->operands, "shell") == 0)
            buf_printf(b, "complete -c cove -n '__fish_seen_subcommand_from %s' -a 'bash zsh fish'\n", c->name);
        if (c->operands[0] == '=')
            buf_printf(b, "complete -c cove -n '__fish_seen_subcommand_from %s' -a '%s'\n", c->name, c->operands + 1);
        if (strcmp(c->operands, "subcommand") == 0) {
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
