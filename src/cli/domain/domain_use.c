/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/domain/domain_use.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/exec/terminal.h"
#include "config/config.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* ---- tls probe ---- */

/* Who answers at an address with TLS, told by the certificate that is shown. Nothing is trusted and nothing is sent but
 * a handshake. */
enum tls_probe {
    TLS_PROBE_SAME,    /* it shows the first certificate of `pem` */
    TLS_PROBE_OTHER,   /* somebody is there, who shows another one, or speaks no TLS */
    TLS_PROBE_SILENT,  /* somebody may be there, but does not answer in time */
    TLS_PROBE_REFUSED, /* nobody is */
};

/* Until the descriptor is ready or the time is up: false. */
static bool wait_for(int fd, short events, usec_t until)
{
    for (;;) {
        usec_t now = clock_mono();
        struct pollfd pfd = {.fd = fd, .events = events};
        int n = now < until ? poll(&pfd, 1, (int)((until - now) / USEC_PER_MS) + 1) : 0;
        if (n > 0)
            return true;
        if (n == 0 || errno != EINTR)
            return false;
    }
}

/* -errno */
static int domain_use_dial(const struct sockaddr *address, socklen_t length, usec_t until)
{
    int error = 0;
    socklen_t n = sizeof(error);
    AUTO_CLOSE int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, address, length) == 0)
        return TAKE_FD(fd);
    if (errno != EINPROGRESS)
        return -errno;
    if (!wait_for(fd, POLLOUT, until))
        return -ETIMEDOUT;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
        return -errno;
    return error ? -error : TAKE_FD(fd);
}

static X509 *first_certificate(struct str pem)
{
    BIO *bio = BIO_new_mem_buf(pem.p, (int)pem.n);
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    BIO_free(bio);
    return cert;
}

static enum tls_probe shake_hands(SSL *ssl, int fd, const X509 *expected, usec_t until)
{
    int r;
    while ((r = SSL_connect(ssl)) != 1) {
        int why = SSL_get_error(ssl, r);
        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE)
            return TLS_PROBE_OTHER;
        if (!wait_for(fd, why == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, until))
            return TLS_PROBE_SILENT;
    }
    X509 *shown = SSL_get1_peer_certificate(ssl);
    bool is_same = shown && X509_cmp(shown, expected) == 0;
    X509_free(shown);
    return is_same ? TLS_PROBE_SAME : TLS_PROBE_OTHER;
}

/* server_name: what the client asks for (SNI). Blocks for timeout_ms at most. */
static enum tls_probe tls_probe(const struct sockaddr *address, socklen_t length, const char *server_name,
                                struct str pem, int timeout_ms)
{
    usec_t until = clock_mono() + (usec_t)timeout_ms * USEC_PER_MS;
    struct sigaction ignore = {.sa_handler = SIG_IGN}, before;
    AUTO_CLOSE int fd = domain_use_dial(address, length, until);
    if (fd < 0)
        return fd == -ECONNREFUSED ? TLS_PROBE_REFUSED : TLS_PROBE_SILENT;
    enum tls_probe found = TLS_PROBE_OTHER;
    (void)sigaction(SIGPIPE, &ignore, &before); /* of a peer that leaves in the middle; OpenSSL knows no MSG_NOSIGNAL */
    X509 *expected = first_certificate(pem);
    SSL_CTX *tls = SSL_CTX_new(TLS_client_method());
    SSL *ssl = tls ? SSL_new(tls) : NULL;
    if (expected && ssl && SSL_set_fd(ssl, fd) == 1 && SSL_set_tlsext_host_name(ssl, server_name) == 1)
        found = shake_hands(ssl, fd, expected, until);
    SSL_free(ssl);
    (void)sigaction(SIGPIPE, &before, NULL);
    SSL_CTX_free(tls);
    X509_free(expected);
    ERR_clear_error();
    return found;
}

enum { PROBE_MS = 2000, SHOWN_MS = 30000, REFUSED_MS = 15000, AGAIN_MS = 50 };

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

bool domain_is_asked_by_service(void)
{
    AUTO_FREE char *path = mem_printf("/proc/%d/comm", (int)getppid());
    AUTO_BUF struct buf b = BUF_INIT(4096);
    struct str rest, name = STR("");
    if (fd_read_file(AT_FDCWD, path, &b) < 0)
        return false;
    rest = buf_str(&b);
    (void)str_split(&rest, '\n', &name);
    return str_eqc(name, "coved") || str_eqc(name, "cove-renewer");
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

static bool is_same(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    const struct sockaddr_in *a4 = (const struct sockaddr_in *)a, *b4 = (const struct sockaddr_in *)b;
    const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)a, *b6 = (const struct sockaddr_in6 *)b;
    if (a->ss_family != b->ss_family)
        return false;
    if (a->ss_family == AF_INET)
        return a4->sin_port == b4->sin_port && a4->sin_addr.s_addr == b4->sin_addr.s_addr;
    return a->ss_family == AF_INET6 && a6->sin6_port == b6->sin6_port &&
           memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr)) == 0;
}

/* Is this descriptor of the process a socket that listens there? */
static bool is_listener(int process, int number, const struct config_listen *at)
{
    struct sockaddr_storage address = {.ss_family = AF_UNSPEC};
    socklen_t n = sizeof(address), size = sizeof(int);
    int listens = 0;
    AUTO_CLOSE int fd = pidfd_getfd(process, number, 0);
    return fd >= 0 && getsockname(fd, (struct sockaddr *)&address, &n) == 0 && is_same(&address, &at->address) &&
           getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens;
}

/* coved holds the listeners, whoever accepts on them. */
static bool listens_at(pid_t coved, const struct config_listen *at)
{
    AUTO_FREE char *path = mem_printf("/proc/%d/fd", (int)coved);
    AUTO_CLOSE int process = pidfd_open(coved, 0);
    AUTO(dir_close) DIR *dir = process >= 0 ? dir_open(AT_FDCWD, path) : NULL;
    bool found = false;
    uint64_t number;
    for (const struct dirent *entry; !found && (entry = dir_next(dir));)
        found = str_to_u64(str_of(entry->d_name), &number) == 0 && is_listener(process, (int)number, at);
    return found;
}

/* A cove-api whose time is over keeps them for as long as its last clients need. */
static bool child_listens_at(pid_t coved, const struct config_listen *at)
{
    AUTO_FREE char *path = mem_printf("/proc/%d/task/%d/children", (int)coved, (int)coved);
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    struct str rest, one;
    uint64_t pid;
    bool found = false;
    if (coved <= 0 || fd_read_file(AT_FDCWD, path, &b) < 0)
        return false;
    rest = buf_str(&b);
    while (!found && str_split(&rest, ' ', &one))
        found = str_to_u64(one, &pid) == 0 && listens_at((pid_t)pid, at);
    return found;
}

static int try_listen_patiently(const struct config_listen *at, pid_t coved)
{
    const struct timespec pause = {.tv_nsec = AGAIN_MS * 1000000L};
    usec_t end = clock_mono() + SHOWN_MS * USEC_PER_MS;
    int r, strangers = 0; /* in a row: one may have been a child that ended meanwhile */
    while ((r = try_listen(at)) == -EADDRINUSE && clock_mono() < end && !listens_at(coved, at) && strangers < 2) {
        strangers = child_listens_at(coved, at) ? 0 : strangers + 1;
        (void)nanosleep(&pause, NULL);
    }
    return r;
}

static int is_taken(struct context *ctx, const struct config_listen *at)
{
    const char *colon = strrchr(at->text, ':');
    context_hint(ctx,
                 "'ss -ltnp sport = %s' shows which: end it, or choose another address for TLS (listen_tls, "
                 "COVE_LISTEN_TLS) and start the service again; then set the domain",
                 colon ? colon : at->text);
    return err_set(&ctx->err, ERR_FAILED_PRECONDITION,
                   "%s, where the service is to listen with TLS, is another program's", at->text);
}

static int check_port(struct context *ctx, const struct config_listen *at, pid_t coved)
{
    int r = try_listen_patiently(at, coved);
    if (r == 0 || geteuid() != 0) /* who can't look may not change the domain either, and hears of that */
        return 0;
    if (r == -EADDRNOTAVAIL) {
        context_hint(ctx, "listen_tls, or COVE_LISTEN_TLS, must be one that 'ip address' shows");
        return err_set(&ctx->err, ERR_FAILED_PRECONDITION, "this machine does not have the address %s", at->text);
    }
    if (r != -EADDRINUSE)
        return err_errno(&ctx->err, r, "listen on %s", at->text);
    return coved > 0 && listens_at(coved, at) ? 0 : is_taken(ctx, at);
}

int domain_check_ports(struct context *ctx, const struct config *config)
{
    pid_t coved = find_coved(config);
    for (size_t i = 0; i < config->n_listen_tls; i++)
        if (check_port(ctx, &config->listen_tls[i], coved) < 0)
            return -1;
    return 0;
}

static int is_not_shown(struct context *ctx, const struct config_listen *at, enum tls_probe found)
{
    if (found == TLS_PROBE_OTHER)
        return is_taken(ctx, at);
    context_hint(ctx,
                 "its log says why; or it was started with another listen_tls (COVE_LISTEN_TLS) than is said here: "
                 "start it again");
    return err_set(&ctx->err, ERR_UNAVAILABLE, "the domain is set, but the service does not answer at %s", at->text);
}

int domain_await(struct context *ctx, const struct config *config, const struct domain *d)
{
    const struct timespec pause = {.tv_nsec = AGAIN_MS * 1000000L};
    usec_t began = clock_mono();
    enum tls_probe found = TLS_PROBE_SILENT;
    const struct config_listen *at = &config->listen_tls[0]; /* there is one at least */
    struct terminal_progress p;
    progress_start(&p, ctx->json);
    for (size_t i = 0; i < config->n_listen_tls; i++) {
        at = &config->listen_tls[i];
        while ((found = probe(at, d)) != TLS_PROBE_SAME &&
               clock_mono() - began < (found == TLS_PROBE_REFUSED ? REFUSED_MS : SHOWN_MS) * USEC_PER_MS) {
            progress_show(&p, "waiting for the service to show the certificate, %llu s",
                          (unsigned long long)((clock_mono() - began) / USEC_PER_SEC));
            (void)nanosleep(&pause, NULL);
        }
        if (found != TLS_PROBE_SAME)
            break;
    }
    progress_end(&p);
    return found == TLS_PROBE_SAME ? 0 : is_not_shown(ctx, at, found);
}
