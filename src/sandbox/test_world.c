/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/test_world.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "event/test_replay.h"
#include "sandbox/record/record.h"
#include "sandbox/templates.h"
#include "store/artefact.h"
#include "template/builds.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

const struct actor test_actor = {.name = "test"};

/* ---- the world ---- */

static void on_lost(void *ctx)
{
    ((struct world *)ctx)->supervisor_lost = true;
}

void world_open(struct world *w)
{
    struct err err;
    int pair[2];
    uv_thread_t thread;
    assert_int_equal(store_open(w->dir->db, &w->store, &err), 0);
    assert_int_equal(event_log_open(w->store, &w->events, &err), 0);
    AUTO_FREE char *artefacts = mem_printf("%s/artefacts", w->dir->path);
    assert_int_equal(artefacts_open(w->store, artefacts, 0, 0, &w->artefacts, &err), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    w->coved_fd = pair[1];
    if (!w->has_no_egress)
        egress_start(w);
    assert_int_equal(uv_poll_init(&w->loop, &w->coved_poll, w->coved_fd), 0);
    w->coved_poll.data = w;
    w->config = (struct core_config){
        .keep_ended = w->config.keep_ended,
        .keep_events = w->config.keep_events,
        .guest = w->config.guest,
        .state_dir = w->dir->path,
        .engine.supervisor_fd = pair[0],
        .store = w->store,
        .events = w->events,
        .artefacts = w->artefacts,
        .default_memory_bytes = 512 << 20,
        .default_cpu_milli = 2000,
        .max_sandboxes = 1200,
        .max_timeout_ms = 24 * 3600 * 1000,
        .version = "0",
        .on_supervisor_lost = on_lost,
        .supervisor_lost_ctx = w,
    };
    assert_int_equal(uv_thread_create(&thread, world_coved_thread, w), 0);
    if (core_open(&w->loop, &w->config, &w->core, &err) < 0)
        fail_msg("core_open: %s", err.msg);
    assert_int_equal(uv_thread_join(&thread), 0);
    assert_int_equal(uv_poll_start(&w->coved_poll, UV_READABLE, world_coved_reads), 0);
}

/* What is stored of each sandbox is what its log alone says. */
static void world_check_replay(struct world *w)
{
    struct err err;
    size_t it = 0;
    if (keeper_commit(w->core->keeper, &err) < 0)
        return; /* a test of a full disk */
    for (const struct sandbox *sb; (sb = map_next(&w->core->by_id, &it));) {
        struct event_state state;
        if (event_replay(w->events, sb->info.id, &state, &err) < 0)
            continue; /* nobody's yet */
        if (!state.complete || w->core->n_ends)
            continue; /* its beginning was pruned; its end waits for room */
        if (sb->info.state == SANDBOX_RUNNING || sb->info.state == SANDBOX_PAUSED || sb->info.state == SANDBOX_ENDED ||
            sb->info.state == SANDBOX_FAILED)
            assert_string_equal(state.phase, sandbox_state_name(sb->info.state));
        if (sb->info.end_cause && sb->info.ended)
            assert_string_equal(state.end_cause, sb->info.end_cause);
    }
}

void world_close(struct world *w)
{
    world_check_replay(w);
    core_close(w->core);
    world_hang_up(w);
    w->core = NULL;
    egress_stop(w);
    (void)uv_run(&w->loop, UV_RUN_NOWAIT);
    (void)uv_run(&w->loop, UV_RUN_NOWAIT);
    artefacts_close(w->artefacts);
    event_log_close(w->events);
    store_close(w->store);
}

void world_hang_up(struct world *w)
{
    if (w->coved_fd < 0)
        return;
    uv_close((uv_handle_t *)&w->coved_poll, NULL);
    (void)uv_run(&w->loop, UV_RUN_NOWAIT);
    w->coved_fd = fd_close(w->coved_fd);
}

void world_turn(struct world *w)
{
    (void)uv_run(&w->loop, UV_RUN_ONCE);
}

void world_turns(struct world *w, unsigned ms)
{
    usec_t until = clock_mono() + ms * USEC_PER_MS;
    while (clock_mono() < until)
        world_turn(w);
}

static void on_tick(uv_timer_t *timer UNUSED)
{
}

int world_setup(void **state)
{
    struct world *w = mem_new(struct world);
    char path[128];
    void *dir;
    log_init("test", LOG_ERROR);
    assert_int_equal(test_dir_setup(&dir), 0);
    w->dir = dir;
    w->coved_fd = w->egress.fd = -1;
    (void)snprintf(path, sizeof(path), "%s/templates", w->dir->path);
    assert_int_equal(mkdir(path, 0700), 0);
    (void)snprintf(path, sizeof(path), "%s/templates/base.conf", w->dir->path);
    assert_int_equal(
        fd_write_file(AT_FDCWD, path,
                      STR("id = base-1\nalias = base\ncpu_milli = 1000\nmemory_bytes = 268435456\nenv = LANG=C.UTF-8\n"
                          "layer = sha256-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"),
                      0600),
        0);
    assert_int_equal(uv_loop_init(&w->loop), 0);
    assert_int_equal(uv_timer_init(&w->loop, &w->tick), 0);
    assert_int_equal(uv_timer_start(&w->tick, on_tick, 10, 10), 0);
    world_open(w);
    *state = w;
    return 0;
}

int world_teardown(void **state)
{
    struct world *w = *state;
    void *dir = w->dir;
    if (w->core)
        world_close(w);
    for (struct fake_agent *a; (a = map_any(&w->agents));) {
        (void)map_del(&w->agents, str_of(a->id));
        fake_free(a);
    }
    map_fini(&w->agents);
    for (struct fake_agent *a; (a = map_any(&w->nests));) {
        (void)map_del(&w->nests, str_of(a->id));
        fake_free(a);
    }
    map_fini(&w->nests);
    size_t it = 0;
    for (char *id; (id = map_next(&w->kept, &it));)
        mem_free(id);
    map_fini(&w->kept);
    it = 0;
    for (struct fake_layer *l; (l = map_next(&w->layers, &it));)
        mem_free(l);
    map_fini(&w->layers);
    it = 0;
    for (char *id; (id = map_next(&w->volumes, &it));)
        mem_free(id);
    map_fini(&w->volumes);
    egress_stop(w);
    uv_close((uv_handle_t *)&w->tick, NULL);
    (void)uv_run(&w->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    assert_int_equal(test_dir_teardown(&dir), 0);
    mem_free(w);
    return 0;
}

struct made {
    bool done;
    struct sandbox *sb;
};

static void on_made(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct made *m = ctx;
    if (err)
        print_message("create: %s\n", err->msg);
    m->done = true;
    m->sb = sb;
}

struct sandbox *world_sandbox(struct world *w, const struct sandbox_spec *spec)
{
    struct made m = {0};
    struct err err;
    struct sandbox_spec base = {.timeout_ms = 300000, .secure = true, .allow_internet = true};
    if (spec)
        base = *spec;
    if (!base.template_ref.n)
        base.template_ref = STR("base");
    if (sandbox_create(w->core, &test_actor, &base, on_made, &m, &err) < 0)
        fail_msg("create: %s", err.msg);
    assert_false(m.done);
    WAIT(w, m.done);
    assert_non_null(m.sb);
    return m.sb;
}

struct sandbox *world_expiring(struct world *w, const struct sandbox_spec *spec, uint64_t timeout_ms)
{
    struct err err;
    struct sandbox_spec lasting = spec ? *spec : (struct sandbox_spec){0};
    lasting.timeout_ms = 300000;
    struct sandbox *sb = world_sandbox(w, &lasting);
    assert_int_equal(sandbox_set_timeout(sb, &test_actor, timeout_ms, false, &err), 0);
    return sb;
}

struct fake_agent *world_agent(struct world *w, const struct sandbox *sb)
{
    struct fake_agent *a = map_get(&w->agents, str_of(sandbox_info(sb)->id));
    assert_non_null(a);
    return a;
}

struct counting {
    char grade[32];
    enum event_kind kind;
    size_t n;
    char data[EVENT_DATA_MAX + 1];
};

static bool count_event(const struct event *e, void *ctx)
{
    struct counting *c = ctx;
    if (e->kind == c->kind) {
        c->n++;
        (void)snprintf(c->grade, sizeof(c->grade), "%.*s", STR_ARG(e->grade));
        memcpy(c->data, e->data.p, e->data.n);
        c->data[e->data.n] = 0;
    }
    return true;
}

static struct counting counting;

size_t world_count_events(struct world *w, const char *id, enum event_kind kind)
{
    struct err err;
    counting = (struct counting){.kind = kind};
    assert_int_equal(store_commit(w->store, &err), 0);
    if (event_read(w->events, id, 0, 100000, count_event, &counting, &err) < 0)
        assert_int_equal(err.code, ERR_NOT_FOUND);
    return counting.n;
}

const char *world_event_data(struct world *w, const char *id, enum event_kind kind)
{
    (void)world_count_events(w, id, kind);
    return counting.data;
}

const char *world_event_grade(struct world *w, const char *id, enum event_kind kind)
{
    (void)world_count_events(w, id, kind);
    return counting.grade;
}

void world_template(struct world *w, const char *name, const char *start, const char *ready)
{
    struct template_registry *r = core_templates(w->core);
    struct template_request request = {.name = str_of(name)};
    struct template_result result = {.layer = "layer-0123456789abcdefghij",
                                     .start_cmd = start,
                                     .ready_cmd = ready,
                                     .workdir = "/srv",
                                     .user = "app"};
    const struct template_build *b;
    struct err err;
    if (template_request(r, &request, &b, &err) < 0)
        fail_msg("request: %s", err.msg);
    AUTO_FREE char *id = mem_strdup(b->id);
    if (template_build_begin(r, id, &err) < 0 || template_build_done(r, id, &result, &err) < 0 ||
        core_templates_commit(w->core, &err) < 0)
        fail_msg("build: %s", err.msg);
}

void world_on_done(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct world_outcome *o = ctx;
    o->calls++;
    o->sb = sb;
    o->err = err ? *err : (struct err){0};
}

void world_pause(struct world *w, struct sandbox *sb, bool memory)
{
    static struct world_outcome o;
    struct err err;
    o = (struct world_outcome){0};
    if (sandbox_pause(sb, &test_actor, memory, world_on_done, &o, &err) < 0)
        fail_msg("pause: %s", err.msg);
    assert_int_equal(o.calls, 0);
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_PAUSING);
    WAIT(w, o.calls);
    assert_int_equal(o.err.code, ERR_OK);
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_PAUSED);
    assert_int_equal(sandbox_info(sb)->has_memory, memory);
}

int world_resume_begin(struct sandbox *sb, const struct sandbox_resume *how, struct world_outcome *o, struct err *err)
{
    static const struct sandbox_resume plain;
    return sandbox_resume(sb, &test_actor, how ? how : &plain, world_on_done, o, err);
}

void world_resume(struct world *w, struct sandbox *sb, const struct sandbox_resume *how)
{
    static struct world_outcome o;
    struct err err;
    o = (struct world_outcome){0};
    if (world_resume_begin(sb, how, &o, &err) < 0)
        fail_msg("resume: %s", err.msg);
    assert_int_equal(o.calls, 0);
    WAIT(w, o.calls);
    assert_int_equal(o.err.code, ERR_OK);
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_RUNNING);
}

struct sandbox *world_restart(struct world *w, const char *id)
{
    world_close(w);
    world_open(w);
    struct sandbox *sb = sandbox_find(w->core, str_of(id));
    assert_non_null(sb);
    return sb;
}
