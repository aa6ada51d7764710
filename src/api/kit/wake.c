/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/wake.h"
#include "base/mem.h"
#include "sandbox/life/pause.h"

struct wake_held {
    struct sandbox_wake wake;
    const struct port_way *way;
    void *ctx;
    struct http_request *req; /* NULL: its client has gone */
    struct sandbox *sandbox;  /* referenced */
    uint16_t port;
    wake_fn fn;
};

static void wake_held_free(struct wake_held *h)
{
    sandbox_unref(h->sandbox);
    mem_free(h);
}

static void wake_on_gone(struct http_request *req UNUSED, void *ctx)
{
    struct wake_held *h = ctx;
    sandbox_unwake(&h->wake);
    wake_held_free(h);
}

static void wake_ignore(struct http_request *req UNUSED, void *ctx UNUSED)
{
}

static void wake_on_awake(struct sandbox_wake *w, struct sandbox *sb, const struct err *err)
{
    struct wake_held *h = container_of(w, struct wake_held, wake);
    struct http_request *req = h->req;
    http_on_close(req, wake_ignore, NULL); /* whoever goes on with it sets its own */
    if (err || sandbox_info(sb)->state != SANDBOX_RUNNING)
        h->way->refuse(req, sandbox_info(sb), h->port, PORT_ASLEEP);
    else
        h->fn(h->ctx, req, sb, h->port);
    wake_held_free(h);
}

bool wake_first(const struct port_way *way, void *ctx, struct http_request *req, struct sandbox *sb, uint16_t port,
                bool may_wake, wake_fn fn)
{
    const struct sandbox_info *info = sandbox_info(sb);
    struct wake_held *h;
    struct err err;
    if (info->state == SANDBOX_RUNNING)
        return true;
    if (!may_wake || !info->auto_resume) {
        way->refuse(req, info, port, PORT_ASLEEP);
        return false;
    }
    h = mem_new(struct wake_held);
    *h = (struct wake_held){.wake.fn = wake_on_awake,
                            .way = way,
                            .ctx = ctx,
                            .req = req,
                            .sandbox = sandbox_ref(sb),
                            .port = port,
                            .fn = fn};
    list_init(&h->wake.node);
    if (sandbox_wake(sb, way->actor, &h->wake, &err) < 0) {
        wake_held_free(h);
        way->refuse(req, info, port, err.code == ERR_RESOURCE_EXHAUSTED ? PORT_BUSY : PORT_ASLEEP);
        return false;
    }
    http_on_close(req, wake_on_gone, h);
    return false;
}
