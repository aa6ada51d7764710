/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/env/env.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"
#include "cli/env/copy.h"
#include "cli/env/devcontainer.h"
#include "cli/env/kept.h"
#include "cli/env/review.h"
#include "cli/exec/terminal.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEEP_FROM_MS = 250 }; /* what took longer is kept for the next one */
enum { IDLE_MS = 3600000, PROLONG_MS = 300000, ENV_WATCH_MS = 1000, CAPTURE_MAX = 64 * 1024 };
enum { RECEIVED_MAX_MB = 2048, CHANGED_MAX = 1 << 20, OBJECTS_MAX = 4 << 20, ENV_COMMIT = 40 };
enum { ENV_TRIES = 3, ENV_TRIES_MS = 10000 };

/* ---- what runs inside ---- */

/* Of inside/: each says at its top what it does. */
extern const char script_give[], script_give_some[], script_rebase[];

/* ---- opening ---- */

static bool env_is_name(const char *name)
{
    const struct str s = str_of(name);
    return s.n > 0 && s.n <= ENV_NAME_MAX && str_is_of(s, "a-z0-9_-") && !strchr("_-", name[0]) &&
           !strchr("_-", name[s.n - 1]);
}

const char *env_label(const json_t *sandbox, const char *key)
{
    return json_string_value(json_object_get(json_object_get(sandbox, "metadata"), key));
}

static const char *env_began(const json_t *sandbox)
{
    return json_string_value(json_object_get(sandbox, "started_at"));
}

/* Of an environment's forks, which have its labels, none is it: the oldest is. */
int env_sandboxes(struct env *e, json_t **ret_array)
{
    AUTO_JSON json_t *all = NULL, *found = json_object();
    if (service_own_sandboxes(e->service, &all) < 0)
        return -1;
    JSON_FOREACH (one, all) {
        const char *repo = env_label(one, "cove.repo"), *name = env_label(one, "cove.env");
        const char *id = json_string_value(json_object_get(one, "id")), *began = env_began(one);
        const char *common = env_label(one, "cove.common");
        if (!repo || !name || !env_is_name(name) || !id || !id_is_sandbox(str_of(id)) || !began ||
            strcmp(common ? common : repo, common ? e->repo.common : e->repo.top) != 0)
            continue;
        const json_t *other = json_object_get(found, name);
        if (!other || strcmp(began, env_began(other)) < 0)
            (void)json_object_set(found, name, one);
    }
    *ret_array = json_array();
    JSON_FOREACH_MEMBER (key, one, found)
        (void)json_array_append(*ret_array, one);
    return 0;
}

/* The id of the sandbox that was made for it here last. NULL: not known. */
static char *env_made(struct env *e, const char *name)
{
    AUTO_BUF struct buf refs = BUF_INIT(CAPTURE_MAX);
    AUTO_FREE char *under = mem_printf("refs/cove/sandbox/%s/", name);
    const struct err before = e->ctx->err;
    if (REPO_ASK(&e->repo, REPO_THEIRS, &refs, "for-each-ref", "--format=%(refname:lstrip=4)", under) < 0)
        e->ctx->err = before;
    const struct str id = repo_line(&refs);
    return id_is_sandbox(id) ? mem_printf("%.*s", STR_ARG(id)) : NULL;
}

void env_look_elsewhere(struct env *e, const char *name, json_t *all)
{
    JSON_FOREACH (one, all)
        if (strcmp(env_label(one, "cove.env"), name) == 0)
            return;
    AUTO_FREE char *id = env_made(e, name), *target = id ? service_target(id, "%s", "") : NULL;
    AUTO_JSON json_t *found = NULL;
    const struct err before = e->ctx->err;
    if (target && service_call(e->service, "GET", target, NULL, NULL, &found) < 0)
        e->ctx->err = before;
    const char *label = env_label(found, "cove.env"), *state = json_string_value(json_object_get(found, "state"));
    if (label && strcmp(label, name) == 0 && env_label(found, "cove.repo") && state && strcmp(state, "ended") != 0)
        (void)json_array_append(all, found);
    else
        *e->ctx->hint = '\0';
}

static void env_forget(struct env *e)
{
    MEM_FREE(e->at.head, e->at.work, e->at.base);
    e->at = (struct env_commits){NULL, NULL, NULL};
}

static void env_set_name(struct env *e, const char *name)
{
    MEM_FREE(e->name, e->head, e->work, e->base);
    e->name = mem_strdup(name);
    e->head = mem_printf("refs/heads/cove/%s", name);
    e->work = mem_printf("refs/cove/work/%s", name);
    e->base = mem_printf("refs/cove/base/%s", name);
}

int env_look(struct env *e)
{
    const struct repo_ref refs[] = {{e->base, &e->at.base}, {e->head, &e->at.head}, {e->work, &e->at.work}};
    env_forget(e);
    if (repo_commits(&e->repo, REPO_THEIRS, refs, ARRAY_SIZE(refs)) == 0)
        return 0;
    context_hint(e->ctx, "'cove env list' shows those there are");
    return err_set(&e->ctx->err, ERR_NOT_FOUND, "there is no environment %s", e->name);
}

/* No git of its own for the refs. */
static int env_open_repo(struct env *e, const char *path, const char *name)
{
    if (!name)
        return repo_open(e->ctx, path, NULL, 0, &e->repo);
    env_set_name(e, name);
    const struct repo_ref refs[] = {
        {e->base, &e->at.base}, {e->head, &e->at.head}, {e->work, &e->at.work}, {"HEAD", &e->repo.head}};
    return repo_open(e->ctx, path, refs, ARRAY_SIZE(refs), &e->repo);
}

int env_open(struct context *ctx, const char *path, const char *name, struct env *ret_env)
{
    AUTO_JSON json_t *all = NULL;
    *ret_env = (struct env){.ctx = ctx, .prompt = getenv("COVE_PROMPT"), .repo.lock = -1};
    struct env *e = ret_env;
    if (name && !env_is_name(name))
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT,
                       "\"%.64s\" is not a valid name: use lower-case letters and digits, with - and _ between them",
                       name);
    exec_block_signals();
    if (env_open_repo(e, path, name) < 0 || !(e->service = service_open(ctx)) || (name && env_sandboxes(e, &all) < 0))
        return -1;
    JSON_FOREACH (one, all) {
        if (strcmp(json_string_value(json_object_get(one, "id")), name) == 0) { /* the sandbox's id does as well */
            env_forget(e);
            env_set_name(e, env_label(one, "cove.env"));
        }
    }
    if (e->at.base)
        env_look_elsewhere(e, e->name, all);
    JSON_FOREACH (one, all) {
        if (e->id || strcmp(env_label(one, "cove.env"), e->name) != 0)
            continue;
        const char *top = env_label(one, "cove.repo");
        if (strcmp(top, e->repo.top) != 0) {
            context_hint(ctx, "there, it goes on; another name makes one here");
            return err_set(&ctx->err, ERR_FAILED_PRECONDITION,
                           "%s is an environment of this repository's working tree %.150s", e->name, top);
        }
        e->id = mem_strdup(json_string_value(json_object_get(one, "id")));
        e->state = mem_strdup(json_string_value(json_object_get(one, "state")));
        e->user = env_label(one, "cove.user") ? mem_strdup(env_label(one, "cove.user")) : NULL;
        e->copy = env_label(one, "cove.copy") ? mem_strdup(env_label(one, "cove.copy")) : NULL;
    }
    return 0;
}

void env_fini(struct env *e)
{
    service_close(e->service);
    repo_fini(&e->repo);
    MEM_FREE(e->name, e->id, e->state, e->user, e->copy, e->head, e->work, e->base);
    env_forget(e);
}

/* ---- in the sandbox ---- */

struct env_watch {
    struct env *e;
    int file;  /* what grows; -1: nothing */
    int beats; /* since it was prolonged */
};

static int env_watch(void *ctx)
{
    struct env_watch *w = ctx;
    struct stat st;
    if (w->file >= 0 && fstat(w->file, &st) == 0 && st.st_size >> 20 > RECEIVED_MAX_MB)
        return repo_refuse(&w->e->repo, STR_NULL, "more than 2 GiB");
    if (++w->beats < PROLONG_MS / ENV_WATCH_MS)
        return 0;
    w->beats = 0;
    service_extend_aside(w->e->ctx, w->e->id, IDLE_MS);
    return 0;
}

int env_exec(struct env *e, const struct exec_request *request, const struct exec_io *streams,
             struct exec_result *result)
{
    const bool is_ours = request->tag && strcmp(request->tag, ENV_TAG) == 0;
    struct env_watch watch = {e, is_ours ? streams->stdout_fd : -1, 0};
    struct exec_io io = *streams;
    AUTO(service_close) struct service *s = service_open(e->ctx);
    io.forwards_signals = true;
    io.tick = env_watch;
    io.tick_ctx = &watch;
    io.tick_ms = ENV_WATCH_MS;
    *result = (struct exec_result){0};
    if (!is_ours)
        env_forget(e); /* by its end it is old */
    return s ? exec_in_sandbox(e->ctx, s, request, &io, result) : -1;
}

int env_script(struct env *e, const char *script, char *const *words, int in, int out, const char *user)
{
    AUTO_BUF struct buf message = BUF_INIT(CAPTURE_MAX);
    char *argv[16] = {(char *)"sh", (char *)"-c", (char *)script, (char *)"cove"};
    for (size_t i = 4; *words && i < ARRAY_SIZE(argv) - 1; i++)
        argv[i] = *words++;
    const struct exec_request request = {
        .id = e->id, .argv = argv, .user = user ? user : e->user, .cwd = "/", .has_stdin = in >= 0, .tag = ENV_TAG};
    const struct exec_io io = {in, out, -1, NULL, &message, .tick_ms = ENV_WATCH_MS};
    struct exec_result result;
    return env_exec(e, &request, &io, &result) < 0
               ? -1
               : exec_check(e->ctx, &result, buf_len(&message) ? buf_str(&message) : STR("git failed"));
}

char *env_here(struct env *e)
{
    char cwd[PATH_MAX], rest[1];
    size_t n = strlen(e->repo.top);
    if (!getcwd(cwd, sizeof(cwd)) || strncmp(cwd, e->repo.top, n) != 0 || cwd[n] != '/')
        return mem_strdup(e->repo.top);
    AUTO_FREE char *target = service_files(e->id, "files", cwd, e->user);
    bool is_there = service_stream(e->service, "HEAD", target) == 0 &&
                    str_eqc(http_client_header(service_client(e->service), "x-cove-type"), "directory") &&
                    http_client_read(service_client(e->service), rest, sizeof(rest)) == 0;
    e->ctx->err.code = ERR_OK;
    *e->ctx->hint = '\0';
    return mem_strdup(is_there ? cwd : e->repo.top);
}

int env_run(struct env *e, const char *cwd, char *const *argv, json_t *variables, bool has_pty, int *ret_status)
{
    const struct exec_request request = {.id = e->id,
                                         .argv = argv,
                                         .env = variables,
                                         .user = e->user,
                                         .cwd = cwd,
                                         .has_stdin = has_pty || !isatty(0),
                                         .has_pty = has_pty};
    struct exec_io io = {
        .stdin_fd = STDIN_FILENO, .stdout_fd = STDOUT_FILENO, .stderr_fd = STDERR_FILENO, .tick_ms = ENV_WATCH_MS};
    struct exec_result result;
    bool failed = env_exec(e, &request, &io, &result) < 0;
    *ret_status = exec_status(&result, failed);
    return failed ? -1 : 0;
}

int env_wake(struct env *e)
{
    if (!e->id) {
        context_hint(e->ctx, "'cove env list' shows those there are");
        return err_set(&e->ctx->err, ERR_NOT_FOUND, "the environment %s has no sandbox", e->name);
    }
    AUTO_JSON json_t *body = json_pack("{s:i}", "timeout_ms", IDLE_MS);
    AUTO_FREE char *resume = service_target(e->id, "/resume"), *timeout = service_target(e->id, "/timeout");
    if (strcmp(e->state, "paused") == 0)
        return service_call(e->service, "POST", resume, body, "waking the environment", NULL);
    (void)json_object_set_new(body, "extend_only", json_true());
    return service_call(e->service, "POST", timeout, body, NULL, NULL);
}

/* ---- beginning ---- */

/* The refs of an environment that begins. */
static int env_begin_refs(struct env *e, const char *commit)
{
    AUTO_FREE char *old = env_made(e, e->name),
                   *forget = old ? mem_printf("delete refs/cove/sandbox/%s/%s\n", e->name, old) : mem_strdup("");
    AUTO_FREE char *text =
        mem_printf("%supdate %s %s\nupdate %s %s\nupdate %s %s\nupdate refs/cove/sandbox/%s/%s %s\n", forget, e->base,
                   commit, e->head, commit, e->work, commit, e->name, e->id, commit);
    return repo_set_refs(&e->repo, REPO_THEIRS, text);
}

static int env_set_up(struct env *e, const json_t *setup)
{
    JSON_FOREACH (one, setup) {
        char *const argv[] = {(char *)"sh", (char *)"-c", (char *)json_string_value(one), NULL};
        int status;
        terminal_line(stderr, "cove env: setup: %s", argv[2]);
        if (env_run(e, e->repo.top, argv, NULL, false, &status) < 0)
            return -1;
        if (status != 0)
            return err_set(&e->ctx->err, ERR_FAILED_PRECONDITION, "the setup ended with %d: %.150s", status, argv[2]);
    }
    return 0;
}

static int env_serve(struct env *e, const json_t *services)
{
    AUTO_FREE char *path = mem_printf("/cove/v1/sandboxes/%s/services", e->id);
    JSON_FOREACH (one, services) {
        AUTO_JSON json_t *answer = NULL;
        if (service_call(e->service, "POST", path, one, "starting a service", &answer) < 0)
            return -1;
    }
    return 0;
}

int env_create(struct env *e, const char *commit, json_t *spec, const json_t *setup, bool whole_history)
{
    AUTO_JSON json_t *sandbox = NULL, *services = json_incref(json_object_get(spec, "services"));
    AUTO_FREE char *before = NULL;
    if (e->id)
        return err_set(&e->ctx->err, ERR_ALREADY_EXISTS, "there is an environment %s; 'cove env run' goes on in it",
                       e->name);
    before = repo_commit(&e->repo, REPO_THEIRS, e->head);
    if (before && strcmp(before, commit) != 0) {
        context_hint(e->ctx, "--from cove/%s goes on from it, 'cove env abort %s' throws it away", e->name, e->name);
        return err_set(&e->ctx->err, ERR_ALREADY_EXISTS, "the branch cove/%s has commits of an earlier environment",
                       e->name);
    }
    e->ctx->err.code = ERR_OK;
    (void)json_object_del(spec, "services");
    json_t *labels = json_setdefault(spec, "metadata", json_object());
    const char *template = json_string_value(json_object_get(spec, "template")),
               *user = json_string_value(json_object_get(labels, "cove.user"));
    if (template && devcontainer_prepare(&e->repo, e->service, commit, template) < 0)
        return -1;
    e->user = user ? mem_strdup(user) : NULL;
    (void)json_object_set_new(labels, "cove.env", json_string(e->name));
    if (json_object_set_new(labels, "cove.repo", json_string(e->repo.top)) < 0 ||
        json_object_set_new(labels, "cove.common", json_string(e->repo.common)) < 0)
        return err_set(&e->ctx->err, ERR_INVALID_ARGUMENT, "the repository's path is not UTF-8");
    (void)json_object_set_new(labels, "cove.maker", json_string(strrchr(e->repo.ours, '/') + 1));
    (void)json_object_set_new(spec, "timeout_ms", json_integer(IDLE_MS));
    (void)json_object_set_new(spec, "on_timeout", json_string("pause"));
    if (repo_find_settings(&e->repo) < 0)
        return -1;
    AUTO_FREE char *name = kept_name(e, spec, whole_history);
    if ((name && kept_create(e, name, commit, whole_history, spec, &sandbox) < 0) ||
        (!sandbox && service_call(e->service, "POST", "/cove/v1/sandboxes", spec, "making a sandbox", &sandbox) < 0) ||
        service_id(e->ctx, sandbox, &e->id) < 0)
        return -1;
    e->state = mem_strdup("running");
    const usec_t begun = clock_mono();
    int filled = e->copy ? copy_continue(e, commit) : copy_fill(e, commit, whole_history);
    if (filled == 0 && name && clock_mono() - begun > KEEP_FROM_MS * USEC_PER_MS)
        filled = copy_keep(e, name, commit);
    if (filled < 0 || env_begin_refs(e, commit) < 0 || env_serve(e, services) < 0 || env_set_up(e, setup) < 0) {
        struct err why = e->ctx->err;
        int ignored UNUSED = env_remove(e, !before);
        e->ctx->err = why;
        return -1;
    }
    const char *ports = json_string_value(json_object_get(labels, "cove.ports"));
    struct str rest = str_of(ports ? ports : ""), port;
    while (rest.n && str_split(&rest, ',', &port))
        (void)fprintf(stderr, "cove env: port %.*s: cove url %s %.*s\n", STR_ARG(port), e->id, STR_ARG(port));
    return 0;
}

int env_sweep(struct env *e)
{
    AUTO_JSON json_t *all = NULL;
    int n = 0;
    if (env_sandboxes(e, &all) < 0)
        return 0;
    JSON_FOREACH (one, all) {
        const char *maker = env_label(one, "cove.maker"), *id = json_string_value(json_object_get(one, "id"));
        AUTO_FREE char *path = maker && !strchr(maker, '/') ? mem_printf("%s/%s", e->repo.common, maker) : NULL;
        AUTO_FREE char *base = mem_printf("refs/cove/base/%s", env_label(one, "cove.env"));
        if (!path || access(path, F_OK) == 0)
            continue; /* who makes it is still there; without that the refs would be, too, now */
        AUTO_FREE char *commit = repo_commit(&e->repo, REPO_THEIRS, base);
        n += !commit && e->ctx->err.code == ERR_NOT_FOUND && service_remove(e->service, id, NULL) == 0;
    }
    e->ctx->err.code = ERR_OK;
    return n;
}

/* ---- receiving ---- */

/*
 * What was checked becomes theirs as the pack that it came in, if that has nothing else and no commit is new; else it
 * is fetched, which also looks whether the branch is checked out here. False: it is to be fetched.
 */
static bool env_hand_over(struct env *e, const char *work)
{
    struct repo *r = &e->repo;
    AUTO_BUF struct buf objects = BUF_INIT(OBJECTS_MAX), head = BUF_INIT(ENV_COMMIT + 2);
    AUTO_FREE char *keep = NULL, *update = mem_printf("update %s %s %s\n", e->work, work, e->at.work);
    if (!e->at.work || fd_read_file(r->lock, "refs/in/head", &head) < 0 || !str_eqc(repo_line(&head), e->at.head) ||
        REPO_ASK(r, REPO_OURS, &objects, "rev-list", "--objects", "--no-object-names", "refs/in/work", "^refs/base",
                 "--") < 0 ||
        !(keep = repo_give_pack(r, buf_len(&objects) / (ENV_COMMIT + 1))))
        return false;
    bool done = repo_set_refs(r, REPO_THEIRS, update) == 0;
    (void)unlink(keep);
    if (done) {
        mem_free(e->at.work);
        e->at.work = mem_strdup(work);
    }
    return done;
}

/*
 * What the person committed on the branch here, whose last received commit is the parent of `work`, isn't written
 * over.
 */
static int env_keep_theirs(struct env *e)
{
    struct repo *r = &e->repo;
    AUTO_FREE char *parent = mem_printf("%s^1", e->work), *received = NULL;
    if (!e->at.head || !e->at.work || strcmp(e->at.head, e->at.work) == 0) /* nothing was received yet */
        return 0;
    received = strcmp(e->at.work, e->at.base) == 0 ? mem_strdup(e->at.base) : repo_commit(r, REPO_THEIRS, parent);
    if (!received || strcmp(received, e->at.head) == 0 ||
        REPO_GIT(r, REPO_OURS, "merge-base", "--is-ancestor", e->at.head, "refs/in/head") == 0) {
        e->ctx->err.code = ERR_OK;
        return 0;
    }
    context_hint(e->ctx, "'git branch mine cove/%s && git branch -f cove/%s %.12s' keeps them", e->name, e->name,
                 received);
    return err_set(&e->ctx->err, ERR_FAILED_PRECONDITION,
                   "the branch cove/%s has commits that didn't come from the environment and would be lost", e->name);
}

/*
 * "<commit>\n", then a pack, or nothing where that was received before. index-pack reads every object as git fsck
 * would, warnings included.
 */
static int env_take(struct env *e, int file)
{
    const char *const index[] = {"index-pack", "--stdin", "--strict", "--fix-thin", NULL};
    AUTO_FREE char *to_head = mem_printf("+refs/in/head:%s", e->head);
    AUTO_FREE char *to_work = mem_printf("+refs/in/work:%s", e->work);
    char work[ENV_COMMIT + 2] = "";
    struct repo *r = &e->repo;
    repo_refuse_nothing(r);
    if (pread(file, work, ENV_COMMIT + 1, 0) != ENV_COMMIT + 1 || strspn(work, "0123456789abcdef") != ENV_COMMIT)
        return repo_refuse(r, STR_NULL, "no commit");
    work[ENV_COMMIT] = '\0';
    if (e->at.work && strcmp(work, e->at.work) == 0 && lseek(file, 0, SEEK_END) == ENV_COMMIT + 1)
        return 0;
    if (lseek(file, ENV_COMMIT + 1, SEEK_SET) < 0)
        return err_errno(&e->ctx->err, errno, "receive what changed");
    AUTO_FREE char *refs =
        mem_printf("update refs/base %s\nupdate refs/in/work %s^{commit}\nupdate refs/in/head %s^{commit}^1\n",
                   e->at.base, work, work);
    if (repo_git(r, REPO_OURS, &(struct repo_io){file, -1, NULL}, index) < 0 || repo_set_refs(r, REPO_OURS, refs) < 0) {
        AUTO_FREE char *said = mem_strdup(e->ctx->err.msg);
        return repo_refuse(r, STR_NULL, said);
    }
    if (review_check(r, "refs/base", "refs/in/head", "refs/in/work") < 0)
        return -1;
    /* The same checks once more, and that nothing is missing. */
    if (env_hand_over(e, work))
        return 0;
    return env_keep_theirs(e) < 0 || REPO_GIT(r, REPO_THEIRS, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head",
                                              "--no-auto-maintenance", "--atomic", r->ours, to_head, to_work) < 0
               ? -1
               : env_look(e);
}

/*
 * Paths in the copy that can differ from the kept one that it began with, as the service sees them; a line each.
 * *ret_has_new: some of them were not in that. False: that isn't known.
 */
static bool env_changed(struct env *e, struct buf *paths, bool *ret_has_new)
{
    *ret_has_new = false;
    AUTO(service_close) struct service *s = e->copy ? service_open(e->ctx) : NULL;
    AUTO_FREE char *inside = mem_printf("%s/", e->repo.top), *other = mem_printf("&b=%s", e->id);
    AUTO_FREE char *target = service_path(e->ctx, "/cove/v1/diff?a=", e->copy ? e->copy : "", other);
    json_t *line;
    int r = !s || !target ? -1 : service_stream(s, "GET", target);
    while (r >= 0 && (r = service_object(s, &line)) > 0) {
        const char *path = json_string_value(json_object_get(line, "path")),
                   *change = json_string_value(json_object_get(line, "change")),
                   *type = json_string_value(json_object_get(line, "type"));
        if (!path || !change || !type || strcmp(path, e->repo.top) == 0)
            return false;
        if (!str_starts(str_of(path), str_of(inside)))
            continue;
        path += strlen(inside);
        const bool is_directory = strcmp(type, "directory") == 0;
        if (str_starts(str_of(path), STR(".git/")) || (is_directory && strcmp(change, "added") == 0))
            continue; /* what is in it is told, too */
        if ((is_directory && strcmp(change, "modified") == 0) /* it may have been a file */ || strpbrk(path, "\n\"") ||
            strcmp(path, ".git") == 0 || strstr(path, "/.git/") || str_ends(str_of(path), STR("/.git")) ||
            json_object_get(line, "path_base64"))
            return false;
        buf_printf(paths, "%s\n", path);
        *ret_has_new = *ret_has_new || strcmp(change, "added") == 0;
    }
    e->ctx->err.code = ERR_OK;
    *e->ctx->hint = '\0';
    return r == 0 && !buf_error(paths);
}

/* What is inside, into the file. Only what changed is looked at where that is known, and all of it where not, or where
 * that fails. */
static int env_give(struct env *e, int file)
{
    AUTO_BUF struct buf paths = BUF_INIT(CHANGED_MAX);
    const char *from = e->copy ? strrchr(e->copy, ':') : NULL;
    bool has_new;
    const bool is_known = from && env_changed(e, &paths, &has_new);
    AUTO_CLOSE int list = is_known ? child_input(buf_str(&paths)) : -1;
    char *const words[] = {e->repo.top,
                           e->at.base,
                           (char *)(from ? from + 1 : ""),
                           e->at.work ? e->at.work : (char *)"",
                           e->at.head ? e->at.head : (char *)"",
                           (char *)(is_known && has_new ? "new" : ""),
                           NULL};
    if (list >= 0 && env_script(e, script_give_some, words, list, file, NULL) == 0)
        return 0;
    if (e->ctx->err.code == ERR_CANCELED)
        return -1;
    e->ctx->err.code = ERR_OK;
    if (ftruncate(file, 0) < 0 || lseek(file, 0, SEEK_SET) < 0)
        return err_errno(&e->ctx->err, errno, "receive what changed");
    return env_script(e, script_give, words, -1, file, NULL);
}

/* Into the sandbox's record. Whoever asked hears of the refusal in any case. */
static void env_report(struct env *e, int file)
{
    char commit[ENV_COMMIT + 1] = "";
    const struct err why = e->ctx->err;
    const bool is_named =
        pread(file, commit, ENV_COMMIT, 0) == ENV_COMMIT && strspn(commit, "0123456789abcdef") == ENV_COMMIT;
    AUTO_FREE char *target = service_target(e->id, "/violations");
    AUTO_JSON json_t *body = json_pack("{s:s, s:s, s:s*, s:s*}", "environment", e->name, "reason", e->repo.refused,
                                       "path", e->repo.refused_path, "commit", is_named ? commit : NULL);
    if (!body || service_call(e->service, "POST", target, body, NULL, NULL) < 0)
        terminal_line(stderr, "cove env: the refusal is not recorded: %s", body ? e->ctx->err.msg : "not UTF-8");
    e->ctx->err = why;
    *e->ctx->hint = '\0';
}

int env_receive(struct env *e)
{
    AUTO_FREE char *path = mem_printf("%s/received", e->repo.ours);
    AUTO_CLOSE int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    /* Who has removed the branch here gets it again. */
    if (!e->at.base && env_look(e) < 0 && !(e->at.base = repo_commit(&e->repo, REPO_THEIRS, e->base)))
        return -1;
    e->ctx->err.code = ERR_OK;
    *e->ctx->hint = '\0';
    if (file < 0)
        return err_errno(&e->ctx->err, errno, "write %s", path);
    (void)unlink(path);
    int r = env_give(e, file);
    const bool is_given = r == 0;
    /* `git gc` here may take a pack away under a git that reads it; the next one finds what took its place. What took
     * long may have been made for that. */
    const usec_t end = clock_add_ms(clock_mono(), ENV_TRIES_MS);
    for (int i = 0; is_given && (i == 0 || (r < 0 && clock_mono() < end)) && i < ENV_TRIES; i++) {
        e->ctx->err.code = ERR_OK;
        r = env_take(e, file);
    }
    if (r < 0 && e->repo.refused)
        env_report(e, file);
    return r;
}

int env_rebase(struct env *e, const char *onto)
{
    AUTO_FREE char *base = repo_commit(&e->repo, REPO_THEIRS, e->base);
    if (!base)
        return -1;
    AUTO_FREE char *revisions = mem_printf("%s\n^%s\n", onto, base);
    const char *const pack[] = {"pack-objects", "--revs", "--stdout", "--quiet", "--delta-base-offset", NULL};
    char *const words[] = {e->repo.top, base, (char *)onto, NULL};
    if (copy_send(e, pack, revisions, script_rebase, words) < 0) {
        if (strstr(e->ctx->err.msg, "both changed "))
            context_hint(e->ctx, "inside, by hand: git rebase --onto %.12s %.12s", onto, base);
        return -1;
    }
    env_forget(e);
    return REPO_GIT(&e->repo, REPO_THEIRS, "update-ref", e->base, onto);
}

int env_remove(struct env *e, bool all)
{
    AUTO_FREE char *proposal = mem_printf("refs/cove/proposal/%s", e->name);
    if (e->id && service_remove(e->service, e->id, "removing the sandbox") < 0 && e->ctx->err.code != ERR_NOT_FOUND)
        return -1;
    e->ctx->err.code = ERR_OK;
    AUTO_FREE char *made = env_made(e, e->name);
    AUTO_FREE char *refs = mem_printf("delete %s\ndelete %s\ndelete %s\n%s%s%s%s%s", e->work, proposal, e->base,
                                      made ? "delete refs/cove/sandbox/" : "", made ? e->name : "", made ? "/" : "",
                                      made ? made : "", made ? "\n" : ""),
                   *with_head = mem_printf("%sdelete %s\n", refs, e->head);
    return repo_set_refs(&e->repo, REPO_THEIRS, all ? with_head : refs);
}
