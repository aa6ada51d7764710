/* SPDX-License-Identifier: Apache-2.0 */
/* A comparison whose client leaves. What the core and the other handlers do is stood in for here: who compares is this
 * test. */
#include "api/native/handlers.h"
#include "base/fd.h"
#include "base/mem.h"
#include "http/test_server.h"
#include "sandbox/life/layers.h"
#include "wire/diff.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OTHERS = 16 };

static struct world {
    struct test_server server;
    struct native native;
    pool_done_fn done; /* of the comparison that is under way */
    void *ctx;
    bool is_over; /* its request */
} w;

uv_loop_t *core_loop(const struct core *core)
{
    (void)core;
    return &w.server.loop;
}

int layers_diff(struct core *core, uint64_t view, struct str a, struct str b, int fd, pool_done_fn done, void *ctx,
                struct err *err)
{
    struct diff_record r = {.kind = 'A', .type = 'f', .path_len = 1};
    (void)core, (void)view, (void)a, (void)b, (void)err;
    w.done = done;
    w.ctx = ctx;
    assert_int_equal(write(fd, &r, sizeof(r)), sizeof(r));
    assert_int_equal(write(fd, "x", 1), 1);
    (void)fd_close(fd);
    return 0;
}

json_t *native_error(const struct err *err, const char *hint)
{
    (void)hint;
    fail_msg("%s", err->msg);
    return NULL;
}

static void append_error(struct buf *b, int status, enum err_code code, struct str message, const char *hint)
{
    (void)b, (void)status, (void)code, (void)hint;
    fail_msg("%.*s", STR_ARG(message));
}

static const struct facade_ops ops = {.append_error = append_error};

static void (*cleanup)(struct call *c);

static void on_over(struct call *c)
{
    cleanup(c);
    w.server.closes++;
    w.is_over = true;
}

static void on_request(struct http_request *req, void *ctx)
{
    struct call *c = call_new(&w.native.facade, req, NULL);
    (void)ctx;
    w.server.requests++;
    w.native.facade.ops = &ops;
    native_diff(c);
    cleanup = c->cleanup;
    c->cleanup = on_over;
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

/* Turns the loop until the condition holds. */
#define TURN_UNTIL(condition)                                                                                          \
    for (int turns_ = 0; !(condition); turns_++) {                                                                     \
        assert_true(turns_ < 5000);                                                                                    \
        (void)uv_run(&w.server.loop, UV_RUN_ONCE);                                                                     \
    }

struct other {
    uv_poll_t poll;
    int fds[2];
    bool heard;
};

static void on_other(uv_poll_t *poll, int status, int events)
{
    struct other *o = container_of(poll, struct other, poll);
    (void)status, (void)events;
    o->heard = true;
    (void)uv_poll_stop(poll);
}

static bool all_heard(const struct other *others)
{
    for (int i = 0; i < OTHERS; i++)
        if (!others[i].heard)
            return false;
    return true;
}

/* Descriptors get the lowest free number: one of those that come next has that of the pipe. */
static void who_comes_after_it_stays_in_the_loop(void **state)
{
    static const char request[] = "GET /?a=x&b=y HTTP/1.1\r\nHost: x\r\n\r\n";
    static struct other others[OTHERS];
    uv_timer_t tick;
    (void)state;
    test_server_open_with(&w.server, NULL, false, on_request);
    assert_int_equal(uv_timer_init(&w.server.loop, &tick), 0);
    assert_int_equal(uv_timer_start(&tick, on_tick, 1, 1), 0);
    int client = test_connect(&w.server);

    assert_int_equal(send(client, request, sizeof(request) - 1, 0), sizeof(request) - 1);
    TURN_UNTIL(w.done);
    (void)fd_close(client);
    TURN_UNTIL(w.is_over);
    (void)uv_run(&w.server.loop, UV_RUN_ONCE);

    for (int i = 0; i < OTHERS; i++) {
        assert_int_equal(pipe2(others[i].fds, O_CLOEXEC | O_NONBLOCK), 0);
        assert_int_equal(uv_poll_init(&w.server.loop, &others[i].poll, others[i].fds[0]), 0);
        assert_int_equal(uv_poll_start(&others[i].poll, UV_READABLE, on_other), 0);
    }
    (void)uv_run(&w.server.loop, UV_RUN_ONCE);
    w.done(w.ctx, NULL);
    (void)uv_run(&w.server.loop, UV_RUN_ONCE);
    for (int i = 0; i < OTHERS; i++)
        assert_int_equal(write(others[i].fds[1], "x", 1), 1);
    TURN_UNTIL(all_heard(others));

    for (int i = 0; i < OTHERS; i++)
        uv_close((uv_handle_t *)&others[i].poll, NULL);
    uv_close((uv_handle_t *)&tick, NULL);
    test_server_close(&w.server);
    for (int i = 0; i < OTHERS; i++) {
        (void)fd_close(others[i].fds[0]);
        (void)fd_close(others[i].fds[1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_comes_after_it_stays_in_the_loop)};
    return cmocka_run_group_tests_name("native_diff", tests, NULL, NULL);
}
