/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/completion.h"

/* src/cli/completion: the scripts, with marks where commands and flags go. */
extern const char script_cove_bash[], script_cove_zsh[], script_cove_fish[];
static const char mark_commands[] = "    @commands) ;;\n";

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

/* What stands in a script before a mark that is replaced by what follows here; then *rest is behind the mark. */
static void append_before(struct buf *b, const char **rest, const char *mark)
{
    const char *at = strstr(*rest, mark);
    assert(at);
    (void)!buf_append(b, *rest, (size_t)(at - *rest));
    *rest = at + strlen(mark);
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

/* Readline cuts --user=root into three words. What is no operand of ours is left to its own completion, of files. */
static void write_bash(const struct command *const *commands, struct buf *b)
{
    const char *rest = script_cove_bash;
    for (int i = 0; i < 2; i++) {
        append_before(b, &rest, "@names");
        append_names(b, commands);
    }
    append_before(b, &rest, mark_commands);
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
    buf_append_cstr(b, rest);
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

/* Loaded from $fpath, the whole is the function, and its last line the first call. */
static void write_zsh(const struct command *const *commands, struct buf *b)
{
    const char *rest = script_cove_zsh;
    const struct flag *f;
    append_before(b, &rest, "        '@verbs'\n");
    for (size_t i = 0; commands[i]; i++) {
        buf_printf(b, "        '%s:", commands[i]->name);
        append_quoted(b, commands[i]->summary, ":");
        buf_append_cstr(b, "'\n");
    }
    append_before(b, &rest, mark_commands);
    for (size_t i = 0; commands[i]; i++) {
        buf_printf(b, "    %s) _arguments -s%s", commands[i]->name,
                   commands[i]->flags_end_at_operand ? " -A '-*'" : "");
        for (size_t k = 0; (f = command_flag(commands[i], k)); k++)
            append_zsh_flag(b, f);
        append_zsh_operands(b, operands_of(commands[i]));
        buf_append_cstr(b, "\n        ;;\n");
    }
    buf_append_cstr(b, rest);
}

/* ---- fish ---- */

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
    const char *rest = script_cove_fish;
    append_before(b, &rest, "        case @valued\n");
    for (size_t i = 0; commands[i]; i++) {
        buf_printf(b, "        case %s\n            string split ' ' -- '", commands[i]->name);
        append_flags(b, commands[i], true);
        buf_append_cstr(b, "'\n");
    }
    buf_append_cstr(b, rest);
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
