/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "coved/foreign.h"
#include "coved/requests_internal.h"
#include "kernel/pool/pool.h"

/* Bytes that wait for cove-api: beyond that what is only seen is not sent. */
enum { SEEN_BACKLOG = 1 << 20 };

/* Below these the agent itself would not live; above the last one the kernel says no. */
enum { REQUESTS_MEMORY_LEAST = 16 << 20, PIDS_LEAST = 8, PIDS_MOST = 4 << 20 };

bool request_is_text(const char *p, size_t size)
{
    return memchr(p, 0, size) != NULL;
}

bool request_is_id(const char id[static ID_SANDBOX_LEN + 1])
{
    return request_is_text(id, ID_SANDBOX_LEN + 1) && id_is_sandbox(str_of(id));
}

bool request_is_layer(const char layer[static SUP_DIGEST_MAX])
{
    return request_is_text(layer, SUP_DIGEST_MAX) && pool_is_layer(layer);
}

int request_check_limits(uint64_t memory_bytes, uint32_t pids, struct err *err)
{
    if ((memory_bytes && memory_bytes < REQUESTS_MEMORY_LEAST) || (pids && (pids < PIDS_LEAST || pids > PIDS_MOST)))
        return err_set(err, ERR_INVALID_ARGUMENT, "a sandbox needs at least %d MiB of memory, and %d to %d processes",
                       REQUESTS_MEMORY_LEAST >> 20, PIDS_LEAST, PIDS_MOST);
    return 0;
}

static bool is_template_id(const char *p, size_t size)
{
    return request_is_text(p, size) && str_is_of(str_of(p), "A-Za-z0-9._-");
}

void request_done(struct requests *r, uint32_t type, uint32_t tag, int fd, const struct err *err)
{
    struct sup_done m;
    memset(&m, 0, sizeof(m));
    m.head = (struct sup_head){type, tag};
    if (err) {
        m.code = err_pack(err->code, err->reason);
        (void)snprintf(m.message, sizeof(m.message), "%s", err->msg);
    }
    worker_send(r->worker, &m, sizeof(m), fd);
}

uint64_t request_asked(const struct requests *r, const struct sup_head *head)
{
    return (uint64_t)r->generation << 32 | head->tag;
}

bool request_is_awaited(const struct requests *r, uint64_t asked, uint32_t *ret_tag)
{
    *ret_tag = (uint32_t)asked;
    return asked >> 32 == r->generation;
}

void requests_new_worker(struct requests *r)
{
    r->generation++;
    r->awaits = 0;
    images_cancel(r->images);
    boxes_forget(r->boxes);
}

void requests_adopt_worker(struct requests *r)
{
    struct sup_head head = {.type = SUP_RESTARTED};
    while (!head.tag)
        id_random_bytes(&head.tag, sizeof(head.tag));
    r->generation++;
    r->awaits = head.tag;
    worker_send(r->worker, &head, sizeof(head), -1);
}

int request_malformed(const union sup_message *m, struct err *err)
{
    return err_set(err, ERR_INVALID_ARGUMENT, "malformed request of type %u", m->head.type);
}

void requests_created(void *ctx, uint64_t asked, int session_fd, const struct err *err)
{
    AUTO_CLOSE int fd = session_fd;
    uint32_t tag;
    if (request_is_awaited(ctx, asked, &tag))
        request_done(ctx, SUP_CREATED, tag, fd, err);
}

void requests_done(void *ctx, uint64_t asked, const struct err *err)
{
    uint32_t tag;
    if (request_is_awaited(ctx, asked, &tag))
        request_done(ctx, SUP_DONE, tag, -1, err);
}

void requests_ended(void *ctx, const struct sup_ended *ended)
{
    struct requests *r = ctx;
    worker_send(r->worker, ended, sizeof(*ended), -1);
}

void requests_seen(void *ctx, const struct sup_seen *seen, size_t n)
{
    struct requests *r = ctx;
    worker_send(r->worker, seen, n, -1);
}

bool requests_see(void *ctx)
{
    const struct requests *r = ctx;
    return r->worker && worker_backlog(r->worker) < SEEN_BACKLOG;
}

static int requests_create(struct requests *r, const union sup_message *message, struct err *err)
{
    const struct sup_create *m = &message->create;
    if (!request_is_id(m->id) || m->kept > 1 || m->memory > 1 || m->once > 1 ||
        (m->kept ? m->layer[0] != 0 : !request_is_layer(m->layer)) ||
        !is_template_id(m->template_id, sizeof(m->template_id)) || !request_is_text(m->tier, sizeof(m->tier)))
        return err_set(err, ERR_INVALID_ARGUMENT, "malformed create request");
    if (request_check_limits(m->memory_bytes, m->pids, err) < 0 || reserve_check(&r->reserve, err) < 0)
        return -1;
    boxes_create(r->boxes, request_asked(r, &m->head), m, r->default_pids, r->is_again);
    return 1;
}

static int request_check_id(const struct sup_id *m, struct err *err)
{
    return request_is_id(m->id) ? 0 : err_set(err, ERR_INVALID_ARGUMENT, "malformed id");
}

static int requests_kill(struct requests *r, const union sup_message *m, struct err *err)
{
    return request_check_id(&m->id, err) < 0 ? -1 : boxes_kill(r->boxes, m->id.id, err);
}

static int requests_attach(struct requests *r, const union sup_message *m, struct err *err)
{
    AUTO_CLOSE int fd = -1;
    if (request_check_id(&m->id, err) < 0 || boxes_attach(r->boxes, m->id.id, &fd, err) < 0)
        return -1;
    request_done(r, SUP_ATTACHED, m->head.tag, fd, NULL);
    return 1;
}

static int requests_usage(struct requests *r, const union sup_message *m, struct err *err)
{
    struct sup_used used;
    memset(&used, 0, sizeof(used));
    used.head = (struct sup_head){SUP_USED, m->head.tag};
    if (request_check_id(&m->id, err) < 0 || boxes_usage(r->boxes, m->id.id, &used, err) < 0)
        used.code = (int32_t)err->code;
    worker_send(r->worker, &used, sizeof(used), -1);
    return 1;
}

struct requests_listing {
    struct requests *r;
    uint32_t tag;
};

static void requests_list_one(void *ctx, const char *id, usec_t started, enum sup_life life)
{
    struct requests_listing *l = ctx;
    struct sup_listed m;
    memset(&m, 0, sizeof(m));
    m.head = (struct sup_head){SUP_LISTED, l->tag};
    m.started = started;
    m.life = life;
    (void)snprintf(m.id, sizeof(m.id), "%s", id);
    worker_send(l->r->worker, &m, sizeof(m), -1);
}

static int requests_list(struct requests *r, const union sup_message *m, struct err *err UNUSED)
{
    struct requests_listing listing = {r, m->head.tag};
    boxes_each(r->boxes, requests_list_one, &listing);
    return 0;
}

static const struct {
    request_fn *fn;
    bool takes_fd;     /* else it is closed before */
    enum sup_type how; /* it is answered; 0: SUP_DONE */
} request_handlers[] = {
    [SUP_CREATE] = {.fn = requests_create, .how = SUP_CREATED},
    [SUP_KILL] = {.fn = requests_kill},
    [SUP_ATTACH] = {.fn = requests_attach, .how = SUP_ATTACHED},
    [SUP_USAGE] = {.fn = requests_usage},
    [SUP_LIST] = {.fn = requests_list},
    [SUP_PAUSE] = {.fn = requests_pause},
    [SUP_RESUME] = {.fn = requests_resume},
    [SUP_SNAPSHOT] = {.fn = requests_snapshot},
    [SUP_REWIND] = {.fn = requests_rewind},
    [SUP_WARM] = {.fn = requests_warm},
    [SUP_LAYERS] = {.fn = requests_layers},
    [SUP_LAYER_DROP] = {.fn = requests_layer_drop},
    [SUP_VOLUMES] = {.fn = requests_volumes},
    [SUP_VOLUME_USAGE] = {.fn = requests_volume_usage},
    [SUP_VOLUME_MAKE] = {.fn = requests_volume},
    [SUP_VOLUME_DROP] = {.fn = requests_volume},
    [SUP_VOLUME_MOUNT] = {.fn = requests_volume_mount},
    [SUP_OWNER] = {.fn = requests_owner},
    [SUP_POOL] = {.fn = requests_pool},
    [SUP_IMAGE] = {.fn = requests_image, .takes_fd = true},
    [SUP_DIFF] = {.fn = requests_compare, .takes_fd = true},
    [SUP_NEST] = {.fn = requests_nest, .takes_fd = true},
};

/* What is ours to say, or not known, is dropped. */
static void request_handle(struct requests *r, const union sup_message *m, int fd)
{
    uint32_t type = m->head.type;
    bool is_known = type < ARRAY_SIZE(request_handlers) && request_handlers[type].fn;
    struct err err;
    r->fd = is_known && request_handlers[type].takes_fd ? fd : foreign_close(fd);
    int done = is_known ? request_handlers[type].fn(r, m, &err) : 1;
    r->fd = foreign_close(r->fd);
    if (done <= 0)
        request_done(r, request_handlers[type].how ? request_handlers[type].how : SUP_DONE, m->head.tag, -1,
                     done < 0 ? &err : NULL);
}

void requests_handle(struct requests *r, const union sup_message *message, int fd)
{
    union sup_message m = *message;
    r->is_again = m.head.type & SUP_REPEATED;
    m.head.type &= ~(uint32_t)SUP_REPEATED;
    if (!r->awaits) {
        request_handle(r, &m, fd);
        return;
    }
    (void)foreign_close(fd); /* it comes again behind SUP_AGAIN */
    if (m.head.type == SUP_AGAIN && m.head.tag == r->awaits)
        r->awaits = 0;
}
