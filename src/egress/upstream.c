/* SPDX-License-Identifier: Apache-2.0 */
/*
 * c-ares tells which of its sockets want what; each has a uv_poll. Its time-outs are looked after by a tick that runs while something is open:
 * ares_timeout() would walk over all questions each time.
 *
 * Where the servers come from resolv.conf, a change of that file makes a new channel, and what was open in the old one is asked again.
 */
#include "egress/upstream.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "egress/dnsmsg.h"
#include "egress/resolver.h"

#include <ares.h>
#include <sys/stat.h>

#define RESOLV_CONF "/etc/resolv.conf"

enum { TICK_MS = 100, LOOK_MS = 1000, CLASS_IN = 1 };

struct upstream {
    uv_loop_t *loop;
    char *servers; /* owned; NULL: resolv.conf */
    ares_channel channel;
    struct list watches;
    struct stat conf; /* resolv.conf, as the channel was made of it */
    usec_t looked_at; /* whether it changed */
    size_t open;
    uv_timer_t tick;
    bool closing;
};

/* A socket of c-ares. */
struct watch {
    struct upstream *u;
    struct list node;
    int fd;
    uv_poll_t poll;
};

struct asked {
    struct upstream *u;
    upstream_fn fn;
    void *ctx;
    uint16_t type;
    char name[];
};

/* Of each handle here data is what it is part of. */
static void on_closed(uv_handle_t *handle)
{
    mem_free(handle->data);
}

static void on_socket(uv_poll_t *poll, int status, int events)
{
    const struct watch *w = poll->data;
    bool in = status < 0 || events & UV_READABLE, out = status < 0 || events & UV_WRITABLE;
    ares_process_fd(w->u->channel, in ? w->fd : ARES_SOCKET_BAD, out ? w->fd : ARES_SOCKET_BAD);
}

static void on_socket_wants(void *ctx, ares_socket_t fd, int readable, int writable)
{
    struct upstream *u = ctx;
    struct watch *w = NULL;
    LIST_FOREACH (struct watch, one, &u->watches, node)
        if (one->fd == fd)
            w = one;
    if (!readable && !writable) {
        if (w) {
            list_remove(&w->node);
            uv_close((uv_handle_t *)&w->poll, on_closed);
        }
        return;
    }
    if (!w) {
        w = mem_new(struct watch);
        w->u = u;
        w->fd = fd;
        w->poll.data = w;
        if (uv_poll_init(u->loop, &w->poll, fd) < 0) { /* what is asked over it times out */
            mem_free(w);
            return;
        }
        list_append(&u->watches, &w->node);
    }
    (void)uv_poll_start(&w->poll, (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0), on_socket);
}

static void on_tick(uv_timer_t *timer)
{
    struct upstream *u = timer->data;
    ares_process_fd(u->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
}

static int channel_open(struct upstream *u, ares_channel *ret_channel)
{
    char lookups[] = "b"; /* DNS, no files */
    struct ares_options options = {
        .flags = ARES_FLAG_NOSEARCH | ARES_FLAG_EDNS,
        .timeout = RESOLVER_TRY_MS,
        .tries = RESOLVER_TRIES,
        .ednspsz = DNS_UDP_MAX,
        .lookups = lookups,
        .sock_state_cb = on_socket_wants,
        .sock_state_cb_data = u,
    };
    int mask = ARES_OPT_FLAGS | ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_EDNSPSZ | ARES_OPT_LOOKUPS |
               ARES_OPT_DOMAINS | ARES_OPT_SOCK_STATE_CB | ARES_OPT_NOROTATE;
    ares_channel channel;
    int status = ares_init_options(&channel, &options, mask);
    if (status != ARES_SUCCESS)
        return status;
    if (u->servers)
        status = ares_set_servers_ports_csv(channel, u->servers);
    if (status != ARES_SUCCESS)
        ares_destroy(channel);
    else
        *ret_channel = channel;
    return status;
}

/* May the channel stay? Looked at once a second at most. */
static void look_at_conf(struct upstream *u)
{
    usec_t now = clock_mono();
    struct stat conf;
    ares_channel channel, old = u->channel;
    if (u->servers || now - u->looked_at < LOOK_MS * USEC_PER_MS)
        return;
    u->looked_at = now;
    bool same = stat(RESOLV_CONF, &conf) < 0 ||
                (conf.st_ino == u->conf.st_ino && conf.st_size == u->conf.st_size &&
                 conf.st_mtim.tv_sec == u->conf.st_mtim.tv_sec && conf.st_mtim.tv_nsec == u->conf.st_mtim.tv_nsec);
    if (same || channel_open(u, &channel) != ARES_SUCCESS)
        return;
    u->conf = conf;
    u->channel = channel;
    ares_destroy(old);
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

static void on_answer(void *ctx, int status, int timeouts, unsigned char *bytes, int n)
{
    struct asked *a = ctx;
    struct upstream *u = a->u;
    (void)timeouts;
    if (status == ARES_EDESTRUCTION && !u->closing) {
        ares_query(u->channel, a->name, CLASS_IN, a->type, on_answer, a);
        return;
    }
    u->open--;
    if (u->open == 0 && !u->closing)
        uv_timer_stop(&u->tick);
    a->fn(a->ctx, u->closing ? -ECANCELED : status_of(status), str_n(bytes, bytes && n > 0 ? (size_t)n : 0));
    mem_free(a);
}

void upstream_ask(struct upstream *u, const char *name, uint16_t type, upstream_fn fn, void *ctx)
{
    size_t n = strlen(name) + 1;
    struct asked *a = mem_zalloc(sizeof(*a) + n);
    *a = (struct asked){u, fn, ctx, type};
    memcpy(a->name, name, n);
    look_at_conf(u);
    if (u->open++ == 0)
        (void)uv_timer_start(&u->tick, on_tick, TICK_MS, TICK_MS);
    ares_query(u->channel, a->name, CLASS_IN, type, on_answer, a);
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
    list_init(&u->watches);
    if (!servers && stat(RESOLV_CONF, &u->conf) < 0)
        u->conf = (struct stat){0};
    status = servers && !*servers ? ARES_EBADSTR : channel_open(u, &u->channel);
    if (status != ARES_SUCCESS) {
        ares_library_cleanup();
        err_set(err, ERR_INVALID_ARGUMENT, "DNS servers %s: %s", servers ? servers : "of " RESOLV_CONF,
                ares_strerror(status));
        mem_free(u->servers);
        mem_free(u);
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
    ares_destroy(u->channel);
    ares_library_cleanup();
    assert(u->open == 0 && list_empty(&u->watches));
    mem_free(TAKE_PTR(u->servers));
    uv_close((uv_handle_t *)&u->tick, on_closed);
}
