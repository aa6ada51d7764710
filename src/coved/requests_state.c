/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/requests_internal.h"

void requests_stored(void *ctx, uint64_t asked, const struct stored *made, const struct err *err)
{
    struct requests *r = ctx;
    struct sup_stored m;
    uint32_t tag;
    if (!request_is_awaited(r, asked, &tag))
        return;
    assert(err || made);
    memset(&m, 0, sizeof(m));
    m.head = (struct sup_head){SUP_STORED, tag};
    if (err) {
        m.code = err_pack(err->code, err->reason);
        (void)snprintf(m.message, sizeof(m.message), "%s", err->msg);
    } else {
        m.frozen_usec = made->frozen;
        m.total_usec = made->total;
        m.layer_bytes = made->bytes;
        m.is_unchanged = made->is_unchanged;
    }
    worker_send(r->worker, &m, sizeof(m), -1);
}

/* Files that can't be put away are lost with the processes: where the disk is short, they go on. */
int requests_pause(struct requests *r, const union sup_message *message, struct err *err)
{
    const struct sup_pause *m = &message->pause;
    if (!request_is_id(m->id) || m->kind > SUP_PAUSE_BACK)
        return request_malformed(message, err);
    if (m->kind != SUP_PAUSE_MEMORY && reserve_check(&r->reserve, err) < 0)
        return -1;
    boxes_pause(r->boxes, request_asked(r, &m->head), m->id, (enum sup_pause_kind)m->kind, r->is_again);
    return 1;
}

int requests_resume(struct requests *r, const union sup_message *m, struct err *err)
{
    if (!request_is_id(m->id.id))
        return request_malformed(m, err);
    boxes_resume(r->boxes, request_asked(r, &m->head), m->id.id);
    return 1;
}

int requests_snapshot(struct requests *r, const union sup_message *message, struct err *err)
{
    const struct sup_snapshot *m = &message->snapshot;
    uint64_t asked = request_asked(r, &m->head);
    int failed;
    if (!request_is_id(m->id) || !request_is_layer(m->layer) || strncmp(m->layer, "layer-", 6) != 0 ||
        (m->unlike[0] && !request_is_layer(m->unlike)) || m->memory >= SUP_MEMORY_KINDS)
        failed = err_set(err, ERR_INVALID_ARGUMENT, "malformed snapshot request");
    else
        failed = reserve_check(&r->reserve, err);
    if (failed < 0)
        requests_stored(r, asked, NULL, err);
    else
        boxes_snapshot(r->boxes, asked, m, r->is_again);
    return 1;
}

int requests_rewind(struct requests *r, const union sup_message *message, struct err *err)
{
    const struct sup_snapshot *m = &message->snapshot;
    if (!request_is_id(m->id) || !request_is_layer(m->layer))
        return request_malformed(message, err);
    if (reserve_check(&r->reserve, err) < 0)
        return -1;
    boxes_rewind(r->boxes, request_asked(r, &m->head), m->id, m->layer);
    return 1;
}
