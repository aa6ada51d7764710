/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 *  1. Everybody inside may connect, so a client costs a fixed amount of memory, there are at most CLIENTS_MAX, and each
 *     has CLIENT_USEC for all that it does. One more is closed at once.
 *  2. A connection is one request without a body, one answer, and its end. Nothing is allocated by what a client says;
 *     what is allocated for the answer is of the size of the host's table.
 *  3. A new table takes the place of the one before, also that of an earlier session.
 */
#include "agent/answers.h"
#include "agent/agent.h"
#include "agent/verb.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { CLIENTS_MAX = 16, CLIENT_USEC = 5 * 1000 * 1000, ANSWER_MAX = 2 * WIRE_PAYLOAD_MAX };

struct answers_client {
    struct agent *agent;
    struct list node;
    struct loop_io io;
    struct loop_timer timer;
    struct buf out;
    size_t n;
    char in[ANSWERS_REQUEST_MAX];
};

/* ---- figures ---- */

/* The next number, behind blanks; 0 when there is none. */
static uint64_t next_number(const char **at)
{
    uint64_t value = 0;
    while (**at == ' ')
        (*at)++;
    for (; **at >= '0' && **at <= '9'; (*at)++)
        value = value * 10 + (uint64_t)(**at - '0');
    return value;
}

/* That behind `name` in a file of lines "name: number". */
static double line_of(struct str text, const char *name)
{
    const char *at = strstr(text.p, name);
    if (!at)
        return 0;
    at += strlen(name);
    return (double)next_number(&at);
}

static struct str file_read_text(const char *path, char *text, size_t size)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    text[MAX(n, (ssize_t)0)] = 0;
    return str_of(text);
}

/* The share of all processors since the last time that was asked for, in percent. */
static double cpu_share(struct answers *t)
{
    char text[512] = "cpu";
    uint64_t v[8], all = 0;
    const char *at = file_read_text("/proc/stat", text, sizeof(text)).p + strlen("cpu");
    for (size_t i = 0; i < ARRAY_SIZE(v); i++)
        all += v[i] = next_number(&at);
    uint64_t busy = all - v[3] - v[4], was_busy = t->cpu_busy, was_all = t->cpu_all;
    t->cpu_busy = busy;
    t->cpu_all = all;
    uint64_t hundredths = all > was_all && busy >= was_busy ? 10000 * (busy - was_busy) / (all - was_all) : 0;
    return (double)hundredths / 100;
}

static void figures_read(struct answers *t, double f[static ANSWERS_FIGURES])
{
    enum { MIB = 1 << 20 };
    char text[4096];
    struct statvfs fs = {0};
    cpu_set_t cpus;
    struct str memory = file_read_text("/proc/meminfo", text, sizeof(text));
    (void)statvfs("/", &fs);
    uint64_t seconds = clock_real() / USEC_PER_SEC;
    f[0] = (double)seconds;
    f[1] = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    f[2] = cpu_share(t);
    f[3] = 1024 * line_of(memory, "MemTotal:");
    f[4] = f[3] - 1024 * line_of(memory, "MemAvailable:");
    f[5] = 1024 * line_of(memory, "\nCached:");
    f[6] = (double)fs.f_blocks * (double)fs.f_frsize;
    f[7] = (double)(fs.f_blocks - fs.f_bfree) * (double)fs.f_frsize;
    f[8] = (double)(uint64_t)(f[3] / MIB);
    f[9] = (double)(uint64_t)(f[4] / MIB);
}

void answers_format(struct buf *b, struct str text, const double figures[static ANSWERS_FIGURES])
{
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] == '$' && i + 1 < text.n && text.p[i + 1] >= '0' && text.p[i + 1] <= '9')
            (void)buf_printf(b, "%.15g", figures[text.p[++i] - '0']);
        else
            (void)buf_append_char(b, text.p[i]);
    }
}

/* ---- one request ---- */

static void answers_refuse(struct buf *b, const char *status)
{
    (void)buf_printf(b, "HTTP/1.1 %s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", status);
}

int answers_to(struct answers *table, struct str request, struct buf *b)
{
    AUTO_BUF struct buf body = BUF_INIT(ANSWER_MAX);
    struct wire_reader r = wire_reader_of(table->list);
    struct str rest = request, method, target, path = STR_NULL;
    if (!request.n || !memmem(request.p, request.n, "\r\n\r\n", 4)) {
        if (request.n >= ANSWERS_REQUEST_MAX)
            answers_refuse(b, "431 Request Header Fields Too Large");
        return request.n >= ANSWERS_REQUEST_MAX;
    }
    if (!str_split(&rest, ' ', &method) || !str_split(&rest, ' ', &target) || !str_starts(rest, STR("HTTP/1."))) {
        answers_refuse(b, "400 Bad Request");
        return 1;
    }
    bool is_head = str_eq(method, STR("HEAD"));
    (void)str_split(&target, '?', &path);
    for (uint32_t i = 0; i < table->n; i++) {
        struct str name = wire_get_str(&r), type = wire_get_str(&r), text = wire_get_str(&r);
        bool has_figures = wire_get_u8(&r);
        if (!str_eq(name, path))
            continue;
        if (!is_head && !str_eq(method, STR("GET"))) {
            answers_refuse(b, "405 Method Not Allowed\r\nAllow: GET, HEAD");
            return 1;
        }
        if (has_figures) {
            double figures[ANSWERS_FIGURES];
            figures_read(table, figures);
            answers_format(&body, text, figures);
            text = buf_str(&body);
        }
        (void)buf_printf(b, "HTTP/1.1 %s\r\nConnection: close\r\nCache-Control: no-store\r\n",
                         text.n ? "200 OK" : "204 No Content");
        if (text.n)
            (void)buf_printf(b, "Content-Type: %.*s\r\nContent-Length: %zu\r\n", STR_ARG(type), text.n);
        (void)buf_append_cstr(b, "\r\n");
        if (!is_head)
            (void)buf_append_str(b, text);
        return 1;
    }
    answers_refuse(b, "404 Not Found");
    return 1;
}

/* ---- connections ---- */

static void client_free(struct answers_client *c)
{
    loop_close(&c->agent->loop, &c->io);
    loop_timer_clear(&c->timer);
    list_remove(&c->node);
    buf_fini(&c->out);
    c->agent->answers.n_clients--;
    mem_free(c);
}

static void client_late(struct loop_timer *t)
{
    client_free(container_of(t, struct answers_client, timer));
}

/* What came is looked at until there is an answer, which is then sent. */
static void client_ready(struct loop_io *io, uint32_t events UNUSED)
{
    struct answers_client *c = container_of(io, struct answers_client, io);
    ssize_t r;
    if (!buf_len(&c->out)) {
        r = recv(io->fd, c->in + c->n, sizeof(c->in) - c->n, MSG_DONTWAIT);
        if (r < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        c->n += (size_t)MAX(r, (ssize_t)0);
        if (r <= 0 || (answers_to(&c->agent->answers, str_n(c->in, c->n), &c->out) && buf_error(&c->out))) {
            client_free(c);
            return;
        }
        if (!buf_len(&c->out))
            return;
    }
    r = send(io->fd, buf_data(&c->out), buf_len(&c->out), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (r < 0 && (errno == EAGAIN || errno == EINTR))
        r = 0;
    if (r >= 0)
        buf_consume(&c->out, (size_t)r);
    if (r < 0 || !buf_len(&c->out) || loop_set(&c->agent->loop, io, EPOLLOUT) < 0)
        client_free(c);
}

static void listener_ready(struct loop_io *io, uint32_t events UNUSED)
{
    struct answers *t = container_of(io, struct answers, listener);
    struct agent *a = container_of(t, struct agent, answers);
    struct sockaddr_in from;
    socklen_t size = sizeof(from);
    AUTO_CLOSE int fd = accept4(io->fd, (struct sockaddr *)&from, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0 || t->n_clients >= CLIENTS_MAX)
        return;
    struct answers_client *c = mem_new(struct answers_client);
    c->agent = a;
    c->io = LOOP_IO(client_ready);
    c->io.fd = TAKE_FD(fd);
    buf_init(&c->out, ANSWER_MAX);
    loop_timer_init(&c->timer, client_late);
    loop_timer_set(&a->loop, &c->timer, CLIENT_USEC);
    list_append(&t->clients, &c->node);
    t->n_clients++;
    if (loop_set(&a->loop, &c->io, EPOLLIN) < 0)
        client_free(c);
}

static int listen_on(struct agent *a, uint16_t port)
{
    struct answers *t = &a->answers;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    if (t->listener.fd >= 0 && t->port == port)
        return 0;
    loop_close(&a->loop, &t->listener);
    t->port = port;
    t->listener.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (t->listener.fd >= 0)
        (void)setsockopt(t->listener.fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    int r = t->listener.fd < 0 || bind(t->listener.fd, (struct sockaddr *)&at, sizeof(at)) < 0 ||
                    listen(t->listener.fd, CLIENTS_MAX) < 0
                ? -errno
                : loop_set(&a->loop, &t->listener, EPOLLIN);
    if (r < 0)
        loop_close(&a->loop, &t->listener);
    return r;
}

/* ---- the table ---- */

static void answers_open(struct agent_stream *s, struct wire_reader *r)
{
    struct agent *a = s->session->agent;
    struct answers *t = &a->answers;
    uint16_t port = wire_get_u16(r);
    uint32_t n = wire_get_count(r, 13);
    struct str list = str_n((const char *)r->p, r->n);
    for (uint32_t i = 0; i < n; i++) {
        for (int k = 0; k < 3; k++)
            (void)wire_get_str(r);
        (void)wire_get_u8(r);
    }
    if (!wire_done(r) || !port) {
        stream_malformed(s);
        return;
    }
    mem_free(t->table);
    t->table = mem_dup(list.p, list.n);
    t->list = str_n(t->table, list.n);
    t->n = n;
    int e = listen_on(a, port);
    if (e < 0)
        stream_failf(s, ERR_UNAVAILABLE, "listen on port %u: %s", port, errno_text(-e));
    else
        stream_end(s);
}

const struct verb verb_answers = {.size = sizeof(struct agent_stream), .open = answers_open};

void answers_init(struct agent *a)
{
    a->answers.listener = LOOP_IO(listener_ready);
    list_init(&a->answers.clients);
}

void answers_fini(struct agent *a)
{
    LIST_FOREACH (struct answers_client, c, &a->answers.clients, node)
        client_free(c);
    loop_close(&a->loop, &a->answers.listener);
    mem_free(TAKE_PTR(a->answers.table));
}
