/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel takes no more descriptors into an epoll set: the sandbox's memory or the user's watches
 * (fs.epoll.max_user_watches) are used up. What is begun then is refused; what had begun goes on, though it pauses
 * meanwhile.
 */
#include "agent/test_calls.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NO_ROOM "no space left on device"

/* In the place of libc's; the agent runs in a process of its own, and asks for a file. */
int epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
    char path[128];
    const char *dir = getenv("COVE_TEST_AGENT_DIR");
    (void)snprintf(path, sizeof(path), "%s/full", dir ? dir : "");
    if (dir && op == EPOLL_CTL_ADD && access(path, F_OK) == 0) {
        errno = ENOSPC;
        return -1;
    }
    return (int)syscall(SYS_epoll_ctl, epoll, op, fd, event);
}

static void fill(void)
{
    rig_write(rig_path(&rig, "full"), "");
}

static void make_room(void)
{
    assert_int_equal(unlink(rig_path(&rig, "full")), 0);
}

/* All that comes while no credit is given: from then on, the agent has paused what it comes from. */
static size_t take_without_credit(uint32_t id)
{
    size_t n = 0;
    for (struct frame *f; (f = rig_next(&rig, id, 300)); frame_free(f))
        n += f->type == WIRE_DATA ? f->n : 0;
    return n;
}

/* Everything else, to the END. */
static size_t take_rest(uint32_t id)
{
    struct result x;
    rig_result(&rig, id, true, &x);
    assert_string_equal(x.message, "");
    size_t n = buf_len(&x.data);
    result_fini(&x);
    return n;
}

static void go_on(uint32_t id, size_t taken)
{
    assert_in_range(taken, 1, WIRE_WINDOW);
    fill();
    rig_credit(&rig, id, (uint32_t)taken, true);
}

static void output_goes_on(void **state)
{
    (void)state;
    uint32_t id = EXEC(&rig, "head", "-c", "3000000", "/dev/zero");
    (void)rig_expect_started(&rig, id);
    size_t n = take_without_credit(id);
    go_on(id, n);
    assert_int_equal(n + take_rest(id), 3000000);
}

static uint32_t open_list(const char *path)
{
    struct buf *b = rig_request(WIRE_LIST);
    wire_put_str(b, STR("user"));
    wire_put_str(b, str_of(path));
    wire_put_u32(b, 1);
    return rig_open(&rig, b);
}

static void make_files(const char *dir, int count)
{
    char path[256];
    assert_int_equal(mkdir(dir, 0755), 0);
    for (int i = 0; i < count; i++) {
        (void)snprintf(path, sizeof(path), "%s/%d", dir, i);
        assert_int_equal(mknod(path, S_IFREG | 0644, 0), 0);
    }
}

static void work_on_files_goes_on(void **state)
{
    (void)state;
    make_files(rig_path(&rig, "many"), 8000);
    size_t whole = take_rest(open_list(rig_path(&rig, "many")));
    assert_true(whole > 2 * (size_t)WIRE_WINDOW);
    uint32_t id = open_list(rig_path(&rig, "many"));
    size_t n = take_without_credit(id);
    go_on(id, n);
    assert_int_equal(n + take_rest(id), whole);
}

static uint16_t listener(int *ret_fd)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(at);
    *ret_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(*ret_fd, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(*ret_fd, 5), 0);
    assert_int_equal(getsockname(*ret_fd, (struct sockaddr *)&at, &n), 0);
    return ntohs(at.sin_port);
}

static uint32_t open_dial(uint16_t port)
{
    struct buf *b = rig_request(WIRE_DIAL);
    wire_put_u16(b, port);
    return rig_open(&rig, b);
}

static void a_connection_goes_on(void **state)
{
    (void)state;
    enum { SIZE = 8 * 1024 * 1024 };
    AUTO_CLOSE int listening = -1;
    uint32_t id = open_dial(listener(&listening));
    frame_free(rig_expect(&rig, id, WIRE_REPLY));
    pid_t speaker = fork();
    if (speaker == 0) {
        int c = accept(listening, NULL, NULL);
        AUTO_FREE char *bytes = mem_zalloc(SIZE);
        int r = fd_write_all(c, bytes, SIZE - 1);
        (void)usleep(300 * 1000); /* until all of that was taken: the agent waits again */
        _exit(r < 0 || fd_write_all(c, bytes, 1) < 0 ? 1 : 0);
    }
    size_t n = take_without_credit(id);
    go_on(id, n);
    while (n < SIZE) {
        struct frame *f = rig_expect(&rig, id, WIRE_DATA);
        n += f->n;
        rig_credit(&rig, id, (uint32_t)f->n, true);
        frame_free(f);
    }
    frame_free(rig_expect(&rig, id, WIRE_EOF));
    rig_send(&rig, WIRE_EOF, 0, id, NULL, 0);
    rig_expect_end(&rig, id, ERR_OK, "");
    assert_int_equal(n, SIZE);
    assert_int_equal(waitpid(speaker, NULL, 0), speaker);
}

static uint32_t open_watch(void)
{
    struct buf *b = rig_request(WIRE_WATCH);
    wire_put_str(b, STR("user"));
    wire_put_str(b, STR(""));
    wire_put_u8(b, WIRE_WATCH_RECURSIVE);
    return rig_open(&rig, b);
}

/* While a directory that has appeared is read, events are not. */
static void a_watch_goes_on(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    uint32_t id = open_watch();
    frame_free(rig_expect(&rig, id, WIRE_REPLY));
    make_files(rig_path(&rig, "many"), COUNT);
    fill();
    assert_int_equal(rename(rig_path(&rig, "many"), rig_path(&rig, "home/many")), 0);
    for (int left = COUNT + 2; left; left--) { /* it, what is in it, and what comes later */
        if (left == 1)
            assert_int_equal(mknod(rig_path(&rig, "home/many/later"), S_IFREG | 0644, 0), 0);
        struct frame *f = rig_expect(&rig, id, WIRE_DATA);
        rig_credit(&rig, id, (uint32_t)f->n, true);
        frame_free(f);
    }
    rig_send(&rig, WIRE_CLOSE, 0, id, NULL, 0);
    rig_expect_end(&rig, id, ERR_CANCELED, "closed");
}

/* Nobody kills what writes on behind an ended process. */
static void what_it_left_behind_writes_on(void **state)
{
    (void)state;
    struct result x;
    AUTO_FREE char *line = mem_printf("(while echo x; do sleep 0.01; done; touch %s) 2>&1 & echo $! > %s",
                                      rig_path(&rig, "died"), rig_path(&rig, "pid"));
    uint32_t id = EXEC(&rig, "sh", "-c", line);
    (void)rig_expect_started(&rig, id);
    fill();
    rig_result(&rig, id, true, &x);
    assert_int_equal(x.code, ERR_OK);
    result_fini(&x);
    (void)usleep(200 * 1000);
    pid_t pid = (pid_t)strtol(rig_read(rig_path(&rig, "pid")), NULL, 10);
    assert_true(pid > 1);
    assert_int_equal(access(rig_path(&rig, "died"), F_OK), -1);
    assert_int_equal(kill(pid, SIGKILL), 0);
}

static void what_begins_is_refused(void **state)
{
    (void)state;
    static char block[60 * 1024];
    char message[256];
    AUTO_CLOSE int listening = -1;
    uint16_t port = listener(&listening);
    uint32_t sleeper = EXEC_AS(&rig, (&(struct exec_options){.flags = WIRE_EXEC_STDIN}), "sleep", "1000");
    uint32_t pid = rig_expect_started(&rig, sleeper);
    fill();
    rig_expect_end(&rig, EXEC(&rig, "true"), ERR_RESOURCE_EXHAUSTED, "error starting process 'true': " NO_ROOM);
    rig_expect_end(&rig, open_list(rig.dir), ERR_RESOURCE_EXHAUSTED, "error starting work on files: " NO_ROOM);
    (void)snprintf(message, sizeof(message), "error watching %s/home: " NO_ROOM, rig.dir);
    rig_expect_end(&rig, open_watch(), ERR_RESOURCE_EXHAUSTED, message);
    (void)snprintf(message, sizeof(message), "error connecting to port %u: " NO_ROOM, port);
    rig_expect_end(&rig, open_dial(port), ERR_UNAVAILABLE, message);
    rig_expect_end(&rig, open_input(pid, 0, block, sizeof(block)), ERR_OK, ""); /* the pipe takes it */
    (void)snprintf(message, sizeof(message),
                   "error writing to stdin: error writing to stdin of process '%u': write |1: " NO_ROOM, pid);
    rig_expect_end(&rig, open_input(pid, 0, block, sizeof(block)), ERR_INTERNAL, message);
    make_room();
    (void)expect_output(&as_root, "echo again", "again\n");
    (void)take_rest(open_list(rig.dir));
    rig_expect_end(&rig, open_signal(pid, SIGKILL), ERR_OK, "");
    (void)take_rest(sleeper);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(output_goes_on),  TEST(work_on_files_goes_on),         TEST(a_connection_goes_on),
        TEST(a_watch_goes_on), TEST(what_it_left_behind_writes_on), TEST(what_begins_is_refused),
    };
    return cmocka_run_group_tests_name("full", tests, NULL, NULL);
}
