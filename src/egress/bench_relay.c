/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of a core relaying costs, by hand: `ninja egress-bench && ./src/egress-bench [MiB]`. Prints bytes per CPU second: direct, of the sender and
 * the receiver together; relayed, of the relaying process alone, and of all three. Loopback, one connection, each role a process.
 */
#include "base/def.h"
#include "base/mem.h"
#include "base/str.h"
#include "egress/relay.h"
#include "egress/side_tcp.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHUNK = 256 * 1024 };

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

static int dial(const struct sockaddr_in *to)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)to, sizeof(*to)) < 0)
        die("connect");
    return fd;
}

static void run_source(const struct sockaddr_in *to, uint64_t total)
{
    char *p = mem_zalloc(CHUNK);
    int fd = dial(to);
    for (uint64_t sent = 0; sent < total;) {
        ssize_t n = write(fd, p, CHUNK);
        if (n <= 0)
            die("write");
        sent += (uint64_t)n;
    }
    if (shutdown(fd, SHUT_WR) < 0 || read(fd, p, 1) != 0)
        die("end");
}

static void run_sink(int listener, uint64_t total)
{
    char *p = mem_alloc(CHUNK);
    int fd = accept(listener, NULL, NULL);
    uint64_t got = 0;
    ssize_t n;
    while ((n = read(fd, p, CHUNK)) > 0)
        got += (uint64_t)n;
    if (n < 0 || got < total)
        die("read");
}

static void on_end(void *ctx, enum relay_end how, const struct err *err)
{
    if (how != RELAY_DONE)
        (void)fprintf(stderr, "relay: %s\n", err ? err->msg : "?");
    relay_close(*(struct relay **)ctx);
}

static void run_relay(int listener, const struct sockaddr_in *to)
{
    uv_loop_t loop;
    struct relay *r = NULL;
    if (uv_loop_init(&loop) < 0)
        die("loop");
    int fd = accept(listener, NULL, NULL);
    struct relay_pool *pool = relay_pool_new();
    struct side *a = side_tcp_accept(&loop, fd);
    struct side *b = side_tcp_connect(&loop, (const struct sockaddr *)to, 1000, NULL, NULL);
    r = relay_start(pool, &loop, a, b, STR_NULL, 0, on_end, &r);
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    relay_pool_free(pool);
}

static double cpu_of(pid_t pid)
{
    struct rusage u;
    int status;
    if (wait4(pid, &status, 0, &u) != pid || status != 0)
        die("child");
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

struct spent {
    double ends, relay;
};

static struct spent run(bool relayed, uint64_t total)
{
    struct sockaddr_in sink, front;
    int sink_fd = open_listener(&sink), front_fd = open_listener(&front);
    pid_t sink_pid = fork();
    if (sink_pid == 0) {
        run_sink(sink_fd, total);
        _exit(0);
    }
    pid_t relay_pid = relayed ? fork() : -1;
    if (relay_pid == 0) {
        run_relay(front_fd, &sink);
        _exit(0);
    }
    pid_t source_pid = fork();
    if (source_pid == 0) {
        run_source(relayed ? &front : &sink, total);
        _exit(0);
    }
    struct spent s = {.ends = cpu_of(source_pid)};
    s.ends += cpu_of(sink_pid);
    if (relayed)
        s.relay = cpu_of(relay_pid);
    (void)close(sink_fd);
    (void)close(front_fd);
    return s;
}

int main(int argc, char **argv)
{
    uint64_t mib = 2048;
    if (argc > 1 && str_to_u64(str_of(argv[1]), &mib) < 0)
        return 1;
    for (int i = 0; i < 3; i++) {
        struct spent direct = run(false, mib << 20), through = run(true, mib << 20);
        double m = (double)mib;
        (void)printf("MiB per CPU second: direct %.0f, relay alone %.0f (%.0f %%), relayed in all %.0f (%.0f %%)\n",
                     m / direct.ends, m / through.relay, 100 * direct.ends / through.relay,
                     m / (through.ends + through.relay), 100 * direct.ends / (through.ends + through.relay));
    }
    return 0;
}
