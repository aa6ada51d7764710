/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/domain_use.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/terminal.h"
#include "cli/tls_probe.h"
#include "config/config.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { PROBE_MS = 2000, FREED_MS = 5000, SHOWN_MS = 10000, AGAIN_MS = 50 };

/* ---- telling it ---- */

/* coved, which listens on cove.sock: the kernel says who does. 0: nobody, or nobody who can be told. */
static pid_t find_coved(const struct config *config)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct ucred peer;
    socklen_t n = sizeof(peer);
    int length = snprintf(address.sun_path, sizeof(address.sun_path), "%s/cove.sock", config->run_dir);
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || length < 0 || (size_t)length >= sizeof(address.sun_path) ||
        connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0 || peer.uid != 0)
        return 0;
    return peer.pid;
}

/* A signal that nobody waits for would end it: one of an older version does not. */
static bool waits_for(pid_t pid, int number)
{
    AUTO_FREE char *path = mem_printf("/proc/%d/status", (int)pid);
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    struct str rest, line;
    if (fd_read_file(AT_FDCWD, path, &b) < 0)
        return false;
    rest = buf_str(&b);
    while (str_split(&rest, '\n', &line)) {
        if (!str_starts(line, STR("SigBlk:")))
            continue;
        AUTO_FREE char *mask = mem_strndup(line.p + 7, line.n - 7);
        return strtoull(mask, NULL, 16) >> (number - 1) & 1;
    }
    return false;
}

bool domain_tell(const struct config *config)
{
    pid_t pid = find_coved(config);
    AUTO_CLOSE int fd = pid > 0 ? pidfd_open(pid, 0) : -1;
    return fd >= 0 && find_coved(config) == pid && waits_for(pid, SIGUSR1) &&
           pidfd_send_signal(fd, SIGUSR1, NULL, 0) == 0;
}

/* ---- its addresses ---- */

static enum tls_probe probe(const struct config_listen *at, const struct domain *d)
{
    AUTO_FREE char *name = mem_printf("api.%.*s", STR_ARG(d->name));
    return tls_probe((const struct sockaddr *)&at->address, at->address_len, name, d->pem, PROBE_MS);
}

/* As the service would. */
static int try_listen(const struct config_listen *at)
{
    static const int on = 1;
    AUTO_CLOSE int fd = socket(at->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (at->address.ss_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    return bind(fd, (const struct sockaddr *)&at->address, at->address_len) < 0 || listen(fd, 1) < 0 ? -errno : 0;
}

static void pause_before(usec_t until)
{
    const struct timespec pause = {.tv_nsec = AGAIN_MS * 1000000L};
    if (clock_mono() < until)
        (void)nanosleep(&pause, NULL);
}

static int is_taken(struct context *ctx, const struct config_listen *at)
{
    const char *colon = strrchr(at->text, ':');
    (void)snprintf(ctx->hint, sizeof(ctx->hint),
                   "'ss -ltnp sport = %s' shows which: end it, or choose another address for TLS (listen_tls, "
                   "COVE_LISTEN_TLS) and start the service again; then set the domain",
                   colon ? colon : at->text);
    return err_set(&ctx->err, ERR_FAILED_PRECONDITION,
                   "%s, where the service is to listen with TLS, is another program's", at->text);
}

/* A domain that was just unset, or set, may keep the service busy with its listeners for a moment. */
static int check_port(struct context *ctx, const struct config_listen *at, const struct domain *now, bool is_running)
{
    usec_t until = is_running ? clock_mono() + FREED_MS * USEC_PER_MS : 0;
    do {
        int r = try_listen(at);
        if (r == 0 || r == -EACCES) /* who may not, may not change the domain either, and hears of that */
            return 0;
        if (r == -EADDRNOTAVAIL) {
            (void)snprintf(ctx->hint, sizeof(ctx->hint),
                           "listen_tls, or COVE_LISTEN_TLS, must be one that 'ip address' shows");
            return err_set(&ctx->err, ERR_FAILED_PRECONDITION, "this machine does not have the address %s", at->text);
        }
        if (r != -EADDRINUSE)
            return err_errno(&ctx->err, r, "listen on %s", at->text);
        if (is_running && now->name.p && probe(at, now) == TLS_PROBE_SAME)
            return 0;
        pause_before(until);
    } while (clock_mono() < until);
    return is_taken(ctx, at);
}

int domain_check_ports(struct context *ctx, const struct config *config, const struct domain *now)
{
    bool is_running = find_coved(config) > 0;
    for (size_t i = 0; i < config->n_listen_tls; i++)
        if (check_port(ctx, &config->listen_tls[i], now, is_running) < 0)
            return -1;
    return 0;
}

static int is_not_shown(struct context *ctx, const struct config_listen *at, enum tls_probe found)
{
    if (found == TLS_PROBE_OTHER)
        return is_taken(ctx, at);
    (void)snprintf(ctx->hint, sizeof(ctx->hint),
                   "its log says why; or it was started with another listen_tls (COVE_LISTEN_TLS) than is said here: "
                   "start it again");
    return err_set(&ctx->err, ERR_UNAVAILABLE, "the domain is set, but the service does not answer at %s", at->text);
}

int domain_await(struct context *ctx, const struct config *config, const struct domain *d)
{
    usec_t began = clock_mono(), until = began + SHOWN_MS * USEC_PER_MS;
    enum tls_probe found = TLS_PROBE_NOBODY;
    const struct config_listen *at = NULL;
    struct progress p;
    progress_start(&p, ctx->json);
    for (size_t i = 0; i < config->n_listen_tls; i++) {
        at = &config->listen_tls[i];
        while ((found = probe(at, d)) != TLS_PROBE_SAME && clock_mono() < until) {
            progress_show(&p, "waiting for the service to show the certificate, %llu s",
                          (unsigned long long)((clock_mono() - began) / USEC_PER_SEC));
            pause_before(until);
        }
        if (found != TLS_PROBE_SAME)
            break;
    }
    progress_end(&p);
    return found == TLS_PROBE_SAME ? 0 : is_not_shown(ctx, at, found);
}
