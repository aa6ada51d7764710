/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What requests cost on their way through, by hand, with a client of your choice (wrk, curl, h2load):
 *
 *   ninja src/egress/egress-bench-http
 *   src/egress/egress-bench-http origin 8001 &         answers every request with two bytes, HTTP/1 and nothing but GET
 *   src/egress/egress-bench-http h1 8002 8001 &        relays 127.0.0.1:8002 to 8001; h2: the same with prior knowledge
 *   wrk -t1 -c32 -d3 http://127.0.0.1:8001/     direct; then the same through 8002
 *
 * Each prints its CPU time when it is told to end (SIGTERM).
 */
#include "base/mem.h"
#include "egress/flow/side_tcp.h"
#include "egress/http/exchange.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static uv_loop_t loop;
static struct sockaddr_in upstream;
static bool is_h2;
static unsigned long requests;

static NORETURN void die(const char *what)
{
    perror(what);
    _exit(1);
}

/* ---- relay ---- */

struct bench_exchange_conn {
    struct exchange *x;
};

static bool bench_exchange_on_request(void *ctx UNUSED, uint64_t id UNUSED, struct exchange_head *head,
                                      struct exchange_refusal *ret_refusal UNUSED)
{
    requests++;
    exchange_set(head, STR("authorization"), STR("Bearer something"));
    return true;
}

static void bench_exchange_on_answer(void *ctx UNUSED, uint64_t id UNUSED, int status UNUSED)
{
}

static void bench_exchange_on_end(void *ctx, const struct err *err UNUSED)
{
    struct bench_exchange_conn *c = ctx;
    exchange_close(c->x);
    mem_free(c);
}

static const struct exchange_ops ops = {
    .on_request = bench_exchange_on_request, .on_answer = bench_exchange_on_answer, .on_end = bench_exchange_on_end};

static void relay(int fd)
{
    struct bench_exchange_conn *c = mem_new(struct bench_exchange_conn);
    struct side *client = side_tcp_accept(&loop, fd);
    struct side *up = side_tcp_connect(&loop, (struct sockaddr *)&upstream, 5000, NULL, NULL);
    c->x = (is_h2 ? h2_exchange : h1_exchange)(&loop, client, up, STR_NULL, &ops, c);
}

/* ---- origin ---- */

struct served {
    uv_poll_t poll;
    int fd;
};

static void bench_exchange_on_closed(uv_handle_t *h)
{
    mem_free(h->data);
}

static void on_asked(uv_poll_t *p, int status UNUSED, int events UNUSED)
{
    static const char ok[] = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok";
    struct served *s = p->data;
    char text[8192];
    ssize_t n = recv(s->fd, text, sizeof(text), MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0) {
        (void)close(s->fd);
        uv_close((uv_handle_t *)p, bench_exchange_on_closed);
        return;
    }
    if (n >= 4 && memcmp(text + n - 4, "\r\n\r\n", 4) == 0) {
        requests++;
        (void)send(s->fd, ok, sizeof(ok) - 1, MSG_NOSIGNAL);
    }
}

static void serve(int fd)
{
    struct served *s = mem_new(struct served);
    s->fd = fd;
    (void)uv_poll_init(&loop, &s->poll, fd);
    s->poll.data = s;
    (void)uv_poll_start(&s->poll, UV_READABLE, on_asked);
}

/* ---- both ---- */

static void on_client(uv_poll_t *p, int status UNUSED, int events UNUSED)
{
    int listener = (int)(intptr_t)p->data, fd;
    struct sockaddr_in from;
    socklen_t n = sizeof(from);
    while ((fd = accept4(listener, (struct sockaddr *)&from, &n, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        if (upstream.sin_port)
            relay(fd);
        else
            serve(fd);
    }
}

static void bench_exchange_on_signal(uv_signal_t *s, int signal UNUSED)
{
    struct rusage u;
    (void)getrusage(RUSAGE_SELF, &u);
    double us =
        (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
    printf("%lu requests, %.1f us of CPU each, %ld KiB at most\n", requests, requests ? us / (double)requests : 0,
           u.ru_maxrss);
    uv_stop(s->loop);
}

int main(int argc, char **argv)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (argc < 3 || (argc < 4 && strcmp(argv[1], "origin") != 0))
        die("usage: origin PORT | h1|h2 PORT UPSTREAM-PORT");
    is_h2 = strcmp(argv[1], "h2") == 0;
    upstream = at;
    at.sin_port = htons((uint16_t)strtoul(argv[2], NULL, 10));
    upstream.sin_port = argc > 3 ? htons((uint16_t)strtoul(argv[3], NULL, 10)) : 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)) < 0 ||
        bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 512) < 0)
        die("listen");
    uv_poll_t poll;
    uv_signal_t term;
    (void)uv_loop_init(&loop);
    (void)uv_poll_init(&loop, &poll, fd);
    poll.data = (void *)(intptr_t)fd;
    (void)uv_poll_start(&poll, UV_READABLE, on_client);
    (void)uv_signal_init(&loop, &term);
    (void)uv_signal_start(&term, bench_exchange_on_signal, SIGTERM);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    return 0;
}
