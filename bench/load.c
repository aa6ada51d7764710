/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load COMMAND...: does one kind of work against the service (or runs a program) and prints what each took, in
 * microseconds, one line a sample. bench/run calls it and makes figures of the lines. Everything is checked: a wrong
 * answer ends it with exit code 1.
 *
 *   cycle N [bash]            create, run echo, kill: "total create first-output end-event kill"
 *   exec N ID TOKEN [bash]    in a live sandbox: "first-output end-event"
 *   create N CONNECTIONS      "us id token", then "wall us"; the sandboxes stay
 *   kill CONNECTIONS          ids from stdin; "wall us"
 *   spawn N -- PROGRAM...     runs it: "first-output end", the same when it writes nothing
 *   up ID TOKEN PATH BYTES    uploads that many bytes; down ID TOKEN PATH BYTES downloads and compares them: "us"
 *   slow ID TOKEN RATE S      reads RATE bytes/s of a process that writes without end for S seconds: "bytes" at the end
 *   idle N                    opens N connections, one request on each: "us", then keeps them until stdin ends
 *   serve                     answers what comes with the same 200, without looking at it: what this machine's sockets give at best; "port"
 */
#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 16, SANDBOXES_MAX = 4096, IDLE_MAX = 15000, BLOCK = 1024 * 1024, SLOW_RECEIVE = 128 * 1024 };

static struct client one;

static void cycle(uint64_t n, bool bash)
{
    client_open(&one, 0);
    for (uint64_t i = 0; i < n; i++) {
        struct sandbox sb;
        double start = now_us(), first = 0, end = 0;
        sandbox_create(&one, &sb);
        double created = now_us();
        run_echo(&one, &sb, bash, &first, &end);
        double ran = now_us();
        sandbox_kill(&one, sb.id);
        double killed = now_us();
        printf("%.1f %.1f %.1f %.1f %.1f\n", killed - start, created - start, first - created, end - created,
               killed - ran);
    }
}

static void exec_in(uint64_t n, const struct sandbox *sb, bool bash)
{
    client_open(&one, 0);
    for (uint64_t i = 0; i < n; i++) {
        double start = now_us(), first = 0, end = 0;
        run_echo(&one, sb, bash, &first, &end);
        printf("%.1f %.1f\n", first - start, end - start);
    }
}

/* ---- many at a time ---- */

static struct crowd {
    struct client clients[CONNECTIONS_MAX];
    pthread_t threads[CONNECTIONS_MAX];
    char ids[SANDBOXES_MAX][64];
    uint64_t n, next;
} crowd;

static void *create_some(void *arg)
{
    while (__atomic_fetch_add(&crowd.next, 1, __ATOMIC_RELAXED) < crowd.n) {
        struct sandbox sb;
        double start = now_us();
        sandbox_create(arg, &sb);
        printf("%.1f %s %s\n", now_us() - start, sb.id, sb.token);
    }
    return NULL;
}

static void *kill_some(void *arg)
{
    uint64_t i;
    while ((i = __atomic_fetch_add(&crowd.next, 1, __ATOMIC_RELAXED)) < crowd.n)
        sandbox_kill(arg, crowd.ids[i]);
    return NULL;
}

static void in_crowd(uint64_t connections, void *(*work)(void *))
{
    for (uint64_t i = 0; i < connections; i++)
        client_open(&crowd.clients[i], 0);
    double start = now_us();
    for (uint64_t i = 0; i < connections; i++)
        if (pthread_create(&crowd.threads[i], NULL, work, &crowd.clients[i]) != 0)
            die("no thread");
    for (uint64_t i = 0; i < connections; i++)
        (void)pthread_join(crowd.threads[i], NULL);
    printf("wall %.1f\n", now_us() - start);
}

static void read_ids(void)
{
    while (crowd.n < SANDBOXES_MAX && fgets(crowd.ids[crowd.n], sizeof(crowd.ids[0]), stdin)) {
        crowd.ids[crowd.n][strcspn(crowd.ids[crowd.n], "\n")] = 0;
        crowd.n++;
    }
}

/* ---- other programs ---- */

static void spawn(uint64_t n, char *const argv[])
{
    extern char **environ;
    for (uint64_t i = 0; i < n; i++) {
        int p[2], status = 0;
        char text[4096];
        double first = 0;
        pid_t pid;
        posix_spawn_file_actions_t actions;
        if (pipe2(p, O_CLOEXEC) < 0)
            die("pipe: %s", strerror(errno));
        (void)posix_spawn_file_actions_init(&actions);
        (void)posix_spawn_file_actions_adddup2(&actions, p[1], STDOUT_FILENO);
        double start = now_us();
        int r = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
        if (r != 0)
            die("start %s: %s", argv[0], strerror(r));
        (void)close(p[1]);
        while (read(p[0], text, sizeof(text)) > 0)
            first = first > 0 ? first : now_us();
        if (waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
            die("%s failed (status %d)", argv[0], status);
        double end = now_us();
        printf("%.1f %.1f\n", (first > 0 ? first : end) - start, end - start);
        (void)posix_spawn_file_actions_destroy(&actions);
        (void)close(p[0]);
    }
}

/* ---- files ---- */

/* The file's n-th MiB: counters, the first of them saying which MiB it is. */
static char *block(uint64_t n)
{
    static uint64_t words[BLOCK / sizeof(uint64_t)];
    if (!words[1])
        for (uint64_t i = 1; i < BLOCK / sizeof(uint64_t); i++)
            words[i] = i * 0x9e3779b97f4a7c15ULL;
    words[0] = n;
    return (char *)words;
}

static void file_head(struct client *c, const struct sandbox *sb, const char *path, const char *method,
                      const char *more)
{
    char head[1024];
    (void)snprintf(
        head, sizeof(head),
        "%s /files?path=%s HTTP/1.1\r\nE2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: %s\r\n%s",
        method, path, sb->id, sb->token, more);
    client_send(c, head, NULL, 0);
}

static void upload(const struct sandbox *sb, const char *path, uint64_t bytes)
{
    char more[128];
    (void)snprintf(more, sizeof(more), "Content-Type: application/octet-stream\r\nContent-Length: %llu\r\n",
                   (unsigned long long)bytes);
    client_open(&one, 0);
    double start = now_us();
    file_head(&one, sb, path, "POST", more);
    for (uint64_t at = 0; at < bytes; at += BLOCK)
        client_send_raw(&one, block(at / BLOCK), bytes - at < BLOCK ? (size_t)(bytes - at) : (size_t)BLOCK);
    client_head(&one);
    const char *text = client_text(&one);
    if (one.status != 200)
        die("upload: %d %.300s", one.status, text);
    printf("%.1f\n", now_us() - start);
}

static void download(const struct sandbox *sb, const char *path, uint64_t bytes)
{
    const char *p;
    uint64_t at = 0;
    client_open(&one, 0);
    double start = now_us();
    file_head(&one, sb, path, "GET", "");
    client_head(&one);
    if (one.status != 200)
        die("download: %d %.300s", one.status, client_text(&one));
    for (size_t n; (n = client_body(&one, &p, BLOCK - at % BLOCK)) > 0; at += n)
        if (memcmp(p, block(at / BLOCK) + at % BLOCK, n) != 0)
            die("download: other bytes than uploaded within the %zu at %llu", n, (unsigned long long)at);
    if (at != bytes)
        die("download: %llu bytes", (unsigned long long)at);
    printf("%.1f\n", now_us() - start);
}

/* ---- a slow reader ---- */

/* The output of seq: consecutive numbers, one a line. */
struct counter {
    char line[24];
    size_t at, len;
    uint64_t n;
};

static void check_count(struct counter *c, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (c->at == c->len) {
            c->len = (size_t)snprintf(c->line, sizeof(c->line), "%llu\n", (unsigned long long)++c->n);
            c->at = 0;
        }
        if (p[i] != c->line[c->at++])
            die("slow: the output is not in order at number %llu", (unsigned long long)c->n);
    }
}

static size_t from_base64(const char *p, char *to)
{
    static signed char value[256];
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    if (!value['B'])
        for (int i = 0; i < 64; i++)
            value[(unsigned char)digits[i]] = (signed char)i;
    char *start = to;
    for (; *p && *p != '"' && *p != '='; p += 4) {
        uint32_t v = 0;
        int n = 0;
        for (int i = 0; i < 4; i++) {
            v <<= 6;
            if (p[i] != '=' && p[i] != '"' && p[i])
                v |= (uint32_t)value[(unsigned char)p[i]];
            n += p[i] != '=';
        }
        for (int i = 0; i < n - 1; i++)
            *to++ = (char)(v >> (16 - 8 * i));
        if (n < 4)
            break;
    }
    return (size_t)(to - start);
}

static void slow(const struct sandbox *sb, uint64_t rate, uint64_t seconds)
{
    static char text[CLIENT_FRAME_MAX];
    struct counter counter = {0};
    uint64_t bytes = 0;
    client_open(&one, SLOW_RECEIVE);
    process_start(
        &one, sb,
        "{\"process\":{\"cmd\":\"/usr/bin/seq\",\"args\":[\"1\",\"100000000000\"],\"envs\":{}},\"stdin\":false}");
    for (double start = now_us(); now_us() - start < (double)seconds * 1e6;) {
        if (!client_frame(&one))
            die("slow: the process ended");
        bytes += one.frame_len;
        const char *p = strstr(one.frame, "\"stdout\":\"");
        if (p)
            check_count(&counter, text, from_base64(p + 10, text));
        double ahead = (double)bytes / (double)rate * 1e6 - (now_us() - start);
        if (ahead > 0)
            (void)usleep((useconds_t)(ahead < 200000 ? ahead : 200000));
        /* One frame may be ahead of the rate by more than a sleep. */
        while ((double)bytes / (double)rate * 1e6 > now_us() - start)
            (void)usleep(10000);
    }
    printf("%llu\n", (unsigned long long)bytes);
}

/* ---- idle connections ---- */

static void idle(uint64_t n)
{
    static int fds[IDLE_MAX];
    static const struct linger reset = {.l_onoff = 1};
    const struct rlimit files = {IDLE_MAX + 64, IDLE_MAX + 64};
    if (setrlimit(RLIMIT_NOFILE, &files) < 0)
        die("raise the limit of open files: %s", strerror(errno));
    double start = now_us();
    for (uint64_t i = 0; i < n; i++) {
        client_open(&one, 0);
        fds[i] = one.fd;
        client_send(&one, "GET /health HTTP/1.1\r\n", NULL, 0);
        client_head(&one);
        (void)client_text(&one);
        if (one.status != 200)
            die("health: %d", one.status);
    }
    printf("%.1f\n", now_us() - start);
    (void)fflush(stdout);
    while (getchar() != EOF)
        ;
    /* With a reset, so that no port is left waiting. */
    for (uint64_t i = 0; i < n; i++) {
        (void)setsockopt(fds[i], SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
        (void)close(fds[i]);
    }
}

/* ---- the floor ---- */

static void serve(void)
{
    static const char answer[] =
        "HTTP/1.1 200 OK\r\ndate: Thu, 01 Jan 1970 00:00:00 GMT\r\ncontent-type: text/plain\r\n"
        "content-length: 13\r\n\r\nCove is well\n";
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(at);
    int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0);
    if (listener < 0 || epoll < 0 || bind(listener, (struct sockaddr *)&at, len) < 0 || listen(listener, 128) < 0 ||
        getsockname(listener, (struct sockaddr *)&at, &len) < 0)
        die("listen: %s", strerror(errno));
    struct epoll_event ready[64], watch = {.events = EPOLLIN, .data.fd = listener};
    (void)epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &watch);
    printf("%d\n", ntohs(at.sin_port));
    (void)fflush(stdout);
    for (;;) {
        int n = epoll_wait(epoll, ready, 64, -1);
        for (int i = 0; i < n; i++) {
            int fd = ready[i].data.fd;
            if (fd == listener) {
                watch.data.fd = accept(listener, NULL, NULL);
                (void)epoll_ctl(epoll, EPOLL_CTL_ADD, watch.data.fd, &watch);
            } else if (recv(fd, one.in, sizeof(one.in), 0) <= 0 ||
                       send(fd, answer, sizeof(answer) - 1, MSG_NOSIGNAL) < 0) {
                (void)close(fd);
            }
        }
    }
}

int main(int argc, char **argv)
{
    const char *command = argc > 1 ? argv[1] : "";
    if (is(command, "cycle", argc, 3)) {
        cycle(number(argv[2], 1000000), argc > 3);
    } else if (is(command, "exec", argc, 5)) {
        struct sandbox sb = given_sandbox(argv + 3);
        exec_in(number(argv[2], 1000000), &sb, argc > 5);
    } else if (is(command, "create", argc, 4)) {
        crowd.n = number(argv[2], SANDBOXES_MAX);
        in_crowd(number(argv[3], CONNECTIONS_MAX), create_some);
    } else if (is(command, "kill", argc, 3)) {
        read_ids();
        in_crowd(number(argv[2], CONNECTIONS_MAX), kill_some);
    } else if (is(command, "spawn", argc, 5)) {
        spawn(number(argv[2], 1000000), argv + 4);
    } else if (is(command, "up", argc, 6)) {
        struct sandbox sb = given_sandbox(argv + 2);
        upload(&sb, argv[4], number(argv[5], 1ULL << 40));
    } else if (is(command, "down", argc, 6)) {
        struct sandbox sb = given_sandbox(argv + 2);
        download(&sb, argv[4], number(argv[5], 1ULL << 40));
    } else if (is(command, "slow", argc, 6)) {
        struct sandbox sb = given_sandbox(argv + 2);
        slow(&sb, number(argv[4], 1ULL << 40), number(argv[5], 3600));
    } else if (is(command, "idle", argc, 3)) {
        idle(number(argv[2], IDLE_MAX));
    } else if (is(command, "serve", argc, 2)) {
        serve();
    } else {
        die("usage: see the head of bench/load.c");
    }
    return fflush(stdout) == 0 ? 0 : 1;
}
