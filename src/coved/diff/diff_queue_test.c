/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/str.h"
#include "coved/diff/diff_queue.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { WAIT_SECONDS = 30, END_MS = 60000 };

struct world {
    struct coved_loop *loop;
    struct jobs *jobs;
    struct diff_queue *queue;
    int lock;
};

/* A comparison that goes on until its reader leaves. */
struct one {
    int reader, fd, r;
    bool done;
};

static int set_up(void **state)
{
    static struct world w;
    w = (struct world){.lock = open("/dev/null", O_RDONLY | O_CLOEXEC)};
    assert_int_equal(loop_new(&w.loop), 0);
    w.jobs = jobs_new(w.loop, -1, w.lock);
    w.queue = diff_queue_new(w.jobs);
    *state = &w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    diff_queue_free(w->queue);
    jobs_free(w->jobs);
    loop_free(w->loop);
    (void)fd_close(w->lock);
    return 0;
}

static int run(void *ctx)
{
    const struct one *o = ctx;
    struct pollfd p = {.fd = o->fd};
    (void)signal(SIGPIPE, SIG_IGN);
    if (write(o->fd, "", 1) != 1)
        return -EIO;
    return poll(&p, 1, END_MS) == 1 ? 0 : -ETIMEDOUT;
}

static void on_done(void *ctx, int r)
{
    struct one *o = ctx;
    assert_false(o->done);
    o->done = true;
    o->r = r;
    o->fd = fd_close(o->fd);
}

/* walked: words */
static int add(struct world *w, struct one *o, const char *walked, struct err *err)
{
    int p[2];
    struct str rest = str_of(walked), word;
    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    *o = (struct one){.reader = p[0], .fd = p[1]};
    assert_int_equal(fd_nonblock(o->reader, true), 0);
    struct diff_order order = {.run = run, .done = on_done, .ctx = o, .fd = o->fd};
    while (*walked && str_split(&rest, ' ', &word))
        (void)snprintf(order.walked[order.n_walked++], SUP_DIGEST_MAX, "%.*s", (int)word.n, word.p);
    int r = diff_queue_add(w->queue, &order, err);
    if (r < 0) {
        o->fd = fd_close(o->fd);
        o->reader = fd_close(o->reader);
    }
    assert_false(o->done);
    return r;
}

static void take(struct world *w, struct one *o, const char *walked)
{
    struct err err;
    assert_int_equal(add(w, o, walked, &err), 0);
}

static void turn(struct world *w)
{
    usec_t next = jobs_tick(w->jobs);
    assert_true(loop_turn(w->loop, MIN(next, clock_mono() + 5 * USEC_PER_MS)) >= 0);
}

static bool has_begun(const struct one *o)
{
    struct pollfd p = {.fd = o->reader, .events = POLLIN};
    return o->reader >= 0 && poll(&p, 1, 0) == 1 && p.revents & POLLIN;
}

static void wait_begun(struct world *w, const struct one *o)
{
    usec_t end = clock_mono() + WAIT_SECONDS * USEC_PER_SEC;
    while (!has_begun(o) && clock_mono() < end)
        turn(w);
    assert_true(has_begun(o));
}

static void leave(struct one *o)
{
    o->reader = fd_close(o->reader);
}

static void wait_done(struct world *w, const struct one *o, int r)
{
    usec_t end = clock_mono() + WAIT_SECONDS * USEC_PER_SEC;
    while (!o->done && clock_mono() < end)
        turn(w);
    assert_true(o->done);
    assert_int_equal(o->r, r);
}

static void test_those_of_one_leave_room_for_others(void **state)
{
    struct world *w = *state;
    struct one of_x[3], of_y[3];
    for (size_t i = 0; i < 3; i++)
        take(w, &of_x[i], "x");
    for (size_t i = 0; i < 3; i++)
        take(w, &of_y[i], "y");
    for (size_t i = 0; i < 2; i++) {
        wait_begun(w, &of_x[i]);
        wait_begun(w, &of_y[i]); /* though a third of x came before it */
    }
    assert_false(has_begun(&of_x[2]) || has_begun(&of_y[2]));
    leave(&of_y[0]);
    wait_begun(w, &of_y[2]);
    assert_false(has_begun(&of_x[2]));
    leave(&of_x[1]);
    wait_begun(w, &of_x[2]);
    for (size_t i = 0; i < 3; i++) {
        leave(&of_x[i]);
        leave(&of_y[i]);
        wait_done(w, &of_x[i], 0);
        wait_done(w, &of_y[i], 0);
    }
}

static void test_what_they_walk_counts(void **state)
{
    struct world *w = *state;
    struct one ones[5];
    take(w, &ones[0], "a layer");
    take(w, &ones[1], "layer b");
    take(w, &ones[2], "c layer");
    take(w, &ones[3], ""); /* the same on both sides */
    take(w, &ones[4], "c d");
    for (size_t i = 0; i < 5; i++)
        if (i != 2)
            wait_begun(w, &ones[i]);
    assert_false(has_begun(&ones[2]));
    leave(&ones[0]);
    wait_begun(w, &ones[2]);
    for (size_t i = 0; i < 5; i++) {
        leave(&ones[i]);
        wait_done(w, &ones[i], 0);
    }
}

static void test_one_whose_reader_has_left_does_not_run(void **state)
{
    struct world *w = *state;
    struct one ones[4], next;
    for (size_t i = 0; i < 4; i++)
        take(w, &ones[i], "x");
    wait_begun(w, &ones[1]);
    leave(&ones[2]);
    take(w, &next, "y");
    wait_done(w, &ones[2], -ECANCELED);
    leave(&ones[3]);
    leave(&ones[0]); /* its turn would be now */
    wait_done(w, &ones[3], -ECANCELED);
    wait_done(w, &ones[0], 0);
    leave(&ones[1]);
    wait_done(w, &ones[1], 0);
    leave(&next);
    wait_done(w, &next, 0);
}

static void test_no_more_than_so_many_are_taken(void **state)
{
    struct world *w = *state;
    static struct one ones[DIFF_MOST];
    struct one more;
    struct err err;
    char name[16];
    for (size_t i = 0; i < DIFF_MOST; i++) {
        (void)snprintf(name, sizeof(name), "x%zu", i / DIFF_EACH_MOST);
        take(w, &ones[i], name);
        if (i == DIFF_EACH_MOST - 1) {
            assert_int_equal(add(w, &more, "other x0", &err), -1);
            assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
        }
    }
    assert_int_equal(add(w, &more, "y", &err), -1);
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    leave(&ones[DIFF_MOST - 1]); /* those that left count no more once they were seen to */
    assert_int_equal(add(w, &more, "y", &err), -1);
    wait_done(w, &ones[DIFF_MOST - 1], -ECANCELED);
    take(w, &more, "y");
    leave(&more);
    for (size_t i = 0; i < DIFF_MOST; i++)
        leave(&ones[i]);
    for (size_t i = 0; i < DIFF_MOST; i++)
        while (!ones[i].done)
            turn(w);
    while (!more.done)
        turn(w);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_those_of_one_leave_room_for_others),
        TEST(test_what_they_walk_counts),
        TEST(test_one_whose_reader_has_left_does_not_run),
        TEST(test_no_more_than_so_many_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
