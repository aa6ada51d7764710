/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/flow/test_side.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"

#include <dirent.h>
#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { GUARD_MS = 20000, GUARD_TICK_MS = 20 };

static int count_fds(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d))
        n++;
    (void)closedir(d);
    return n;
}

static void on_guard(uv_timer_t *t)
{
    ++*(unsigned *)t->data;
}

void test_rig_open(struct test_rig *r)
{
    uv_loop_t first; /* libuv keeps a pair of descriptors from its first loop on */
    assert_int_equal(uv_loop_init(&first), 0);
    assert_int_equal(uv_loop_close(&first), 0);
    r->fds = count_fds();
    assert_int_equal(uv_loop_init(&r->loop), 0);
    assert_int_equal(uv_timer_init(&r->loop, &r->guard), 0);
}

static void on_forgotten(uv_handle_t *h, void *ctx)
{
    if (!uv_is_closing(h))
        *(const char **)ctx = uv_handle_type_name(h->type);
}

void test_rig_close(struct test_rig *r)
{
    const char *forgotten = NULL;
    uv_close((uv_handle_t *)&r->guard, NULL);
    uv_walk(&r->loop, on_forgotten, &forgotten);
    if (forgotten)
        fail_msg("a handle was forgotten: %s", forgotten);
    assert_int_equal(uv_run(&r->loop, UV_RUN_DEFAULT), 0);
    assert_int_equal(uv_loop_close(&r->loop), 0);
    assert_int_equal(count_fds(), r->fds);
}

void test_until(struct test_rig *r, bool (*is_so)(void *ctx), void *ctx)
{
    unsigned ticks = 0; /* a turn that has run timers waits before it returns: the guard ends that */
    r->guard.data = &ticks;
    (void)uv_timer_start(&r->guard, on_guard, GUARD_TICK_MS, GUARD_TICK_MS);
    while (!is_so(ctx)) {
        (void)uv_run(&r->loop, UV_RUN_ONCE);
        if (ticks > GUARD_MS / GUARD_TICK_MS)
            fail_msg("it did not come");
    }
    (void)uv_timer_stop(&r->guard);
}

static bool flag_is_set(void *ctx)
{
    return *(const bool *)ctx;
}

void test_until_true(struct test_rig *r, const bool *flag)
{
    test_until(r, flag_is_set, (void *)flag);
}

static void count_handle(uv_handle_t *h UNUSED, void *ctx)
{
    ++*(unsigned *)ctx;
}

static bool is_alone(void *ctx)
{
    unsigned n = 0;
    uv_walk(ctx, count_handle, &n);
    return n == 1; /* the guard */
}

void test_until_alone(struct test_rig *r)
{
    test_until(r, is_alone, &r->loop);
}

void test_turn(struct test_rig *r)
{
    for (int i = 0; i < 20; i++)
        (void)uv_run(&r->loop, UV_RUN_NOWAIT);
}

int test_listen(int backlog, struct sockaddr_storage *ret_addr)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(in);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&in, n), 0);
    assert_int_equal(listen(fd, backlog), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&in, &n), 0);
    memset(ret_addr, 0, sizeof(*ret_addr));
    memcpy(ret_addr, &in, sizeof(in));
    return fd;
}

int test_accept(int listener)
{
    int fd = accept(listener, NULL, NULL);
    assert_true(fd >= 0 && fd_cloexec(fd, true) >= 0 && fd_nonblock(fd, true) >= 0);
    return fd;
}

void test_tcp_pair(int ret_fds[static 2])
{
    struct sockaddr_storage addr;
    int listener = test_listen(1, &addr);
    ret_fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(ret_fds[0], (struct sockaddr *)&addr, sizeof(struct sockaddr_in)), 0);
    ret_fds[1] = test_accept(listener);
    (void)close(listener);
    for (int i = 0; i < 2; i++) {
        assert_true(fd_nonblock(ret_fds[i], true) >= 0);
        assert_int_equal(setsockopt(ret_fds[i], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)), 0);
    }
}

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif

#ifdef HAS_ASAN
size_t __sanitizer_get_current_allocated_bytes(void);

size_t test_heap_bytes(void)
{
    return __sanitizer_get_current_allocated_bytes();
}
#else
size_t test_heap_bytes(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}
#endif

static bool told(struct test_owner *o)
{
    if (!o->close_when_told)
        return false;
    side_close(TAKE_PTR(o->side));
    return true;
}

static void on_ready(void *ctx)
{
    struct test_owner *o = ctx;
    assert_false(o->is_ready);
    o->is_ready = true;
    (void)told(o);
}

void test_owner_read(struct test_owner *o)
{
    char part[32 * 1024];
    ssize_t n;
    while ((n = side_read(o->side, part, sizeof(part))) > 0)
        assert_int_equal(buf_append(&o->got, part, (size_t)n), 0);
    if (n == 0)
        o->is_ended = true;
    else if (n != -EAGAIN)
        o->read_error = (int)-n;
}

static void on_readable(void *ctx)
{
    struct test_owner *o = ctx;
    o->readable++;
    if (!told(o) && !o->paused)
        test_owner_read(o);
}

static void on_writable(void *ctx)
{
    struct test_owner *o = ctx;
    o->writable++;
    o->is_writable = true;
    (void)told(o);
}

static void on_failed(void *ctx, const struct err *err)
{
    struct test_owner *o = ctx;
    assert_false(o->is_failed);
    o->is_failed = true;
    o->err = *err;
    (void)told(o);
}

const struct side_ops test_owner_ops = {
    .on_ready = on_ready,
    .on_readable = on_readable,
    .on_writable = on_writable,
    .on_failed = on_failed,
};

void test_owner_open(struct test_owner *o, struct side *s)
{
    *o = (struct test_owner){.side = s, .got = BUF_INIT(256u * 1024 * 1024)};
    if (s)
        side_set(s, &test_owner_ops, o);
}

void test_owner_fini(struct test_owner *o)
{
    side_close(TAKE_PTR(o->side));
    buf_fini(&o->got);
}

void test_peer_send(int fd, const void *p, size_t n)
{
    assert_int_equal(send(fd, p, n, MSG_NOSIGNAL), n);
}

ssize_t test_peer_wait(struct test_rig *r, int fd, void *to, size_t room)
{
    usec_t until = clock_mono() + GUARD_MS * USEC_PER_MS;
    for (;;) {
        ssize_t n = recv(fd, to, room, 0);
        if (n >= 0)
            return n;
        if (errno != EAGAIN)
            return -errno;
        (void)uv_run(&r->loop, UV_RUN_NOWAIT);
        (void)poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 1);
        if (clock_mono() > until)
            fail_msg("the peer got nothing");
    }
}

void test_peer_expect(struct test_rig *r, int fd, struct str what)
{
    AUTO_FREE char *got = mem_alloc(what.n + 1);
    size_t have = 0;
    while (have < what.n) {
        ssize_t n = test_peer_wait(r, fd, got + have, what.n - have);
        assert_true(n > 0);
        have += (size_t)n;
    }
    assert_memory_equal(got, what.p, what.n);
}
