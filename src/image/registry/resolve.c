/* SPDX-License-Identifier: Apache-2.0 */
#include "image/registry/resolve.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "image/registry/reference.h"

#include <ares.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>

enum { HOSTS_MAX = 1 << 20, TRY_MS = 2500, TRIES = 3 };

struct resolve {
    ares_channel channel;
    struct buf hosts; /* /etc/hosts */
};

struct answer {
    bool done;
    int status;
    struct netaddr *addrs;
    size_t n;
};

int resolve_new(struct resolve **ret_resolve, struct err *err)
{
    struct ares_options options = {.timeout = TRY_MS, .tries = TRIES, .lookups = (char[]){"b"}};
    struct resolve *r = mem_new(struct resolve);
    r->hosts = BUF_INIT(HOSTS_MAX);
    if (fd_read_file(AT_FDCWD, "/etc/hosts", &r->hosts) < 0)
        buf_clear(&r->hosts);
    int status = ares_library_init(ARES_LIB_INIT_ALL);
    if (status == ARES_SUCCESS)
        status = ares_init_options(&r->channel, &options, ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS);
    if (status != ARES_SUCCESS) {
        buf_fini(&r->hosts);
        mem_free(r);
        return err_set(err, ERR_INTERNAL, "start the resolver: %s", ares_strerror(status));
    }
    *ret_resolve = r;
    return 0;
}

void resolve_free(struct resolve *r)
{
    if (!r)
        return;
    ares_destroy(r->channel);
    ares_library_cleanup();
    buf_fini(&r->hosts);
    mem_free(r);
}

/* ---- /etc/hosts ---- */

static bool resolve_take_word(struct str *line, struct str *ret_word)
{
    *line = str_trim(*line);
    size_t n = 0;
    while (n < line->n && line->p[n] != ' ' && line->p[n] != '\t')
        n++;
    *ret_word = str_n(line->p, n);
    *line = str_sub(*line, n);
    return n > 0;
}

static void find_in_hosts(const struct resolve *r, const char *name, struct answer *a)
{
    struct str rest = buf_str(&r->hosts), line, word;
    while (a->n < RESOLVE_ADDRESSES_MAX && str_split(&rest, '\n', &line)) {
        struct netaddr addr;
        line = str_before(line, '#');
        if (!resolve_take_word(&line, &word) || !netaddr_parse(word, &addr))
            continue;
        while (resolve_take_word(&line, &word))
            if (str_eq_nocase(word, str_of(name))) {
                a->addrs[a->n++] = addr;
                break;
            }
    }
}

/* ---- DNS ---- */

static void on_addrinfo(void *ctx, int status, int timeouts UNUSED, struct ares_addrinfo *info)
{
    struct answer *a = ctx;
    a->done = true;
    a->status = status;
    for (struct ares_addrinfo_node *node = info ? info->nodes : NULL; node; node = node->ai_next)
        if (a->n < RESOLVE_ADDRESSES_MAX && netaddr_from_sockaddr(node->ai_addr, &a->addrs[a->n], NULL))
            a->n++;
    if (info)
        ares_freeaddrinfo(info);
}

/*
 * ares_getsock(3): bit i means that socket i is to be read, bit i + ARES_GETSOCK_MAXNUM that it is to be written. The
 * macros for that shift a 1 into the sign.
 */
static short events_of(uint32_t bits, unsigned i)
{
    return (short)((bits >> i & 1 ? POLLIN : 0) | (bits >> (i + ARES_GETSOCK_MAXNUM) & 1 ? POLLOUT : 0));
}

/* One turn of the wheel: waits for the resolver's sockets and lets it work. */
static void turn(struct resolve *r, usec_t left)
{
    ares_socket_t socks[ARES_GETSOCK_MAXNUM];
    struct pollfd polls[ARES_GETSOCK_MAXNUM];
    uint32_t bits = (uint32_t)ares_getsock(r->channel, socks, ARES_GETSOCK_MAXNUM);
    nfds_t n = 0;
    for (unsigned i = 0; i < ARES_GETSOCK_MAXNUM; i++) {
        short events = events_of(bits, i);
        if (events)
            polls[n++] = (struct pollfd){.fd = socks[i], .events = events};
    }
    struct timeval most = {.tv_usec = 200000}, wait, *until = ares_timeout(r->channel, &most, &wait);
    int ms = (int)MIN((usec_t)until->tv_sec * 1000 + (usec_t)until->tv_usec / 1000 + 1, left / USEC_PER_MS + 1);
    int ready = poll(polls, n, ms);
    for (nfds_t i = 0; ready > 0 && i < n; i++)
        if (polls[i].revents)
            ares_process_fd(r->channel, polls[i].revents & ~POLLOUT ? polls[i].fd : ARES_SOCKET_BAD,
                            polls[i].revents & POLLOUT ? polls[i].fd : ARES_SOCKET_BAD);
    if (ready <= 0)
        ares_process_fd(r->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
}

static void resolve_ask(struct resolve *r, const char *name, usec_t until, struct answer *a)
{
    const struct ares_addrinfo_hints hints = {
        .ai_family = AF_UNSPEC, .ai_flags = ARES_AI_NOSORT, .ai_socktype = SOCK_STREAM};
    usec_t now = clock_mono();
    until = MIN(until, now + RESOLVE_WAIT_MS * USEC_PER_MS);
    ares_getaddrinfo(r->channel, name, NULL, &hints, on_addrinfo, a);
    for (; !a->done && now < until; now = clock_mono())
        turn(r, until - now);
    if (!a->done)
        ares_cancel(r->channel); /* calls on_addrinfo */
}

/* Whoever wrote an image without a registry has not got its name wrong. */
static int resolve_refuse(const char *name, struct err *err)
{
    if (strcmp(name, REFERENCE_HUB_SERVER) == 0)
        return err_set(err, ERR_NOT_FOUND,
                       "there is no host %s, which has the images that are named without a registry: does this machine "
                       "have DNS, and the Internet?",
                       name);
    return err_set(err, ERR_NOT_FOUND,
                   "there is no host %.120s: is the registry's name right, and does this machine have DNS?", name);
}

int resolve_name(struct resolve *r, const char *name, usec_t until,
                 struct netaddr ret_addrs[static RESOLVE_ADDRESSES_MAX], size_t *ret_n, struct err *err)
{
    struct answer a = {.addrs = ret_addrs};
    if (netaddr_parse(str_of(name), &ret_addrs[0]))
        a.n = 1;
    else
        find_in_hosts(r, name, &a);
    if (a.n == 0)
        resolve_ask(r, name, until, &a);
    if (a.n > 0) {
        *ret_n = a.n;
        return 0;
    }
    if (a.status == ARES_ENOTFOUND || a.status == ARES_ENODATA)
        return resolve_refuse(name, err);
    return err_set(err, ERR_UNAVAILABLE, "resolve %.120s: %s: does the machine's DNS work?", name,
                   ares_strerror(a.status));
}
