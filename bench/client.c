/* SPDX-License-Identifier: Apache-2.0 */
#include "client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

void die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fflush(stdout);
    (void)fputs("load: ", stderr);
    (void)vfprintf(stderr, fmt, ap);
    (void)fputc('\n', stderr);
    va_end(ap);
    _exit(1);
}

double now_us(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static const char *setting(const char *name)
{
    const char *value = getenv(name);
    if (!value)
        die("%s is not set", name);
    return value;
}

uint64_t number(const char *text, uint64_t most)
{
    char *end;
    errno = 0;
    uint64_t n = strtoull(text, &end, 10);
    if (errno || *end || end == text || n > most)
        die("'%s' is not a number up to %llu", text, (unsigned long long)most);
    return n;
}

struct sandbox given_sandbox(char **argv)
{
    struct sandbox sb;
    (void)snprintf(sb.id, sizeof(sb.id), "%s", argv[0]);
    (void)snprintf(sb.token, sizeof(sb.token), "%s", argv[1]);
    return sb;
}

bool is(const char *given, const char *name, int argc, int least)
{
    return strcmp(given, name) == 0 && argc >= least;
}

void client_open(struct client *c, int receive_bytes)
{
    static const int yes = 1;
    struct timeval wait = {.tv_sec = CLIENT_WAIT_S};
    struct sockaddr_in to = {.sin_family = AF_INET};
    const char *address = setting("BENCH_ADDRESS"), *colon = strchr(address, ':');
    char host[32];
    if (!colon || (size_t)(colon - address) >= sizeof(host))
        die("BENCH_ADDRESS %s is not HOST:PORT", address);
    (void)snprintf(host, sizeof(host), "%.*s", (int)(colon - address), address);
    to.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1)
        die("BENCH_ADDRESS %s is not numeric", address);

    c->at = c->end = 0;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        die("socket: %s", strerror(errno));
    if (receive_bytes)
        (void)setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
    (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    (void)setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    (void)setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    if (connect(c->fd, (const struct sockaddr *)&to, sizeof(to)) < 0)
        die("connect to %s: %s", address, strerror(errno));
}

void client_close(struct client *c)
{
    (void)close(c->fd);
    c->fd = -1;
}

void client_send_raw(struct client *c, const void *p, size_t n)
{
    const char *at = p;
    while (n) {
        ssize_t done = send(c->fd, at, n, MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            die("send: %s", strerror(errno));
        at += done;
        n -= (size_t)done;
    }
}

void client_send(struct client *c, const char *head, const char *body, size_t n)
{
    char text[4096];
    int len = snprintf(text, sizeof(text), "%sHost: %s\r\nX-API-KEY: %s\r\nUser-Agent: e2b-python-sdk/2.34.0\r\n\r\n",
                       head, setting("BENCH_ADDRESS"), setting("BENCH_KEY"));
    if (len < 0 || (size_t)len + n > sizeof(text))
        die("the request is too long");
    if (n)
        memcpy(text + len, body, n);
    client_send_raw(c, text, (size_t)len + n);
}

/* More input behind what is there; false at the end of the connection. */
static bool fill(struct client *c)
{
    if (c->at == c->end)
        c->at = c->end = 0;
    if (c->end == sizeof(c->in)) {
        memmove(c->in, c->in + c->at, c->end - c->at);
        c->end -= c->at;
        c->at = 0;
    }
    if (c->end == sizeof(c->in))
        die("a line is longer than %d bytes", CLIENT_IN);
    ssize_t n;
    do
        n = recv(c->fd, c->in + c->end, sizeof(c->in) - c->end, 0);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        die("receive: %s", errno == EAGAIN ? "nothing came for 30 s" : strerror(errno));
    c->end += (size_t)n;
    return n > 0;
}

/* A line without its CR LF, valid until the next read. */
static const char *read_line(struct client *c)
{
    for (;;) {
        char *from = c->in + c->at, *nl = memchr(from, '\n', c->end - c->at);
        if (nl) {
            c->at = (size_t)(nl + 1 - c->in);
            *nl = 0;
            if (nl > from && nl[-1] == '\r')
                nl[-1] = 0;
            return from;
        }
        if (!fill(c))
            die("the connection ended early");
    }
}

void client_head(struct client *c)
{
    const char *line = read_line(c);
    if (strncmp(line, "HTTP/1.1 ", 9) != 0)
        die("not an HTTP/1.1 answer: %.80s", line);
    c->status = (int)strtol(line + 9, NULL, 10);
    c->chunked = c->body_over = false;
    c->left = 0;
    bool has_length = false;
    while (*(line = read_line(c))) {
        if (strncasecmp(line, "content-length:", 15) == 0) {
            c->left = strtoull(line + 15, NULL, 10);
            has_length = true;
        } else if (strncasecmp(line, "transfer-encoding: chunked", 26) == 0) {
            c->chunked = true;
        }
    }
    if (!c->chunked && (c->left == 0 || !has_length))
        c->body_over = true;
}

size_t client_body(struct client *c, const char **ret_p, size_t max)
{
    if (c->body_over)
        return 0;
    if (c->left == 0) {
        c->left = strtoull(read_line(c), NULL, 16);
        if (c->left == 0) {
            (void)read_line(c);
            c->body_over = true;
            return 0;
        }
    }
    if (c->at == c->end && !fill(c))
        die("the connection ended inside a body");
    size_t n = c->end - c->at;
    n = n < max ? n : max;
    n = n < c->left ? n : (size_t)c->left;
    *ret_p = c->in + c->at;
    c->at += n;
    c->left -= n;
    if (c->left == 0 && !c->chunked)
        c->body_over = true;
    if (c->left == 0 && c->chunked) {
        /* read_line() may move the input: the CR LF behind the chunk is skipped without it. */
        while (c->end - c->at < 2) {
            if (c->end == sizeof(c->in))
                die("no room behind a chunk");
            if (recv(c->fd, c->in + c->end, 1, 0) != 1)
                die("the connection ended behind a chunk");
            c->end++;
        }
        c->at += 2;
    }
    return n;
}

static void read_exactly(struct client *c, char *to, size_t n)
{
    while (n) {
        const char *p;
        size_t got = client_body(c, &p, n);
        if (got == 0)
            die("the stream ended inside a frame");
        memcpy(to, p, got);
        to += got;
        n -= got;
    }
}

const char *client_text(struct client *c)
{
    const char *p;
    size_t n;
    c->frame_len = 0;
    while ((n = client_body(c, &p, CLIENT_FRAME_MAX)) > 0) {
        if (c->frame_len + n > CLIENT_FRAME_MAX)
            die("the body is longer than expected");
        memcpy(c->frame + c->frame_len, p, n);
        c->frame_len += n;
    }
    c->frame[c->frame_len] = 0;
    return c->frame;
}

bool client_frame(struct client *c)
{
    unsigned char head[5];
    read_exactly(c, (char *)head, sizeof(head));
    c->frame_len = (size_t)head[1] << 24 | (size_t)head[2] << 16 | (size_t)head[3] << 8 | head[4];
    if (c->frame_len > CLIENT_FRAME_MAX)
        die("a frame of %zu bytes", c->frame_len);
    read_exactly(c, c->frame, c->frame_len);
    c->frame[c->frame_len] = 0;
    if (!(head[0] & 2))
        return true;
    if (strcmp(c->frame, "{}") != 0)
        die("the stream ended with %.200s", c->frame);
    const char *p;
    if (client_body(c, &p, 1) != 0)
        die("bytes behind the end of the stream");
    return false;
}

static bool json_text(const char *json, const char *name, char *to, size_t size)
{
    char key[64];
    (void)snprintf(key, sizeof(key), "\"%s\":", name);
    const char *p = strstr(json, key);
    if (!p)
        return false;
    p += strlen(key);
    p += strspn(p, " ");
    size_t n = *p == '"' ? strcspn(p + 1, "\"") : size;
    if (n >= size)
        return false;
    memcpy(to, p + 1, n);
    to[n] = 0;
    return true;
}

void sandbox_create(struct client *c, struct sandbox *ret_sandbox)
{
    const char *tier = getenv("BENCH_TIER");
    char head[256], body[256];
    int n = snprintf(body, sizeof(body),
                     "{\"templateID\":\"base\",\"timeout\":600,\"secure\":true,\"autoPause\":false,"
                     "\"allow_internet_access\":true,\"metadata\":{\"cove.tier\":\"%s\"},\"envVars\":{}}",
                     tier ? tier : "container");
    (void)snprintf(head, sizeof(head),
                   "POST /sandboxes HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", n);
    client_send(c, head, body, (size_t)n);
    client_head(c);
    const char *text = client_text(c);
    if (c->status != 201)
        die("create: %d %.300s", c->status, text);
    ret_sandbox->token[0] = 0;
    if (!json_text(text, "sandboxID", ret_sandbox->id, sizeof(ret_sandbox->id)))
        die("create: no sandboxID in %.300s", text);
    (void)json_text(text, "envdAccessToken", ret_sandbox->token, sizeof(ret_sandbox->token));
}

void sandbox_kill(struct client *c, const char *id)
{
    char head[256];
    (void)snprintf(head, sizeof(head), "DELETE /sandboxes/%s HTTP/1.1\r\n", id);
    client_send(c, head, NULL, 0);
    client_head(c);
    const char *text = client_text(c);
    if (c->status != 204)
        die("kill %s: %d %.300s", id, c->status, text);
}

void process_start(struct client *c, const struct sandbox *sb, const char *json)
{
    char head[1024], body[2048];
    size_t n = strlen(json);
    if (n + 5 > sizeof(body))
        die("the request is too long");
    body[0] = 0;
    for (int i = 0; i < 4; i++)
        body[1 + i] = (char)(n >> (24 - 8 * i));
    memcpy(body + 5, json, n);
    (void)snprintf(
        head, sizeof(head),
        "POST /process.Process/Start HTTP/1.1\r\nContent-Type: application/connect+json\r\nConnect-Protocol-Version: 1\r\n"
        "Connect-Timeout-Ms: 60000\r\nKeepalive-Ping-Interval: 50\r\nE2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\n"
        "X-Access-Token: %s\r\nContent-Length: %zu\r\n",
        sb->id, sb->token, n + 5);
    client_send(c, head, body, n + 5);
    client_head(c);
    if (c->status != 200)
        die("start: %d %.300s", c->status, client_text(c));
}

void run_echo(struct client *c, const struct sandbox *sb, bool bash, double *ret_first, double *ret_end)
{
    static const char echo[] = "{\"process\":{\"cmd\":\"/bin/echo\",\"args\":[\"hi\"],\"envs\":{}},\"stdin\":false}";
    /* What an SDK's commands.run("echo hi") sends. */
    static const char bash_echo[] =
        "{\"process\":{\"cmd\":\"/bin/bash\",\"args\":[\"-l\",\"-c\",\"echo hi\"],\"envs\":{}},\"stdin\":false}";
    bool has_output = false, has_end = false;
    process_start(c, sb, bash ? bash_echo : echo);
    while (client_frame(c)) {
        if (strstr(c->frame, "\"data\"")) {
            if (has_output || !strstr(c->frame, "\"stdout\":\"aGkK\""))
                die("not the output of echo: %.200s", c->frame);
            has_output = true;
            *ret_first = now_us();
        } else if (strstr(c->frame, "\"end\"")) {
            if (!strstr(c->frame, "\"exited\":true") ||
                (strstr(c->frame, "\"exitCode\"") && !strstr(c->frame, "\"exitCode\":0")))
                die("echo failed: %.200s", c->frame);
            has_end = true;
            *ret_end = now_us();
        }
    }
    if (!has_output || !has_end)
        die("echo had no %s", has_output ? "end" : "output");
}
