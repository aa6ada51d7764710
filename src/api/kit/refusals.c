/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/refusals.h"
#include "base/mem.h"

#include <arpa/inet.h>

enum {
    APART_MAX = 256,
    STOCK_MAX = 60,
    TICK_MS = 10000,
};

static const usec_t window_first = 60 * USEC_PER_SEC, window_most = 3600 * USEC_PER_SEC,
                    stock_each = 300 * USEC_PER_SEC;

/* One that is told apart. Free: window 0. */
struct refusal_of_one {
    const char *api;
    enum refusal why;
    char from[REFUSALS_FROM_MAX];
    uint64_t count; /* that are still to be told */
    usec_t due;     /* monotonic: not before */
    usec_t window;
};

struct refusals {
    uv_timer_t timer; /* runs while something is to be told */
    refusals_fn tell;
    void *ctx;
    struct refusal_of_one apart[APART_MAX];
    struct refusal_of_one others;
    uint32_t stock;
    usec_t stocked; /* when it was counted last */
};

static void fill_stock(struct refusals *r, usec_t now)
{
    uint64_t more = (now - r->stocked) / stock_each;
    r->stocked = r->stock + more >= STOCK_MAX ? now : r->stocked + more * stock_each;
    r->stock = (uint32_t)MIN(r->stock + more, (uint64_t)STOCK_MAX);
}

/* All that was counted of it, when it is due and there is stock. */
static void tell_one(struct refusals *r, struct refusal_of_one *o, usec_t now)
{
    if (!o->count || now < o->due || !r->stock)
        return;
    r->stock--;
    r->tell(r->ctx, o->api, o->why, o->from, o->count);
    o->count = 0;
    o->window = MIN(o->window ? o->window * 2 : window_first, window_most);
    o->due = now + o->window;
}

/* Nothing came of it since it was told last, for as long again. */
static bool is_over(const struct refusal_of_one *o, usec_t now)
{
    return !o->count && now >= o->due + o->window;
}

static struct refusal_of_one *refusals_find(struct refusals *r, const char *api, enum refusal why, const char *from,
                                            usec_t now)
{
    struct refusal_of_one *free_one = NULL;
    for (size_t i = 0; i < APART_MAX; i++) {
        struct refusal_of_one *o = &r->apart[i];
        if (o->api && !is_over(o, now) && o->why == why && strcmp(o->api, api) == 0 && strcmp(o->from, from) == 0)
            return o;
        if (!free_one && (!o->api || is_over(o, now)))
            free_one = o;
    }
    if (!free_one)
        return &r->others;
    *free_one = (struct refusal_of_one){.api = api, .why = why, .due = now};
    (void)snprintf(free_one->from, sizeof(free_one->from), "%s", from);
    return free_one;
}

void refusals_note_at(struct refusals *r, const char *api, enum refusal why, const char *from, usec_t now)
{
    struct refusal_of_one *o = refusals_find(r, api, why, from, now);
    fill_stock(r, now);
    o->count++;
    tell_one(r, o, now);
}

void refusals_tick(struct refusals *r, usec_t now)
{
    fill_stock(r, now);
    for (size_t i = 0; i < APART_MAX; i++)
        tell_one(r, &r->apart[i], now);
    tell_one(r, &r->others, now);
}

static bool anything_left(const struct refusals *r)
{
    for (size_t i = 0; i < APART_MAX; i++)
        if (r->apart[i].count)
            return true;
    return r->others.count;
}

static void refusals_on_timer(uv_timer_t *timer)
{
    struct refusals *r = container_of(timer, struct refusals, timer);
    refusals_tick(r, clock_mono());
    if (!anything_left(r))
        (void)uv_timer_stop(timer);
}

void refusals_from(const struct http_peer *peer, char ret_from[static REFUSALS_FROM_MAX])
{
    struct in6_addr v6;
    char text[sizeof(peer->address)];
    if (peer->is_unix) {
        (void)snprintf(ret_from, REFUSALS_FROM_MAX, "uid=%u", (unsigned)peer->uid);
        return;
    }
    (void)snprintf(text, sizeof(text), "%s", peer->address + (peer->address[0] == '['));
    char *port = strrchr(text, ':');
    if (port && port > text && port[-1] == ']')
        port--;
    if (port)
        *port = 0;
    if (inet_pton(AF_INET6, text, &v6) != 1) {
        (void)snprintf(ret_from, REFUSALS_FROM_MAX, "%s", text);
        return;
    }
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
        (void)inet_ntop(AF_INET, &v6.s6_addr[12], ret_from, REFUSALS_FROM_MAX);
        return;
    }
    if (IN6_IS_ADDR_LOOPBACK(&v6)) {
        (void)snprintf(ret_from, REFUSALS_FROM_MAX, "%s", text);
        return;
    }
    memset(&v6.s6_addr[8], 0, 8); /* whoever has one address has all of these */
    (void)inet_ntop(AF_INET6, &v6, text, sizeof(text));
    (void)snprintf(ret_from, REFUSALS_FROM_MAX, "%.50s/64", text);
}

void refusals_note(struct refusals *r, const char *api, enum refusal why, const struct http_peer *peer)
{
    char from[REFUSALS_FROM_MAX];
    if (!r)
        return;
    refusals_from(peer, from);
    refusals_note_at(r, api, why, from, clock_mono());
    if (anything_left(r) && !uv_is_active((uv_handle_t *)&r->timer))
        (void)uv_timer_start(&r->timer, refusals_on_timer, TICK_MS, TICK_MS);
}

struct refusals *refusals_new(uv_loop_t *loop, refusals_fn tell, void *ctx)
{
    struct refusals *r = mem_new(struct refusals);
    r->tell = tell;
    r->ctx = ctx;
    r->stock = STOCK_MAX;
    r->stocked = clock_mono();
    r->others = (struct refusal_of_one){.api = "", .why = REFUSAL_WRONG_KEY, .from = "others"};
    (void)uv_timer_init(loop, &r->timer);
    return r;
}

static void refusals_on_closed(uv_handle_t *handle)
{
    mem_free(container_of((uv_timer_t *)handle, struct refusals, timer));
}

void refusals_free(struct refusals *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < APART_MAX; i++)
        r->others.count += r->apart[i].count;
    if (r->others.count)
        r->tell(r->ctx, r->others.api, r->others.why, r->others.from, r->others.count);
    uv_close((uv_handle_t *)&r->timer, refusals_on_closed);
}
