/* SPDX-License-Identifier: Apache-2.0 */
/* The coved of tests: what it answers to each message. */
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/test_world.h"

#include <poll.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

static void coved_answer(struct world *w, union sup_message *m, uint32_t type, uint32_t tag, int fd)
{
    m->head = (struct sup_head){type, tag};
    int r;
    while ((r = fd_send(w->coved_fd, m, sup_size(type), &fd, fd >= 0)) == -EAGAIN) {
        struct pollfd p = {.fd = w->coved_fd, .events = POLLOUT};
        assert_int_equal(poll(&p, 1, 5000), 1);
    }
    assert_int_equal(r, 0);
}

static void coved_done(struct world *w, uint32_t tag, enum err_code code, const char *message)
{
    union sup_message m;
    memset(&m, 0, sizeof(m));
    m.done.code = (int32_t)code;
    (void)snprintf(m.done.message, sizeof(m.done.message), "%s", message);
    coved_answer(w, &m, SUP_DONE, tag, -1);
}

static void coved_ended(struct world *w, const char *id, enum sup_cause cause)
{
    union sup_message m;
    memset(&m, 0, sizeof(m));
    memcpy(m.ended.id, id, ID_SANDBOX_LEN);
    m.ended.cause = cause;
    coved_answer(w, &m, SUP_ENDED, 0, -1);
}

static void coved_socket(struct world *w, struct fake_agent *a, uint32_t type, uint32_t tag)
{
    union sup_message m;
    int pair[2];
    memset(&m, 0, sizeof(m));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    coved_answer(w, &m, type, tag, pair[0]);
    (void)fd_close(pair[0]);
    fake_attach(a, pair[1]);
}

static void coved_create(struct world *w, const struct sup_create *c)
{
    w->creates++;
    w->create_owner = c->owner;
    if (w->create_mute)
        return;
    if (w->create_error) {
        coved_done(w, c->head.tag, w->create_error, "mount overlay: no space left on device");
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
    coved_socket(w, a, SUP_CREATED, c->head.tag);
}

static void coved_drop(struct world *w, struct fake_agent *a)
{
    (void)map_del(&w->agents, str_of(a->id));
    fake_free(a);
}

void world_end_agent(struct world *w, struct fake_agent *a, enum sup_cause cause)
{
    char id[ID_SANDBOX_LEN + 1];
    memcpy(id, a->id, sizeof(id));
    coved_drop(w, a);
    coved_ended(w, id, cause);
}

static void coved_done_or_held(struct world *w, uint32_t tag)
{
    if (w->holds)
        w->held_tag = tag;
    else
        coved_done(w, tag, ERR_OK, "");
}

void world_answer(struct world *w, enum err_code code)
{
    assert_true(w->held_tag != 0);
    coved_done(w, w->held_tag, code, code ? "it could not be done" : "");
    w->held_tag = 0;
}

static void coved_freeze(struct fake_agent *a, bool is_frozen)
{
    a->is_frozen = a->deaf = is_frozen;
    fake_flush(a);
}

static void coved_keep(struct world *w, struct fake_agent *a)
{
    mem_free(map_put(&w->kept, str_of(a->id), mem_strdup(a->id)));
    coved_drop(w, a);
}

void world_lose_memory(struct world *w)
{
    size_t it = 0;
    for (struct fake_agent *a; (a = map_next(&w->agents, &it));) {
        if (a->is_frozen) {
            coved_keep(w, a);
            it = 0;
        }
    }
}

static void coved_pause(struct world *w, const struct sup_pause *p, struct fake_agent *a)
{
    w->pauses++;
    if (w->pause_error || !a) {
        coved_done(w, p->head.tag, w->pause_error ? w->pause_error : ERR_NOT_FOUND, "not paused");
        return;
    }
    if (p->kind == SUP_PAUSE_MEMORY)
        coved_freeze(a, true);
    else
        coved_keep(w, a);
    coved_done_or_held(w, p->head.tag);
}

static void coved_resume(struct world *w, uint32_t tag, struct fake_agent *a)
{
    w->resumes++;
    if (w->resume_error || !a) {
        coved_done(w, tag, w->resume_error ? w->resume_error : ERR_NOT_FOUND, "not resumed");
        return;
    }
    coved_freeze(a, false);
    coved_done_or_held(w, tag);
}

static void coved_kill(struct world *w, const char *id, uint32_t tag, struct fake_agent *a)
{
    AUTO_FREE char *kept = map_del(&w->kept, str_of(id));
    bool was_kept = kept != NULL;
    w->kills++;
    if (w->kill_mute)
        return;
    coved_done(w, tag, a || was_kept ? ERR_OK : ERR_NOT_FOUND, "");
    if (was_kept && !w->kill_is_plain)
        coved_ended(w, id, SUP_CAUSE_KILLED);
    else if (a && w->ended_is_late)
        fake_hang_up(a);
    else if (a)
        world_end_agent(w, a, SUP_CAUSE_KILLED);
}

static void coved_list(struct world *w, uint32_t tag)
{
    union sup_message m;
    size_t it = 0;
    memset(&m, 0, sizeof(m));
    for (struct fake_agent *a; (a = map_next(&w->agents, &it));) {
        memcpy(m.listed.id, a->id, sizeof(m.listed.id));
        m.listed.life = a->is_frozen ? SUP_FROZEN : SUP_LIVES;
        coved_answer(w, &m, SUP_LISTED, tag, -1);
    }
    m.listed.life = SUP_KEPT;
    it = 0;
    for (const char *id; (id = map_next(&w->kept, &it));) {
        memcpy(m.listed.id, id, ID_SANDBOX_LEN + 1);
        coved_answer(w, &m, SUP_LISTED, tag, -1);
    }
    coved_done(w, tag, ERR_OK, "");
}

void world_layer(struct world *w, const char *name, const char *below)
{
    struct fake_layer *l = mem_new(struct fake_layer);
    (void)snprintf(l->name, sizeof(l->name), "%s", name);
    (void)snprintf(l->below, sizeof(l->below), "%s", below);
    assert_null(map_put(&w->layers, str_of(name), l));
}

static void coved_snapshot(struct world *w, const struct sup_snapshot *s, const struct fake_agent *a)
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
        coved_answer(w, &m, SUP_STORED, s->head.tag, -1);
}

void world_answer_stored(struct world *w, enum err_code code)
{
    union sup_message m;
    memset(&m, 0, sizeof(m));
    assert_true(w->held_tag != 0);
    m.stored.code = (int32_t)code;
    coved_answer(w, &m, SUP_STORED, w->held_tag, -1);
    w->held_tag = 0;
}

static uint32_t coved_users(struct world *w, const char *layer)
{
    uint32_t n = 0;
    size_t it = 0;
    for (struct fake_agent *a; (a = map_next(&w->agents, &it));)
        n += strcmp(a->layer, layer) == 0;
    return n;
}

static void coved_layers(struct world *w, uint32_t tag)
{
    union sup_message m;
    size_t it = 0;
    for (struct fake_layer *l; (l = map_next(&w->layers, &it));) {
        memset(&m, 0, sizeof(m));
        memcpy(m.layer.layer, l->name, sizeof(l->name));
        memcpy(m.layer.below, l->below, sizeof(l->below));
        m.layer.bytes = 1000;
        m.layer.in_use = coved_users(w, l->name);
        coved_answer(w, &m, SUP_LAYER, tag, -1);
    }
    coved_done(w, tag, ERR_OK, "");
}

static void coved_drop_layer(struct world *w, const struct sup_layer_id *d)
{
    size_t it = 0;
    bool used = coved_users(w, d->layer) != 0;
    for (struct fake_layer *l; (l = map_next(&w->layers, &it));)
        used |= strcmp(l->below, d->layer) == 0;
    if (!used)
        mem_free(map_del(&w->layers, str_of(d->layer)));
    coved_done(w, d->head.tag, used ? ERR_FAILED_PRECONDITION : ERR_OK, used ? "something stands on it" : "");
}

static void coved_pool(struct world *w, uint32_t tag)
{
    union sup_message m;
    memset(&m, 0, sizeof(m));
    m.pooled = (struct sup_pooled){.kind = SUP_POOL_BTRFS, .limits = 1, .total_bytes = 1000, .free_bytes = 10};
    coved_answer(w, &m, SUP_POOLED, tag, -1);
}

static void coved_volume(struct world *w, const struct sup_volume_id *q)
{
    bool makes = q->head.type == SUP_VOLUME_MAKE;
    w->volume_owner = q->owner;
    if (w->volume_error || (!makes && w->volume_refusals)) {
        w->volume_refusals -= !w->volume_error;
        coved_done(w, q->head.tag, w->volume_error ? w->volume_error : ERR_FAILED_PRECONDITION, "no");
        return;
    }
    AUTO_FREE char *gone = makes ? NULL : map_del(&w->volumes, str_of(q->volume));
    if (makes)
        mem_free(map_put(&w->volumes, str_of(q->volume), mem_strdup(q->volume)));
    coved_done(w, q->head.tag, makes || gone ? ERR_OK : ERR_NOT_FOUND, "");
}

static void coved_volumes(struct world *w, uint32_t tag)
{
    union sup_message m;
    size_t it = 0;
    for (const char *id; (id = map_next(&w->volumes, &it));) {
        memset(&m, 0, sizeof(m));
        (void)snprintf(m.volume.volume, sizeof(m.volume.volume), "%s", id);
        coved_answer(w, &m, SUP_VOLUME, tag, -1);
    }
    coved_done(w, tag, ERR_OK, "");
}

static void coved_usage(struct world *w, const struct sup_volumes *q)
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
        coved_answer(w, &m, SUP_VOLUME, q->head.tag, -1);
    }
    coved_done(w, q->head.tag, w->volume_error, "no");
}

static void coved_mount(struct world *w, const struct sup_volume_mount *q, struct fake_agent *a)
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
        coved_done(w, q->head.tag, ok ? ERR_OK : w->mount_error ? w->mount_error : ERR_NOT_FOUND, "no such directory");
}

static void coved_nest(struct world *w, const struct sup_nest *q, const struct fake_agent *of)
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
    coved_done(w, q->head.tag, of ? ERR_OK : ERR_NOT_FOUND, "no such sandbox");
}

static void coved_request(struct world *w, const union sup_message *q)
{
    union sup_message m;
    memset(&m, 0, sizeof(m));
    bool has_id = sup_size(q->head.type) > sizeof(q->head);
    struct fake_agent *a = has_id ? map_get(&w->agents, str_of(q->id.id)) : NULL;
    switch (q->head.type) {
    case SUP_CREATE:
        coved_create(w, &q->create);
        break;
    case SUP_KILL:
        coved_kill(w, q->id.id, q->head.tag, a);
        break;
    case SUP_LIST:
        coved_list(w, q->head.tag);
        break;
    case SUP_PAUSE:
        coved_pause(w, &q->pause, a);
        break;
    case SUP_RESUME:
        coved_resume(w, q->head.tag, a);
        break;
    case SUP_SNAPSHOT:
        coved_snapshot(w, &q->snapshot, a);
        break;
    case SUP_REWIND:
        w->rewinds++;
        coved_done(w, q->head.tag,
                   w->rewind_error                             ? w->rewind_error
                   : map_get(&w->kept, str_of(q->snapshot.id)) ? ERR_OK
                                                               : ERR_NOT_FOUND,
                   w->rewind_error ? "not rewound" : "");
        break;
    case SUP_LAYERS:
        coved_layers(w, q->head.tag);
        break;
    case SUP_LAYER_DROP:
        coved_drop_layer(w, &q->layer_id);
        break;
    case SUP_VOLUME_MAKE:
    case SUP_VOLUME_DROP:
        coved_volume(w, &q->volume_id);
        break;
    case SUP_VOLUMES:
        coved_volumes(w, q->head.tag);
        break;
    case SUP_VOLUME_USAGE:
        coved_usage(w, &q->volumes);
        break;
    case SUP_VOLUME_MOUNT:
        coved_mount(w, &q->volume_mount, a);
        break;
    case SUP_NEST:
        coved_nest(w, &q->nest, a);
        break;
    case SUP_OWNER:
        w->owner = q->owner;
        w->owners++;
        if (!q->owner.what[0]) {
            w->owner_limit = q->owner.limit_bytes;
            m.volume.used_bytes = w->owner_used;
            m.volume.limit_bytes = q->owner.limit_bytes;
            if (w->owner_used && q->owner.limit_bytes)
                coved_answer(w, &m, SUP_VOLUME, q->head.tag, -1);
        }
        coved_done(w, q->head.tag, w->owner_error && !q->owner.what[0] ? w->owner_error : ERR_OK, "the pool is away");
        break;
    case SUP_POOL:
        coved_pool(w, q->head.tag);
        break;
    case SUP_ATTACH:
        w->attaches++;
        if (a)
            coved_socket(w, a, SUP_ATTACHED, q->head.tag);
        else
            coved_done(w, q->head.tag, ERR_NOT_FOUND, "no such sandbox");
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
        coved_answer(w, &m, SUP_USED, q->head.tag, -1);
        break;
    case SUP_IMAGE:
        coved_done(w, q->head.tag, ERR_UNAVAILABLE, "no images here");
        break;
    default:
        fail_msg("coved was asked for %u", q->head.type);
    }
}

void egress_send_on(struct world *w, int sock)
{
    union sup_message m;
    memset(&m, 0, sizeof(m));
    coved_answer(w, &m, SUP_EGRESS, 0, sock);
}

/* Returns false when there was nothing. */
static bool coved_answer_one(struct world *w)
{
    union sup_message m;
    int fd;
    size_t n_fds = 0;
    ssize_t n = fd_recv(w->coved_fd, &m, sizeof(m), &fd, 1, &n_fds);
    if (n <= 0)
        return false;
    assert_int_equal(n, sup_size(m.head.type));
    w->received_fd = n_fds ? fd : -1;
    coved_request(w, &m);
    w->received_fd = fd_close(w->received_fd);
    return true;
}

void world_coved_reads(uv_poll_t *handle, int status UNUSED, int events UNUSED)
{
    for (int i = 0; i < 32 && coved_answer_one(handle->data); i++)
        ;
}

void world_coved_thread(void *arg)
{
    struct world *w = arg;
    struct pollfd p = {.fd = w->coved_fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_true(coved_answer_one(w));
}
