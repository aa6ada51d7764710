/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tls COMMAND...: both ends of what the network is measured with; TLS 1.3, HTTP/1.1, blocking, a thread for each
 * connection of the server. Linked statically, so that the same program runs in a sandbox. Everything is checked:
 * certificate and name, status, length.
 *
 *   serve CERTIFICATE KEY PORT             GET /N answers N bytes; "ready" once it listens
 *   new CA ADDRESS PORT NAME... -- N       N times, name after name: connect, handshake, GET /100, close; "us" each
 *   kept CA ADDRESS PORT NAME N            one connection, N requests; "us" each
 *   bulk CA ADDRESS PORT NAME BYTES        "us" of the answer
 *   hold CA ADDRESS PORT NAME N            N connections, a request on each; "ready", then keeps them until stdin ends
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 64 * 1024, HEAD_MAX = 4096, HOLD_MAX = 20000, STACK = 256 * 1024, WAIT_S = 30, ANSWER = 100 };

struct client {
    SSL *ssl;
    int fd;
};

__attribute__((noreturn, format(printf, 1, 2))) static void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fputs("tls: ", stderr);
    (void)vfprintf(stderr, fmt, ap);
    (void)fputs("\n", stderr);
    va_end(ap);
    ERR_print_errors_fp(stderr);
    exit(1);
}

static double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static uint64_t number(const char *text, uint64_t most)
{
    char *end;
    errno = 0;
    uint64_t n = strtoull(text, &end, 10);
    if (errno || *end || end == text || n > most)
        die("'%s' is not a number up to %llu", text, (unsigned long long)most);
    return n;
}

static void no_delay(int fd)
{
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* ---- the server ---- */

static SSL_CTX *server_ctx;

/* Up to the empty line; 0 when there is no other request. */
static size_t read_head(SSL *ssl, char head[static HEAD_MAX])
{
    size_t n = 0;
    do {
        int r = SSL_read(ssl, head + n, (int)(HEAD_MAX - 1 - n));
        if (r <= 0)
            return 0;
        n += (size_t)r;
        head[n] = 0;
    } while (!strstr(head, "\r\n\r\n") && n < HEAD_MAX - 1);
    return n;
}

static bool answer(SSL *ssl, uint64_t bytes)
{
    static const char body[BLOCK];
    char first[HEAD_MAX];
    int head =
        snprintf(first, sizeof(first), "HTTP/1.1 200 OK\r\nContent-Length: %llu\r\n\r\n", (unsigned long long)bytes);
    size_t with = bytes < 1024 ? (size_t)bytes : 0;
    memset(first + head, 0, with);
    if (SSL_write(ssl, first, head + (int)with) <= 0)
        return false;
    for (uint64_t left = bytes - with; left;) {
        int n = left < BLOCK ? (int)left : BLOCK;
        if (SSL_write(ssl, body, n) <= 0)
            return false;
        left -= (uint64_t)n;
    }
    return true;
}

static void *serve_one(void *arg)
{
    int fd = (int)(intptr_t)arg;
    char head[HEAD_MAX];
    SSL *ssl = SSL_new(server_ctx);
    if (ssl && SSL_set_fd(ssl, fd) == 1 && SSL_accept(ssl) == 1) {
        while (read_head(ssl, head)) {
            char *end;
            if (strncmp(head, "GET /", 5) != 0)
                break;
            uint64_t bytes = strtoull(head + 5, &end, 10);
            if (end == head + 5 || *end != ' ' || !answer(ssl, bytes))
                break;
        }
        (void)SSL_shutdown(ssl);
    }
    SSL_free(ssl);
    (void)close(fd);
    return NULL;
}

static void serve(const char *certificate, const char *key, uint16_t port)
{
    const int on = 1, off = 0;
    const struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    pthread_attr_t attr;
    server_ctx = SSL_CTX_new(TLS_server_method());
    if (!server_ctx || SSL_CTX_use_certificate_chain_file(server_ctx, certificate) != 1 ||
        SSL_CTX_use_PrivateKey_file(server_ctx, key, SSL_FILETYPE_PEM) != 1)
        die("certificate");
    (void)SSL_CTX_set_session_cache_mode(server_ctx, SSL_SESS_CACHE_OFF);
    (void)SSL_CTX_set_num_tickets(server_ctx, 0);
    (void)SSL_CTX_set_mode(server_ctx, SSL_MODE_RELEASE_BUFFERS);
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (fd < 0 || bind(fd, (const struct sockaddr *)&any, sizeof(any)) < 0 || listen(fd, 4096) < 0)
        die("listen: %s", strerror(errno));
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, STACK);
    (void)puts("ready");
    (void)fflush(stdout);
    for (;;) {
        pthread_t thread;
        int one = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (one < 0)
            continue;
        no_delay(one);
        if (pthread_create(&thread, &attr, serve_one, (void *)(intptr_t)one) != 0)
            (void)close(one);
    }
}

/* ---- the client ---- */

static struct sockaddr_in to;

static SSL_CTX *trusting(const char *ca, const char *address, const char *port)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    if (!ctx || SSL_CTX_load_verify_locations(ctx, ca, NULL) != 1)
        die("%s", ca);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    (void)SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    to = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)number(port, UINT16_MAX))};
    if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
        die("%s is no address", address);
    return ctx;
}

static struct client client_open(SSL_CTX *ctx, const char *name)
{
    const struct timeval wait = {WAIT_S, 0};
    struct client c = {.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), .ssl = SSL_new(ctx)};
    (void)setsockopt(c.fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    if (connect(c.fd, (const struct sockaddr *)&to, sizeof(to)) < 0)
        die("connect: %s", strerror(errno));
    no_delay(c.fd);
    if (!c.ssl || SSL_set_fd(c.ssl, c.fd) != 1 || SSL_set_tlsext_host_name(c.ssl, name) != 1 ||
        SSL_set1_host(c.ssl, name) != 1 || SSL_connect(c.ssl) != 1)
        die("handshake with %s", name);
    return c;
}

static void client_close(struct client *c)
{
    (void)SSL_shutdown(c->ssl);
    SSL_free(c->ssl);
    (void)close(c->fd);
}

static void get(struct client *c, const char *name, uint64_t bytes)
{
    static char block[BLOCK];
    int n = snprintf(block, sizeof(block), "GET /%llu HTTP/1.1\r\nHost: %s:%d\r\n\r\n", (unsigned long long)bytes, name,
                     ntohs(to.sin_port));
    if (SSL_write(c->ssl, block, n) != n)
        die("send");
    size_t have = 0;
    char *end = NULL;
    while (!end) {
        n = SSL_read(c->ssl, block + have, (int)(HEAD_MAX - have));
        if (n <= 0)
            die("no answer");
        have += (size_t)n;
        block[have] = 0;
        end = strstr(block, "\r\n\r\n");
    }
    if (strncmp(block, "HTTP/1.1 200 ", 13) != 0)
        die("%.200s", block);
    for (uint64_t left = bytes - (have - (size_t)(end + 4 - block)); left; left -= (uint64_t)n) {
        n = SSL_read(c->ssl, block, BLOCK);
        if (n <= 0 || (uint64_t)n > left)
            die("%llu bytes are missing", (unsigned long long)left);
    }
}

static void measure_new(SSL_CTX *ctx, char **names, char *last)
{
    size_t n_names = 0;
    while (names[n_names] && strcmp(names[n_names], "--") != 0)
        n_names++;
    uint64_t n = number(last, 1000000);
    for (uint64_t i = 0; i < n; i++) {
        const char *name = names[i % n_names];
        double start = now_us();
        struct client c = client_open(ctx, name);
        get(&c, name, ANSWER);
        (void)printf("%.1f\n", now_us() - start);
        client_close(&c);
    }
}

static void measure_kept(SSL_CTX *ctx, const char *name, uint64_t n)
{
    struct client c = client_open(ctx, name);
    for (uint64_t i = 0; i < n; i++) {
        double start = now_us();
        get(&c, name, ANSWER);
        (void)printf("%.1f\n", now_us() - start);
    }
    client_close(&c);
}

static void measure_bulk(SSL_CTX *ctx, const char *name, uint64_t bytes)
{
    struct client c = client_open(ctx, name);
    get(&c, name, ANSWER);
    double start = now_us();
    get(&c, name, bytes);
    (void)printf("%.1f\n", now_us() - start);
    client_close(&c);
}

static void hold(SSL_CTX *ctx, const char *name, uint64_t n)
{
    char rest[64];
    for (uint64_t i = 0; i < n; i++) {
        struct client c = client_open(ctx, name);
        get(&c, name, ANSWER);
    }
    (void)puts("ready");
    (void)fflush(stdout);
    while (read(STDIN_FILENO, rest, sizeof(rest)) > 0)
        continue;
}

int main(int argc, char **argv)
{
    struct rlimit files;
    (void)signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    if (argc == 5 && strcmp(argv[1], "serve") == 0)
        serve(argv[2], argv[3], (uint16_t)number(argv[4], UINT16_MAX));
    if (argc < 7)
        die("see the top of tls.c");
    SSL_CTX *ctx = trusting(argv[2], argv[3], argv[4]);
    if (strcmp(argv[1], "new") == 0)
        measure_new(ctx, argv + 5, argv[argc - 1]);
    else if (strcmp(argv[1], "kept") == 0)
        measure_kept(ctx, argv[5], number(argv[6], 10000000));
    else if (strcmp(argv[1], "bulk") == 0)
        measure_bulk(ctx, argv[5], number(argv[6], UINT64_MAX));
    else if (strcmp(argv[1], "hold") == 0)
        hold(ctx, argv[5], number(argv[6], HOLD_MAX));
    else
        die("no command %s", argv[1]);
    return 0;
}
