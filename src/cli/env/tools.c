/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/env/tools.h"
#include "base/child.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"
#include "cli/env/repo.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { TOOLS_WORDS_MAX = 16, TOOLS_SLUG_MAX = 40, TOOLS_COMPLAINT_MAX = 2000, TOOLS_COMPLAINTS_MAX = 16 << 20 };

/*
 * Arguments: "theirs!=--flag" (! for a must; without a flag it is not passed on), blanks between. "id" is the
 * environment, "text" that the output is cut and goes on at `offset`.
 */
static const struct tools_tool {
    const char *name, *description, *verb, *args, *more;
    bool is_text, is_harmless;
} tools_all[] = {
    {"environment_create",
     "Makes an environment: a sandbox with a copy of the last commit of the repository here, at the same path. Nothing gets out of it until a person grants it.",
     "create", "title! from_git_ref=--from", "--json", false, false},
    {"environment_log", "What was committed in an environment.", "log", "environment_id!", NULL, true, false},
    {"environment_diff", "What changed in an environment, with the places that a reviewer looks at first.", "diff",
     "environment_id!", NULL, true, false},
    {"propose",
     "Proposes what was committed in an environment to a person: the diff, the checks of the repository run again, a receipt for each command. A person applies it.",
     "propose", "environment_id! message=--message", NULL, true, false},
};

static bool tools_next(struct str *rest, struct str *name, struct str *flag, bool *ret_must)
{
    struct str one;
    if (!rest->n || !str_split(rest, ' ', &one))
        return false;
    *flag = one;
    if (!str_split(flag, '=', name))
        *name = one;
    *ret_must = str_ends(*name, STR("!"));
    name->n -= *ret_must;
    return true;
}

static json_t *tools_schema(const struct tools_tool *t)
{
    json_t *properties = json_object(), *required = json_array();
    struct str rest = str_of(t->args), name, flag;
    bool is_must;
    while (tools_next(&rest, &name, &flag, &is_must)) {
        (void)json_object_setn_new(properties, name.p, name.n, json_pack("{s:s}", "type", "string"));
        if (is_must)
            (void)json_array_append_new(required, json_stringn(name.p, name.n));
    }
    if (t->is_text)
        (void)json_object_set_new(
            properties, "offset",
            json_pack("{s:s,s:s}", "type", "integer", "description", "In bytes: 'next' of the answer before (0)"));
    (void)json_object_set_new(
        properties, "environment_source",
        json_pack("{s:s,s:s}", "type", "string", "description", "The repository here, or nothing"));
    (void)json_object_set_new(properties, "explanation",
                              json_pack("{s:s,s:s}", "type", "string", "description", "Ignored"));
    return json_pack("{s:s,s:o,s:o,s:b}", "type", "object", "properties", properties, "required", required,
                     "additionalProperties", 0);
}

void tools_describe(json_t *list)
{
    for (size_t i = 0; i < ARRAY_SIZE(tools_all); i++) {
        const struct tools_tool *t = &tools_all[i];
        for (size_t k = json_array_size(list); k-- > 0;) {
            const char *name = json_string_value(json_object_get(json_array_get(list, k), "name"));
            if (name && strcmp(name, t->name) == 0)
                (void)json_array_remove(list, k);
        }
        (void)json_array_append_new(list, json_pack("{s:s,s:s,s:o,s:{s:b,s:b,s:b}}", "name", t->name, "description",
                                                    t->description, "inputSchema", tools_schema(t), "annotations",
                                                    "readOnlyHint", t->is_harmless, "destructiveHint", 0,
                                                    "openWorldHint", 0));
    }
}

/* ---- a call ---- */

/* A name for a title: what of it can be one, and something that no other has. */
static char *tools_slug(const char *title)
{
    char slug[TOOLS_SLUG_MAX + 1], end[5];
    size_t n = 0;
    for (; *title && n < TOOLS_SLUG_MAX; title++)
        if (isalnum((unsigned char)*title) && (unsigned char)*title < 0x80)
            slug[n++] = (char)tolower((unsigned char)*title);
        else if (n && slug[n - 1] != '-')
            slug[n++] = '-';
    id_token(end, 4);
    return mem_printf("%.*s%s%s", (int)n, slug, n && slug[n - 1] != '-' ? "-" : "", end);
}

static bool tools_is_name(const char *text)
{
    return isalnum((unsigned char)*text) && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-_") == strlen(text);
}

static int tools_check_source(struct context *ctx, const char *top, const json_t *args)
{
    const char *given = json_string_value(json_object_get(args, "environment_source"));
    char path[PATH_MAX];
    if (!given || !*given || (realpath(given, path) && strcmp(path, top) == 0))
        return 0;
    return err_set(&ctx->err, ERR_PERMISSION_DENIED, "environment_source: this is for the repository %s alone", top);
}

static int tools_argv(struct context *ctx, const struct tools_tool *t, const json_t *args, char **argv, size_t *n)
{
    struct str rest = str_of(t->args), name, flag;
    bool is_must;
    while (tools_next(&rest, &name, &flag, &is_must)) {
        AUTO_FREE char *key = mem_strndup(name.p, name.n);
        const char *value = json_string_value(json_object_get(args, key));
        if ((!value || !*value) && is_must)
            return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "%s is needed", key);
        if (!value || !*value)
            continue;
        if (str_eqc(name, "environment_id") && !tools_is_name(value))
            return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "environment_id: no name, and no sandbox's id");
        if (str_eqc(name, "environment_id"))
            argv[(*n)++] = mem_strdup(value);
        else if (str_eqc(name, "title"))
            argv[(*n)++] = tools_slug(value);
        else
            argv[(*n)++] = mem_printf("%.*s=%s", STR_ARG(flag), value);
    }
    if (t->more)
        argv[(*n)++] = mem_strdup(t->more);
    return 0;
}

static int tools_spawn(struct context *ctx, char **argv, struct tools_run *run)
{
    int ends[2];
    run->err = repo_complaint(TOOLS_COMPLAINTS_MAX); /* what a setup inside says is among them */
    if (run->err < 0 || pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(&ctx->err, errno, "start a command");
    AUTO_CLOSE int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    run->pid = fork();
    if (run->pid == 0) {
        child_unblock();
        if (ctx->host && *ctx->host)
            (void)setenv("COVE_HOST", ctx->host, 1);
        if (ctx->tenant && *ctx->tenant)
            (void)setenv("COVE_TENANT", ctx->tenant, 1);
        if (dup2(nothing, 0) == 0 && dup2(ends[1], 1) == 1 && dup2(run->err, 2) == 2)
            (void)execv("/proc/self/exe", argv);
        _exit(127);
    }
    (void)close(ends[1]);
    run->out = ends[0];
    return run->pid > 0 ? 1 : err_errno(&ctx->err, errno, "start a command");
}

int tools_start(struct context *ctx, const char *top, const char *name, const json_t *args, struct tools_run *ret_run)
{
    const struct tools_tool *t = NULL;
    char *argv[TOOLS_WORDS_MAX] = {mem_strdup("cove"), mem_strdup("env"), mem_strdup("--repo"), mem_strdup(top)};
    size_t n = 4;
    *ret_run = (struct tools_run){.out = -1, .err = -1, .said = BUF_INIT(TOOLS_OUTPUT_MAX)};
    for (size_t i = 0; name && i < ARRAY_SIZE(tools_all); i++)
        t = strcmp(name, tools_all[i].name) == 0 ? &tools_all[i] : t;
    int r = t ? 1 : 0;
    if (t) {
        const json_int_t offset = json_integer_value(json_object_get(args, "offset"));
        ret_run->offset = offset > 0 ? (uint64_t)offset : 0;
        ret_run->is_json = !t->is_text;
        argv[n++] = mem_strdup(t->verb);
        if (tools_check_source(ctx, top, args) < 0 || tools_argv(ctx, t, args, argv, &n) < 0)
            r = -1;
    }
    if (r > 0)
        r = tools_spawn(ctx, argv, ret_run);
    while (n)
        mem_free(argv[--n]);
    if (r < 0)
        tools_end(ret_run);
    return r;
}

bool tools_read(struct tools_run *run)
{
    char *room = buf_reserve(&run->said, 65536);
    ssize_t got = room ? read(run->out, room, 65536) : 0;
    if (got < 0 && errno == EINTR)
        return false;
    buf_commit(&run->said, got > 0 ? (size_t)got : 0);
    if (got <= 0)
        run->out = fd_close(run->out);
    return got <= 0;
}

/* What isn't UTF-8 becomes U+FFFD. */
static json_t *tools_text(struct str s)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    (void)buf_append_json_string(&b, s);
    json_t *text = json_loadb(buf_data(&b), buf_len(&b), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    return text ? text : json_string("");
}

static json_t *tools_output(const struct tools_run *run)
{
    struct str all = buf_str(&run->said), rest = str_sub(all, MIN(run->offset, all.n));
    size_t n = MIN(rest.n, (size_t)TOOLS_TEXT_MAX);
    for (size_t back = 0; n < rest.n && back < 3 && n > 1 && ((unsigned char)rest.p[n] & 0xc0) == 0x80; back++)
        n--;
    const uint64_t next = all.n - rest.n + n;
    return json_pack("{s:o,s:I,s:b}", "output", tools_text(str_n(rest.p, n)), "next", (json_int_t)next, "more",
                     next < all.n);
}

json_t *tools_result(struct tools_run *run)
{
    AUTO_BUF struct buf complaint = BUF_INIT(TOOLS_COMPLAINT_MAX);
    int status = child_wait(run->pid);
    run->pid = 0;
    repo_complained(run->err, &complaint);
    const bool is_failed = status < 0 || status > CHILD_SIGNAL || (status && !buf_len(&run->said));
    json_t *content = NULL;
    if (run->is_json)
        content = json_loadb(buf_data(&run->said), buf_len(&run->said), 0, NULL);
    else if (!is_failed)
        content = tools_output(run);
    if (json_is_object(content) && buf_len(&complaint))
        (void)json_object_set_new(content, "notes", tools_text(repo_line(&complaint)));
    if (json_is_object(content) && json_object_get(content, "sandbox")) {
        (void)json_object_set(content, "environment_id", json_object_get(content, "sandbox"));
        (void)json_object_set(content, "id", json_object_get(content, "sandbox")); /* as container-use has it */
    }
    json_t *text = json_is_object(content) && json_object_get(content, "output")
                       ? json_incref(json_object_get(content, "output"))
                       : NULL;
    if (!text && json_is_object(content)) {
        AUTO_FREE char *dumped = json_dumps(content, JSON_COMPACT);
        text = json_string(dumped ? dumped : "");
    }
    if (!text)
        text = tools_text(buf_len(&complaint) ? repo_line(&complaint) : STR("it failed"));
    json_t *result = json_pack("{s:[{s:s,s:o}]}", "content", "type", "text", "text", text);
    if (is_failed || !json_is_object(content))
        (void)json_object_set_new(result, "isError", json_true());
    else
        (void)json_object_set(result, "structuredContent", content);
    json_decref(content);
    tools_end(run);
    return result;
}

void tools_end(struct tools_run *run)
{
    if (run->pid > 0) {
        (void)kill(run->pid, SIGTERM);
        (void)child_wait(run->pid);
    }
    run->out = fd_close(run->out);
    run->err = fd_close(run->err);
    buf_fini(&run->said);
    run->pid = 0;
}
