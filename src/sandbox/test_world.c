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
#include <poll.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

const struct actor test_actor = {.name = "test"};

/* ---- coved ---- */

static void answer(struct world *w, union sup_message *m, uint32_t type, uint32_t tag, int fd)
{
    m->head = (struct sup_head){type, tag};
    int r;
    while ((r = fd_send(w->coved_fd, m, sup_size(type), &fd, fd >= 0)) == -EAGAIN) {
        struct pollfd p = {.fd = w->coved_fd, .events = POLLOUT};
        assert_int_equal(poll(&p, 1, 5000), 1);
    }
    assert_int_equal(r, 0);
}

static void answer_done(struct world *w, uint32_t tag, enum err_code code, const char *message)
{
    union sup_message m;
    memset(&m, 0, sizeof(m));
    m.done.code = (int32_t)code;
    (void)snprintf(m.done.message, sizeof(m.done.message), "%s", message);
    answer(w, &m, SUP_DONE, tag, -1);
}

static void say_ended(struct world *w, const char *id, enum sup_cause cause)
{
    union sup_message m;
    memset(&m, 0, sizeof(m));
    memcpy(m.ended.id, id, ID_SANDBOX_LEN);
    m.ended.cause = cause;
    answer(w, &m, SUP_ENDED, 0, -1);
}

static void answer_socket(struct world *w, struct fake_agent *a, uint32_t type, uint32_t tag)
{
    union sup_message m;
    int pair[2];
    memset(&m, 0, sizeof(m));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    answer(w, &m, type, tag, pair[0]);
    (void)fd_close(pair[0]);
    fake_attach(a, pair[1]);
}

static void on_create(struct world *w, const struct sup_create *c)
{
    w->creates++;
    w->create_owner = c->owner;
    if (w->create_mute)
        return;
    if (w->create_error) {
        answer_done(w, c->head.tag, w->create_error, "mount overlay: no space left on device");
        return;
    }
    if (c->kept) {
        assert_int_equal(c->layer[0], 0);
        char *kept = map_del(&w->kept, str_of(c->id));
        assert_non_null(kept);
        mem_free(kept);
    } else {
        assert_true(strlen(c->layer) == 71 || strlen(c->layer) == 26);
    }
    struct fake_agent *a = mem_new(struct fake_agent);
    a->w = w;
    a->fd = -1;
    memcpy(a->id, c->id, sizeof(a->id));
    (void)snprintf(a->layer, sizeof(a->layer), "%s", c->layer);
    assert_null(map_put(&w->agents, str_of(a->id), a));
    answer_socket(w, a, SUP_CREATED, c->head.tag);
}

static void drop_agent(struct world *w, struct fake_agent *a)
{
    (void)map_del(&w->agents, str_of(a->id));
    fake_free(a);
}

void world_end_agent(struct world *w, struct fake_agent *a, enum sup_cause cause)
{
    char id[ID_SANDBOX_LEN + 1];
    memcpy(id, a->id, sizeof(id));
    drop_agent(w, a);
    say_ended(w, id, cause);
}

static void done_or_held(struct world *w, uint32_t tag)
{
    if (w->holds)
        w->held_tag = tag;
    else
        answer_done(w, tag, ERR_OK, "");
}

void world_answer(struct world *w, enum err_code code)
{
    assert_true(w->held_tag != 0);
    answer_done(w, w->held_tag, code, code ? "it could not be done" : "");
    w->held_tag = 0;
}

static void freeze(struct fake_agent *a, bool is_frozen)
{
    a->is_frozen = a->deaf = is_frozen;
    fake_flush(a);
}

static void keep_files(struct world *w, struct fake_agent *a)
{
    mem_free(map_put(&w->kept, str_of(a->id), mem_strdup(a->id)));
    drop_agent(w, a);
}

void world_lose_memory(struct world *w)
{
    size_t it = 0;
    for (struct fake_agent *a; (a = map_next(&w->agents, &it));) {
        if (a->is_frozen) {
            keep_files(w, a);
            it = 0;
        }
    }
}

static void on_pause(struct world *w, const struct sup_pause *p, struct fake_agent *a)
{
    w->pauses++;
    if (w->pause_error || !a) {
        answer_done(w, p->head.tag, w->pause_error ? w->pause_error : ERR_NOT_FOUND, "not paused");
        return;
    }
    if (p->kind == SUP_PAUSE_MEMORY)
        freeze(a, true);
    else
        keep_files(w, a);
    done_or_held(w, p->head.tag);
}

static void on_resume(struct world *w, uint32_t tag, struct fake_agent *a)
{
    w->resumes++;
    if (w->resume_error || !a) {
        answer_done(w, tag, w->resume_error ? w->resume_error : ERR_NOT_FOUND, "not resumed");
        return;
    }
    freeze(a, false);
    done_or_held(w, tag);
}

static void on_kill(struct world *w, const char *id, uint32_t tag, struct fake_agent *a)
{
    AUTO_FREE char *kept = map_del(&w->kept, str_of(id));
    bool was_kept = kept != NULL;
    w->kills++;
    if (w->kill_mute)
        return;
    answer_done(w, tag, a || was_kept ? ERR_OK : ERR_NOT_FOUND, "");
    if (was_kept && !w->kill_is_plain)
        say_ended(w, id, SUP_CAUSE_KILLED);
    else if (a && w->ended_is_late)
        fake_hang_up(a);
    else if (a)
        world_end_agent(w, a, SUP_CAUSE_KILLED);
}

static void list_all(struct world *w, uint32_t tag)
{
    union sup_message m;
    size_t it = 0;
    memset(&m, 0, sizeof(m));
    for (struct fake_agent *a; (a = map_next(&w->agents, &it));) {
        memcpy(m.listed.id, a->id, sizeof(m.listed.id));
        m.listed.life = a->is_frozen ? SUP_FROZEN : SUP_LIVES;
        answer(w, &m, SUP_LISTED, tag, -1);
    }
    m.listed.life = SUP_KEPT;
    it = 0;
    for (const char *id; (id = map_next(&w->kept, &it));) {
        memcpy(m.listed.id, id, ID_SANDBOX_LEN + 1);
        answer(w, &m, SUP_LISTED, tag, -1);
    }
    answer_done(w, tag, ERR_OK, "");
}

void world_layer(struct world *w, const char *name, const char *below)
{
    struct fake_layer *l = mem_new(struct fake_layer);
    (void)snprintf(l->name, sizeof(l->name), "%s", name);
    (void)snprintf(l->below, sizeof(l->below), "%s", below);
    assert_null(map_put(&w->layers, str_of(name), l));
}

static void on_snapshot(struct world *w, const struct sup_snapshot *s, const struct fake_agent *a)
{
    union sup_message m;
    memset(&m, 0, sizeof(m));
    w->snapshots++;
    bool is_kept = map_get(&w->kept, str_of(s->id)) != NULL;
    m.stored.code = w->snapshot_error ? (int32_t)w->snapshot_error : a || is_kept ? 0 : ERR_NOT_FOUND;
    m.stored.is_unchanged = !m.stored.code && s->unlike[0] && w->files_stay;
    if (!m.stored.code && !m.stored.is_unchanged)
        world_layer(w, s->layer, a ? a->layer : "");
    else if (m.stored.code)
        (void)snprintf(m.stored.message, sizeof(m.stored.message), "not stored");
    if (w->holds)
        w->held_tag = s->head.tag;
    else
        answer(w, &m, SUP_STORED, s->head.tag, -1);
}

void world_answer_stored(struct world *w, enum err_code code)
{
    union sup_message m;
    memset(&m, 0, sizeof(m));
    assert_true(w->held_tag != 0);
    m.stored.code = (int32_t)code;
    answer(w, &m, SUP_STORED, w->held_tag, -1);
    w->held_tag = 0;
}

static uint32_t users_of(struct world *w, const char *layer)
{
    uint32_t n = 0;
    size_t it = 0;
    for (struct fake_agent *a; (a = map_next(&w->agents, &it));)
        n += strcmp(a->layer, layer) == 0;
    return n;
}

static void list_layers(struct world *w, uint32_t tag)
{
    union sup_message m;
    size_t it = 0;
    for (struct fake_layer *l; (l = map_next(&w->layers, &it));) {
        memset(&m, 0, sizeof(m));
        memcpy(m.layer.layer, l->name, sizeof(l->name));
        memcpy(m.layer.below, l->below, sizeof(l->below));
        m.layer.bytes = 1000;
        m.layer.in_use = users_of(w, l->name);
        answer(w, &m, SUP_LAYER, tag, -1);
    }
    answer_done(w, tag, ERR_OK, "");
}

static void drop_layer(struct world *w, const struct sup_layer_id *d)
{
    size_t it = 0;
    bool used = users_of(w, d->layer) != 0;
    for (struct fake_layer *l; (l = map_next(&w->layers, &it));)
        used |= strcmp(l->below, d->layer) == 0;
    if (!used)
        mem_free(map_del(&w->layers, str_of(d->layer)));
    answer_done(w, d->head.tag, used ? ERR_FAILED_PRECONDITION : ERR_OK, used ? "something stands on it" : "");
}

static void tell_pool(struct world *w, uint32_t tag)
{
    union sup_message m;
    memset(&m, 0, sizeof(m));
    m.pooled = (struct sup_pooled){.kind = SUP_POOL_BTRFS, .limits = 1, .total_bytes = 1000, .free_bytes = 10};
    answer(w, &m, SUP_POOLED, tag, -1);
}

static void on_volume(struct world *w, const struct sup_volume_id *q)
{
    bool makes = q->head.type == SUP_VOLUME_MAKE;
    w->volume_owner = q->owner;
    if (w->volume_error || (!makes && w->volume_refusals)) {
        w->volume_refusals -= !w->volume_error;
        answer_done(w, q->head.tag, w->volume_error ? w->volume_error : ERR_FAILED_PRECONDITION, "no");
        return;
    }
    AUTO_FREE char *gone = makes ? NULL : map_del(&w->volumes, str_of(q->volume));
    if (makes)
        mem_free(map_put(&w->volumes, str_of(q->volume), mem_strdup(q->volume)));
    answer_done(w, q->head.tag, makes || gone ? ERR_OK : ERR_NOT_FOUND, "");
}

static void list_volumes(struct world *w, uint32_t tag)
{
    union sup_message m;
    size_t it = 0;
    for (const char *id; (id = map_next(&w->volumes, &it));) {
        memset(&m, 0, sizeof(m));
        (void)snprintf(m.volume.volume, sizeof(m.volume.volume), "%s", id);
        answer(w, &m, SUP_VOLUME, tag, -1);
    }
    answer_done(w, tag, ERR_OK, "");
}

static void tell_usage(struct world *w, const struct sup_volumes *q)
{
    union sup_message m;
    w->usage_asks++;
    assert_in_range(q->n, 1, SUP_VOLUMES_MAX);
    for (size_t i = 0; i < q->n; i++) {
        if (!map_get(&w->volumes, str_of(q->volumes[i])))
            continue;
        memset(&m, 0, sizeof(m));
        memcpy(m.volume.volume, q->volumes[i], sizeof(m.volume.volume));
        m.volume.used_bytes = 4096;
        answer(w, &m, SUP_VOLUME, q->head.tag, -1);
    }
    answer_done(w, q->head.tag, w->volume_error, "no");
}

static void on_mount(struct world *w, const struct sup_volume_mount *q, struct fake_agent *a)
{
    w->mounts++;
    bool ok = !w->mount_error && a && map_get(&w->volumes, str_of(q->volume));
    if (ok) {
        size_t at = strlen(a->mounted);
        (void)snprintf(a->mounted + at, sizeof(a->mounted) - at, "%s:%.100s%s;", q->volume, q->path,
                       q->read_only ? ":ro" : "");
    }
    if (w->mount_silence)
        w->mount_silence--;
    else
        answer_done(w, q->head.tag, ok ? ERR_OK : w->mount_error ? w->mount_error : ERR_NOT_FOUND, "no such directory");
}

static void on_nest(struct world *w, const struct sup_nest *q, const struct fake_agent *of)
{
    if (of && q->root[0]) {
        struct fake_agent *a = map_get(&w->nests, str_of(q->name));
        if (!a) {
            a = mem_new(struct fake_agent);
            a->w = w;
            a->fd = -1;
            (void)snprintf(a->id, sizeof(a->id), "%.21s", q->name);
            assert_null(map_put(&w->nests, str_of(a->id), a));
        }
        fake_attach(a, TAKE_FD(w->received_fd));
    }
    answer_done(w, q->head.tag, of ? ERR_OK : ERR_NOT_FOUND, "no such sandbox");
}

static void on_request(struct world *w, const union sup_message *q)
{
    union sup_message m;
    memset(&m, 0, sizeof(m));
    bool has_id = sup_size(q->head.type) > sizeof(q->head);
    struct fake_agent *a = has_id ? map_get(&w->agents, str_of(q->id.id)) : NULL;
    switch (q->head.type) {
    case SUP_CREATE:
        on_create(w, &q->create);
        break;
    case SUP_KILL:
        on_kill(w, q->id.id, q->head.tag, a);
        break;
    case SUP_LIST:
        list_all(w, q->head.tag);
        break;
    case SUP_PAUSE:
        on_pause(w, &q->pause, a);
        break;
    case SUP_RESUME:
        on_resume(w, q->head.tag, a);
        break;
    case SUP_SNAPSHOT:
        on_snapshot(w, &q->snapshot, a);
        break;
    case SUP_REWIND:
        w->rewinds++;
        answer_done(w, q->head.tag,
                    w->rewind_error                             ? w->rewind_error
                    : map_get(&w->kept, str_of(q->snapshot.id)) ? ERR_OK
                                                                : ERR_NOT_FOUND,
                    w->rewind_error ? "not rewound" : "");
        break;
    case SUP_LAYERS:
        list_layers(w, q->head.tag);
        break;
    case SUP_LAYER_DROP:
        drop_layer(w, &q->layer_id);
        break;
    case SUP_VOLUME_MAKE:
    case SUP_VOLUME_DROP:
        on_volume(w, &q->volume_id);
        break;
    case SUP_VOLUMES:
        list_volumes(w, q->head.tag);
        break;
    case SUP_VOLUME_USAGE:
        tell_usage(w, &q->volumes);
        break;
    case SUP_VOLUME_MOUNT:
        on_mount(w, &q->volume_mount, a);
        break;
    case SUP_NEST:
        on_nest(w, &q->nest, a);
        break;
    case SUP_OWNER:
        w->owner = q->owner;
        w->owners++;
        if (!q->owner.what[0]) {
            w->owner_limit = q->owner.limit_bytes;
            m.volume.used_bytes = w->owner_used;
            m.volume.limit_bytes = q->owner.limit_bytes;
            if (w->owner_used && q->owner.limit_bytes)
                answer(w, &m, SUP_VOLUME, q->head.tag, -1);
        }
        answer_done(w, q->head.tag, w->owner_error && !q->owner.what[0] ? w->owner_error : ERR_OK, "the pool is away");
        break;
    case SUP_POOL:
        tell_pool(w, q->head.tag);
        break;
    case SUP_ATTACH:
        w->attaches++;
        if (a)
            answer_socket(w, a, SUP_ATTACHED, q->head.tag);
        else
            answer_done(w, q->head.tag, ERR_NOT_FOUND, "no such sandbox");
        break;
    case SUP_USAGE:
        w->usages++;
        m.used.memory_bytes = 5 << 20;
        m.used.memory_limit_bytes = 512 << 20;
        m.used.cpu_usec = w->usages;
        m.used.disk_bytes = w->disk_used;
        m.used.disk_limit_bytes = w->disk_limit;
        m.used.pids_limit = 64;
        m.used.pids_refused = w->pids_refused;
        m.used.oom_kills = w->oom_kills;
        m.used.code = a ? 0 : ERR_NOT_FOUND;
        answer(w, &m, SUP_USED, q->head.tag, -1);
        break;
    case SUP_IMAGE:
        answer_done(w, q->head.tag, ERR_UNAVAILABLE, "no images here");
        break;
    default:
        fail_msg("coved was asked for %u", q->head.type);
    }
}

void egress_send_on(struct world *w, int sock)
{
    union sup_message m;
    memset(&m, 0, sizeof(m));
    answer(w, &m, SUP_EGRESS, 0, sock);
}

/* Returns false when there was nothing. */
static bool coved_once(struct world *w)
{
    union sup_message m;
    int fd;
    size_t n_fds = 0;
    ssize_t n = fd_recv(w->coved_fd, &m, sizeof(m), &fd, 1, &n_fds);
    if (n <= 0)
        return false;
    assert_int_equal(n, sup_size(m.head.type));
    w->received_fd = n_fds ? fd : -1;
    on_request(w, &m);
    w->received_fd = fd_close(w->received_fd);
    return true;
}

static void on_coved(uv_poll_t *handle, int status UNUSED, int events UNUSED)
{
    for (int i = 0; i < 32 && coved_once(handle->data); i++)
        ;
}

/* Coved answers while core_open() blocks: LIST only needs a thread. */
static void coved_thread(void *arg)
{
    struct world *w = arg;
    struct pollfd p = {.fd = w->coved_fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_true(coved_once(w));
}

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
    assert_int_equal(uv_thread_create(&thread, coved_thread, w), 0);
    if (core_open(&w->loop, &w->config, &w->core, &err) < 0)
        fail_msg("core_open: %s", err.msg);
    assert_int_equal(uv_thread_join(&thread), 0);
    assert_int_equal(uv_poll_start(&w->coved_poll, UV_READABLE, on_coved), 0);
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
    size_t it = 0;
    for (struct fake_agent *a; (a = map_next(&w->agents, &it)); it = 0)
        drop_agent(w, a);
    map_fini(&w->agents);
    for (struct fake_agent *a; (a = map_any(&w->nests));) {
        (void)map_del(&w->nests, str_of(a->id));
        fake_free(a);
    }
    map_fini(&w->nests);
    it = 0;
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
