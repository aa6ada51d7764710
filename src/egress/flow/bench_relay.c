/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What relaying costs, by hand: `ninja src/egress/egress-bench && src/egress/egress-bench [MiB]`. Loopback, one
 * connection, each role a process. Prints MiB per CPU second: direct and in the clear, of the sender and the receiver
 * together; and of the process between them alone, when it passes through, and when it intercepts (TLS on both of its
 * sides). Then the CPU time that it needs to intercept a new connection.
 */
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "egress/flow/relay.h"
#include "egress/flow/side_tcp.h"
#include "egress/tls/ca.h"
#include "egress/tls/side_tls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHUNK = 256 * 1024, CONNECTIONS = 200, LIMIT_MS = 5000 };
#define NAME "bench.example"

enum how { DIRECT, PASSED, INTERCEPTED, CONNECTED };

/* The sender is the client of TLS; the sink, its server, shows a leaf of a CA that the process between trusts. */
struct bench {
    enum how how;
    uint64_t total;
    struct sockaddr_in sink, front;
    int sink_fd, front_fd;
    struct ca *ca;
    struct tls_context *world, *sandbox;
};

static NORETURN void die(const char *what)
{
    perror(what);
    _exit(1);
}

static int open_listener(struct sockaddr_in *ret_addr)
{
    socklen_t n = sizeof(*ret_addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    *ret_addr = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || bind(fd, (struct sockaddr *)ret_addr, n) < 0 || listen(fd, 8) < 0 ||
        getsockname(fd, (struct sockaddr *)ret_addr, &n) < 0)
        die("listen");
    return fd;
}

static bool is_tls(const struct bench *b)
{
    return b->how == INTERCEPTED || b->how == CONNECTED;
}

static SSL *handshake(struct bench *b, int fd, bool is_client)
{
    struct err err;
    const struct ca_leaf *leaf;
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    SSL *ssl = SSL_new(ctx);
    if (!ssl || ca_leaf(b->ca, NAME, &leaf, &err) < 0 || SSL_set_fd(ssl, fd) != 1)
        die("TLS");
    if (!is_client && (SSL_use_certificate(ssl, leaf->certificate) != 1 || SSL_use_PrivateKey(ssl, leaf->key) != 1))
        die("certificate");
    if (is_client && SSL_set_tlsext_host_name(ssl, NAME) != 1)
        die("name");
    if ((is_client ? SSL_connect(ssl) : SSL_accept(ssl)) != 1)
        die("handshake");
    SSL_CTX_free(ctx);
    return ssl;
}

static void run_source(struct bench *b)
{
    char *p = mem_zalloc(CHUNK);
    const struct sockaddr_in *to = b->how == DIRECT ? &b->sink : &b->front;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)to, sizeof(*to)) < 0)
        die("connect");
    SSL *ssl = is_tls(b) ? handshake(b, fd, true) : NULL;
    for (uint64_t sent = 0; sent < b->total;) {
        size_t want = (size_t)MIN((uint64_t)CHUNK, b->total - sent);
        ssize_t n = ssl ? SSL_write(ssl, p, (int)want) : write(fd, p, want);
        if (n <= 0)
            die("write");
        sent += (uint64_t)n;
    }
    if (ssl)
        (void)SSL_shutdown(ssl);
    else if (shutdown(fd, SHUT_WR) < 0)
        die("shutdown");
    if ((ssl ? SSL_read(ssl, p, 1) : read(fd, p, 1)) > 0)
        die("end");
    SSL_free(ssl);
    (void)close(fd);
    mem_free(p);
}

static void run_sink(struct bench *b)
{
    char *p = mem_alloc(CHUNK);
    int fd = accept(b->sink_fd, NULL, NULL);
    SSL *ssl = is_tls(b) ? handshake(b, fd, false) : NULL;
    uint64_t got = 0;
    ssize_t n;
    while ((n = ssl ? SSL_read(ssl, p, CHUNK) : read(fd, p, CHUNK)) > 0)
        got += (uint64_t)n;
    if (n < 0 || got < b->total)
        die("read");
    if (ssl)
        (void)SSL_shutdown(ssl);
    SSL_free(ssl);
    (void)close(fd);
    mem_free(p);
}

struct between {
    struct bench *bench;
    uv_loop_t *loop;
    struct relay_pool *pool;
    struct relay *relay;
    struct side *front, *up;
};

static void bench_relay_on_end(void *ctx, enum relay_end how, const struct err *err)
{
    struct between *w = ctx;
    if (how != RELAY_DONE)
        (void)fprintf(stderr, "relay: %s\n", err ? err->msg : "?");
    relay_close(w->relay);
}

static void bench_relay_start(struct between *w)
{
    w->relay = relay_start(w->pool, w->loop, w->front, w->up, STR_NULL, 0, bench_relay_on_end, w);
}

static void on_up_ready(void *ctx)
{
    struct between *w = ctx;
    struct err err;
    const struct ca_leaf *leaf;
    if (ca_leaf(w->bench->ca, NAME, &leaf, &err) < 0)
        die("leaf");
    w->front = side_tls_server(w->front, w->bench->sandbox, leaf, STR_NULL, STR_NULL, LIMIT_MS, NULL, NULL);
    bench_relay_start(w);
}

static void on_up_failed(void *ctx UNUSED, const struct err *err)
{
    (void)fprintf(stderr, "%s\n", err->msg);
    _exit(1);
}

static const struct side_ops up_ops = {.on_ready = on_up_ready, .on_failed = on_up_failed};

static void run_between(struct bench *b, int times)
{
    uv_loop_t loop;
    if (uv_loop_init(&loop) < 0)
        die("loop");
    struct between w = {.bench = b, .loop = &loop, .pool = relay_pool_new()};
    for (int i = 0; i < times; i++) {
        w.front = side_tcp_accept(&loop, accept(b->front_fd, NULL, NULL));
        w.up = side_tcp_connect(&loop, (const struct sockaddr *)&b->sink, LIMIT_MS, NULL, NULL);
        if (is_tls(b))
            w.up = side_tls_client(w.up, b->world, NAME, STR_NULL, LIMIT_MS, &up_ops, &w);
        else
            bench_relay_start(&w);
        (void)uv_run(&loop, UV_RUN_DEFAULT);
    }
    relay_pool_free(w.pool);
}

static double cpu_of(pid_t pid)
{
    struct rusage u;
    int status;
    if (wait4(pid, &status, 0, &u) != pid || status != 0)
        die("child");
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

/* CPU seconds: of both ends when direct, of the process between them else. */
static double bench_relay_run(struct bench *b, enum how how, uint64_t total, int times)
{
    b->how = how;
    b->total = total;
    b->sink_fd = open_listener(&b->sink);
    b->front_fd = open_listener(&b->front);
    pid_t pids[3];
    for (int role = 0; role < 3; role++) {
        pids[role] = fork();
        if (pids[role] != 0)
            continue;
        if (role == 1 && how != DIRECT)
            run_between(b, times);
        for (int i = 0; role != 1 && i < times; i++)
            (role == 0 ? run_sink : run_source)(b);
        _exit(0);
    }
    double cpu[3];
    for (int role = 2; role >= 0; role--)
        cpu[role] = cpu_of(pids[role]);
    (void)close(b->sink_fd);
    (void)close(b->front_fd);
    return how == DIRECT ? cpu[0] + cpu[2] : cpu[1];
}

static int prepare(struct bench *b, struct err *err)
{
    AUTO_BUF struct buf pem = BUF_INIT(CA_PEM_MAX);
    char path[] = "/tmp/egress-bench-XXXXXX";
    if (ca_new("bench", &b->ca, err) < 0 || ca_pem(b->ca, &pem, err) < 0)
        return -1;
    AUTO_CLOSE int fd = mkstemp(path);
    if (fd < 0 || fd_write_all(fd, buf_data(&pem), buf_len(&pem)) < 0)
        return err_errno(err, errno, "%s", path);
    int r = tls_context_world(path, &b->world, err);
    (void)unlink(path);
    return r < 0 ? r : tls_context_sandbox(&b->sandbox, err);
}

int main(int argc, char **argv)
{
    struct err err;
    struct bench b = {0};
    uint64_t mib = 2048;
    if ((argc > 1 && str_to_u64(str_of(argv[1]), &mib) < 0) || prepare(&b, &err) < 0) {
        (void)fprintf(stderr, "%s\n", argc > 1 ? "egress-bench [MiB]" : err.msg);
        return 1;
    }
    for (int i = 0; i < 3; i++) {
        double direct = bench_relay_run(&b, DIRECT, mib << 20, 1), passed = bench_relay_run(&b, PASSED, mib << 20, 1);
        double opened = bench_relay_run(&b, INTERCEPTED, mib << 20, 1), m = (double)mib;
        double connected = bench_relay_run(&b, CONNECTED, 1, CONNECTIONS);
        (void)printf(
            "MiB per CPU second: direct %.0f, passed through %.0f (%.0f %%), intercepted %.0f (%.0f %%); a new "
            "connection intercepted: %.0f us\n",
            m / direct, m / passed, 100 * direct / passed, m / opened, 100 * direct / opened,
            1e6 * connected / CONNECTIONS);
    }
    ca_free(b.ca);
    tls_context_free(b.world);
    tls_context_free(b.sandbox);
    return 0;
}
