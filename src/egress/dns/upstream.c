/* SPDX-License-Identifier: Apache-2.0 */
/*
 * c-ares tells which of its sockets want what; each has a uv_poll. Its time-outs are looked after by a tick that runs
 * while something is open: ares_timeout() would walk over all questions each time.
 *
 * A channel keeps one UDP socket for as long as something in it is open, and whoever forges answers would have to guess
 * its port once: so it takes CHANNEL_QUESTIONS, and the next ones go to a new one. A channel that is through is closed
 * by the tick or by the next question, never while it calls back.
 *
 * Where the servers come from resolv.conf, a change of that file makes a new channel, and what was open in old ones is
 * asked again.
 */
#include "egress/dns/upstream.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "egress/dns/dnsmsg.h"
#include "egress/dns/resolver.h"

#include <ares.h>
#include <sys/stat.h>

#define RESOLV_CONF "/etc/resolv.conf"

enum { UPSTREAM_TICK_MS = 100, LOOK_MS = 1000, CLASS_IN = 1, CHANNEL_QUESTIONS = 8 };

struct upstream {
    uv_loop_t *loop;
    char *servers;        /* owned; NULL: resolv.conf */
    struct list channels; /* the newest one, which takes the next question, last */
    struct stat conf;     /* resolv.conf, as the newest channel was made of it */
    usec_t looked_at;     /* whether it changed */
    size_t open;
    uv_timer_t tick;
    bool closing;
};

struct channel {
    struct upstream *u;
    struct list node;
    ares_channel ares;
    struct list watches;
    unsigned open, taken; /* questions: now; since there was none */
};

/* A socket of c-ares. */
struct watch {
    struct channel *channel;
    struct list node;
    int fd;
    uv_poll_t poll;
};

struct asked {
    struct channel *channel;
    upstream_fn fn;
    void *ctx;
    uint16_t type;
    char name[];
};

/* Of each handle here data is what it is part of. */
static void upstream_on_closed(uv_handle_t *handle)
{
    mem_free(handle->data);
}

static void on_socket(uv_poll_t *poll, int status, int events)
{
    const struct watch *w = poll->data;
    bool in = status < 0 || events & UV_READABLE, out = status < 0 || events & UV_WRITABLE;
    ares_process_fd(w->channel->ares, in ? w->fd : ARES_SOCKET_BAD, out ? w->fd : ARES_SOCKET_BAD);
}

static void on_socket_wants(void *ctx, ares_socket_t fd, int readable, int writable)
{
    struct channel *c = ctx;
    struct watch *w = NULL;
    LIST_FOREACH (struct watch, one, &c->watches, node)
        if (one->fd == fd)
            w = one;
    if (!readable && !writable) {
        if (w) {
            list_remove(&w->node);
            uv_close((uv_handle_t *)&w->poll, upstream_on_closed);
        }
        return;
    }
    if (!w) {
        w = mem_new(struct watch);
        w->channel = c;
        w->fd = fd;
        w->poll.data = w;
        if (uv_poll_init(c->u->loop, &w->poll, fd) < 0) { /* what is asked over it times out */
            mem_free(w);
            return;
        }
        list_append(&c->watches, &w->node);
    }
    (void)uv_poll_start(&w->poll, (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0), on_socket);
}

static struct channel *newest(const struct upstream *u)
{
    return container_of(u->channels.prev, struct channel, node);
}

static int channel_open(struct upstream *u)
{
    char lookups[] = "b"; /* DNS, no files */
    struct channel *c = mem_new(struct channel);
    struct ares_options options = {
        .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_EDNS,
        .timeout = RESOLVER_TRY_MS,
        .tries = RESOLVER_TRIES,
        .ednspsz = DNS_UDP_MAX,
        .lookups = lookups,
        .sock_state_cb = on_socket_wants,
        .sock_state_cb_data = c,
    };
    int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_EDNSPSZ | ARES_OPT_LOOKUPS |
               ARES_OPT_DOMAINS | ARES_OPT_SOCK_STATE_CB | ARES_OPT_NOROTATE;
    c->u = u;
    list_init(&c->watches);
    int status = ares_init_options(&c->ares, &options, mask);
    if (status == ARES_SUCCESS && u->servers) {
        status = ares_set_servers_ports_csv(c->ares, u->servers);
        if (status != ARES_SUCCESS)
            ares_destroy(c->ares);
    }
    if (status != ARES_SUCCESS) {
        mem_free(c);
        return status;
    }
    list_append(&u->channels, &c->node);
    return ARES_SUCCESS;
}

/* upstream_on_answer() is called with ARES_EDESTRUCTION for each question that is open in it. */
static void channel_close(struct channel *c)
{
    list_remove(&c->node);
    ares_destroy(c->ares);
    assert(c->open == 0 && list_empty(&c->watches));
    mem_free(c);
}

static void put_away_what_is_through(struct upstream *u)
{
    const struct channel *last = newest(u);
    LIST_FOREACH (struct channel, c, &u->channels, node)
        if (c != last && c->open == 0)
            channel_close(c);
}

static void upstream_on_tick(uv_timer_t *timer)
{
    struct upstream *u = timer->data;
    LIST_FOREACH (struct channel, c, &u->channels, node)
        ares_process_fd(c->ares, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    put_away_what_is_through(u);
    if (u->open == 0)
        uv_timer_stop(&u->tick);
}

static struct channel *channel_for_next(struct upstream *u)
{
    struct channel *c = newest(u);
    if (c->open == 0) /* and so it has no socket */
        c->taken = 0;
    else if (c->taken >= CHANNEL_QUESTIONS && channel_open(u) == ARES_SUCCESS)
        c = newest(u);
    return c;
}

/* May the channels stay? Looked at once a second at most. */
static void look_at_conf(struct upstream *u)
{
    usec_t now = clock_mono();
    struct stat conf;
    if (u->servers || now - u->looked_at < LOOK_MS * USEC_PER_MS)
        return;
    u->looked_at = now;
    bool same = stat(RESOLV_CONF, &conf) < 0 ||
                (conf.st_ino == u->conf.st_ino && conf.st_size == u->conf.st_size &&
                 conf.st_mtim.tv_sec == u->conf.st_mtim.tv_sec && conf.st_mtim.tv_nsec == u->conf.st_mtim.tv_nsec);
    struct channel *last = newest(u), *c;
    if (same || channel_open(u) != ARES_SUCCESS)
        return;
    u->conf = conf;
    bool more = true;
    while (more) { /* what is asked again goes behind them */
        c = LIST_FIRST(struct channel, &u->channels, node);
        more = c != last;
        channel_close(c);
    }
}

static int status_of(int status)
{
    switch (status) {
    case ARES_SUCCESS:
        return 0;
    case ARES_ENODATA:
        return -ENODATA;
    case ARES_ENOTFOUND:
        return -ENOENT;
    case ARES_ETIMEOUT:
        return -ETIMEDOUT;
    case ARES_ECONNREFUSED:
        return -ECONNREFUSED;
    default:
        return -EPROTO;
    }
}

static void egress_upstream_ask(struct upstream *u, struct asked *a);

static void upstream_on_answer(void *ctx, int status, int timeouts UNUSED, unsigned char *bytes, int n)
{
    struct asked *a = ctx;
    struct upstream *u = a->channel->u;
    a->channel->open--;
    if (status == ARES_EDESTRUCTION && !u->closing) {
        egress_upstream_ask(u, a);
        return;
    }
    u->open--;
    a->fn(a->ctx, u->closing ? -ECANCELED : status_of(status), str_n(bytes, bytes && n > 0 ? (size_t)n : 0));
    mem_free(a);
}

static void egress_upstream_ask(struct upstream *u, struct asked *a)
{
    a->channel = channel_for_next(u);
    a->channel->open++;
    a->channel->taken++;
    ares_query(a->channel->ares, a->name, CLASS_IN, a->type, upstream_on_answer, a);
}

void upstream_ask(struct upstream *u, const char *name, uint16_t type, upstream_fn fn, void *ctx)
{
    size_t n = strlen(name) + 1;
    struct asked *a = mem_zalloc(sizeof(*a) + n);
    *a = (struct asked){.fn = fn, .ctx = ctx, .type = type};
    memcpy(a->name, name, n);
    look_at_conf(u);
    put_away_what_is_through(u);
    if (u->open++ == 0)
        (void)uv_timer_start(&u->tick, upstream_on_tick, UPSTREAM_TICK_MS, UPSTREAM_TICK_MS);
    egress_upstream_ask(u, a);
}

int upstream_new(uv_loop_t *loop, const char *servers, struct upstream **ret_upstream, struct err *err)
{
    int status = ares_library_init(ARES_LIB_INIT_ALL);
    if (status != ARES_SUCCESS)
        return err_set(err, ERR_INTERNAL, "start resolving: %s", ares_strerror(status));
    struct upstream *u = mem_new(struct upstream);
    u->loop = loop;
    u->servers = mem_strdup(servers);
    u->looked_at = clock_mono();
    list_init(&u->channels);
    if (!servers && stat(RESOLV_CONF, &u->conf) < 0)
        u->conf = (struct stat){0};
    status = servers && !*servers ? ARES_EBADSTR : channel_open(u);
    if (status != ARES_SUCCESS) {
        ares_library_cleanup();
        err_set(err, ERR_INVALID_ARGUMENT, "DNS servers %s: %s", servers ? servers : "of " RESOLV_CONF,
                ares_strerror(status));
        MEM_FREE(u->servers, u);
        return -1;
    }
    (void)uv_timer_init(loop, &u->tick);
    u->tick.data = u;
    *ret_upstream = u;
    return 0;
}

void upstream_free(struct upstream *u)
{
    u->closing = true;
    LIST_FOREACH (struct channel, c, &u->channels, node)
        channel_close(c);
    ares_library_cleanup();
    assert(u->open == 0);
    mem_free(TAKE_PTR(u->servers));
    uv_close((uv_handle_t *)&u->tick, upstream_on_closed);
}
