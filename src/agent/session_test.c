/* SPDX-License-Identifier: Apache-2.0 */
/* What the session does with frames that are hostile, many or crossing, and how streams share it; DIAL. */
#include "agent/test_calls.h"
#include "base/fd.h"
#include "base/mem.h"

#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static void ping(void)
{
    rig_expect_end(&rig, rig_open(&rig, rig_request(WIRE_PING)), ERR_OK, "");
}

static uint32_t open_whole(const char *path)
{
    struct buf *b = rig_request(WIRE_READ);
    wire_put_str(b, STR("root"));
    wire_put_str(b, str_of(path));
    wire_put_u64(b, 0);
    wire_put_u64(b, UINT64_MAX);
    return rig_open(&rig, b);
}

static void test_violations(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {
#define BAD(literal) {literal, sizeof(literal) - 1}
        BAD("\xff\xff\xff\xff\1\0\0\0\2\0\0\0"),          /* too large */
        BAD("\1\0\4\0\1\0\0\0\2\0\0\0"),                  /* by one */
        BAD("\0\0\0\0\1\0\0\0\0\0\0\0"),                  /* no type */
        BAD("\0\0\0\0\1\0\0\0\x9\0\0\0"),                 /* unknown type */
        BAD("\0\0\0\0\1\0\0\0\2\0\1\0"),                  /* reserved bytes */
        BAD("\1\0\0\0\0\0\0\0\2\0\0\0\x22"),              /* OPEN of stream 0 */
        BAD("\10\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0"), /* a second HELLO */
        BAD("\10\0\0\0\1\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0"), /* on a stream */
        BAD("\0\0\0\0\1\0\0\0\3\0\0\0"),                  /* the agent's own types: REPLY */
        BAD("\6\0\0\0\1\0\0\0\7\0\0\0\0\0\0\0\0\0"),      /* END */
        BAD("\3\0\0\0\1\0\0\0\5\0\0\0\0\0\0"),            /* a CREDIT that is short */
        BAD("\5\0\0\0\1\0\0\0\5\0\0\0\0\0\0\0\0"),        /* long */
        BAD("\1\0\0\0\1\0\0\0\6\0\0\0x"),                 /* EOF with a payload */
        BAD("\1\0\0\0\1\0\0\0\x8\0\0\0x"),                /* CLOSE with a payload */
        BAD("\0\0\0\0\0\0\0\0\4\0\0\0"),                  /* DATA on stream 0 */
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        rig_send_raw(&rig, bad[i].bytes, bad[i].n);
        rig_expect_dropped(&rig);
        rig_connect(&rig);
        ping();
    }
    /* At the end of its window, and beyond. */
    static char block[WIRE_PAYLOAD_MAX];
    uint32_t id = EXEC(&rig, "sleep", "1000"), pid = rig_expect_started(&rig, id);
    rig_send(&rig, WIRE_DATA, 0, id, "x", 1); /* EXEC takes none */
    rig_expect_dropped(&rig);
    rig_connect(&rig);
    struct buf *b = rig_request(WIRE_WRITE);
    wire_put_str(b, STR("root"));
    wire_put_str(b, str_of(rig_path(&rig, "f")));
    wire_put_u32(b, 0);
    id = rig_open(&rig, b);
    frame_free(rig_expect(&rig, id, WIRE_REPLY));
    rig_send(&rig, WIRE_DATA, 0, id, block, sizeof(block));
    frame_free(rig_expect(&rig, id, WIRE_CREDIT));
    rig_send(&rig, WIRE_EOF, 0, id, NULL, 0);
    rig_expect_end(&rig, id, ERR_OK, "");
    id = EXEC(&rig, "sleep", "1000");
    (void)rig_expect_started(&rig, id);
    rig_send(&rig, WIRE_EOF, 0, id, NULL, 0);
    rig_send(&rig, WIRE_EOF, 0, id, NULL, 0);
    rig_expect_dropped(&rig);
    rig_connect(&rig);
    id = EXEC(&rig, "sleep", "1000");
    (void)rig_expect_started(&rig, id);
    rig_send(&rig, WIRE_OPEN, 0, id, "\x22", 1); /* an id that is in use */
    rig_expect_dropped(&rig);
    rig_connect(&rig);
    /* The processes of the sessions that broke are all there. */
    assert_int_equal(kill((pid_t)pid, 0), 0);
    struct result x;
    rig_result(&rig, rig_open(&rig, rig_request(WIRE_PROCESSES)), true, &x);
    assert_true(buf_len(&x.data) > 3 * 50);
    result_fini(&x);
}

static void test_credit_without_end(void **state)
{
    (void)state;
    uint32_t id = EXEC(&rig, "sleep", "1000");
    for (int i = 0; i < 100; i++)
        rig_send(&rig, WIRE_CREDIT, 0, id, "\xff\xff\xff\xff", 4);
    ping();
    rig_send(&rig, WIRE_CREDIT, 0, 77777, "\xff\xff\xff\xff", 4); /* of no stream: it may have crossed an END */
    rig_send(&rig, WIRE_EOF, 0, 77777, NULL, 0);
    rig_send(&rig, WIRE_CLOSE, 0, 77777, NULL, 0);
    rig_send(&rig, WIRE_DATA, 0, 77777, "abc", 3);
    ping();
}

static void test_malformed_requests(void **state)
{
    (void)state;
    rig_expect_end(&rig, rig_open(&rig, &(struct buf){.max = 1}), ERR_INVALID_ARGUMENT, "the agent knows no verb 0");
    rig_expect_end(&rig, rig_open(&rig, rig_request(200)), ERR_UNIMPLEMENTED, "the agent knows no verb 200");
    for (int verb = 1; verb <= WIRE_PING; verb++) {
        bool known = verb <= WIRE_RESIZE || (verb >= WIRE_STAT && verb <= WIRE_WATCH) || verb >= WIRE_DIAL;
        /* Cut short, with bytes behind its end, and with counts and lengths that lie. */
        static const char *const tails[] = {"", "\xff\xff\xff\xff",
                                            "\1\2\3\4\5\6\7\1\2\3\4\5\6\7\1\2\3\4\5\6\7\1\2\3\4\5\6\7\1\2\3\4\5\6\7"};
        for (size_t i = 0; known && i < ARRAY_SIZE(tails); i++) {
            bool has_no_request = verb == WIRE_PROCESSES || verb == WIRE_USAGE || verb == WIRE_PING;
            struct buf *b = rig_request((uint8_t)verb);
            (void)buf_append_cstr(b, tails[i]);
            if (has_no_request && i == 0)
                buf_append_char(b, 'x');
            rig_expect_end(&rig, rig_open(&rig, b), ERR_INVALID_ARGUMENT, "malformed request");
        }
    }
}

/* Requests without number whose answers nobody reads: the agent stops taking them. */
static void test_host_that_does_not_read(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    long rss = rig_agent_rss(&rig);
    size_t sent = 0;
    assert_int_equal(fd_nonblock(rig.session, true), 0);
    for (int idle = 0; idle < 20;) {
        struct pollfd p = {.fd = rig.session, .events = POLLOUT};
        buf_clear(&b);
        for (int i = 0; i < 100; i++) {
            size_t at = wire_begin(&b, WIRE_OPEN, 0, 1000000 + (uint32_t)sent++);
            wire_put_u8(&b, WIRE_STAT);
            wire_put_str(&b, STR("root"));
            wire_put_str(&b, STR("/usr/bin"));
            wire_end(&b, at);
        }
        while (buf_len(&b) && idle < 20) {
            ssize_t n = write(rig.session, buf_data(&b), buf_len(&b));
            if (n > 0)
                buf_consume(&b, (size_t)n);
            else
                idle += poll(&p, 1, 20) == 0;
        }
        assert_true(sent < 1000000);
    }
    assert_true(rig_agent_rss(&rig) < rss + 16 * 1024);
    rig_connect(&rig);
    ping();
}

static void test_sessions_replace_each_other(void **state)
{
    (void)state;
    int first = dup(rig.session);
    uint32_t id = EXEC(&rig, "sleep", "1000");
    (void)rig_expect_started(&rig, id);
    for (int i = 0; i < 50; i++)
        rig_connect(&rig);
    ping();
    char byte;
    assert_int_equal(read(first, &byte, 1), 0);
    (void)close(first);
    /* Something else on the control socket changes nothing. */
    assert_int_equal(fd_send(rig.control, "X", 1, NULL, 0), 0);
    int fds[2] = {dup(0), dup(0)};
    assert_int_equal(fd_send(rig.control, "SS", 2, fds, 2), 0);
    (void)close(fds[0]);
    (void)close(fds[1]);
    ping();
    rig_disconnect(&rig);
    rig_connect(&rig);
    ping();
}

/* Without a descriptor passed: over a connection, and over a serial line. What it is to know of itself comes with
 * HELLO. */
static void any_stream_will_do(enum rig_way way)
{
    struct rig other;
    struct result x;
    rig_start_as(&other, way);
    rig_result(&other, EXEC(&other, "sh", "-c", "echo $ALIAS; head -c 1000000 /dev/zero | tr '\\0' x"), true, &x);
    assert_int_equal(x.code, 0);
    assert_int_equal(buf_len(&x.data), 22 + 1000000);
    assert_memory_equal(buf_data(&x.data), "i0123456789abcdefghij\n", 22);
    result_fini(&x);
    if (way == RIG_LISTENS) {
        rig_connect(&other);
        rig_result(&other, EXEC(&other, "echo", "again"), true, &x);
        assert_int_equal(x.code, 0);
        result_fini(&x);
    }
    rig_stop(&other);
}

static void test_connection(void **state)
{
    (void)state;
    any_stream_will_do(RIG_LISTENS);
}

static void test_serial_line(void **state)
{
    (void)state;
    any_stream_will_do(RIG_SERIAL);
}

/* While a download runs at full speed, what another stream has to say comes after at most a few frames. */
static void test_fairness(void **state)
{
    (void)state;
    char *path = rig_path(&rig, "big");
    rig_write(path, "x");
    assert_int_equal(truncate(path, INT64_C(1) << 34), 0);
    uint32_t download = open_whole(path), id = 0;
    size_t between = 0;
    bool done = false;
    frame_free(rig_expect(&rig, download, WIRE_REPLY));
    rig_credit(&rig, download, 1 << 30, true);
    for (int i = 0; i < 40; i++) { /* it is under way */
        frame_free(rig_expect(&rig, download, WIRE_DATA));
    }
    id = rig_open(&rig, rig_request(WIRE_PING));
    while (!done) {
        struct frame *f = rig_next(&rig, 0, 20000);
        assert_non_null(f);
        done = f->stream == id;
        between += !done;
        frame_free(f);
    }
    assert_true(between <= 8); /* two in the socket, the rest of a turn of the loop */
    rig_send(&rig, WIRE_CLOSE, 0, download, NULL, 0);
}

/* Of those that wait for their turn, who waits longest is next. */
static void test_first_come_first_served(void **state)
{
    (void)state;
    enum { STREAMS = 30 };
    uint32_t first = rig.next_stream;
    char *path = rig_path(&rig, "big");
    rig_write(path, "x");
    assert_int_equal(truncate(path, INT64_C(1) << 34), 0);
    for (uint32_t i = 0; i < STREAMS; i++) {
        uint32_t id = open_whole(path);
        frame_free(rig_expect(&rig, id, WIRE_REPLY));
        for (size_t n = 0; n < WIRE_WINDOW;) {
            struct frame *f = rig_expect(&rig, id, WIRE_DATA);
            n += f->n;
            frame_free(f);
        }
    }
    /* Nothing is read for a while: all of them have to wait. */
    uint32_t download = open_whole(path);
    rig_credit(&rig, download, 1 << 30, true);
    (void)usleep(50000);
    for (uint32_t i = 0; i < STREAMS; i++)
        rig_credit(&rig, first + i, 512, true);
    (void)usleep(50000);
    for (uint32_t next = first; next < first + STREAMS;) {
        struct frame *f = rig_next(&rig, 0, 20000);
        assert_non_null(f);
        assert_true(f->stream == download || f->stream == next);
        next += f->stream == next;
        frame_free(f);
    }
    rig_send(&rig, WIRE_CLOSE, 0, download, NULL, 0);
}

/* Processes that talk without end all get their turns, however soon each has something to say again. */
static void test_talkers_take_turns(void **state)
{
    (void)state;
    enum { TALKERS = 20, TOTAL = 128 * 1024 * 1024 };
    uint32_t first = rig.next_stream;
    size_t got[TALKERS] = {0}, total = 0;
    for (uint32_t i = 0; i < TALKERS; i++)
        (void)EXEC(&rig, "yes");
    /* None has credit left: they begin at the same moment, each with a pipe full of words, whenever it is scheduled
     * again. */
    for (uint32_t i = 0; i < TALKERS; i++)
        for (size_t n = 0; n < WIRE_WINDOW;) {
            struct frame *f = rig_next(&rig, first + i, 20000);
            assert_non_null(f);
            n += f->type == WIRE_DATA ? f->n : 0;
            frame_free(f);
        }
    (void)usleep(100000);
    for (uint32_t i = 0; i < TALKERS; i++)
        rig_credit(&rig, first + i, WIRE_WINDOW, true);
    while (total < TOTAL) {
        struct frame *f = rig_next(&rig, 0, 20000);
        assert_non_null(f);
        assert_int_equal(f->type, WIRE_DATA);
        rig_credit(&rig, f->stream, (uint32_t)f->n, true);
        got[f->stream - first] += f->n;
        total += f->n;
        frame_free(f);
    }
    for (size_t i = 0; i < TALKERS; i++)
        assert_true(got[i] > 0);
}

/* ---- DIAL ---- */

static int listener(int family, uint16_t *ret_port)
{
    struct sockaddr_in6 sa = {.sin6_family = (sa_family_t)family};
    socklen_t n = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(sa);
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (family == AF_INET)
        ((struct sockaddr_in *)&sa)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else
        sa.sin6_addr = in6addr_loopback;
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, n) < 0 || listen(fd, 5) < 0 ||
        getsockname(fd, (struct sockaddr *)&sa, &n) < 0) {
        (void)fd_close(fd);
        return -1;
    }
    *ret_port = ntohs(sa.sin6_port); /* in the same place for both */
    return fd;
}

static uint32_t open_dial(uint16_t port)
{
    struct buf *b = rig_request(WIRE_DIAL);
    wire_put_u16(b, port);
    return rig_open(&rig, b);
}

static void test_dial_awaits_who_listens(void **state)
{
    (void)state;
    uint16_t port = 0;
    int sock = listener(AF_INET, &port);
    (void)close(sock); /* nobody has this one */
    struct buf *b = rig_request(WIRE_DIAL);
    wire_put_u16(b, port);
    wire_put_u8(b, WIRE_DIAL_AWAIT);
    uint32_t id = rig_open(&rig, b);
    char refused[64];
    (void)snprintf(refused, sizeof(refused), "error connecting to port %u: connection refused", port);
    rig_expect_end(&rig, open_dial(port), ERR_UNAVAILABLE, refused);
    struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(sock, (struct sockaddr *)&sa, sizeof(sa)), 0);
    assert_int_equal(listen(sock, 5), 0);
    rig_expect_end(&rig, id, ERR_OK, "");
    (void)close(sock);
}

static void expect_data(uint32_t id, const char *want)
{
    AUTO_BUF struct buf have = BUF_INIT(1 << 20);
    while (buf_len(&have) < strlen(want)) {
        struct frame *f = rig_expect(&rig, id, WIRE_DATA);
        (void)buf_append(&have, f->payload, f->n);
        frame_free(f);
    }
    assert_true(str_eqc(buf_str(&have), want));
}

static void test_dial(void **state)
{
    (void)state;
    uint16_t port = 0;
    char bytes[16];
    int families[] = {AF_INET, AF_INET6};
    const struct timeval patience = {.tv_sec = 10};
    for (size_t i = 0; i < ARRAY_SIZE(families); i++) {
        int l = listener(families[i], &port);
        if (l < 0)
            continue; /* no IPv6 here */
        /* The host ends its half first. */
        uint32_t id = open_dial(port);
        frame_free(rig_expect(&rig, id, WIRE_REPLY));
        int c = accept(l, NULL, NULL);
        rig_send(&rig, WIRE_DATA, 0, id, "hello", 5);
        assert_int_equal(recv(c, bytes, 5, MSG_WAITALL), 5);
        rig_send(&rig, WIRE_EOF, 0, id, NULL, 0);
        assert_int_equal(recv(c, bytes, 5, 0), 0);
        assert_int_equal(write(c, "answer", 6), 6);
        expect_data(id, "answer");
        (void)close(c);
        frame_free(rig_expect(&rig, id, WIRE_EOF));
        rig_expect_end(&rig, id, ERR_OK, "");
        /* The port does. */
        id = open_dial(port);
        frame_free(rig_expect(&rig, id, WIRE_REPLY));
        c = accept(l, NULL, NULL);
        assert_int_equal(shutdown(c, SHUT_WR), 0);
        frame_free(rig_expect(&rig, id, WIRE_EOF));
        rig_send(&rig, WIRE_DATA, 0, id, "late", 4);
        assert_int_equal(recv(c, bytes, 4, MSG_WAITALL), 4);
        rig_send(&rig, WIRE_EOF, 0, id, NULL, 0);
        rig_expect_end(&rig, id, ERR_OK, "");
        assert_int_equal(recv(c, bytes, 4, 0), 0);
        (void)close(c);
        /* The host has nothing to say, and says so before it is connected. */
        id = rig.next_stream++;
        AUTO_BUF struct buf both = BUF_INIT(64);
        size_t at = wire_begin(&both, WIRE_OPEN, 0, id);
        wire_put_u8(&both, WIRE_DIAL);
        wire_put_u16(&both, port);
        wire_end(&both, at);
        wire_end(&both, wire_begin(&both, WIRE_EOF, 0, id));
        rig_send_raw(&rig, buf_data(&both), buf_len(&both));
        frame_free(rig_expect(&rig, id, WIRE_REPLY));
        c = accept(l, NULL, NULL);
        assert_int_equal(setsockopt(c, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
        assert_int_equal(recv(c, bytes, 4, 0), 0);
        assert_int_equal(write(c, "answer", 6), 6);
        expect_data(id, "answer");
        (void)close(c);
        frame_free(rig_expect(&rig, id, WIRE_EOF));
        rig_expect_end(&rig, id, ERR_OK, "");
        /* The host leaves: the port sees the end. */
        id = open_dial(port);
        frame_free(rig_expect(&rig, id, WIRE_REPLY));
        c = accept(l, NULL, NULL);
        rig_send(&rig, WIRE_CLOSE, 0, id, NULL, 0);
        rig_expect_end(&rig, id, ERR_CANCELED, "closed");
        assert_int_equal(recv(c, bytes, 4, 0), 0);
        (void)close(c);
        /* The port resets. */
        id = open_dial(port);
        frame_free(rig_expect(&rig, id, WIRE_REPLY));
        c = accept(l, NULL, NULL);
        struct linger abort = {.l_onoff = 1};
        assert_int_equal(setsockopt(c, SOL_SOCKET, SO_LINGER, &abort, sizeof(abort)), 0);
        (void)close(c);
        char message[80];
        (void)snprintf(message, sizeof(message), "error reading from port %u: connection reset by peer", port);
        rig_expect_end(&rig, id, ERR_UNAVAILABLE, message);
        (void)close(l);
    }
    char message[80];
    (void)snprintf(message, sizeof(message), "error connecting to port %u: connection refused", port);
    rig_expect_end(&rig, open_dial(port), ERR_UNAVAILABLE, message);
    rig_expect_end(&rig, open_dial(0), ERR_INVALID_ARGUMENT, "malformed request");
}

/* Neither side's slowness is the agent's memory: bytes stop at the window. */
static void test_dial_back_pressure(void **state)
{
    (void)state;
    uint16_t port = 0;
    static char block[64 * 1024];
    int l = listener(AF_INET, &port), size = 16384;
    uint32_t id = open_dial(port);
    frame_free(rig_expect(&rig, id, WIRE_REPLY));
    int c = accept(l, NULL, NULL);
    assert_int_equal(setsockopt(c, SOL_SOCKET, SO_RCVBUF, &size, sizeof(size)), 0);
    assert_int_equal(fd_nonblock(c, true), 0);
    size_t in = 0, out = 0, credit = WIRE_WINDOW, got = 0;
    /* towards the host */
    for (int idle = 0; idle < 10;) {
        ssize_t n = write(c, block, sizeof(block));
        out += n > 0 ? (size_t)n : 0;
        idle += n <= 0 && usleep(5000) == 0;
        assert_true(out < (size_t)64 << 20);
    }
    for (struct frame *f; in < WIRE_WINDOW; frame_free(f)) {
        f = rig_expect(&rig, id, WIRE_DATA);
        in += f->n;
    }
    assert_true(rig_is_quiet(&rig, id, 50));
    rig_credit(&rig, id, 1 << 30, true);
    for (struct frame *f; in < out; frame_free(f)) {
        f = rig_expect(&rig, id, WIRE_DATA);
        in += f->n;
    }
    /* towards the port */
    for (struct frame *f; (f = credit >= sizeof(block) ? NULL : rig_next(&rig, id, 100)) || credit >= sizeof(block);) {
        if (f) {
            uint32_t back;
            assert_int_equal(f->type, WIRE_CREDIT);
            memcpy(&back, f->payload, 4);
            credit += back;
            frame_free(f);
            continue;
        }
        rig_send(&rig, WIRE_DATA, 0, id, block, sizeof(block));
        credit -= sizeof(block);
        got += sizeof(block);
        assert_true(got < (size_t)64 << 20);
    }
    rig_send(&rig, WIRE_EOF, 0, id, NULL, 0);
    assert_int_equal(fd_nonblock(c, false), 0);
    for (ssize_t n; got && (n = read(c, block, sizeof(block))) > 0;)
        got -= (size_t)n;
    assert_int_equal(got, 0);
    (void)close(c);
    (void)close(l);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN); /* the agent hangs up on who breaks the rules */
    const struct CMUnitTest tests[] = {
        TEST(test_violations),
        TEST(test_credit_without_end),
        TEST(test_malformed_requests),
        TEST(test_host_that_does_not_read),
        TEST(test_sessions_replace_each_other),
        TEST(test_connection),
        TEST(test_serial_line),
        TEST(test_fairness),
        TEST(test_first_come_first_served),
        TEST(test_talkers_take_turns),
        TEST(test_dial),
        TEST(test_dial_awaits_who_listens),
        TEST(test_dial_back_pressure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
