/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/loop.h"
#include "base/fd.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

static bool is_full;

/* In the place of libc's: a kernel that has no room for one more. */
int epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
    if (is_full && op == EPOLL_CTL_ADD) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_epoll_ctl, epoll, op, fd, event);
}

static struct agent_loop loop;

/* A pipe whose reading end is in the loop. */
struct end {
    struct loop_io io;
    int writer;
    int called;
    struct end *pauses, *closes;
};

static struct end a, b;

static void ready(struct loop_io *io, uint32_t events)
{
    struct end *e = container_of(io, struct end, io);
    assert_true(events);
    e->called++;
    if (e->pauses)
        assert_int_equal(loop_set(&loop, &e->pauses->io, 0), 0);
    if (e->closes)
        loop_close(&loop, &e->closes->io);
}

static void open_end(struct end *e)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    *e = (struct end){.io = LOOP_IO(ready), .writer = ends[1]};
    e->io.fd = ends[0];
}

static void say(const struct end *e)
{
    assert_int_equal(write(e->writer, "x", 1), 1);
}

/* As many turns as show that nothing more comes. */
static void turns(void)
{
    for (int i = 0; i < 3; i++)
        assert_int_equal(loop_turn(&loop, true), 0);
}

/* Whether loop_turn() would wait. */
static bool is_at_rest(void)
{
    struct pollfd p = {.fd = loop.epoll, .events = POLLIN};
    return poll(&p, 1, 0) == 0;
}

static int set_up(void **state)
{
    (void)state;
    is_full = false;
    assert_int_equal(loop_init(&loop), 0);
    open_end(&a);
    open_end(&b);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    loop_close(&loop, &a.io);
    loop_close(&loop, &b.io);
    a.writer = fd_close(a.writer);
    b.writer = fd_close(b.writer);
    loop_fini(&loop);
    return 0;
}

static void without_room_it_does_not_begin(void **state)
{
    (void)state;
    is_full = true;
    assert_int_equal(loop_set(&loop, &a.io, EPOLLIN), -ENOSPC);
    assert_int_equal(a.io.events, 0);
    is_full = false;
    say(&a);
    assert_int_equal(loop_set(&loop, &a.io, EPOLLIN), 0);
    turns();
    assert_int_equal(a.called, 3);
}

static void a_pause_keeps_its_place(void **state)
{
    (void)state;
    assert_int_equal(loop_set(&loop, &a.io, EPOLLIN), 0);
    say(&a);
    assert_int_equal(loop_set(&loop, &a.io, 0), 0);
    turns();
    assert_int_equal(a.called, 0);
    assert_true(is_at_rest());
    is_full = true;
    assert_int_equal(loop_set(&loop, &a.io, EPOLLIN), 0);
    turns();
    assert_int_equal(a.called, 3);
}

static void who_hangs_up_in_a_pause_wakes_nobody(void **state)
{
    (void)state;
    assert_int_equal(loop_set(&loop, &a.io, EPOLLIN), 0);
    assert_int_equal(loop_set(&loop, &a.io, 0), 0);
    a.writer = fd_close(a.writer);
    turns();
    assert_int_equal(a.called, 0);
    assert_true(is_at_rest());
    assert_int_equal(loop_set(&loop, &a.io, EPOLLIN), 0);
    turns();
    assert_int_equal(a.called, 3);
    assert_int_equal(loop_set(&loop, &a.io, 0), 0); /* and who had hung up before it */
    turns();
    assert_int_equal(a.called, 3);
    assert_true(is_at_rest());
}

static void another_takes_it_over(void **state)
{
    (void)state;
    struct end c = {.io = LOOP_IO(ready)};
    assert_int_equal(loop_set(&loop, &a.io, EPOLLIN), 0);
    say(&a);
    is_full = true;
    loop_move(&loop, &a.io, &c.io);
    assert_int_equal(a.io.fd, -1);
    turns();
    assert_int_equal(loop_set(&loop, &c.io, EPOLLIN), 0);
    turns();
    assert_int_equal(a.called, 0);
    assert_int_equal(c.called, 3);
    loop_close(&loop, &c.io);
    /* What was never waited for has no place that could be taken over. */
    loop_move(&loop, &b.io, &c.io);
    assert_int_equal(loop_set(&loop, &c.io, EPOLLIN), -ENOSPC);
    loop_close(&loop, &c.io);
}

/* Both are ready in one turn: what the first to be called does to the other holds at once. */
static void in_the_same_turn(void **state)
{
    (void)state;
    assert_int_equal(loop_set(&loop, &a.io, EPOLLIN), 0);
    assert_int_equal(loop_set(&loop, &b.io, EPOLLIN), 0);
    say(&a);
    say(&b);
    a.pauses = &b;
    b.pauses = &a;
    turns();
    assert_int_equal(a.called + b.called, 3);
    assert_true(!a.called || !b.called);
    struct end *other = a.called ? &b : &a;
    a.pauses = b.pauses = NULL;
    a.closes = &b;
    b.closes = &a;
    assert_int_equal(loop_set(&loop, &other->io, EPOLLIN), 0);
    turns();
    assert_int_equal(a.called + b.called, 6);
    assert_true((a.io.fd < 0) != (b.io.fd < 0));
}

/* A child that has not executed yet has copies of all descriptors. */
static void closed_it_is_not_told_though_others_have_it(void **state)
{
    (void)state;
    AUTO_CLOSE int copy = dup(a.io.fd);
    assert_true(copy >= 0);
    assert_int_equal(loop_set(&loop, &a.io, EPOLLIN), 0);
    assert_int_equal(loop_set(&loop, &a.io, 0), 0);
    assert_int_equal(loop_set(&loop, &b.io, EPOLLIN), 0);
    say(&a);
    say(&b);
    loop_close(&loop, &a.io);
    loop_close(&loop, &b.io);
    turns();
    assert_int_equal(a.called + b.called, 0);
    assert_true(is_at_rest());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(without_room_it_does_not_begin, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_pause_keeps_its_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_hangs_up_in_a_pause_wakes_nobody, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_takes_it_over, set_up, tear_down),
        cmocka_unit_test_setup_teardown(in_the_same_turn, set_up, tear_down),
        cmocka_unit_test_setup_teardown(closed_it_is_not_told_though_others_have_it, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
