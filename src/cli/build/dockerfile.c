/* SPDX-License-Identifier: Apache-2.0 */
/* Lines are joined first; each instruction is then read on its own, by its words (dockerfile_words.c). */
#include "cli/build/dockerfile.h"
#include "base/buf.h"
#include "cli/build/dockerfile_internal.h"

static void note(struct parser *p, const char *what, const char *why)
{
    if (p->file->n_notes < DOCKERFILE_NOTES_MAX)
        p->file->notes[p->file->n_notes++] = arena_printf(p->arena, "%s:%u: %s: %s", p->name, p->line, what, why);
}

static int add_step(struct parser *p, const char *type, const struct str *args, size_t n)
{
    if (p->file->n_steps == DOCKERFILE_STEPS_MAX)
        return words_fail(p, ERR_INVALID_ARGUMENT, "more than %d steps", DOCKERFILE_STEPS_MAX);
    struct dockerfile_step *s = &p->steps[p->file->n_steps++];
    *s = (struct dockerfile_step){.type = type, .n_args = n, .line = p->line, .stage = -1};
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
    if (!words_next(p, &copy, &word) || !str_starts(word, STR("--")))
        return 0;
    ssize_t eq = str_find_char(word, '=');
    *ret_name = eq < 0 ? word : str_n(word.p, (size_t)eq);
    *ret_value = eq < 0 ? STR("") : str_sub(word, (size_t)eq + 1);
    *rest = str_trim(copy);
    return 1;
}

/* By name, or by number. -1: none. */
static int find_stage(const struct parser *p, struct str name)
{
    uint64_t number;
    for (size_t i = p->file->n_stages; i-- > 0;)
        if (str_eq_nocase(name, str_of(p->file->stages[i].name)))
            return (int)i;
    return str_to_u64(name, &number) == 0 && number < p->file->n_stages ? (int)number : -1;
}

static const struct dockerfile_step *keep_steps(struct parser *p)
{
    struct dockerfile_step *steps = arena_alloc(p->arena, (p->file->n_steps + 1) * sizeof(*steps));
    memcpy(steps, p->steps, p->file->n_steps * sizeof(*steps));
    return steps;
}

/* The stage so far is one of those before the last. */
static int end_stage(struct parser *p)
{
    struct dockerfile *f = p->file;
    size_t k = f->n_stages;
    if (k == DOCKERFILE_STAGES_MAX)
        return words_fail(p, ERR_INVALID_ARGUMENT, "more than %d stages", DOCKERFILE_STAGES_MAX + 1);
    struct variable *variables = arena_alloc(p->arena, (p->n_variables + 1) * sizeof(*variables));
    memcpy(variables, p->variables, p->n_variables * sizeof(*variables));
    p->stage_variables[k] = variables;
    p->n_stage_variables[k] = p->n_variables;
    const char *name = p->as.n ? arena_strndup(p->arena, p->as.p, p->as.n) : arena_printf(p->arena, "%zu", k);
    f->stages[f->n_stages++] = (struct dockerfile_stage){name, f->image, keep_steps(p), f->n_steps};
    return 0;
}

static int from(struct parser *p, struct str rest)
{
    struct str name, value, image, word = STR_NULL, as = STR_NULL;
    while (next_option(p, &rest, &name, &value))
        note(p, "FROM --platform", "this machine's is taken");
    if (!words_next(p, &rest, &word) || words_expand(p, word, false, &image) < 0)
        return word.n ? -1 : words_fail(p, ERR_INVALID_ARGUMENT, "FROM without an image");
    if (words_next(p, &rest, &word) && (!str_eq_nocase(word, STR("AS")) || !words_next(p, &rest, &as)))
        return words_fail(p, ERR_INVALID_ARGUMENT, "FROM takes an image and AS with a name");
    if (!image.n)
        return words_fail(p, ERR_INVALID_ARGUMENT, "FROM without an image");
    struct dockerfile *f = p->file;
    int before = -1;
    if (!f->image)
        p->n_globals = p->n_variables;
    else if (end_stage(p) < 0)
        return -1;
    for (size_t i = f->n_stages; before < 0 && i-- > 0;) /* by name alone: an image may be called "1" */
        before = str_eq_nocase(image, str_of(f->stages[i].name)) ? (int)i : -1;
    p->entrypoint = p->cmd = STR_NULL;
    p->as = as;
    p->sets_user = p->sets_workdir = false;
    f->n_steps = 0;
    if (before < 0) {
        f->image = image.p;
        p->n_variables = p->n_globals;
        return add_one(p, "USER", STR("root")) < 0 ? -1 : add_one(p, "WORKDIR", STR("/"));
    }
    const struct dockerfile_stage *stage = &f->stages[before];
    f->image = stage->image;
    f->n_steps = stage->n_steps;
    memcpy(p->steps, stage->steps, stage->n_steps * sizeof(p->steps[0]));
    p->n_variables = p->n_stage_variables[before];
    memcpy(p->variables, p->stage_variables[before], p->n_variables * sizeof(p->variables[0]));
    for (size_t i = 2; i < f->n_steps; i++) { /* behind our own two */
        p->sets_user |= strcmp(p->steps[i].type, "USER") == 0;
        p->sets_workdir |= strcmp(p->steps[i].type, "WORKDIR") == 0;
    }
    return 0;
}

static int no_heredoc(struct parser *p, struct str rest)
{
    for (size_t i = 0; i + 2 < rest.n; i++) {
        char next = rest.p[i + 2];
        if (rest.p[i] != '<' || rest.p[i + 1] != '<' || (i && (rest.p[i - 1] == '<' || rest.p[i - 1] == '(')))
            continue;
        if (str_set_has("A-Za-z_\"'-", next))
            return words_fail(p, ERR_UNIMPLEMENTED,
                              "here-documents are not supported: join the commands with && or copy a script");
    }
    return 0;
}

static int dockerfile_run(struct parser *p, struct str rest)
{
    AUTO_BUF struct buf b = BUF_INIT(9 * DOCKERFILE_MAX);
    struct str name, value;
    bool is_shell;
    while (next_option(p, &rest, &name, &value)) {
        if (!str_eqc(name, "--mount") || !str_starts(value, STR("type=cache")))
            return words_fail(p, ERR_UNIMPLEMENTED, "RUN %.*s is not supported", STR_ARG_MAX(name, 40));
        note(p, "RUN --mount=type=cache", "nothing is kept between builds");
    }
    if (no_heredoc(p, rest) < 0)
        return -1;
    if (!rest.n)
        return words_fail(p, ERR_INVALID_ARGUMENT, "RUN without a command");
    for (size_t i = 0; i < p->n_variables; i++) {
        const struct variable *v = &p->variables[i];
        if (v->is_env || !v->has_value)
            continue;
        buf_printf(&b, "%s%.*s=%s", buf_len(&b) ? " " : "export ", STR_ARG(v->name),
                   dockerfile_quote(p->arena, v->value));
    }
    if (buf_len(&b))
        buf_append_char(&b, '\n');
    buf_append_str(&b, words_shell(p, rest, &is_shell));
    return buf_error(&b) < 0 ? words_fail(p, ERR_INVALID_ARGUMENT, "the command is too long")
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
        return words_fail(p, ERR_UNIMPLEMENTED, "ADD of URLs is not supported: write RUN curl -fsSLo FILE URL");
    if (is_add && is_archive(source))
        return words_fail(p, ERR_UNIMPLEMENTED, "ADD does not unpack: write COPY and RUN tar -x");
    struct str rest = source, part;
    while (str_split(&rest, '/', &part))
        if (str_eqc(part, ".."))
            return words_fail(p, ERR_INVALID_ARGUMENT, "a source outside of the context: %.*s",
                              STR_ARG_MAX(source, 64));
    return 0;
}

static int dockerfile_copy(struct parser *p, struct str rest, bool is_add)
{
    struct str words[WORDS_MAX], word, name, value, owner = STR("root"), mode = STR(""), origin = STR_NULL;
    size_t n = 0;
    while (next_option(p, &rest, &name, &value)) {
        if (str_eqc(name, "--from") && !is_add) {
            if (words_expand(p, value, false, &origin) < 0)
                return -1;
            if (!origin.n)
                return words_fail(p, ERR_INVALID_ARGUMENT, "COPY --from without a stage or image");
        } else if (str_eqc(name, "--chown") || str_eqc(name, "--chmod")) {
            if (words_expand(p, value, false, str_eqc(name, "--chown") ? &owner : &mode) < 0)
                return -1;
        } else if (str_eqc(name, "--link") || str_eqc(name, "--parents")) {
            note(p, "COPY option", "it makes no difference here");
        } else {
            return words_fail(p, ERR_UNIMPLEMENTED, "COPY %.*s is not supported", STR_ARG_MAX(name, 40));
        }
    }
    if (no_heredoc(p, rest) < 0)
        return -1;
    if (!words_json(p, rest, words, &n)) {
        n = 0;
        while (words_next(p, &rest, &word)) {
            if (n == WORDS_MAX)
                return words_fail(p, ERR_INVALID_ARGUMENT, "more than %d sources", WORDS_MAX);
            if (words_expand(p, word, false, &words[n++]) < 0)
                return -1;
        }
    }
    if (n < 2 || !words[n - 1].n)
        return words_fail(p, ERR_INVALID_ARGUMENT, "%s takes a source and a destination", is_add ? "ADD" : "COPY");
    struct str to = words[n - 1];
    if (n > 2 && to.p[to.n - 1] != '/')
        return words_fail(p, ERR_INVALID_ARGUMENT,
                          "with several sources the destination must be a directory and end with /");
    for (size_t i = 0; i + 1 < n; i++) {
        struct str source = words[i];
        while (source.n && source.p[0] == '/')
            source = str_sub(source, 1);
        if (check_source(p, source, is_add) < 0 ||
            add_step(p, "COPY", (struct str[]){source.n ? source : STR("."), to, owner, mode}, 4) < 0)
            return -1;
        struct dockerfile_step *step = &p->steps[p->file->n_steps - 1];
        step->stage = origin.n ? find_stage(p, origin) : -1;
        step->from = origin.n ? arena_strndup(p->arena, origin.p, origin.n) : NULL;
    }
    return 0;
}

static int set_env(struct parser *p, struct str name, struct str raw)
{
    struct str kept, known;
    struct err ignored, *err = p->err;
    if (!name.n || str_set_has("0-9", name.p[0]) || !str_is_of(name, "A-Za-z0-9_.-"))
        return words_fail(p, ERR_INVALID_ARGUMENT, "ENV: '%.*s' can't be the name of a variable",
                          STR_ARG_MAX(name, 64));
    if (words_expand(p, raw, true, &kept) < 0 || add_step(p, "ENV", (struct str[]){name, kept}, 2) < 0)
        return -1;
    /* Its value is known here when those in it are. */
    p->err = &ignored;
    bool is_known = words_expand(p, raw, false, &known) == 0;
    p->err = err;
    return words_set(p, name, is_known ? known : STR(""), is_known, true);
}

static int env(struct parser *p, struct str rest)
{
    struct str copy = rest, word;
    if (!words_next(p, &copy, &word))
        return words_fail(p, ERR_INVALID_ARGUMENT, "ENV without a variable");
    if (str_find_char(word, '=') < 0)
        return set_env(p, word, str_trim(copy));
    while (words_next(p, &rest, &word)) {
        ssize_t eq = str_find_char(word, '=');
        if (eq <= 0)
            return words_fail(p, ERR_INVALID_ARGUMENT, "ENV takes NAME=value");
        if (set_env(p, str_n(word.p, (size_t)eq), str_sub(word, (size_t)eq + 1)) < 0)
            return -1;
    }
    return 0;
}

static int arg(struct parser *p, struct str rest)
{
    struct str word, value = STR("");
    while (words_next(p, &rest, &word)) {
        ssize_t eq = str_find_char(word, '=');
        struct str name = eq < 0 ? word : str_n(word.p, (size_t)eq);
        bool has_value = eq >= 0;
        if (!name.n || str_span_variable(name) < name.n)
            return words_fail(p, ERR_INVALID_ARGUMENT, "ARG takes NAME or NAME=value");
        if (has_value && words_expand(p, str_sub(word, (size_t)eq + 1), false, &value) < 0)
            return -1;
        for (size_t i = 0; i < p->n_build_args; i++) {
            struct str given = str_of(p->build_args[i]);
            if (str_starts(given, name) && given.n > name.n && given.p[name.n] == '=') {
                value = str_sub(given, name.n + 1);
                has_value = true;
            }
        }
        const struct variable *before = words_find(p, name);
        if (!has_value && before && before->has_value)
            continue; /* of an ARG before FROM */
        if (words_set(p, name, has_value ? value : STR(""), has_value, false) < 0)
            return -1;
    }
    return 0;
}

static int workdir(struct parser *p, struct str rest)
{
    struct str path;
    if (words_expand(p, rest, false, &path) < 0)
        return -1;
    if (!path.n)
        return words_fail(p, ERR_INVALID_ARGUMENT, "WORKDIR without a path");
    p->sets_workdir = true;
    return add_one(p, "WORKDIR", path);
}

static int user(struct parser *p, struct str rest)
{
    struct str name;
    if (words_expand(p, rest, false, &name) < 0)
        return -1;
    ssize_t colon = str_find_char(name, ':');
    if (colon >= 0) {
        note(p, "USER with a group", "the group it logs in with is taken");
        name.n = (size_t)colon;
    }
    if (!name.n)
        return words_fail(p, ERR_INVALID_ARGUMENT, "USER without a name");
    p->sets_user = true;
    return add_one(p, "USER", name);
}

static int instruction(struct parser *p, struct str line)
{
    static const char *const ignored[] = {"EXPOSE", "LABEL", "MAINTAINER", "STOPSIGNAL", "HEALTHCHECK", "VOLUME"};
    struct str word = line, rest;
    size_t n = 0;
    bool is_shell;
    while (n < line.n && !words_is_blank(line.p[n]))
        n++;
    word.n = n;
    rest = str_trim(str_sub(line, n));
    if (str_eq_nocase(word, STR("FROM")))
        return from(p, rest);
    if (str_eq_nocase(word, STR("ARG")))
        return arg(p, rest);
    if (!p->file->image)
        return words_fail(p, ERR_INVALID_ARGUMENT, "the first instruction must be FROM");
    if (str_eq_nocase(word, STR("RUN")))
        return dockerfile_run(p, rest);
    if (str_eq_nocase(word, STR("COPY")) || str_eq_nocase(word, STR("ADD")))
        return dockerfile_copy(p, rest, str_eq_nocase(word, STR("ADD")));
    if (str_eq_nocase(word, STR("ENV")))
        return env(p, rest);
    if (str_eq_nocase(word, STR("WORKDIR")))
        return workdir(p, rest);
    if (str_eq_nocase(word, STR("USER")))
        return user(p, rest);
    if (str_eq_nocase(word, STR("CMD"))) {
        p->cmd = words_shell(p, rest, &is_shell);
        return 0;
    }
    if (str_eq_nocase(word, STR("ENTRYPOINT"))) {
        p->entrypoint = words_shell(p, rest, &p->entrypoint_is_shell);
        p->cmd = STR_NULL; /* as Docker has it: a CMD that came before is for another one */
        return 0;
    }
    for (size_t i = 0; i < ARRAY_SIZE(ignored); i++) {
        if (str_eq_nocase(word, str_of(ignored[i]))) {
            note(p, ignored[i], "it has no meaning for a template");
            return 0;
        }
    }
    return words_fail(p, ERR_UNIMPLEMENTED, "%.*s is not supported", STR_ARG_MAX(word, 32));
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

static int dockerfile_finish(struct parser *p)
{
    if (!p->file->image)
        return words_fail(p, ERR_INVALID_ARGUMENT, "there is no FROM");
    if ((!p->sets_user && add_one(p, "USER", STR("user")) < 0) ||
        (!p->sets_workdir && add_one(p, "WORKDIR", STR("/home/user")) < 0))
        return -1;
    if (p->entrypoint.n && p->cmd.n && !p->entrypoint_is_shell)
        p->file->start_cmd = arena_printf(p->arena, "%.*s %.*s", STR_ARG(p->entrypoint), STR_ARG(p->cmd));
    else if (p->entrypoint.n || p->cmd.n)
        p->file->start_cmd = arena_printf(p->arena, "%.*s", (int)(p->entrypoint.n ? p->entrypoint.n : p->cmd.n),
                                          p->entrypoint.n ? p->entrypoint.p : p->cmd.p);
    p->file->steps = keep_steps(p);
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
    if (all_lines(p, text) < 0 || dockerfile_finish(p) < 0)
        return -1;
    *ret_file = file;
    return 0;
}
