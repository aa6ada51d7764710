/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket to cove-api. A new one replaces the one before: what was not sent yet was for somebody who is gone.
 * Answers are always kept until they are sent; events are, up to a limit, and what had to be dropped is counted and
 * said in the log. An event that may wait goes with the next one that may not, or after SOON_MS, so that cove-api is
 * not woken while a client still waits for its connection.
 */
#include "base/log.h"
#include "base/mem.h"
#include "egress/internal.h"
#include "egress/requests.h"
#include "wire/egress.h"
#include "wire/packets.h"

enum { EVENTS_MAX = 4 << 20, QUEUE_MAX = 32 << 20, SOON_MS = 50, SOON_BYTES = 64 * 1024 };

struct link {
    struct egress *egress;
    struct packets packets;
    uint64_t dropped;
};

static void link_on_sent(void *ctx)
{
    struct link *l = ctx;
    (void)uv_timer_stop(&l->egress->soon_timer);
    if (l->packets.now && l->dropped) {
        log_warn("%llu network events are lost: cove-api was gone or did not read them",
                 (unsigned long long)l->dropped);
        l->dropped = 0;
    }
}

static void link_on_lost(void *ctx UNUSED, int error)
{
    if (error == -EMSGSIZE || error == -EBADMSG)
        log_error("cove-api sent %s", error == -EBADMSG ? "an invalid message" : "a message that is too long");
}

static bool link_on_message(void *ctx, json_t *message)
{
    return requests_handle(((struct link *)ctx)->egress, message);
}

static const struct packets_ops link_ops = {link_on_message, link_on_lost, link_on_sent};

struct link *link_new(struct egress *e)
{
    struct link *l = mem_new(struct link);
    l->egress = e;
    packets_init(&l->packets, e->loop, &link_ops, l);
    (void)uv_timer_init(e->loop, &e->soon_timer);
    e->handles++;
    return l;
}

static void on_soon(uv_timer_t *timer)
{
    packets_send(&container_of(timer, struct egress, soon_timer)->link->packets);
}

/* Steals it. */
static void enqueue(struct link *l, json_t *object, bool event, bool soon)
{
    AUTO_FREE char *text = json_dumps(object, JSON_COMPACT | JSON_ENSURE_ASCII);
    json_decref(object);
    size_t n = text ? strlen(text) : 0;
    if (!text || n > EGRESS_MESSAGE_MAX || !l->packets.now || (event && l->packets.queued + n > EVENTS_MAX)) {
        l->dropped += event;
        if (!event)
            log_error("an answer to cove-api can't be sent");
        return;
    }
    if (l->packets.queued + n > QUEUE_MAX) {
        log_error("cove-api does not read: its socket is closed");
        packets_close(&l->packets);
        return;
    }
    packets_put(&l->packets, str_n(text, n));
    uv_timer_t *timer = &l->egress->soon_timer;
    if (!soon || l->packets.queued > SOON_BYTES)
        packets_send(&l->packets);
    else if (!uv_is_active((uv_handle_t *)timer))
        (void)uv_timer_start(timer, on_soon, SOON_MS, 0);
}

void link_tell(struct link *l, json_t *event)
{
    enqueue(l, event, true, false);
}

void link_tell_soon(struct link *l, json_t *event)
{
    enqueue(l, event, true, true);
}

void link_answer(struct link *l, json_t *answer)
{
    enqueue(l, answer, false, false);
}

void link_attach(struct link *l, int fd)
{
    int r = packets_attach(&l->packets, fd);
    if (r < 0)
        log_error("watch cove-api's socket: %s", strerror(-r));
    else
        link_tell(l, json_pack("{s:s}", "op", "hello"));
}

static void link_on_timer_closed(uv_handle_t *timer)
{
    egress_handle_gone(container_of((uv_timer_t *)timer, struct egress, soon_timer));
}

void link_free(struct link *l)
{
    uv_close((uv_handle_t *)&l->egress->soon_timer, link_on_timer_closed);
    packets_send(&l->packets);
    packets_close(&l->packets);
    mem_free(l);
}
