/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent that lies, put in the place of cove-agent by agent_lies_test.py. How it behaves before HELLO is said by the
 * name of its template ("lie-mute"), later by the command that it is asked to run. What it doesn't know how to lie
 * about it does honestly: a command "runs" and ends with 0 at once. It is a program of its own, so that it shares no
 * mistake with what it tests.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONTROL_FD = 3, HEADER = 12, PAYLOAD_MAX = 256 * 1024, INTERNAL = 13 };
enum { HELLO = 1, OPEN, REPLY, DATA, CREDIT, END_OF_FILE, END, CLOSE };
enum { EXEC = 1, PROCESSES = 3, WRITE = 22, ANSWERS = 35 };

struct order { /* wire/control.h */
    char what, id[22], template_id[64];
};

static uint8_t block[HEADER + PAYLOAD_MAX];
static int session = -1;
static bool is_deaf, lies_about_processes;
static unsigned unanswered;
static const char *next_words; /* instead of HELLO on the next session */

static void put(uint8_t *to, uint64_t value, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

static uint32_t get(const uint8_t *from)
{
    return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24;
}

static void hang_up(void)
{
    if (session >= 0)
        (void)close(session);
    session = -1;
}

static void send_raw(const void *bytes, size_t n)
{
    for (const char *p = bytes; n && session >= 0;) {
        ssize_t done = send(session, p, n, MSG_NOSIGNAL);
        if (done <= 0)
            hang_up();
        p += done;
        n -= (size_t)done;
    }
}

static void send_header(uint32_t size, uint32_t stream, uint8_t type, uint8_t flags)
{
    uint8_t header[HEADER] = {0};
    put(header, size, 4);
    put(header + 4, stream, 4);
    header[8] = type;
    header[9] = flags;
    send_raw(header, sizeof(header));
}

static void send_frame(uint32_t stream, uint8_t type, uint8_t flags, const void *payload, size_t n)
{
    send_header((uint32_t)n, stream, type, flags);
    send_raw(payload, n);
}

static void send_hello(uint32_t version)
{
    uint8_t payload[4];
    put(payload, version, sizeof(payload));
    send_frame(0, HELLO, 0, payload, sizeof(payload));
}

static void send_reply(uint32_t stream)
{
    uint8_t head[12] = {7}; /* pid 7, offset 0 */
    send_frame(stream, REPLY, 0, head, sizeof(head));
}

static void send_exit(uint32_t stream)
{
    uint8_t tail[6 + 13] = {0};
    send_frame(stream, END, 0, tail, sizeof(tail));
}

static void send_failure(uint32_t stream)
{
    uint8_t end[6] = {INTERNAL};
    send_frame(stream, END, 0, end, sizeof(end));
}

/* ---- lies about a command ---- */

static void huge_frame(uint32_t stream)
{
    send_header(UINT32_MAX, stream, DATA, 1);
}

static void unknown_stream(uint32_t stream)
{
    send_reply(stream + 1000);
}

static void unknown_type(uint32_t stream)
{
    send_header(0, stream, 99, 0);
}

static void garbage(uint32_t stream)
{
    (void)stream;
    memset(block, 'x', sizeof(block));
    send_raw(block, sizeof(block));
}

static void output_without_start(uint32_t stream)
{
    send_frame(stream, DATA, 1, "hello", 5);
}

static void never_answers(uint32_t stream)
{
    (void)stream;
    unanswered++;
}

/* No lie: how many wait, as an exit code. */
static void counts_who_waits(uint32_t stream)
{
    uint8_t tail[6 + 13] = {0};
    put(tail + 7, unanswered, 4);
    send_reply(stream);
    send_frame(stream, END, 0, tail, sizeof(tail));
}

static void starts_and_falls_silent(uint32_t stream)
{
    send_reply(stream);
    is_deaf = true;
}

static void floods(uint32_t stream)
{
    memset(block, 'x', sizeof(block));
    send_reply(stream);
    while (session >= 0)
        send_frame(stream, DATA, 1, block, PAYLOAD_MAX);
}

static void floods_with_nothing(uint32_t stream)
{
    send_reply(stream);
    while (session >= 0)
        send_header(0, stream, DATA, 1);
}

static void floods_with_credit(uint32_t stream)
{
    send_reply(stream);
    while (session >= 0)
        send_frame(stream, CREDIT, 0, "\0\0\0\0", 4);
}

static void half_a_frame(uint32_t stream)
{
    send_header(PAYLOAD_MAX, stream, REPLY, 0);
    send_raw("half", 4);
}

static void ends_twice(uint32_t stream)
{
    send_reply(stream);
    send_exit(stream);
    send_exit(stream);
}

static void closes(uint32_t stream)
{
    (void)stream;
    hang_up();
}

static void dies(uint32_t stream)
{
    (void)stream;
    _exit(42);
}

static void lies_about_the_end(uint32_t stream)
{
    uint8_t end[6 + 13] = {0};
    send_reply(stream);
    end[6] = 9; /* neither exited nor signalled */
    send_frame(stream, END, 0, end, sizeof(end));
}

/* ---- lies about a file ---- */

static size_t put_text(uint8_t *to, const char *text)
{
    put(to, strlen(text), 4);
    memcpy(to + 4, text, strlen(text));
    return 4 + strlen(text);
}

/* It says that the file is written, when nothing of it can have come yet. */
static void written_too_early(uint32_t stream)
{
    uint8_t end[128] = {0}; /* no error, no message, an entry: what is not said is 0 */
    size_t n = 6;
    n += put_text(end + n, "written");
    n += put_text(end + n, "/written");
    end[n] = 1; /* a file */
    n += 1 + 4 + 4 + 8 + 4 + 4;
    n += put_text(end + n, "root");
    n += put_text(end + n, "root");
    n += 8 + 1 + 4 + 4;
    send_frame(stream, REPLY, 0, NULL, 0);
    send_frame(stream, END, 0, end, n);
}

/* ---- what the next worker shall see ---- */

static void mute_next(uint32_t stream)
{
    next_words = "lie-mute";
    send_reply(stream);
    send_exit(stream);
}

static void hangs_up_next(uint32_t stream)
{
    next_words = "lie-hangs-up";
    send_reply(stream);
    send_exit(stream);
}

static void lies_next(uint32_t stream)
{
    lies_about_processes = true;
    send_reply(stream);
    send_exit(stream);
}

static const struct {
    const char *name;
    void (*tell)(uint32_t stream);
} lies[] = {
    {"huge-frame", huge_frame},
    {"unknown-stream", unknown_stream},
    {"unknown-type", unknown_type},
    {"garbage", garbage},
    {"output-without-start", output_without_start},
    {"never-answers", never_answers},
    {"counts-who-waits", counts_who_waits},
    {"silent", starts_and_falls_silent},
    {"floods", floods},
    {"floods-with-nothing", floods_with_nothing},
    {"floods-with-credit", floods_with_credit},
    {"half-a-frame", half_a_frame},
    {"ends-twice", ends_twice},
    {"closes", closes},
    {"dies", dies},
    {"lies-about-the-end", lies_about_the_end},
    {"mute-next", mute_next},
    {"hangs-up-next", hangs_up_next},
    {"lies-about-processes", lies_next},
};

/* ---- the rest ---- */

static bool is_called(const uint8_t *name, uint32_t n, const char *wanted)
{
    return n == strlen(wanted) && memcmp(name, wanted, n) == 0;
}

/* Of a request that begins with a user and a path. */
static bool path_is(const uint8_t *p, uint32_t n, const char *wanted)
{
    if (n < 8 || get(p) > n - 8)
        return false;
    uint32_t user = get(p);
    p += 4 + user;
    n -= 4 + user;
    return get(p) <= n - 4 && is_called(p + 4, get(p), wanted);
}

static void serve(uint32_t stream, const uint8_t *request, uint32_t n)
{
    if (n < 1)
        return;
    if (request[0] == ANSWERS) {
        send_frame(stream, END, 0, "\0\0\0\0\0\0", 6);
        return;
    }
    if (request[0] == PROCESSES) {
        send_frame(stream, REPLY, 0, NULL, 0);
        if (lies_about_processes)
            send_frame(stream, DATA, 0, "\1\0\0\0\0 a record that is none", 27);
        send_frame(stream, END, 0, "\0\0\0\0\0\0", 6);
        return;
    }
    if (request[0] == WRITE && path_is(request + 1, n - 1, "/written")) {
        written_too_early(stream);
        return;
    }
    if (request[0] != EXEC || n < 5) {
        never_answers(stream); /* other files and all else */
        return;
    }
    uint32_t length = get(request + 1);
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]) && length <= n - 5; i++) {
        if (is_called(request + 5, length, lies[i].name)) {
            lies[i].tell(stream);
            return;
        }
    }
    if (length <= n - 5 && is_called(request + 5, length, "fails")) {
        send_failure(stream);
        return;
    }
    send_reply(stream);
    send_exit(stream);
}

static void begin_session(const char *template_id)
{
    is_deaf = false;
    if (strcmp(template_id, "lie-mute") == 0)
        return;
    if (strcmp(template_id, "lie-version") == 0)
        send_hello(9);
    else if (strcmp(template_id, "lie-garbage") == 0)
        garbage(0);
    else if (strcmp(template_id, "lie-half") == 0)
        send_raw("\4\0\0\0\0", 5);
    else if (strcmp(template_id, "lie-hangs-up") == 0)
        hang_up();
    else if (strcmp(template_id, "lie-dies") == 0)
        _exit(42);
    else if (strcmp(template_id, "lie-hellos") == 0)
        while (session >= 0)
            send_hello(2);
    else
        send_hello(2);
}

static bool take_order(void)
{
    struct order order = {0};
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec iov = {&order, sizeof(order)};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(CONTROL_FD, &message, 0);
    if (n <= 0)
        return false;
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    if (!c || c->cmsg_type != SCM_RIGHTS)
        return true;
    hang_up();
    memcpy(&session, CMSG_DATA(c), sizeof(session));
    /* coved made it non-blocking; waiting is simpler here. */
    (void)fcntl(session, F_SETFL, 0);
    order.template_id[sizeof(order.template_id) - 1] = 0;
    begin_session(next_words ? next_words : order.template_id);
    return true;
}

static bool read_exactly(void *to, size_t n)
{
    for (char *p = to; n && session >= 0;) {
        ssize_t got = recv(session, p, n, 0);
        if (got <= 0) {
            hang_up();
            return false;
        }
        p += got;
        n -= (size_t)got;
    }
    return session >= 0;
}

static void take_frame(void)
{
    uint8_t header[HEADER];
    if (!read_exactly(header, sizeof(header)))
        return;
    uint32_t size = get(header);
    if (size > PAYLOAD_MAX || !read_exactly(block, size))
        return;
    if (header[8] == OPEN)
        serve(get(header + 4), block, size);
    else if (header[8] == CLOSE)
        send_failure(get(header + 4));
}

int main(void)
{
    for (;;) {
        struct pollfd fds[] = {{CONTROL_FD, POLLIN, 0}, {is_deaf ? -1 : session, POLLIN, 0}};
        if (poll(fds, 2, -1) < 0)
            return 1;
        if (fds[0].revents && !take_order())
            return 0;
        if (fds[1].revents && session == fds[1].fd)
            take_frame();
    }
}
