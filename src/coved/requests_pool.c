/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"
#include "base/path.h"
#include "coved/diff/compare.h"
#include "coved/requests_internal.h"
#include "kernel/pool/pool.h"

#include <string.h>
#include <sys/socket.h>

struct pool_listing {
    struct requests *r;
    uint32_t tag;
};

/* What is asked for again and was done before is done. */
static int unless_done(const struct requests *r, int failed, enum err_code done, const struct err *err)
{
    return failed < 0 && r->is_again && err->code == done ? 0 : failed;
}

int requests_warm(struct requests *r, const union sup_message *message, struct err *err)
{
    const struct sup_warm *m = &message->warm;
    if (!request_is_layer(m->layer) || !request_is_text(m->tier, sizeof(m->tier)))
        return request_malformed(message, err);
    int failed = request_check_limits(m->memory_bytes, m->pids, err);
    return failed ? failed : boxes_want(r->boxes, m, r->default_pids, err);
}

static void tell_layer(void *ctx, const struct sup_layer *layer)
{
    const struct pool_listing *l = ctx;
    struct sup_layer m = *layer;
    m.head = (struct sup_head){SUP_LAYER, l->tag};
    worker_send(l->r->worker, &m, sizeof(m), -1);
}

int requests_layers(struct requests *r, const union sup_message *message, struct err *err)
{
    struct pool_listing listing = {r, message->head.tag};
    return layers_each(r->layers, tell_layer, &listing, err);
}

int requests_layer_drop(struct requests *r, const union sup_message *message, struct err *err)
{
    const struct sup_layer_id *m = &message->layer_id;
    return request_is_layer(m->layer) ? unless_done(r, layers_drop(r->layers, m->layer, err), ERR_NOT_FOUND, err)
                                      : request_malformed(message, err);
}

/* "vol-" and 20 of [a-z0-9] */
static bool is_volume(const char volume[static SUP_VOLUME_MAX])
{
    return request_is_text(volume, SUP_VOLUME_MAX) && strlen(volume) == 24 && memcmp(volume, "vol-", 4) == 0 &&
           str_is_of(str_of(volume + 4), "a-z0-9");
}

static void requests_pool_tell(struct requests *r, uint32_t tag, const char *volume, uint64_t used, uint64_t limit)
{
    struct sup_volume m;
    memset(&m, 0, sizeof(m));
    m.head = (struct sup_head){SUP_VOLUME, tag};
    if (strlen(volume) >= sizeof(m.volume))
        return;
    memcpy(m.volume, volume, strlen(volume));
    m.used_bytes = used;
    m.limit_bytes = limit;
    worker_send(r->worker, &m, sizeof(m), -1);
}

static void tell_volume(void *ctx, const char *volume)
{
    const struct pool_listing *l = ctx;
    requests_pool_tell(l->r, l->tag, volume, 0, 0);
}

int requests_volumes(struct requests *r, const union sup_message *message, struct err *err)
{
    struct pool_listing listing = {r, message->head.tag};
    int failed = pool_volume_each(r->host->pool, tell_volume, &listing);
    return failed < 0 ? err_errno(err, failed, "list the volumes") : 0;
}

/* Each costs calls to the kernel, and everybody waits meanwhile: that is why they are few. */
int requests_volume_usage(struct requests *r, const union sup_message *message, struct err *err)
{
    const struct sup_volumes *m = &message->volumes;
    bool is_good = m->n > 0 && m->n <= SUP_VOLUMES_MAX;
    for (size_t i = 0; is_good && i < m->n; i++)
        is_good = is_volume(m->volumes[i]);
    if (!is_good)
        return request_malformed(message, err);
    for (size_t i = 0; i < m->n; i++) {
        uint64_t used = 0, limit = 0;
        int failed = pool_volume_usage(r->host->pool, m->volumes[i], &used, &limit);
        if (failed != -ENOENT) /* another error: nothing is known of it, but that it is there */
            requests_pool_tell(r, m->head.tag, m->volumes[i], used, limit);
    }
    return 0;
}

static int volume_make(struct requests *r, const struct sup_volume_id *m, struct err *err)
{
    if (reserve_check(&r->reserve, err) < 0)
        return -1;
    int failed = pool_volume_make(r->host->pool, m->volume, m->limit_bytes, m->owner);
    fault_point("coved.volume.made");
    return failed < 0 ? err_errno(err, failed, "make volume %s", m->volume) : 0;
}

static int volume_drop(struct requests *r, const struct sup_volume_id *m, struct err *err)
{
    char id[ID_SANDBOX_LEN + 1];
    if (boxes_mounted(r->boxes, m->volume, id))
        return err_set(err, ERR_FAILED_PRECONDITION, "volume %s is mounted in sandbox %s", m->volume, id);
    int failed = pool_volume_drop(r->host->pool, m->volume);
    fault_point("coved.volume.dropped");
    return failed < 0 ? err_errno(err, failed, "drop volume %s", m->volume) : 0;
}

int requests_volume(struct requests *r, const union sup_message *message, struct err *err)
{
    const struct sup_volume_id *m = &message->volume_id;
    if (!is_volume(m->volume))
        return request_malformed(message, err);
    return m->head.type == SUP_VOLUME_MAKE ? unless_done(r, volume_make(r, m, err), ERR_ALREADY_EXISTS, err)
                                           : unless_done(r, volume_drop(r, m, err), ERR_NOT_FOUND, err);
}

/* The figures tell what was asked for to be in force. */
static int owner_limit(struct requests *r, const struct sup_owner *m)
{
    uint64_t used = 0;
    int failed = fault_error("coved.owner.limit");
    failed = failed ? failed : pool_owner_limit(r->host->pool, m->owner, m->limit_bytes);
    if (failed == 0 && m->limit_bytes && pool_owner_usage(r->host->pool, m->owner, &used) == 0)
        requests_pool_tell(r, m->head.tag, "", used, m->limit_bytes);
    return failed;
}

static int owner_take(struct requests *r, const struct sup_owner *m, struct err *err)
{
    struct pool *pool = r->host->pool;
    struct boxes_files f;
    int failed;
    if (!m->what[0])
        failed = owner_limit(r, m);
    else if (is_volume(m->what))
        failed = pool_own(pool, POOL_VOLUME, m->what, m->owner);
    else if (boxes_files(r->boxes, m->what, &f, err) < 0)
        return -1;
    else
        failed = pool_own(pool, f.kept[0] ? POOL_KEPT : POOL_BOX, f.kept[0] ? f.kept : f.box, m->owner);
    return failed < 0 ? err_errno(err, failed, "count the disk space of %s", m->what[0] ? m->what : "an owner") : 0;
}

int requests_owner(struct requests *r, const union sup_message *message, struct err *err)
{
    const struct sup_owner *m = &message->owner;
    if (!m->owner || m->owner >> POOL_OWNER_BITS || !request_is_text(m->what, sizeof(m->what)) ||
        (m->what[0] && (m->limit_bytes || (!is_volume(m->what) && !id_is_sandbox(str_of(m->what))))))
        return request_malformed(message, err);
    return owner_take(r, m, err);
}

int requests_volume_mount(struct requests *r, const union sup_message *message, struct err *err)
{
    const struct sup_volume_mount *m = &message->volume_mount;
    bool is_host = !m->volume[0] && request_is_text(m->source, sizeof(m->source)) && m->source[0] == '/';
    if (!request_is_id(m->id) || (!is_host && !is_volume(m->volume)) || !memchr(m->source, 0, sizeof(m->source)) ||
        !request_is_text(m->path, sizeof(m->path)) || m->read_only > 1)
        return request_malformed(message, err);
    boxes_mount(r->boxes, request_asked(r, &m->head), m);
    return 1;
}

int requests_pool(struct requests *r, const union sup_message *message, struct err *err UNUSED)
{
    static const uint32_t kinds[] = {
        [POOL_COPY] = SUP_POOL_COPY, [POOL_REFLINK] = SUP_POOL_REFLINK, [POOL_BTRFS] = SUP_POOL_BTRFS};
    const struct pool_features *f = pool_features(r->host->pool);
    struct pool_space space = {0};
    struct sup_pooled m;
    int ignored UNUSED = pool_space(r->host->pool, &space); /* 0: not known */
    memset(&m, 0, sizeof(m));
    m.head = (struct sup_head){SUP_POOLED, message->head.tag};
    m.kind = kinds[f->kind];
    m.limits = f->limits;
    m.total_bytes = space.total;
    m.free_bytes = space.free;
    worker_send(r->worker, &m, sizeof(m), -1);
    return 1;
}

int requests_image(struct requests *r, const union sup_message *message, struct err *err)
{
    const struct sup_layer_id *m = &message->layer_id;
    if (!request_is_layer(m->layer) || r->fd < 0)
        return request_malformed(message, err);
    return reserve_check(&r->reserve, err) < 0 ||
                   image_start(r->images, m->layer, m->owner, TAKE_FD(r->fd), request_asked(r, &m->head), err) < 0
               ? -1
               : 1;
}

static bool is_comparable(const char name[static SUP_DIGEST_MAX])
{
    return request_is_text(name, SUP_DIGEST_MAX) && (pool_is_layer(name) || id_is_sandbox(str_of(name)));
}

int requests_compare(struct requests *r, const union sup_message *message, struct err *err)
{
    const struct sup_diff *m = &message->diff;
    if (r->fd < 0 || (m->a[0] && !is_comparable(m->a)) || !is_comparable(m->b))
        return request_malformed(message, err);
    return compare_start(r->compares, r->boxes, r->host, m, TAKE_FD(r->fd), request_asked(r, &m->head), requests_done,
                         r, err) < 0
               ? -1
               : 1;
}

/* Absolute and clean. */
static bool is_nest_path(const char path[static SUP_NEST_PATH_MAX])
{
    char clean[PATH_TEXT_MAX];
    return request_is_text(path, SUP_NEST_PATH_MAX) && path[0] == '/' && path[1] &&
           path_clean(str_of(path), clean) >= 0 && strcmp(path, clean) == 0;
}

static bool is_stream(int fd)
{
    int domain = 0, type = 0;
    socklen_t n = sizeof(int);
    return fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) == 0 && domain == AF_UNIX &&
           getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type == SOCK_STREAM;
}

static bool is_service(const struct sup_nest *m)
{
    return request_is_layer(m->root) && request_is_text(m->name, SUP_NEST_NAME_MAX) && *m->name && *m->name != '-' &&
           str_is_of(str_of(m->name), "a-z0-9-");
}

int requests_nest(struct requests *r, const union sup_message *message, struct err *err)
{
    const struct sup_nest *m = &message->nest;
    bool is_good = request_is_id(m->id) && is_stream(r->fd) && m->mode < SUP_NEST_MODES && m->own_tmp <= 1 &&
                   m->own_network <= 1 && m->n_binds <= SUP_NEST_BINDS_MAX &&
                   (*m->root ? is_service(m) && !m->n_binds : is_nest_path(m->workspace));
    for (size_t i = 0; is_good && i < m->n_binds; i++)
        is_good = is_nest_path(m->binds[i].source) && is_nest_path(m->binds[i].path) && m->binds[i].read_only <= 1;
    if (!is_good)
        return request_malformed(message, err);
    boxes_nest(r->boxes, request_asked(r, &m->head), m, TAKE_FD(r->fd));
    return 1;
}
