/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "coved/workers/job.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { MANY = 12, WAIT_SECONDS = 30 };

struct world {
    struct coved_loop *loop;
    struct jobs *jobs;
    int lock;
};

struct one {
    struct job *job;
    int returns, fd, r;
    bool begun, done;
    size_t nth, *counter;
};

static int set_up(void **state)
{
    static struct world w;
    w = (struct world){.lock = open("/dev/null", O_RDONLY | O_CLOEXEC)};
    assert_int_equal(loop_new(&w.loop), 0);
    w.jobs = jobs_new(w.loop, -1, w.lock);
    *state = &w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    assert_int_equal(jobs_left(w->jobs), 0);
    jobs_free(w->jobs);
    loop_free(w->loop);
    (void)fd_close(w->lock);
    return 0;
}

static void on_done(void *ctx, int r)
{
    struct one *o = ctx;
    assert_false(o->done);
    o->done = true;
    o->r = r;
    o->nth = o->counter ? (*o->counter)++ : 0;
}

static void on_begun(void *ctx)
{
    ((struct one *)ctx)->begun = true;
}

static int returns(void *ctx)
{
    return ((struct one *)ctx)->returns;
}

static int dies(void *ctx)
{
    (void)ctx;
    (void)raise(SIGKILL);
    return 0;
}

static int sleeps(void *ctx)
{
    (void)ctx;
    (void)sleep(60);
    return 0;
}

static void turn(struct world *w)
{
    usec_t next = jobs_tick(w->jobs);
    assert_true(loop_turn(w->loop, MIN(next, clock_mono() + 5 * USEC_PER_MS)) >= 0);
}

static void wait_for(struct world *w, const bool *what)
{
    usec_t end = clock_mono() + WAIT_SECONDS * USEC_PER_SEC;
    while (!*what && clock_mono() < end)
        turn(w);
    assert_true(*what);
}

static struct job_spec spec_of(struct one *o, int (*run)(void *ctx))
{
    return (struct job_spec){.name = "test", .run = run, .done = on_done, .begun = on_begun, .ctx = o};
}

static void test_what_a_job_returns(void **state)
{
    struct world *w = *state;
    static const int values[] = {0, -ENOSPC, -ENOENT};
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        struct one o = {.returns = values[i]};
        const struct job_spec spec = spec_of(&o, returns);
        (void)job_add(w->jobs, &spec);
        assert_false(o.begun || o.done);
        wait_for(w, &o.done);
        assert_true(o.begun);
        assert_int_equal(o.r, values[i]);
    }
}

static void test_a_job_that_dies(void **state)
{
    struct world *w = *state;
    struct one o = {0};
    const struct job_spec spec = spec_of(&o, dies);
    (void)job_add(w->jobs, &spec);
    wait_for(w, &o.done);
    assert_int_equal(o.r, -EIO);
}

static void test_a_job_that_takes_too_long(void **state)
{
    struct world *w = *state;
    struct one o = {0};
    struct job_spec spec = spec_of(&o, sleeps);
    spec.limit_ms = 20;
    (void)job_add(w->jobs, &spec);
    wait_for(w, &o.done);
    assert_int_equal(o.r, -ETIMEDOUT);
}

static void test_killed_before_and_after_it_began(void **state)
{
    struct world *w = *state;
    for (int after = 0; after < 2; after++) {
        struct one o = {0};
        const struct job_spec spec = spec_of(&o, sleeps);
        struct job *job = job_add(w->jobs, &spec);
        if (after)
            wait_for(w, &o.begun);
        job_kill(job);
        job_kill(job);
        assert_false(o.done);
        wait_for(w, &o.done);
        assert_int_equal(o.r, -ECANCELED);
        assert_int_equal(o.begun, after);
    }
}

static void test_a_held_one_waits(void **state)
{
    struct world *w = *state;
    struct one o = {.returns = -E2BIG}, other = {0};
    struct job_spec spec = spec_of(&o, returns);
    spec.is_held = true;
    struct job *job = job_add(w->jobs, &spec);
    wait_for(w, &o.begun);
    for (int i = 0; i < 10; i++)
        turn(w);
    assert_false(o.done);
    job_go(job);
    wait_for(w, &o.done);
    assert_int_equal(o.r, -E2BIG);

    spec.ctx = &other;
    job = job_add(w->jobs, &spec);
    wait_for(w, &other.begun);
    job_kill(job);
    wait_for(w, &other.done);
    assert_int_equal(other.r, -ECANCELED);
}

static void test_a_bounded_number_and_background_ones_last(void **state)
{
    struct world *w = *state;
    struct one many[MANY], last = {0};
    size_t counter = 0;
    memset(many, 0, sizeof(many));
    last.counter = &counter;
    struct job_spec spec = spec_of(&last, returns);
    spec.is_background = true;
    (void)job_add(w->jobs, &spec);
    struct job *held[MANY];
    for (size_t i = 0; i < MANY; i++) {
        many[i].counter = &counter;
        spec = spec_of(&many[i], returns);
        spec.is_held = true;
        held[i] = job_add(w->jobs, &spec);
    }
    wait_for(w, &many[JOBS_MAX - 1].begun);
    for (int i = 0; i < 10; i++)
        turn(w);
    assert_false(many[JOBS_MAX].begun);
    assert_int_equal(jobs_left(w->jobs), MANY + 1);
    for (size_t i = 0; i < MANY; i++) {
        wait_for(w, &many[i].begun);
        job_go(held[i]);
    }
    wait_for(w, &last.done);
    while (jobs_left(w->jobs))
        turn(w);
    assert_true(last.nth >= MANY - JOBS_MAX);
}

static void test_brief_ones_do_not_wait_for_long_ones(void **state)
{
    struct world *w = *state;
    struct one many[JOBS_MAX], brief = {0};
    struct job *held[JOBS_MAX];
    size_t counter = 0;
    memset(many, 0, sizeof(many));
    brief.counter = &counter;
    for (size_t i = 0; i < JOBS_MAX; i++) {
        many[i].counter = &counter;
        struct job_spec spec = spec_of(&many[i], returns);
        spec.is_held = true;
        held[i] = job_add(w->jobs, &spec);
    }
    wait_for(w, &many[JOBS_MAX - 1].begun);
    struct job_spec spec = spec_of(&brief, returns);
    spec.place = JOB_BRIEF;
    (void)job_add(w->jobs, &spec);
    wait_for(w, &brief.done);
    assert_int_equal(jobs_left(w->jobs), JOBS_MAX);
    for (size_t i = 0; i < JOBS_MAX; i++)
        job_go(held[i]);
    while (jobs_left(w->jobs))
        turn(w);
}

/* Those that a sandbox's programs have stopped keep each other waiting, and nobody else. */
static void test_those_inside_keep_nobody_waiting(void **state)
{
    struct world *w = *state;
    struct one stopped[JOBS_INSIDE_MAX + 1], brief = {0};
    memset(stopped, 0, sizeof(stopped));
    for (size_t i = 0; i < ARRAY_SIZE(stopped); i++) {
        struct job_spec spec = spec_of(&stopped[i], sleeps);
        spec.place = JOB_INSIDE;
        stopped[i].job = job_add(w->jobs, &spec);
    }
    wait_for(w, &stopped[JOBS_INSIDE_MAX - 1].begun);
    struct job_spec spec = spec_of(&brief, returns);
    spec.place = JOB_BRIEF;
    (void)job_add(w->jobs, &spec);
    wait_for(w, &brief.done);
    assert_false(stopped[JOBS_INSIDE_MAX].begun);
    job_kill(stopped[0].job);
    wait_for(w, &stopped[JOBS_INSIDE_MAX].begun);
    for (size_t i = 1; i < ARRAY_SIZE(stopped); i++)
        job_kill(stopped[i].job);
    while (jobs_left(w->jobs))
        turn(w);
}

/* Those whose sandbox has stopped one before leave room for others, however many they are. */
static void test_late_ones_inside_leave_room(void **state)
{
    struct world *w = *state;
    struct one late[JOBS_INSIDE_MAX], next = {0};
    memset(late, 0, sizeof(late));
    for (size_t i = 0; i < ARRAY_SIZE(late); i++) {
        struct job_spec spec = spec_of(&late[i], sleeps);
        spec.place = JOB_INSIDE;
        spec.is_background = true;
        late[i].job = job_add(w->jobs, &spec);
    }
    wait_for(w, &late[0].begun);
    struct job_spec spec = spec_of(&next, returns);
    spec.place = JOB_INSIDE;
    (void)job_add(w->jobs, &spec);
    wait_for(w, &next.done);
    assert_false(late[1].begun);
    job_kill(late[0].job);
    wait_for(w, &late[1].begun);
    job_kill(late[1].job);
    while (jobs_left(w->jobs))
        turn(w);
}

/* The pool's directories, the lock, and what it was given; nothing that somebody waits to see closed. */
static int looks_around(void *ctx)
{
    const struct one *o = ctx;
    int socket_fd = o->returns, spare = dup(o->fd);
    if (spare < 0 || fcntl(socket_fd, F_GETFD) >= 0)
        return -EBADF;
    int signal = 0;
    if (prctl(PR_GET_PDEATHSIG, &signal, 0, 0, 0) < 0 || signal != SIGKILL)
        return -ECHILD;
    return getpriority(PRIO_PROCESS, 0) > getpriority(PRIO_PROCESS, (id_t)getppid()) ? -EPERM : 0;
}

static void test_what_a_job_has(void **state)
{
    struct world *w = *state;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    struct one o = {.returns = pair[0], .fd = pair[1]};
    struct job_spec spec = spec_of(&o, looks_around);
    spec.fds = &o.fd;
    spec.n_fds = 1;
    (void)job_add(w->jobs, &spec);
    wait_for(w, &o.done);
    assert_int_equal(o.r, 0);
    o = (struct one){.returns = pair[0], .fd = w->lock};
    spec.n_fds = 0;
    (void)job_add(w->jobs, &spec);
    wait_for(w, &o.done);
    assert_int_equal(o.r, 0);
    o = (struct one){.returns = pair[0], .fd = pair[1]};
    (void)job_add(w->jobs, &spec);
    wait_for(w, &o.done);
    assert_int_equal(o.r, -EBADF);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_a_job_returns),
        TEST(test_a_job_that_dies),
        TEST(test_a_job_that_takes_too_long),
        TEST(test_killed_before_and_after_it_began),
        TEST(test_a_held_one_waits),
        TEST(test_a_bounded_number_and_background_ones_last),
        TEST(test_brief_ones_do_not_wait_for_long_ones),
        TEST(test_those_inside_keep_nobody_waiting),
        TEST(test_late_ones_inside_leave_room),
        TEST(test_what_a_job_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
