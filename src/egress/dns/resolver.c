/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A question is a name and a family. It is open (asked upstream, lookups wait for it) or known (in the cache), and in
 * both cases in the map. Lookups wait in two lists, by question and by time; when something is known of them they move
 * to `ready`, which the idle handle empties in the next turn of the loop.
 *
 *  1. A question lives while the map, c-ares or a lookup has it: refs.
 *  2. An open one stays in the map until c-ares is through with it, even when all its lookups are gone or timed out:
 *     what it will say is kept, and who asks again meanwhile joins it instead of asking upstream again.
 *  3. Failures are not kept.
 */
#include "egress/dns/resolver.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"
#include "egress/dns/dnsmsg.h"
#include "egress/dns/upstream.h"
#include "policy/hostname.h"

enum { RESOLVER_TICK_MS = 100 };

struct question {
    struct resolver *r;
    unsigned refs;
    bool open;
    int family;
    struct list lookups;
    struct list used; /* when known: in r->known */
    usec_t until;     /* when known */
    int status;
    struct netaddr *addrs; /* owned */
    size_t n_addrs;
    char **chain; /* owned, and what it points to */
    size_t n_chain;
    char name[];
};

struct resolver_lookup {
    struct resolver *r;
    struct question *q;      /* NULL: not asked */
    struct list of_question; /* in q->lookups while it waits */
    struct list node;        /* in r->waiting or r->ready */
    usec_t deadline;
    int status; /* instead of the question's */
    bool calling;
    resolver_fn fn;
    void *ctx;
};

struct resolver {
    struct upstream *upstream;
    usec_t (*now)(void);
    struct map questions;
    struct list known;   /* least lately used first */
    struct list waiting; /* by deadline: all have as long */
    struct list ready;
    uv_idle_t idle;
    uv_timer_t timer; /* runs while something waits */
    unsigned handles; /* not closed yet */
    struct resolver_stats stats;
};

static void question_unref(struct question *q)
{
    if (--q->refs > 0)
        return;
    for (size_t i = 0; i < q->n_chain; i++)
        mem_free(q->chain[i]);
    MEM_FREE(q->chain, q->addrs, q);
}

/* Key of the map: the family's digit, then the name. */
static struct str resolver_key_of(char buffer[static HOSTNAME_MAX + 2], const char *name, int family)
{
    size_t n = strlen(name);
    buffer[0] = (char)('0' + family);
    assert(n <= HOSTNAME_MAX);
    memcpy(buffer + 1, name, n + 1);
    return str_n(buffer, n + 1);
}

static void resolver_forget(struct question *q)
{
    char key[HOSTNAME_MAX + 2];
    if (!q->open) {
        list_remove(&q->used);
        q->r->stats.cached--;
    }
    (void)map_del(&q->r->questions, resolver_key_of(key, q->name, q->family));
    question_unref(q);
}

static void deliver(struct resolver_lookup *l)
{
    const struct question *q = l->q;
    struct resolver_answer answer = {.status = l->status};
    if (!answer.status) {
        usec_t now = l->r->now(), left = q->until > now ? q->until - now : 0;
        answer.status = q->status;
        answer.ttl_s = MAX((unsigned)((left + USEC_PER_SEC - 1) / USEC_PER_SEC), 1U);
        answer.addrs = q->addrs;
        answer.n_addrs = q->n_addrs;
        answer.chain = (const char *const *)q->chain;
        answer.n_chain = q->n_chain;
    }
    l->calling = true;
    l->fn(l->ctx, &answer);
}

static void lookup_free(struct resolver_lookup *l)
{
    list_remove(&l->of_question);
    list_remove(&l->node);
    if (l->q)
        question_unref(l->q);
    mem_free(l);
}

/* Those that get ready by what is done meanwhile have the next turn. */
static void resolver_on_idle(uv_idle_t *idle)
{
    struct resolver *r = idle->data;
    struct list now = LIST_INIT(now);
    struct resolver_lookup *l;
    while ((l = LIST_FIRST(struct resolver_lookup, &r->ready, node))) {
        list_remove(&l->node);
        list_append(&now, &l->node);
    }
    uv_idle_stop(&r->idle);
    while ((l = LIST_FIRST(struct resolver_lookup, &now, node))) {
        list_remove(&l->node);
        deliver(l);
        lookup_free(l);
    }
}

static void make_ready(struct resolver_lookup *l)
{
    list_remove(&l->of_question);
    list_remove(&l->node);
    list_append(&l->r->ready, &l->node);
    (void)uv_idle_start(&l->r->idle, resolver_on_idle);
}

static void resolver_on_timer(uv_timer_t *timer)
{
    struct resolver *r = timer->data;
    struct resolver_lookup *l;
    usec_t now = r->now();
    while ((l = LIST_FIRST(struct resolver_lookup, &r->waiting, node)) && l->deadline <= now) {
        l->status = -ETIMEDOUT;
        make_ready(l);
    }
    if (list_empty(&r->waiting))
        uv_timer_stop(&r->timer);
}

static void resolver_keep(struct question *q, const struct dns_reply *reply)
{
    q->n_addrs = reply->n_addrs;
    q->n_chain = reply->n_chain;
    if (q->n_addrs)
        q->addrs = mem_dup(reply->addrs, q->n_addrs * sizeof(*q->addrs));
    if (q->n_chain)
        q->chain = mem_array(q->n_chain, sizeof(*q->chain));
    for (size_t i = 0; i < q->n_chain; i++)
        q->chain[i] = mem_strdup(reply->chain[i]);
}

static void on_upstream(void *ctx, int status, struct str message)
{
    struct question *q = ctx;
    struct resolver *r = q->r;
    struct dns_reply reply = {.n_addrs = 0};
    r->stats.open--;
    if (status == 0 && dns_reply_parse(message, q->name, q->family == 4 ? DNS_A : DNS_AAAA, &reply) < 0)
        status = -EPROTO;
    q->status = status == 0 && reply.n_addrs == 0 ? -ENODATA : status;
    resolver_keep(q, &reply);
    bool is_no = q->status == -ENOENT || q->status == -ENODATA;
    unsigned ttl = MIN(MAX(reply.ttl_s, (unsigned)RESOLVER_TTL_MIN_S), (unsigned)RESOLVER_TTL_MAX_S);
    q->until = r->now() + (is_no ? RESOLVER_NEGATIVE_S : ttl) * USEC_PER_SEC;
    struct resolver_lookup *l;
    while ((l = LIST_FIRST(struct resolver_lookup, &q->lookups, of_question)))
        make_ready(l);
    if (q->status == 0 || is_no) {
        q->open = false;
        list_append(&r->known, &q->used);
        r->stats.cached++;
        if (r->stats.cached > RESOLVER_CACHE_MAX)
            resolver_forget(container_of(r->known.next, struct question, used));
    } else {
        r->stats.failed++;
        resolver_forget(q);
    }
    question_unref(q);
}

static struct question *question_new(struct resolver *r, const char *name, int family)
{
    char key[HOSTNAME_MAX + 2];
    size_t size = strlen(name) + 1;
    struct question *q = mem_zalloc(sizeof(*q) + size);
    q->r = r;
    q->open = true;
    q->family = family;
    list_init(&q->lookups);
    list_init(&q->used);
    memcpy(q->name, name, size);
    q->refs = 2; /* the map's and c-ares' */
    (void)map_put(&r->questions, resolver_key_of(key, name, family), q);
    return q;
}

static bool is_resolvable(const char *name)
{
    char same[HOSTNAME_MAX + 1];
    struct str s = str_of(name);
    return !str_eqc(s, "localhost") && !str_ends(s, STR(".localhost")) && hostname_normalise(s, same) &&
           str_eqc(s, same);
}

struct resolver_lookup *resolver_resolve(struct resolver *r, const char *name, int family, resolver_fn fn, void *ctx)
{
    assert(family == 4 || family == 6);
    char key[HOSTNAME_MAX + 2];
    struct resolver_lookup *l = mem_new(struct resolver_lookup);
    usec_t now = r->now();
    *l = (struct resolver_lookup){.r = r, .deadline = now + RESOLVER_WAIT_MS * USEC_PER_MS, .fn = fn, .ctx = ctx};
    list_init(&l->of_question);
    list_init(&l->node);
    r->stats.lookups++;
    l->status = is_resolvable(name) ? 0 : -EPERM;
    struct question *q = l->status ? NULL : map_get(&r->questions, resolver_key_of(key, name, family));
    if (q && !q->open && q->until <= now) {
        resolver_forget(q);
        q = NULL;
    }
    bool is_new = !q && !l->status;
    if (is_new && r->stats.open == RESOLVER_OPEN_MAX)
        l->status = -EAGAIN;
    if (l->status) {
        make_ready(l);
        return l;
    }
    if (is_new)
        q = question_new(r, name, family);
    q->refs++;
    l->q = q;
    if (!q->open) {
        r->stats.from_cache++;
        list_remove(&q->used);
        list_append(&r->known, &q->used);
        make_ready(l);
        return l;
    }
    list_append(&q->lookups, &l->of_question);
    list_append(&r->waiting, &l->node);
    if (!uv_is_active((uv_handle_t *)&r->timer))
        (void)uv_timer_start(&r->timer, resolver_on_timer, RESOLVER_TICK_MS, RESOLVER_TICK_MS);
    if (is_new) {
        r->stats.asked++;
        r->stats.open++;
        upstream_ask(r->upstream, name, family == 4 ? DNS_A : DNS_AAAA, on_upstream, q);
    }
    return l;
}

void resolver_cancel(struct resolver_lookup *l)
{
    if (l && !l->calling)
        lookup_free(l);
}

size_t resolver_room(const struct resolver *r)
{
    enum { PART = 8 };
    return (RESOLVER_OPEN_MAX - r->stats.open) / PART;
}

int resolver_new(uv_loop_t *loop, const char *servers, struct resolver **ret_resolver, struct err *err)
{
    struct resolver *r = mem_new(struct resolver);
    if (upstream_new(loop, servers, &r->upstream, err) < 0) {
        mem_free(r);
        return -1;
    }
    r->now = clock_mono;
    r->handles = 2;
    list_init(&r->known);
    list_init(&r->waiting);
    list_init(&r->ready);
    (void)uv_idle_init(loop, &r->idle);
    (void)uv_timer_init(loop, &r->timer);
    r->idle.data = r->timer.data = r;
    *ret_resolver = r;
    return 0;
}

static void resolver_on_closed(uv_handle_t *handle)
{
    struct resolver *r = handle->data;
    if (--r->handles == 0)
        mem_free(r);
}

void resolver_free(struct resolver *r)
{
    struct question *q;
    struct resolver_lookup *l;
    while ((l = LIST_FIRST(struct resolver_lookup, &r->waiting, node)))
        lookup_free(l);
    while ((l = LIST_FIRST(struct resolver_lookup, &r->ready, node)))
        lookup_free(l);
    upstream_free(r->upstream);
    while ((q = LIST_FIRST(struct question, &r->known, used)))
        resolver_forget(q);
    assert(map_count(&r->questions) == 0);
    map_fini(&r->questions);
    uv_close((uv_handle_t *)&r->idle, resolver_on_closed);
    uv_close((uv_handle_t *)&r->timer, resolver_on_closed);
}

void resolver_stats(const struct resolver *r, struct resolver_stats *ret_stats)
{
    *ret_stats = r->stats;
}

void resolver_set_clock(struct resolver *r, usec_t (*now)(void))
{
    r->now = now;
}
