/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines are joined first; each instruction is then read on its own. Variables: those of ARG are known here and replaced; those of ENV are known as far as this
 * file sets them. In ENV itself what is not known stays for the service, which knows the base's; elsewhere it is refused, because nothing good can be guessed.
 */
#include "cli/dockerfile.h"
#include "base/buf.h"

#include <jansson.h>

enum { WORDS_MAX = 128 };

struct variable {
    struct str name, value;
    bool is_env, has_value;
};

struct parser {
    const char *name;
    struct arena *arena;
    struct err *err;
    struct dockerfile *file;
    struct dockerfile_step steps[DOCKERFILE_STEPS_MAX];
    struct variable variables[DOCKERFILE_ARGS_MAX];
    size_t n_variables;
    const char *const *build_args;
    size_t n_build_args;
    struct str stages[32]; /* names of those that came before */
    size_t n_stages;
    struct str entrypoint, cmd; /* as shell text */
    bool sets_user, sets_workdir, entrypoint_is_shell;
    char escape;
    unsigned line;
};

static int fail(struct parser *p, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);

#include <stdarg.h>
#include <stdio.h>

static int fail(struct parser *p, enum err_code code, const char *fmt, ...)
{
    char message[200];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(message, sizeof(message), fmt, args);
    va_end(args);
    return err_set(p->err, code, "%s:%u: %s", p->name, p->line, message);
}

static void note(struct parser *p, const char *what, const char *why)
{
    if (p->file->n_notes < DOCKERFILE_NOTES_MAX)
        p->file->notes[p->file->n_notes++] = arena_printf(p->arena, "%s:%u: %s: %s", p->name, p->line, what, why);
}

const char *dockerfile_quote(struct arena *arena, struct str word)
{
    AUTO_BUF struct buf b = BUF_INIT(5 * DOCKERFILE_MAX);
    buf_append_char(&b, '\'');
    for (size_t i = 0; i < word.n; i++) {
        if (word.p[i] == '\'')
            buf_append_cstr(&b, "'\\''");
        else
            buf_append_char(&b, word.p[i]);
    }
    buf_append_char(&b, '\'');
    return arena_strndup(arena, buf_data(&b) ? buf_data(&b) : "''", buf_len(&b));
}

/* ---- variables ---- */

static struct variable *find(struct parser *p, struct str name)
{
    for (size_t i = 0; i < p->n_variables; i++)
        if (str_eq(p->variables[i].name, name))
            return &p->variables[i];
    return NULL;
}

static int set(struct parser *p, struct str name, struct str value, bool has_value, bool is_env)
{
    struct variable *v = find(p, name);
    if (v && v->is_env && !is_env)
        return 0; /* ENV wins over ARG */
    if (!v && p->n_variables == DOCKERFILE_ARGS_MAX)
        return fail(p, ERR_INVALID_ARGUMENT, "more than %d variables", DOCKERFILE_ARGS_MAX);
    if (!v)
        v = &p->variables[p->n_variables++];
    *v = (struct variable){arena_str(p->arena, name), arena_str(p->arena, value), is_env, has_value};
    return 0;
}

static bool is_name_char(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

/* "${NAME}", "${NAME:-word}", "${NAME:+word}" or "$NAME" at the beginning of s; its length, 0: none of these. */
static size_t reference(struct str s, struct str *ret_name, char *ret_op, struct str *ret_word)
{
    bool braced = s.n > 1 && s.p[1] == '{';
    size_t from = braced ? 2 : 1, n = 0;
    while (from + n < s.n && is_name_char(s.p[from + n], n == 0))
        n++;
    *ret_name = str_n(s.p + from, n);
    *ret_op = '\0';
    *ret_word = STR("");
    if (n == 0 || !braced)
        return n ? from + n : 0;
    struct str rest = str_sub(s, from + n);
    ssize_t end = str_find_char(rest, '}');
    if (end < 0)
        return 0;
    if (end == 0)
        return from + n + 1;
    if (end < 2 || rest.p[0] != ':' || (rest.p[1] != '-' && rest.p[1] != '+'))
        return 0;
    *ret_op = rest.p[1];
    *ret_word = str_n(rest.p + 2, (size_t)end - 2);
    return from + n + (size_t)end + 1;
}

/* Appends one reference's value. 1: it stays as it is for the service. */
static int append_value(struct parser *p, struct str name, char op, struct str word, bool keeps, struct buf *b)
{
    const struct variable *v = find(p, name);
    bool is_set = v && v->has_value && (op == '\0' || v->value.n);
    if (op == '+') {
        if (is_set)
            buf_append_str(b, word);
        return 0;
    }
    if (is_set && !(keeps && v->is_env)) {
        buf_append_str(b, v->value);
        return 0;
    }
    if (keeps && op == '\0' && (!v || v->is_env))
        return 1;
    if (op == '-') {
        buf_append_str(b, word);
        return 0;
    }
    if (v)
        return 0;
    return fail(p, ERR_INVALID_ARGUMENT, "$%.*s is not known here: set it by ARG or ENV", (int)MIN(name.n, (size_t)64),
                name.p);
}

/*
 * One word: quotes go, variables are replaced. keeps: for ENV, whose text the service expands once more, so dollar signs that are meant as such get a
 * backslash.
 */
static int expand(struct parser *p, struct str s, bool keeps, struct str *ret_text)
{
    AUTO_BUF struct buf b = BUF_INIT(DOCKERFILE_MAX);
    char quote = '\0';
    for (size_t i = 0; i < s.n;) {
        char c = s.p[i];
        struct str name, word;
        char op;
        size_t n;
        if (quote == '\'' ? c == '\'' : (c == '"' || (c == '\'' && !quote))) {
            quote = quote ? '\0' : c;
            i++;
        } else if (quote != '\'' && c == p->escape && i + 1 < s.n) {
            if (keeps && s.p[i + 1] == '$')
                buf_append_char(&b, '\\');
            if (quote && !strchr("\"$\\`", s.p[i + 1]))
                buf_append_char(&b, c);
            buf_append_char(&b, s.p[i + 1]);
            i += 2;
        } else if (quote != '\'' && c == '$' && (n = reference(str_sub(s, i), &name, &op, &word)) > 0) {
            int r = append_value(p, name, op, word, keeps, &b);
            if (r < 0)
                return -1;
            if (r)
                buf_append(&b, s.p + i, n);
            i += n;
        } else {
            if (keeps && c == '$' && quote == '\'')
                buf_append_char(&b, '\\');
            buf_append_char(&b, c);
            i++;
        }
    }
    if (quote)
        return fail(p, ERR_INVALID_ARGUMENT, "a quote is not closed");
    if (buf_error(&b) < 0)
        return fail(p, ERR_INVALID_ARGUMENT, "a value is larger than 1 MiB");
    *ret_text = arena_str(p->arena, buf_str(&b));
    return 0;
}

/* ---- words ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* The next word with its quotes and escapes as they are. False at the end. */
static bool next_word(const struct parser *p, struct str *rest, struct str *ret_word)
{
    char quote = '\0';
    size_t i = 0;
    *rest = str_trim(*rest);
    if (!rest->n)
        return false;
    for (; i < rest->n && (quote || !is_blank(rest->p[i])); i++) {
        char c = rest->p[i];
        if (c == p->escape && quote != '\'' && i + 1 < rest->n)
            i++;
        else if (quote ? c == quote : c == '"' || c == '\'')
            quote = quote ? '\0' : c;
    }
    i = MIN(i, rest->n);
    *ret_word = str_n(rest->p, i);
    *rest = str_sub(*rest, i);
    return true;
}

/* ["a", "b"]: 1 with the words; 0: it is no such list. */
static int json_words(struct parser *p, struct str text, struct str *words, size_t *ret_n)
{
    json_t *list = text.n && text.p[0] == '[' ? json_loadb(text.p, text.n, 0, NULL) : NULL, *word;
    size_t i;
    int r = json_is_array(list) && json_array_size(list) > 0;
    *ret_n = 0;
    json_array_foreach(list, i, word)
    {
        struct str s = str_n(json_string_value(word), json_string_length(word));
        if (!json_is_string(word) || str_has_nul(s) || *ret_n == WORDS_MAX) {
            r = 0;
            break;
        }
        words[(*ret_n)++] = arena_str(p->arena, s);
    }
    json_decref(list);
    return r;
}

/* The text of RUN, CMD and ENTRYPOINT for a shell. */
static struct str shell_text(struct parser *p, struct str rest, bool *ret_is_shell)
{
    struct str words[WORDS_MAX];
    AUTO_BUF struct buf b = BUF_INIT(8 * DOCKERFILE_MAX);
    size_t n;
    *ret_is_shell = !json_words(p, rest, words, &n);
    if (*ret_is_shell)
        return rest;
    for (size_t i = 0; i < n; i++) {
        if (i)
            buf_append_char(&b, ' ');
        buf_append_cstr(&b, dockerfile_quote(p->arena, words[i]));
    }
    return arena_str(p->arena, buf_str(&b));
}

static int add_step(struct parser *p, const char *type, const struct str *args, size_t n)
{
    if (p->file->n_steps == DOCKERFILE_STEPS_MAX)
        return fail(p, ERR_INVALID_ARGUMENT, "more than %d steps", DOCKERFILE_STEPS_MAX);
    struct dockerfile_step *s = &p->steps[p->file->n_steps++];
    *s = (struct dockerfile_step){.type = type, .n_args = n, .line = p->line};
    for (size_t i = 0; i < n; i++)
        s->args[i] = arena_strndup(p->arena, args[i].n ? args[i].p : "", args[i].n);
    return 0;
}

static int add_one(struct parser *p, const char *type, struct str arg)
{
    return add_step(p, type, &arg, 1);
}

/* ---- instructions ---- */

/* "--name=value" in front; 1, 0 when there is none. */
static int next_option(struct parser *p, struct str *rest, struct str *ret_name, struct str *ret_value)
{
    struct str copy = *rest, word;
    if (!next_word(p, &copy, &word) || !str_starts(word, STR("--")))
        return 0;
    ssize_t eq = str_find_char(word, '=');
    *ret_name = eq < 0 ? word : str_n(word.p, (size_t)eq);
    *ret_value = eq < 0 ? STR("") : str_sub(word, (size_t)eq + 1);
    *rest = str_trim(copy);
    return 1;
}

static int from(struct parser *p, struct str rest)
{
    struct str name, value, image, word = STR_NULL, as = STR_NULL;
    while (next_option(p, &rest, &name, &value))
        note(p, "FROM --platform", "this machine's is taken");
    if (!next_word(p, &rest, &word) || expand(p, word, false, &image) < 0)
        return word.n ? -1 : fail(p, ERR_INVALID_ARGUMENT, "FROM without an image");
    if (next_word(p, &rest, &word) && (!str_eq_nocase(word, STR("AS")) || !next_word(p, &rest, &as)))
        return fail(p, ERR_INVALID_ARGUMENT, "FROM takes an image and AS with a name");
    if (!image.n || str_eqc(image, "scratch"))
        return fail(p, ERR_UNIMPLEMENTED, "a template can't begin with nothing: name an image");
    bool follows = p->n_stages && str_eq_nocase(image, p->stages[p->n_stages - 1]);
    if (p->file->image && !follows)
        return fail(p, ERR_UNIMPLEMENTED,
                    "builds in several stages are not supported: build the first as a template of its own");
    if (!p->file->image) {
        p->file->image = image.p;
        if (add_one(p, "USER", STR("root")) < 0 || add_one(p, "WORKDIR", STR("/")) < 0)
            return -1;
    }
    p->entrypoint = p->cmd = STR_NULL;
    if (as.n && p->n_stages < ARRAY_SIZE(p->stages))
        p->stages[p->n_stages++] = as;
    return 0;
}

static int no_heredoc(struct parser *p, struct str rest)
{
    for (size_t i = 0; i + 2 < rest.n; i++) {
        char next = rest.p[i + 2];
        if (rest.p[i] != '<' || rest.p[i + 1] != '<' || (i && (rest.p[i - 1] == '<' || rest.p[i - 1] == '(')))
            continue;
        if (is_name_char(next, true) || next == '-' || next == '"' || next == '\'')
            return fail(p, ERR_UNIMPLEMENTED,
                        "here-documents are not supported: join the commands with && or copy a script");
    }
    return 0;
}

static int run(struct parser *p, struct str rest)
{
    AUTO_BUF struct buf b = BUF_INIT(9 * DOCKERFILE_MAX);
    struct str name, value;
    bool is_shell;
    while (next_option(p, &rest, &name, &value)) {
        if (!str_eqc(name, "--mount") || !str_starts(value, STR("type=cache")))
            return fail(p, ERR_UNIMPLEMENTED, "RUN %.*s is not supported", (int)MIN(name.n, (size_t)40), name.p);
        note(p, "RUN --mount=type=cache", "nothing is kept between builds");
    }
    if (no_heredoc(p, rest) < 0)
        return -1;
    if (!rest.n)
        return fail(p, ERR_INVALID_ARGUMENT, "RUN without a command");
    for (size_t i = 0; i < p->n_variables; i++) {
        const struct variable *v = &p->variables[i];
        if (v->is_env || !v->has_value)
            continue;
        buf_printf(&b, "%s%.*s=%s", buf_len(&b) ? " " : "export ", STR_ARG(v->name),
                   dockerfile_quote(p->arena, v->value));
    }
    if (buf_len(&b))
        buf_append_char(&b, '\n');
    buf_append_str(&b, shell_text(p, rest, &is_shell));
    return buf_error(&b) < 0 ? fail(p, ERR_INVALID_ARGUMENT, "the command is too long")
                             : add_one(p, "RUN", buf_str(&b));
}

static bool is_archive(struct str s)
{
    static const char *const ends[] = {".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".txz", ".tbz2"};
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        if (str_ends(s, str_of(ends[i])))
            return true;
    return false;
}

static int check_source(struct parser *p, struct str source, bool is_add)
{
    if (str_starts(source, STR("http://")) || str_starts(source, STR("https://")) || str_starts(source, STR("git@")))
        return fail(p, ERR_UNIMPLEMENTED, "ADD does not fetch: write RUN curl -fsSLo FILE URL");
    if (is_add && is_archive(source))
        return fail(p, ERR_UNIMPLEMENTED, "ADD does not unpack: write COPY and RUN tar -x");
    struct str rest = source, part;
    while (str_split(&rest, '/', &part))
        if (str_eqc(part, ".."))
            return fail(p, ERR_INVALID_ARGUMENT, "a source outside of the context: %.*s",
                        (int)MIN(source.n, (size_t)64), source.p);
    return 0;
}

static int copy(struct parser *p, struct str rest, bool is_add)
{
    struct str words[WORDS_MAX], word, name, value, owner = STR("root"), mode = STR("");
    size_t n = 0;
    while (next_option(p, &rest, &name, &value)) {
        if (str_eqc(name, "--from"))
            return fail(p, ERR_UNIMPLEMENTED, "COPY --from: files of other stages and images can't be had");
        if (str_eqc(name, "--chown") || str_eqc(name, "--chmod")) {
            if (expand(p, value, false, str_eqc(name, "--chown") ? &owner : &mode) < 0)
                return -1;
        } else if (str_eqc(name, "--link") || str_eqc(name, "--parents")) {
            note(p, "COPY option", "it makes no difference here");
        } else {
            return fail(p, ERR_UNIMPLEMENTED, "COPY %.*s is not supported", (int)MIN(name.n, (size_t)40), name.p);
        }
    }
    if (no_heredoc(p, rest) < 0)
        return -1;
    if (!json_words(p, rest, words, &n)) {
        n = 0;
        while (next_word(p, &rest, &word)) {
            if (n == WORDS_MAX)
                return fail(p, ERR_INVALID_ARGUMENT, "more than %d sources", WORDS_MAX);
            if (expand(p, word, false, &words[n++]) < 0)
                return -1;
        }
    }
    if (n < 2 || !words[n - 1].n)
        return fail(p, ERR_INVALID_ARGUMENT, "%s takes a source and a destination", is_add ? "ADD" : "COPY");
    struct str to = words[n - 1];
    if (n > 2 && to.p[to.n - 1] != '/')
        return fail(p, ERR_INVALID_ARGUMENT, "with several sources the destination must be a directory and end with /");
    for (size_t i = 0; i + 1 < n; i++) {
        struct str source = words[i];
        while (source.n && source.p[0] == '/')
            source = str_sub(source, 1);
        if (check_source(p, source, is_add) < 0 ||
            add_step(p, "COPY", (struct str[]){source.n ? source : STR("."), to, owner, mode}, 4) < 0)
            return -1;
    }
    return 0;
}

static int set_env(struct parser *p, struct str name, struct str raw)
{
    struct str kept, known;
    struct err ignored, *err = p->err;
    bool ok = name.n > 0;
    for (size_t i = 0; i < name.n; i++)
        ok &= is_name_char(name.p[i], i == 0) || name.p[i] == '.' || name.p[i] == '-';
    if (!ok)
        return fail(p, ERR_INVALID_ARGUMENT, "ENV: '%.*s' can't be the name of a variable",
                    (int)MIN(name.n, (size_t)64), name.p);
    if (expand(p, raw, true, &kept) < 0 || add_step(p, "ENV", (struct str[]){name, kept}, 2) < 0)
        return -1;
    /* Its value is known here when those in it are. */
    p->err = &ignored;
    bool is_known = expand(p, raw, false, &known) == 0;
    p->err = err;
    return set(p, name, is_known ? known : STR(""), is_known, true);
}

static int env(struct parser *p, struct str rest)
{
    struct str copy = rest, word;
    if (!next_word(p, &copy, &word))
        return fail(p, ERR_INVALID_ARGUMENT, "ENV without a variable");
    if (str_find_char(word, '=') < 0)
        return set_env(p, word, str_trim(copy));
    while (next_word(p, &rest, &word)) {
        ssize_t eq = str_find_char(word, '=');
        if (eq <= 0)
            return fail(p, ERR_INVALID_ARGUMENT, "ENV takes NAME=value");
        if (set_env(p, str_n(word.p, (size_t)eq), str_sub(word, (size_t)eq + 1)) < 0)
            return -1;
    }
    return 0;
}

static int arg(struct parser *p, struct str rest)
{
    struct str word, value = STR("");
    while (next_word(p, &rest, &word)) {
        ssize_t eq = str_find_char(word, '=');
        struct str name = eq < 0 ? word : str_n(word.p, (size_t)eq);
        bool has_value = eq >= 0;
        bool ok = name.n > 0;
        for (size_t i = 0; i < name.n; i++)
            ok &= is_name_char(name.p[i], i == 0);
        if (!ok)
            return fail(p, ERR_INVALID_ARGUMENT, "ARG takes NAME or NAME=value");
        if (has_value && expand(p, str_sub(word, (size_t)eq + 1), false, &value) < 0)
            return -1;
        for (size_t i = 0; i < p->n_build_args; i++) {
            struct str given = str_of(p->build_args[i]);
            if (str_starts(given, name) && given.n > name.n && given.p[name.n] == '=') {
                value = str_sub(given, name.n + 1);
                has_value = true;
            }
        }
        const struct variable *before = find(p, name);
        if (!has_value && before && before->has_value)
            continue; /* of an ARG before FROM */
        if (set(p, name, has_value ? value : STR(""), has_value, false) < 0)
            return -1;
    }
    return 0;
}

static int workdir(struct parser *p, struct str rest)
{
    struct str path;
    if (expand(p, rest, false, &path) < 0)
        return -1;
    if (!path.n)
        return fail(p, ERR_INVALID_ARGUMENT, "WORKDIR without a path");
    p->sets_workdir = true;
    return add_one(p, "WORKDIR", path);
}

static int user(struct parser *p, struct str rest)
{
    struct str name;
    if (expand(p, rest, false, &name) < 0)
        return -1;
    ssize_t colon = str_find_char(name, ':');
    if (colon >= 0) {
        note(p, "USER with a group", "the group it logs in with is taken");
        name.n = (size_t)colon;
    }
    if (!name.n)
        return fail(p, ERR_INVALID_ARGUMENT, "USER without a name");
    p->sets_user = true;
    return add_one(p, "USER", name);
}

static int instruction(struct parser *p, struct str line)
{
    static const char *const ignored[] = {"EXPOSE", "LABEL", "MAINTAINER", "STOPSIGNAL", "HEALTHCHECK", "VOLUME"};
    struct str word = line, rest;
    size_t n = 0;
    bool is_shell;
    while (n < line.n && !is_blank(line.p[n]))
        n++;
    word.n = n;
    rest = str_trim(str_sub(line, n));
    if (str_eq_nocase(word, STR("FROM")))
        return from(p, rest);
    if (str_eq_nocase(word, STR("ARG")))
        return arg(p, rest);
    if (!p->file->image)
        return fail(p, ERR_INVALID_ARGUMENT, "the first instruction must be FROM");
    if (str_eq_nocase(word, STR("RUN")))
        return run(p, rest);
    if (str_eq_nocase(word, STR("COPY")) || str_eq_nocase(word, STR("ADD")))
        return copy(p, rest, str_eq_nocase(word, STR("ADD")));
    if (str_eq_nocase(word, STR("ENV")))
        return env(p, rest);
    if (str_eq_nocase(word, STR("WORKDIR")))
        return workdir(p, rest);
    if (str_eq_nocase(word, STR("USER")))
        return user(p, rest);
    if (str_eq_nocase(word, STR("CMD"))) {
        p->cmd = shell_text(p, rest, &is_shell);
        return 0;
    }
    if (str_eq_nocase(word, STR("ENTRYPOINT"))) {
        p->entrypoint = shell_text(p, rest, &p->entrypoint_is_shell);
        p->cmd = STR_NULL; /* as Docker has it: a CMD that came before is for another one */
        return 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(ignored); i++) {
        if (str_eq_nocase(word, str_of(ignored[i]))) {
            note(p, ignored[i], "it has no meaning for a template");
            return 0;
        }
    }
    return fail(p, ERR_UNIMPLEMENTED, "%.*s is not supported", (int)MIN(word.n, (size_t)32), word.p);
}

/* ---- lines ---- */

/* "# escape=`" in the first lines. */
static void directives(struct parser *p, struct str text)
{
    struct str line;
    while (str_split(&text, '\n', &line)) {
        line = str_trim(line);
        if (!line.n || line.p[0] != '#')
            return;
        struct str body = str_trim(str_sub(line, 1));
        if (str_starts(body, STR("escape=`")))
            p->escape = '`';
    }
}

static int all_lines(struct parser *p, struct str text)
{
    AUTO_BUF struct buf joined = BUF_INIT(DOCKERFILE_MAX);
    struct str line;
    unsigned number = 0;
    bool goes_on = false;
    while (str_split(&text, '\n', &line)) {
        number++;
        if (line.n && line.p[line.n - 1] == '\r')
            line.n--;
        struct str trimmed = str_trim(line);
        if (!trimmed.n || trimmed.p[0] == '#')
            continue; /* also between the lines of one instruction */
        if (!goes_on)
            p->line = number;
        goes_on = trimmed.p[trimmed.n - 1] == p->escape;
        struct str part = goes_on ? str_n(trimmed.p, trimmed.n - 1) : trimmed;
        buf_append_str(&joined, buf_len(&joined) ? part : part);
        if (goes_on)
            buf_append_char(&joined, ' ');
        else if (instruction(p, str_trim(arena_str(p->arena, buf_str(&joined)))) < 0)
            return -1;
        if (!goes_on)
            buf_clear(&joined);
    }
    struct str rest = str_trim(buf_str(&joined));
    return rest.n ? instruction(p, arena_str(p->arena, rest)) : 0;
}

static int finish(struct parser *p)
{
    if (!p->file->image)
        return fail(p, ERR_INVALID_ARGUMENT, "there is no FROM");
    if ((!p->sets_user && add_one(p, "USER", STR("user")) < 0) ||
        (!p->sets_workdir && add_one(p, "WORKDIR", STR("/home/user")) < 0))
        return -1;
    if (p->entrypoint.n && p->cmd.n && !p->entrypoint_is_shell)
        p->file->start_cmd = arena_printf(p->arena, "%.*s %.*s", STR_ARG(p->entrypoint), STR_ARG(p->cmd));
    else if (p->entrypoint.n || p->cmd.n)
        p->file->start_cmd = arena_printf(p->arena, "%.*s", (int)(p->entrypoint.n ? p->entrypoint.n : p->cmd.n),
                                          p->entrypoint.n ? p->entrypoint.p : p->cmd.p);
    struct dockerfile_step *steps = arena_alloc(p->arena, (p->file->n_steps + 1) * sizeof(*steps));
    memcpy(steps, p->steps, p->file->n_steps * sizeof(*steps));
    p->file->steps = steps;
    return 0;
}

int dockerfile_parse(const char *name, struct str text, const char *const *build_args, size_t n_build_args,
                     struct arena *arena, struct dockerfile *ret_file, struct err *err)
{
    struct dockerfile file = {0};
    struct parser *p = arena_alloc(arena, sizeof(*p));
    *p = (struct parser){.name = name,
                         .arena = arena,
                         .err = err,
                         .file = &file,
                         .build_args = build_args,
                         .n_build_args = n_build_args,
                         .escape = '\\'};
    if (text.n > DOCKERFILE_MAX || str_has_nul(text) || !str_is_utf8(text))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: %s", name,
                       text.n > DOCKERFILE_MAX ? "larger than 1 MiB" : "not text");
    directives(p, text);
    if (all_lines(p, text) < 0 || finish(p) < 0)
        return -1;
    *ret_file = file;
    return 0;
}
