/* SPDX-License-Identifier: Apache-2.0 */
/*
 * followers PORT KEY N RATE SECONDS SANDBOX: N connections follow the feed while one process of clients causes RATE
 * events a second (each request of a file is two). A connection that breaks goes on behind the last cursor it has seen.
 * At the end each must have seen every cursor once: prints what came, and exits with 1 when one has a hole, or sees a
 * cursor twice.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FOLLOWERS_MAX = 1000, LINE_MAX_BYTES = 64 * 1024, WRITERS = 8, DRAIN_S = 120 };

struct follower {
    int fd;
    uint64_t after, first, breaks;
    size_t n; /* in `line` */
    bool in_head;
    double retry;
    char line[LINE_MAX_BYTES];
};

static struct follower followers[FOLLOWERS_MAX];
static int port, n_followers, epoll_fd;
static const char *key, *sandbox;
static double rate, until;
static atomic_ulong faults, done, refused;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int dial(void)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void follow(struct follower *f)
{
    char request[512];
    f->n = 0;
    f->in_head = true;
    f->fd = dial();
    f->retry = now() + 0.1;
    if (f->fd < 0)
        return;
    int n = snprintf(request, sizeof(request),
                     "GET /cove/v1/events?follow=1&hidden=1&from=%llu HTTP/1.0\r\nX-API-Key: %s\r\n\r\n",
                     (unsigned long long)f->after + 1, key);
    if (write(f->fd, request, (size_t)n) != n) {
        close(f->fd);
        f->fd = -1;
        return;
    }
    fcntl(f->fd, F_SETFL, O_NONBLOCK);
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, f->fd, &(struct epoll_event){.events = EPOLLIN, .data.ptr = f});
}

static void take(struct follower *f, const char *line, size_t n)
{
    static const char mark[] = "{\"cursor\":";
    if (n < sizeof(mark) || memcmp(line, mark, sizeof(mark) - 1) != 0) {
        fprintf(stderr, "%.*s\n", (int)(n < 200 ? n : 200), line);
        faults++;
        return;
    }
    uint64_t cursor = strtoull(line + sizeof(mark) - 1, NULL, 10);
    if (cursor != f->after + 1)
        faults++;
    f->after = cursor;
}

static void lines(struct follower *f)
{
    size_t from = 0;
    for (char *end; (end = memchr(f->line + from, '\n', f->n - from));) {
        size_t n = (size_t)(end - f->line) - from;
        if (!f->in_head)
            take(f, f->line + from, n);
        else if (n <= 1)
            f->in_head = false;
        else if (strncmp(f->line + from, "HTTP/1.", 7) == 0 && strncmp(f->line + from + 8, " 200", 4) != 0)
            refused++;
        from += n + 1;
    }
    memmove(f->line, f->line + from, f->n - from);
    f->n -= from;
}

/* Everything that is there. What came of a line that broke off comes again. */
static void readable(struct follower *f)
{
    ssize_t n = read(f->fd, f->line + f->n, sizeof(f->line) - f->n);
    if (n > 0) {
        f->n += (size_t)n;
        lines(f);
    } else if (n == 0 || errno != EAGAIN) {
        close(f->fd);
        f->fd = -1;
        f->breaks++;
    }
}

static void *writer(void *arg)
{
    char request[512], answer[4096];
    int fd = -1,
        n = snprintf(request, sizeof(request),
                     "GET /cove/v1/sandboxes/%s/files?path=/etc/hostname HTTP/1.1\r\nHost: x\r\nX-API-Key: %s\r\n\r\n",
                     sandbox, key);
    double each = 2.0 * WRITERS / rate, next = now();
    (void)arg;
    while (now() < until) {
        double wait = next - now();
        if (wait > 0)
            usleep((useconds_t)(wait * 1e6));
        next += each;
        if (next < now() - 1)
            next = now(); /* what could not be done in time is not made up for */
        if (fd < 0)
            fd = dial();
        ssize_t got = fd >= 0 && write(fd, request, (size_t)n) == n ? read(fd, answer, sizeof(answer)) : -1;
        if (got > 12 && memcmp(answer + 8, " 200", 4) == 0) {
            done++;
        } else if (fd >= 0) {
            close(fd);
            fd = -1;
            usleep(50000);
        }
    }
    return NULL;
}

static uint64_t last_cursor(void)
{
    char request[256], answer[LINE_MAX_BYTES] = "";
    size_t at = 0;
    int fd = dial(), n = snprintf(request, sizeof(request),
                                  "GET /cove/v1/events?last=1&hidden=1 HTTP/1.0\r\nX-API-Key: %s\r\n\r\n", key);
    if (fd < 0 || write(fd, request, (size_t)n) != n)
        return 0;
    for (ssize_t got; (got = read(fd, answer + at, sizeof(answer) - 1 - at)) > 0;)
        at += (size_t)got;
    close(fd);
    const char *mark = strstr(answer, "{\"cursor\":");
    return mark ? strtoull(mark + 10, NULL, 10) : 0;
}

/* True: all have seen this cursor. */
static bool turn(uint64_t target)
{
    struct epoll_event events[256];
    int n = epoll_wait(epoll_fd, events, 256, 50);
    bool all = true;
    for (int i = 0; i < n; i++)
        readable(events[i].data.ptr);
    for (int i = 0; i < n_followers; i++) {
        if (followers[i].fd < 0 && now() >= followers[i].retry)
            follow(&followers[i]);
        all = all && followers[i].after >= target;
    }
    return all;
}

int main(int argc, char **argv)
{
    pthread_t threads[WRITERS];
    if (argc != 7 || (n_followers = (int)strtoul(argv[3], NULL, 10)) < 1 || n_followers > FOLLOWERS_MAX)
        return 2;
    port = (int)strtoul(argv[1], NULL, 10);
    key = argv[2];
    rate = strtod(argv[4], NULL);
    sandbox = argv[6];
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    uint64_t first = last_cursor(), breaks = 0, target = 0;
    for (int i = 0; i < n_followers; i++) {
        followers[i].after = followers[i].first = first;
        followers[i].fd = -1;
    }
    double begin = now(), patience;
    until = begin + strtod(argv[5], NULL);
    for (int i = 0; i < WRITERS; i++)
        pthread_create(&threads[i], NULL, writer, NULL);
    while (now() < until)
        (void)turn(UINT64_MAX);
    double wrote = now() - begin;
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    usleep(100000);
    while (!target)
        target = last_cursor();
    for (patience = now() + DRAIN_S; now() < patience && !turn(target);)
        ;
    for (int i = 0; i < n_followers; i++) {
        breaks += followers[i].breaks;
        if (followers[i].after < target)
            faults++;
    }
    printf(
        "%d followers, %.0f s: %llu events, %.0f a second; %.0f a second to all followers together; the last had all %.1f s later; %llu connections "
        "broke; %lu faults\n",
        n_followers, wrote, (unsigned long long)(target - first), (double)(target - first) / wrote,
        (double)(target - first) * n_followers / (now() - begin), now() - until, (unsigned long long)breaks,
        (unsigned long)faults);
    return faults != 0;
}
