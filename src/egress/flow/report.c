/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Denials, and names that could not be resolved. The first of a kind is told at once; those alike that follow within
 * TELL_USEC are counted, and told as one when that time is over. A net remembers NET_DENIALS_MAX kinds; the one that
 * was told longest ago makes room.
 */
#include "base/mem.h"
#include "egress/internal.h"

enum { TELL_USEC = 1000000, REPORT_TICK_MS = 250, TEXT_MAX = 256 };

static uint64_t mix(uint64_t h, const void *p, size_t n)
{
    const unsigned char *at = p;
    for (size_t i = 0; i < n; i++)
        h = (h ^ at[i]) * 0x100000001b3ULL; /* FNV-1a */
    return (h ^ 0xff) * 0x100000001b3ULL;
}

/* A collision makes one kind of denial count as another: harmless. */
static uint64_t report_key_of(const struct report_target *t, const struct policy_answer *why)
{
    uint64_t h = mix(0xcbf29ce484222325ULL, t->proto, strlen(t->proto));
    if (t->name)
        h = mix(h, t->name, strlen(t->name));
    if (t->addr)
        h = mix(h, t->addr->bytes, sizeof(t->addr->bytes));
    h = mix(h, &t->port, sizeof(t->port));
    return mix(h, &why->rule, sizeof(why->rule));
}

/* What a client sent is cut, and shown as printable ASCII. */
static json_t *report_text_of(struct str s)
{
    char clean[TEXT_MAX];
    size_t n = MIN(s.n, sizeof(clean));
    for (size_t i = 0; i < n; i++)
        clean[i] = s.p[i] >= 0x20 && s.p[i] < 0x7f ? s.p[i] : '?';
    return json_stringn(clean, n);
}

static void egress_report_tell(struct net *n, struct denial *d)
{
    json_t *event = TAKE_PTR(d->last);
    (void)json_object_set_new(event, "count", json_integer(d->count));
    d->count = 0;
    d->told_at = clock_mono();
    link_tell(n->egress->link, event);
}

static struct denial *egress_report_find(struct net *n, uint64_t key)
{
    struct denial *oldest = &n->denials[0];
    for (size_t i = 0; i < NET_DENIALS_MAX; i++) {
        struct denial *d = &n->denials[i];
        if (d->key == key && d->told_at)
            return d;
        if (d->told_at < oldest->told_at)
            oldest = d;
    }
    if (oldest->last)
        egress_report_tell(n, oldest);
    *oldest = (struct denial){.key = key};
    return oldest;
}

/* Takes the event. */
static void note(struct net *n, struct denial *d, json_t *event)
{
    json_decref(d->last);
    d->last = event;
    d->count++;
    if (!d->told_at || clock_mono() - d->told_at >= TELL_USEC)
        egress_report_tell(n, d);
    else if (list_empty(&n->denying))
        list_append(&n->egress->denying, &n->denying);
}

void report_denied(struct net *n, const struct report_target *t, const struct policy_answer *why)
{
    struct denial *d = egress_report_find(n, report_key_of(t, why));
    char address[NETADDR_TEXT_MAX] = "";
    if (t->addr && t->addr->family)
        netaddr_print(t->addr, address);
    note(n, d,
         json_pack("{s:s,s:s,s:I,s:s,s:i,s:s,s:o*,s:o*,s:o*,s:o*,s:o*,s:o*}", "op", "denied", "id", n->id, "at",
                   (json_int_t)clock_real(), "proto", t->proto, "rule", why->rule, "reason", why->reason, "name",
                   json_string(t->name), "address", address[0] ? json_string(address) : NULL, "port",
                   t->port ? json_integer(t->port) : NULL, "method", t->method.p ? report_text_of(t->method) : NULL,
                   "path", t->path.p ? report_text_of(t->path) : NULL, "suggestion",
                   why->suggestion[0] ? json_string(why->suggestion) : NULL));
}

void report_unresolved(struct net *n, const char *name, const char *why)
{
    uint64_t key = mix(mix(0xcbf29ce484222325ULL, "unresolved", 10), name, strlen(name));
    note(n, egress_report_find(n, mix(key, why, strlen(why))),
         json_pack("{s:s,s:s,s:I,s:s,s:s}", "op", "unresolved", "id", n->id, "at", (json_int_t)clock_real(), "name",
                   name, "reason", why));
}

void report_misuse(struct net *n, const char *secret, const char *name, uint16_t port)
{
    link_tell(n->egress->link, json_pack("{s:s,s:s,s:I,s:s,s:s,s:i}", "op", "misuse", "id", n->id, "at",
                                         (json_int_t)clock_real(), "secret", secret, "name", name, "port", (int)port));
}

/* True: some are still too fresh. */
static bool tell_due(struct net *n, usec_t now)
{
    bool more = false;
    for (size_t i = 0; i < NET_DENIALS_MAX; i++) {
        struct denial *d = &n->denials[i];
        if (d->last && now - d->told_at >= TELL_USEC)
            egress_report_tell(n, d);
        more |= d->last != NULL;
    }
    return more;
}

static void report_on_tick(uv_timer_t *timer)
{
    struct egress *e = container_of(timer, struct egress, denial_timer);
    usec_t now = clock_mono();
    LIST_FOREACH (struct net, n, &e->denying, denying) {
        if (!tell_due(n, now))
            list_remove(&n->denying);
    }
    MAP_FOREACH (struct net, n, &e->nets)
        net_listen_again(n);
    mem_trim_after(&e->crowd, e->n_flows);
}

void report_forget(struct net *n)
{
    for (size_t i = 0; i < NET_DENIALS_MAX; i++)
        if (n->denials[i].last)
            egress_report_tell(n, &n->denials[i]);
    list_remove(&n->denying);
}

void report_start(struct egress *e)
{
    list_init(&e->denying);
    (void)uv_timer_init(e->loop, &e->denial_timer);
    (void)uv_timer_start(&e->denial_timer, report_on_tick, REPORT_TICK_MS, REPORT_TICK_MS);
    e->handles++;
}

static void report_on_closed(uv_handle_t *timer)
{
    egress_handle_gone(container_of((uv_timer_t *)timer, struct egress, denial_timer));
}

void report_stop(struct egress *e)
{
    uv_close((uv_handle_t *)&e->denial_timer, report_on_closed);
}
