/* SPDX-License-Identifier: Apache-2.0 */
/* The sandboxes of `cove eval patch`, and the images that they are forks of. */
#include "base/child.h"
#include "base/mem.h"
#include "cli/eval/patch.h"
#include "cli/exec/exec.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATCH_IMAGE_LEASE_MS = 120000, PATCH_IMAGE_RENEW_MS = 30000, PATCH_IMAGE_TICK_MS = 1000 };

extern const char script_patch[]; /* patch.sh */

/* ---- a sandbox ---- */

int patch_box_open(struct patch_box *b, const char *template, bool has_network)
{
    AUTO_JSON json_t *sandbox = NULL;
    AUTO_JSON json_t *spec =
        json_pack("{s:s,s:i,s:b}", "template", template, "timeout_ms", PATCH_IMAGE_LEASE_MS, "internet", has_network);
    buf_init(&b->out, PATCH_OUTPUT_MAX);
    buf_init(&b->err, PATCH_OUTPUT_MAX);
    if (!spec)
        return err_set(&b->e->ctx->err, ERR_INVALID_ARGUMENT, "a template's name must be UTF-8");
    return service_call(b->s, "POST", "/cove/v1/sandboxes", spec, NULL, &sandbox) < 0
               ? -1
               : service_id(b->e->ctx, sandbox, &b->id);
}

/* It ends by itself soon, should we not come so far. */
void patch_box_close(struct patch_box *b)
{
    if (b->id)
        service_remove_aside(b->e->ctx, b->id);
    buf_fini(&b->out);
    buf_fini(&b->err);
    mem_free(b->id);
}

static int patch_tick(void *ctx)
{
    struct patch_box *b = ctx;
    usec_t now = clock_mono();
    if (now >= b->until) {
        b->is_late = true;
        return err_set(&b->e->ctx->err, ERR_DEADLINE_EXCEEDED, "timed out");
    }
    if (now < b->renew_at)
        return 0;
    b->renew_at = now + PATCH_IMAGE_RENEW_MS * USEC_PER_MS;
    service_extend_aside(b->e->ctx, b->id, PATCH_IMAGE_LEASE_MS);
    return 0;
}

/* Runs a command there as root, for so long at most; what it writes is in b->out and b->err. *ret_code: as shells say
 * it. -1: ctx->err, b->is_late. */
int patch_exec(struct patch_box *b, char *const *argv, const char *cwd, int stdin_fd, uint64_t seconds,
               uint32_t *ret_code, bool *ret_dropped)
{
    AUTO(service_close) struct service *s = service_open(b->e->ctx); /* the connection becomes the command's */
    struct exec_request request = {.id = b->id, .argv = argv, .user = "root", .cwd = cwd, .has_stdin = stdin_fd >= 0};
    struct exec_io io = {.stdin_fd = stdin_fd,
                         .stdout_fd = -1,
                         .stderr_fd = -1,
                         .captured_stdout = &b->out,
                         .captured_stderr = &b->err,
                         .tick = patch_tick,
                         .tick_ctx = b,
                         .tick_ms = PATCH_IMAGE_TICK_MS};
    struct exec_result result;
    buf_clear(&b->out);
    buf_clear(&b->err);
    b->until = clock_mono() + seconds * USEC_PER_SEC;
    b->renew_at = b->renew_at ? b->renew_at : clock_mono() + PATCH_IMAGE_RENEW_MS * USEC_PER_MS;
    if (!s || exec_in_sandbox(b->e->ctx, s, &request, &io, &result) < 0) {
        if (b->is_late)
            b->e->ctx->err = (struct err){0}; /* which is no trouble of Cove's */
        return -1;
    }
    *ret_code = result.signaled ? STATUS_SIGNAL + result.code : result.code;
    if (ret_dropped)
        *ret_dropped = result.dropped;
    return 0;
}

int patch_sh(struct patch_box *b, const char *verb, const char *const *args, size_t n, int stdin_fd, uint32_t *ret_code)
{
    AUTO_FREE char **argv = mem_zalloc((n + 6) * sizeof(*argv));
    const char *const head[] = {"/bin/sh", "-c", script_patch, "sh", verb};
    memcpy(argv, head, sizeof(head));
    memcpy(argv + ARRAY_SIZE(head), args, n * sizeof(*args));
    return patch_exec(b, argv, "/", stdin_fd, PATCH_SETUP_S, ret_code, NULL);
}

/* What the last line of its complaint says. */
void patch_why(const struct patch_box *b, const char *what, char ret_why[static PATCH_WHY_MAX])
{
    struct str rest = buf_str(&b->err), line, last = STR("");
    while (rest.n && str_split(&rest, '\n', &line))
        last = str_trim(line).n ? line : last;
    (void)snprintf(ret_why, PATCH_WHY_MAX, "%s%s%.*s", what, last.n ? ": " : "", STR_ARG_MAX(last, PATCH_WHY_MAX / 2));
    for (char *c = ret_why; *c; c++)
        *c = (unsigned char)*c < ' ' || (unsigned char)*c > '~' ? '?' : *c;
}

/* ---- images ---- */

const char *patch_workdir(const json_t *problem)
{
    const char *dir = service_text(problem, "workdir");
    return *dir ? dir : "/testbed";
}

void patch_image_name(const struct eval *e, const json_t *problem, char ret_name[static 48])
{
    static const char *const parts[] = {"template", "repo", "base_commit", "setup_cmd", "workdir"};
    AUTO_BUF struct buf b = BUF_INIT(64 << 20);
    char digest[33];
    buf_printf(&b, "%s\n%s", e->template, e->repos ? "given" : "in the template");
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        buf_append_char(&b, '\n');
        buf_append_json_string(&b, str_of(service_text(problem, parts[i])));
    }
    eval_digest(buf_str(&b), digest);
    (void)snprintf(ret_name, 48, "eval-%.20s", digest);
}

/* DIR/owner/name, DIR/owner__name or DIR/name. */
static char *patch_find_repo(const struct eval *e, const char *repo)
{
    AUTO_FREE char *flat =
        mem_printf("%.*s__%s", (int)strcspn(repo, "/"), repo, strchr(repo, '/') ? strchr(repo, '/') + 1 : repo);
    const char *const names[] = {repo, flat, strrchr(repo, '/') ? strrchr(repo, '/') + 1 : repo};
    struct stat st;
    for (size_t i = 0; i < 2 * ARRAY_SIZE(names); i++) {
        char *path = mem_printf("%s/%s%s", e->repos, names[i / 2], i % 2 ? ".git" : "");
        if (*repo && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
            return path;
        mem_free(path);
    }
    return NULL;
}

/* The commit's files as a tar stream, without its history. The pid of git, or -1. */
static pid_t patch_archive(const char *path, const char *commit, int *ret_fd)
{
    AUTO_FREE char *tree = mem_printf("%s^{tree}", *commit ? commit : "HEAD");
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        if (dup2(fds[1], STDOUT_FILENO) >= 0)
            (void)execlp("git", "git", "-C", path, "-c", "safe.directory=*", "archive", "--format=tar", tree,
                         (char *)NULL);
        _exit(127);
    }
    (void)close(fds[1]);
    if (pid < 0)
        (void)close(fds[0]);
    else
        *ret_fd = fds[0];
    return pid;
}

/* 1: done, 0: why is said in `why`, -1: ctx->err. */
static int patch_fill(struct patch_box *b, const json_t *problem, char why[static PATCH_WHY_MAX])
{
    const char *setup = service_text(problem, "setup_cmd"), *commit = service_text(problem, "base_commit");
    const char *const args[] = {patch_workdir(problem), commit};
    uint32_t code = 0;
    int status = 0, fd = -1, r;
    if (b->e->repos) {
        AUTO_FREE char *path = patch_find_repo(b->e, service_text(problem, "repo"));
        pid_t pid = path ? patch_archive(path, commit, &fd) : -1;
        if (pid < 0) {
            (void)snprintf(why, PATCH_WHY_MAX, "there is no repository %.100s below %.200s",
                           service_text(problem, "repo"), b->e->repos);
            return 0;
        }
        r = patch_sh(b, "unpack", args, 1, fd, &code);
        (void)close(fd);
        status = child_wait(pid);
    } else {
        r = patch_sh(b, "checkout", args, 2, -1, &code);
    }
    if (r < 0)
        return -1;
    if (code || status) {
        patch_why(b, status ? "git can't read that commit" : "the repository can't be had", why);
        return 0;
    }
    if (*setup) {
        char *const argv[] = {(char *)"/bin/sh", (char *)"-c", (char *)setup, NULL};
        if (patch_exec(b, argv, args[0], -1, PATCH_SETUP_S, &code, NULL) < 0)
            return -1;
        if (code) {
            patch_why(b, "setup_cmd failed", why);
            return 0;
        }
    }
    if (patch_sh(b, "keep", args, 1, -1, &code) < 0)
        return -1;
    patch_why(b, "git can't keep what setup_cmd changed", why);
    return code == 0;
}

static json_t *patch_build(struct eval *e, struct service *s, size_t i)
{
    const json_t *problem = e->samples[i].problem;
    const char *template = service_text(problem, "template");
    struct patch_box b = {.e = e, .s = s};
    char name[48], why[PATCH_WHY_MAX] = "";
    json_t *told = NULL;
    patch_image_name(e, problem, name);
    int r = patch_box_open(&b, *template ? template : e->template, true);
    r = r < 0 ? -1 : patch_fill(&b, problem, why);
    if (r < 0 && b.is_late) {
        (void)snprintf(why, PATCH_WHY_MAX, "the image was not made within %d s", PATCH_SETUP_S);
        r = 0;
    }
    if (r > 0) {
        AUTO_FREE char *target = service_target(b.id, "/snapshots");
        AUTO_JSON json_t *body = json_pack("{s:s}", "name", name);
        r = service_call(s, "POST", target, body, NULL, NULL) < 0 ? -1 : 1;
    }
    if (r >= 0)
        told = json_pack("{s:s}", "why", r ? "" : why);
    patch_box_close(&b);
    return told;
}

/* A sample stands for its image when it is the first that needs it; the others have the place of that one. */
static bool patch_skip(const struct eval *e, size_t i)
{
    return e->samples[i].image_of != i + 1;
}

static int patch_built(struct eval *e, size_t i, const json_t *told, struct str line UNUSED)
{
    const char *why = service_text(told, "why");
    for (size_t k = i; k < e->n_samples && *why; k++) {
        if (e->samples[k].image_of == i + 1)
            e->samples[k].broken = arena_strdup(&e->arena, why);
    }
    if (!*why && isatty(STDERR_FILENO) && !e->ctx->json)
        (void)fprintf(stderr, "\rimage of %s\n", e->samples[i].task);
    e->samples[i].image_of = 0; /* it is there now */
    return 0;
}

int patch_prepare(struct eval *e)
{
    struct eval_pass pass = {e->n_samples, patch_skip, patch_build, patch_built};
    AUTO_JSON json_t *there = NULL, *first = json_object();
    char name[48];
    size_t i;
    AUTO(service_close) struct service *s = service_open(e->ctx);
    if (!s || service_call(s, "GET", "/cove/v1/snapshots", NULL, NULL, &there) < 0)
        return -1;
    JSON_FOREACH (one, json_object_get(there, "snapshots")) {
        AUTO_FREE char *ref = mem_printf("%.*s", (int)strcspn(service_text(one, "ref"), ":"), service_text(one, "ref"));
        (void)json_object_set_new(first, strchr(ref, '/') ? strchr(ref, '/') + 1 : ref, json_integer(0));
    }
    for (i = 0; i < e->n_samples; i++) {
        patch_image_name(e, e->samples[i].problem, name);
        if (e->samples[i].is_done)
            continue;
        e->samples[i].image_of =
            (size_t)json_integer_value(json_setdefault(first, name, json_integer((json_int_t)i + 1)));
    }
    return eval_each(e, &pass);
}
