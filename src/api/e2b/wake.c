/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/wake.h"

#include "api/e2b/proxy_error.h"
#include "base/mem.h"
#include "sandbox/life/pause.h"

static const struct actor actor = {.name = "e2b:traffic"};

struct held {
    struct sandbox_wake wake;
    struct e2b *e2b;
    struct http_request *req; /* NULL: its client has gone */
    struct sandbox *sandbox;  /* referenced */
    uint16_t port;
    wake_fn fn;
};

static void held_free(struct held *h)
{
    sandbox_unref(h->sandbox);
    mem_free(h);
}

static void on_gone(struct http_request *req, void *ctx)
{
    struct held *h = ctx;

    (void)req;
    sandbox_unwake(&h->wake);
    held_free(h);
}

static void ignore(struct http_request *req, void *ctx)
{
    (void)req;
    (void)ctx;
}

static void on_awake(struct sandbox_wake *w, struct sandbox *sb, const struct err *err)
{
    struct held *h = container_of(w, struct held, wake);
    struct http_request *req = h->req;

    http_on_close(req, ignore, NULL); /* whoever goes on with it sets its own */
    if (err || sandbox_info(sb)->state != SANDBOX_RUNNING)
        wake_refuse(req, sandbox_info(sb));
    else
        h->fn(h->e2b, req, sb, h->port);
    held_free(h);
}

void wake_refuse(struct http_request *req, const struct sandbox_info *info)
{
    if (info->state == SANDBOX_PAUSING || info->state == SANDBOX_RESUMING)
        proxy_error_changing(req, str_of(info->id), info->state == SANDBOX_PAUSING);
    else
        proxy_error_not_found(req, str_of(info->id));
}

bool wake_first(struct e2b *e2b, struct http_request *req, struct sandbox *sb, uint16_t port, bool may_wake, wake_fn fn)
{
    const struct sandbox_info *info = sandbox_info(sb);
    struct held *h;
    struct err err;

    if (info->state == SANDBOX_RUNNING)
        return true;
    if (!may_wake || !info->auto_resume) {
        wake_refuse(req, info);
        return false;
    }
    h = mem_new(struct held);
    *h = (struct held){.wake.fn = on_awake, .e2b = e2b, .req = req, .sandbox = sandbox_ref(sb), .port = port, .fn = fn};
    list_init(&h->wake.node);
    if (sandbox_wake(sb, &actor, &h->wake, &err) < 0) {
        held_free(h);
        if (err.code == ERR_RESOURCE_EXHAUSTED)
            proxy_error_too_many(req, str_of(info->id)); /* the error itself names the sandbox */
        else
            wake_refuse(req, info);
        return false;
    }
    http_on_close(req, on_gone, h);
    return false;
}
