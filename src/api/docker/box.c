/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Containers: how their command starts and ends.
 *
 *  1. The sandbox is made by create, and runs without a command until start. When the command has ended, everything
 *     else in it ends, too: the sandbox is paused without
 *     memory, from where start resumes it, or ends (DOCKER_RM). Until then the container is_ending.
 *  2. What a client waits for is told by one of box_tell() and box_gone(), never from within the call that asked.
 *  3. One that `cove docker` made is followed, and its end is that command's to arrange.
 */
#include "api/docker/handlers.h"
#include "base/mem.h"
#include "sandbox/life/pause.h"

#include <signal.h>

enum { STOP_S = 10, CODE_UNKNOWN = 128 + SIGKILL };

static const struct actor docker_own = {.name = "docker", .is_own = true, .who.view = TENANT_ANY};

struct docker_waiter {
    struct call *call;
    struct list node; /* in the box's waiters */
    struct docker_box *box;
    void (*done)(struct call *c, int code);
    bool until_gone;
};

/* ---- what is known ---- */

json_t *docker_config(const struct sandbox *sb)
{
    struct str text = sandbox_label(sb, STR(DOCKER_CONFIG));
    return text.n ? json_loadb(text.p, text.n, 0, NULL) : NULL;
}

static void box_label(struct docker_box *box, const char *text)
{
    struct err ignored;
    (void)!sandbox_set_label(box->sb, &docker_own, STR(DOCKER_EXIT), str_of(text), &ignored);
}

static bool box_is_ours(const struct docker_box *box)
{
    return sandbox_label(box->sb, STR(DOCKER_CONFIG)).p;
}

enum docker_state docker_box_state(const struct docker_box *box)
{
    const struct sandbox_info *info = sandbox_info(box->sb);
    struct str exit = sandbox_label(box->sb, STR(DOCKER_EXIT));
    if (info->state == SANDBOX_PAUSED)
        return info->has_memory ? DOCKER_PAUSED : exit.p || !box_is_ours(box) ? DOCKER_EXITED : DOCKER_CREATED;
    if (box->process.follow)
        return DOCKER_RUNNING;
    return exit.p || !box_is_ours(box) ? DOCKER_EXITED : DOCKER_CREATED;
}

int docker_box_code(const struct docker_box *box)
{
    struct str exit = sandbox_label(box->sb, STR(DOCKER_EXIT));
    uint64_t code = 0;
    if (docker_box_state(box) != DOCKER_EXITED || (exit.n && str_to_u64(exit, &code) == 0))
        return (int)code;
    return box->finished ? box->process.code : CODE_UNKNOWN;
}

struct docker_box *docker_box_of(struct call *c)
{
    struct docker_box *box = docker_box(docker_of(c), c->sandbox);
    if (!box)
        call_refuse(c, ERR_NOT_FOUND, "No such container: %s", sandbox_info(c->sandbox)->id);
    return box;
}

struct docker_box *docker_box_running(struct call *c)
{
    struct docker_box *box = docker_box_of(c);
    if (!box || box->process.follow)
        return box;
    call_fail(c, 409, "container %s is not running", sandbox_info(c->sandbox)->id);
    return NULL;
}

/* ---- who waits ---- */

static void waiter_leaves(struct call *c)
{
    list_remove(&((struct docker_waiter *)c->state)->node);
}

static struct docker_waiter *box_await(struct docker_box *box, struct call *c, void (*done)(struct call *c, int code))
{
    struct docker_waiter *w = call_state(c, sizeof(*w), waiter_leaves);
    *w = (struct docker_waiter){.call = c, .box = box, .done = done};
    list_append(&box->waiters, &w->node);
    return w;
}

static void box_tell(struct docker_box *box, bool is_gone)
{
    const int code = box->process.code;
    struct list all;
    list_init(&all);
    LIST_FOREACH (struct docker_waiter, w, &box->waiters, node) {
        if (w->until_gone && !is_gone)
            continue;
        list_remove(&w->node);
        list_append(&all, &w->node);
    }
    for (struct docker_waiter *w; (w = LIST_FIRST(struct docker_waiter, &all, node));) {
        list_remove(&w->node);
        w->call->cleanup = NULL;
        w->done(w->call, code);
    }
}

/* ---- the object ---- */

static void box_unref(struct docker_box *box)
{
    if (--box->refs)
        return;
    sandbox_unref(box->sb);
    mem_free(box);
}

static void box_forget(struct docker_box *box)
{
    (void)map_del(&box->docker->boxes, str_of(sandbox_info(box->sb)->id));
    sandbox_unwatch(&box->watch);
    for (struct docker_exec *e; (e = LIST_FIRST(struct docker_exec, &box->execs, node));)
        docker_exec_free(e);
    docker_process_fini(&box->process);
    box->docker = NULL;
    box_unref(box);
}

static void box_free(void *box)
{
    box_forget(box);
}

void docker_boxes_free(struct docker_api *d)
{
    facade_drain(&d->boxes, box_free);
}

static void box_gone(struct sandbox_watch *w, struct sandbox *sb UNUSED)
{
    struct docker_box *box = container_of(w, struct docker_box, watch);
    box->is_ending = false;
    box_tell(box, true);
    box_forget(box);
}

/* ---- the end of its command ---- */

static void box_paused(void *ctx, struct sandbox *sb UNUSED, const struct err *err UNUSED)
{
    struct docker_box *box = ctx;
    box->is_ending = false;
    if (box->docker)
        box_tell(box, false);
    box_unref(box);
}

static bool box_is_leaving(const struct sandbox *sb)
{
    const enum sandbox_state state = sandbox_info(sb)->state;
    return state == SANDBOX_STOPPING || state == SANDBOX_ENDED || state == SANDBOX_FAILED;
}

static void box_over(struct docker_process *p)
{
    struct docker_box *box = p->box;
    char code[16];
    struct err err;
    box->finished = clock_real();
    if (box_is_leaving(box->sb))
        return; /* box_gone() comes */
    if (box_is_ours(box) && sandbox_label(box->sb, STR(DOCKER_RM)).n && !box->is_restarting) {
        (void)!sandbox_kill(box->sb, &docker_own, sandbox_ignore, NULL, &err);
        return;
    }
    if (box_is_ours(box)) {
        (void)snprintf(code, sizeof(code), "%d", p->code);
        box_label(box, code);
        box->refs++;
        box->is_ending = true;
        if (sandbox_pause(box->sb, &docker_own, false, box_paused, box, &err) == 0)
            return;
        box->is_ending = false;
        box->refs--;
    }
    box_tell(box, false);
}

/* One that is not there has ended, nobody knows how; whatever else was in the way, it is looked for again. */
static void box_found(struct docker_process *p, struct call *starter UNUSED, const struct err *err)
{
    if (!err || err->code != ERR_NOT_FOUND)
        return;
    p->code = CODE_UNKNOWN;
    box_over(p);
}

static void box_look(struct docker_box *box)
{
    static const struct exec_select which = {.by_tag = true, .tag = {DOCKER_TAG, sizeof(DOCKER_TAG) - 1}};
    struct docker_process *p = &box->process;
    struct str exit = sandbox_label(box->sb, STR(DOCKER_EXIT));
    struct err err;
    if (p->follow || box->is_ending || box->finished || sandbox_info(box->sb)->state != SANDBOX_RUNNING || exit.n ||
        (box_is_ours(box) && !exit.p))
        return;
    p->started = box_found;
    p->pid = 0;
    if (exec_attach(box->sb, &docker_own, &which, 0, &docker_process_ops, p, &p->follow, &err) < 0)
        p->follow = NULL;
}

struct docker_box *docker_box(struct docker_api *d, struct sandbox *sb)
{
    struct docker_box *box = map_get(&d->boxes, str_of(sandbox_info(sb)->id));
    if (!box && box_is_leaving(sb))
        return NULL;
    if (!box) {
        AUTO_JSON json_t *config = docker_config(sb);
        box = mem_new(struct docker_box);
        *box = (struct docker_box){.docker = d, .sb = sandbox_ref(sb), .refs = 1, .watch.fn = box_gone};
        docker_process_init(&box->process, box, DOCKER_LOG_MAX);
        box->process.over = box_over;
        box->process.tty = json_is_true(json_object_get(config, "Tty"));
        list_init(&box->waiters);
        list_init(&box->execs);
        sandbox_watch_end(sb, &box->watch);
        (void)map_put(&d->boxes, str_of(sandbox_info(sb)->id), box);
    }
    box_look(box);
    return box;
}

/* ---- start ---- */

static void start_done(struct docker_process *p, struct call *c, const struct err *err)
{
    struct err ignored, told;
    if (!err)
        box_label(p->box, "");
    else if (sandbox_label(p->box->sb, STR(DOCKER_RM)).n)
        (void)!sandbox_kill(p->box->sb, &docker_own, sandbox_ignore, NULL, &ignored);
    if (c && err) {
        told = *err;
        if (err->code == ERR_NOT_FOUND || err->code == ERR_FAILED_PRECONDITION) /* 404, 409: the container */
            told.code = ERR_INVALID_ARGUMENT;
        call_fail_err(c, &told);
    } else if (c) {
        call_empty(c, 204);
    }
}

static int start_read(struct call *c, const json_t *config, struct exec_spec *spec, struct err *err)
{
    struct arena *arena = http_arena(c->req);
    const struct str *entry = NULL, *words = NULL;
    size_t n_entry = 0, n = 0;
    int64_t size[2] = {24, 80};
    const json_t *console = json_object_get(json_object_get(config, "HostConfig"), "ConsoleSize");
    if (docker_strings(arena, json_object_get(config, "Entrypoint"), "Entrypoint", &entry, &n_entry, err) < 0 ||
        docker_strings(arena, json_object_get(config, "Cmd"), "Cmd", &words, &n, err) < 0)
        return -1;
    struct str *all = arena_alloc(arena, (n_entry + n + 1) * sizeof(*all));
    n_entry = n_entry == 1 && !entry[0].n ? 0 : n_entry; /* "": the image's, of which nothing is kept */
    memcpy(all, entry ? entry : all, n_entry * sizeof(*all));
    memcpy(all + n_entry, words ? words : all, n * sizeof(*all));
    for (size_t i = 0; i < 2; i++) {
        json_int_t wanted = json_integer_value(json_array_get(console, i));
        size[i] = wanted >= 1 && wanted <= 10000 ? wanted : size[i];
    }
    *spec = (struct exec_spec){
        .cmd = all[0],
        .args = all + 1,
        .n_args = n_entry + n ? n_entry + n - 1 : 0,
        .user =
            sandbox_label(c->sandbox, STR(DOCKER_USER)).n ? sandbox_label(c->sandbox, STR(DOCKER_USER)) : STR("root"),
        .cwd = sandbox_label(c->sandbox, STR(DOCKER_CWD)),
        .tag = STR(DOCKER_TAG),
        .pty = json_is_true(json_object_get(config, "Tty")),
        .stdin_open = json_is_true(json_object_get(config, "OpenStdin")),
        .rows = (uint16_t)size[0],
        .cols = (uint16_t)size[1],
    };
    return 0;
}

static void start_step(struct call *c)
{
    struct docker_box *box = docker_box_of(c);
    AUTO_JSON json_t *config = docker_config(c->sandbox);
    struct exec_spec spec;
    if (!box)
        return;
    if (box->process.follow) {
        call_empty(c, 304);
        return;
    }
    if (!config) {
        call_refuse(c, ERR_UNIMPLEMENTED, "a container of 'cove docker' is started once, by it");
        return;
    }
    if (!call_ok(c, start_read(c, config, &spec, &c->err)) ||
        !call_ok(c, docker_process_start(&box->process, c, &spec, start_done)))
        return;
    box->finished = 0;
    box->started = clock_real();
    box->is_restarting = false;
    buf_clear(&box->process.log);
    docker_process_await(&box->process, c);
}

static void start_resumed(void *ctx, struct sandbox *sb UNUSED, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        call_step(c, start_step);
}

static void start_again(struct call *c, int code UNUSED)
{
    timer_stop(&c->timer);
    call_step(c, docker_start);
}

void docker_start(struct call *c)
{
    struct docker_box *box = docker_box_of(c);
    const enum sandbox_state state = sandbox_info(c->sandbox)->state;
    if (!box)
        return;
    if (box->is_ending)
        box_await(box, c, start_again);
    else if (docker_box_state(box) == DOCKER_PAUSED)
        call_fail(c, 409, "cannot start a paused container: 'cove resume %s'", sandbox_info(c->sandbox)->id);
    else if (state == SANDBOX_PAUSED)
        call_held(c, sandbox_resume(c->sandbox, &c->actor, &(struct sandbox_resume){0}, start_resumed, call_hold(c),
                                    &c->err));
    else
        start_step(c);
}

/* ---- stop, kill, restart ---- */

static void stop_done(struct call *c, int code UNUSED)
{
    call_empty(c, 204);
}

static void stop_late(struct call *c)
{
    const struct docker_waiter *w = c->state;
    const struct exec_select which = {.pid = w->box->process.pid};
    struct err err;
    if (w->box->process.follow && !c->exec)
        (void)!exec_signal(c->sandbox, &docker_own, &which, SIGKILL, call_on_exec, c, &c->exec, &err);
}

static void stop_killed(struct call *c UNUSED)
{
    /* its end is told */
}

static void stop_sent(struct call *c)
{
    struct docker_box *box = docker_box_of(c);
    const char *what = c->route->what;
    uint64_t seconds = *(uint64_t *)c->state;
    if (!box)
        return;
    if (what && *what == 'k') {
        call_empty(c, 204);
        return;
    }
    if (!box->process.follow && !box->is_ending) {
        (what ? start_again : stop_done)(c, 0);
        return;
    }
    box->is_restarting = what;
    box_await(box, c, what ? start_again : stop_done);
    c->on_exec = stop_killed;
    call_set_timer(c, MIN(seconds, (uint64_t)86400) * 1000, stop_late);
}

static int stop_signal(struct str name)
{
    static const struct {
        const char *name;
        int signal;
    } names[] = {{"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT}, {"KILL", SIGKILL},
                 {"TERM", SIGTERM}, {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"WINCH", SIGWINCH}};
    uint64_t number;
    if (str_to_u64(name, &number) == 0)
        return number >= 1 && number <= 64 ? (int)number : 0;
    struct str word = str_starts(name, STR("SIG")) ? str_sub(name, 3) : name;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (str_eqc(word, names[i].name))
            return names[i].signal;
    return 0;
}

void docker_stop(struct call *c)
{
    const bool is_kill = c->route->what && c->route->what[0] == 'k', is_restart = c->route->what && !is_kill;
    struct docker_box *box = docker_box_of(c);
    uint64_t *seconds = arena_alloc(http_arena(c->req), sizeof(*seconds));
    AUTO_JSON json_t *config = docker_config(c->sandbox);
    struct str t, name = str_of(json_string_value(json_object_get(is_kill ? NULL : config, "StopSignal")));
    bool has_time = call_query(c, "t", &t) && t.n;
    (void)call_query(c, "signal", &name);
    int signal = name.n ? stop_signal(name) : is_kill ? SIGKILL : SIGTERM;
    if (!box || (has_time && call_query_u64(c, "t", seconds) < 0))
        return;
    *seconds = has_time ? *seconds : STOP_S;
    c->state = seconds;
    if (!signal)
        call_refuse(c, ERR_INVALID_ARGUMENT, "Invalid signal: %.*s", (int)MIN(name.n, (size_t)20), name.p);
    else if (box->is_ending && !is_kill)
        box_await(box, c, is_restart ? start_again : stop_done);
    else if (box->process.follow)
        docker_signal(c, &box->process, signal, stop_sent);
    else if (is_restart)
        docker_start(c);
    else if (is_kill)
        (void)docker_box_running(c);
    else
        call_empty(c, 304);
}

/* ---- wait, remove, resize ---- */

static void wait_done(struct call *c, int code)
{
    AUTO_BUF struct buf b = BUF_INIT(64);
    buf_printf(&b, "{\"StatusCode\":%d}", code);
    (void)http_response_write(c->req, buf_str(&b));
    call_end(c);
}

/* The head comes at once: clients start the container when they have it. */
void docker_wait(struct call *c)
{
    struct docker_box *box = docker_box_of(c);
    struct str condition = STR("not-running");
    if (!box)
        return;
    (void)call_query(c, "condition", &condition);
    bool is_now = str_eqc(condition, "not-running") || !condition.n, until_gone = str_eqc(condition, "removed");
    if (!is_now && !until_gone && !str_eqc(condition, "next-exit")) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "invalid condition: \"%.*s\"", (int)MIN(condition.n, (size_t)40),
                    condition.p);
        return;
    }
    (void)http_response_begin(c->req, 200, &HTTP_JSON, 1, -1);
    if (is_now && !box->process.follow && !box->is_ending)
        wait_done(c, docker_box_code(box));
    else
        box_await(box, c, wait_done)->until_gone = until_gone;
}

static void remove_done(void *ctx, struct sandbox *sb UNUSED, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        call_empty(c, 204);
}

void docker_remove(struct call *c)
{
    const struct docker_box *box = docker_box_of(c);
    if (!box)
        return;
    if (box->process.follow && !docker_flag(c, "force"))
        call_fail(c, 409,
                  "cannot remove container \"/%s\": container is running: stop the container before removing or force "
                  "remove",
                  sandbox_info(c->sandbox)->id);
    else
        call_held(c, sandbox_kill(c->sandbox, &c->actor, remove_done, call_hold(c), &c->err));
}

void docker_box_resize(struct call *c)
{
    struct docker_box *box = docker_box_running(c);
    if (box)
        docker_resize(c, &box->process);
}

/* ---- logs and attach ---- */

void docker_logs(struct call *c)
{
    const bool attaches = c->route->what;
    const unsigned wants = (docker_flag(c, "stdout") ? DOCKER_STDOUT : 0) |
                           (docker_flag(c, "stderr") ? DOCKER_STDERR : 0) |
                           (attaches && docker_flag(c, "stdin") ? DOCKER_STDIN : 0) |
                           (!attaches || docker_flag(c, "logs") ? DOCKER_LOGS : 0);
    struct docker_box *box = docker_box_of(c);
    struct str tail = STR("all");
    uint64_t lines = UINT64_MAX;
    if (!box)
        return;
    if (call_query(c, "tail", &tail) && str_to_u64(tail, &lines) < 0)
        lines = UINT64_MAX; /* "all", and as Docker does with what is none */
    const enum docker_state state = docker_box_state(box);
    const bool can_come = attaches ? state != DOCKER_EXITED : state == DOCKER_RUNNING;
    if (docker_flag(c, "timestamps") || docker_flag(c, "since") || docker_flag(c, "until"))
        call_refuse(c, ERR_UNIMPLEMENTED, "timestamps, since and until are not supported: 'cove log' has the times");
    else if (state == DOCKER_EXITED && !box->finished && !attaches)
        call_refuse(c, ERR_UNIMPLEMENTED,
                    "what it wrote before the service's last start is in its record: 'cove log %s'",
                    sandbox_info(c->sandbox)->id);
    else
        docker_stream_open(c, &box->process,
                           wants | (can_come && docker_flag(c, attaches ? "stream" : "follow") ? DOCKER_LIVE : 0) |
                               (box->process.tty ? DOCKER_BARE : 0),
                           lines);
}
