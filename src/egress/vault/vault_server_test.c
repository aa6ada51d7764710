/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "egress/vault/vault.h"
#include "egress/vault/vault_server.h"
#include "wire/vault.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { NOBODY = 12345 };

struct fixture {
    uv_loop_t loop;
    char path[64];
    struct sockaddr_un address;
    int dir_fd;
    struct vault *vault;
    struct vault_server *server;
    struct err err;
    struct buf answer;
    char changes[256]; /* what was told of them */
};

static void on_change(void *ctx, const char *name, bool is_set, uid_t by)
{
    struct fixture *f = ctx;
    size_t n = strlen(f->changes);
    (void)snprintf(f->changes + n, sizeof(f->changes) - n, "%s%s%s", is_set ? "+" : "-", name,
                   by == getuid() ? " " : "? ");
}

static int serve(struct fixture *f, int fd, uid_t owner_uid, struct vault_server **ret_server)
{
    return vault_server_new(
        &f->loop,
        &(struct vault_server_config){
            .vault = f->vault, .listen_fd = fd, .owner_uid = owner_uid, .on_change = on_change, .ctx = f},
        ret_server, &f->err);
}

static int setup(void **state)
{
    struct fixture *f = mem_new(struct fixture);
    *state = f;
    log_init("test", LOG_ERROR);
    (void)snprintf(f->path, sizeof(f->path), "/tmp/cove-vault-server-test-XXXXXX");
    if (!mkdtemp(f->path) || uv_loop_init(&f->loop) < 0)
        return -1;
    buf_init(&f->answer, VAULT_ANSWER_MAX);
    f->dir_fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    f->address.sun_family = AF_UNIX;
    (void)snprintf(f->address.sun_path, sizeof(f->address.sun_path), "%s/sock", f->path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&f->address, sizeof(f->address)) < 0 || listen(fd, 64) < 0 ||
        vault_open(f->dir_fd, &f->vault, &f->err) < 0)
        return -1;
    return serve(f, fd, getuid(), &f->server);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    vault_server_free(f->server);
    (void)uv_run(&f->loop, UV_RUN_DEFAULT);
    int r = uv_loop_close(&f->loop);
    vault_close(f->vault);
    buf_fini(&f->answer);
    static const char *const files[] = {"vault.key", "vault.json", "sock"};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        (void)unlinkat(f->dir_fd, files[i], 0);
    (void)fd_close(f->dir_fd);
    r |= rmdir(f->path);
    mem_free(f);
    return r;
}

static int dial(struct fixture *f)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&f->address, sizeof(f->address)), 0);
    return fd;
}

static void send_all(int fd, struct str bytes)
{
    assert_int_equal(send(fd, bytes.p, bytes.n, MSG_NOSIGNAL), bytes.n);
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

/* Turns the loop, with a timer so that it comes back though nothing happens, until the server has ended the
 * connection. */
static void read_answer(struct fixture *f, int fd)
{
    uv_timer_t tick;
    buf_clear(&f->answer);
    assert_int_equal(uv_timer_init(&f->loop, &tick), 0);
    assert_int_equal(uv_timer_start(&tick, on_tick, 5, 5), 0);
    for (;;) {
        char *room = buf_reserve(&f->answer, 4096);
        assert_non_null(room);
        ssize_t n = recv(fd, room, 4096, MSG_DONTWAIT);
        if (n > 0)
            buf_commit(&f->answer, (size_t)n);
        else if (n == 0 || errno != EAGAIN)
            break;
        else
            (void)uv_run(&f->loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&tick, NULL);
    (void)uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void turn(struct fixture *f)
{
    for (int i = 0; i < 10; i++)
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
}

/* Sends raw bytes; what comes back, parsed. */
static struct vault_answer ask_raw(struct fixture *f, struct str bytes)
{
    struct vault_answer a;
    AUTO_CLOSE int fd = dial(f);
    send_all(fd, bytes);
    read_answer(f, fd);
    assert_int_equal(vault_answer_parse(buf_str(&f->answer), &a), 0);
    return a;
}

static struct vault_answer ask(struct fixture *f, enum vault_op op, const char *name, const char *value)
{
    AUTO_BUF struct buf b = BUF_INIT(VAULT_REQUEST_MAX);
    vault_request_append(&b, &(struct vault_request){op, str_of(name), str_of(value)});
    return ask_raw(f, buf_str(&b));
}

static void secrets_are_set_listed_and_removed(void **state)
{
    struct fixture *f = *state;
    struct str name, value;
    uint64_t at;
    assert_int_equal(ask(f, VAULT_SET, "B", "value of b").code, ERR_OK);
    assert_int_equal(ask(f, VAULT_SET, "A", "value of a").code, ERR_OK);
    assert_true(vault_get(f->vault, STR("B"), &value));
    assert_true(str_eqc(value, "value of b"));

    struct vault_answer a = ask(f, VAULT_LIST, "", NULL);
    assert_int_equal(a.count, 2);
    assert_true(vault_answer_next(&a, &name, &at) && str_eqc(name, "A") && at > 0);
    assert_true(vault_answer_next(&a, &name, &at) && str_eqc(name, "B") && at > 0);
    assert_null(memmem(buf_data(&f->answer), buf_len(&f->answer), "value", 5));

    assert_int_equal(ask(f, VAULT_REMOVE, "B", NULL).code, ERR_OK);
    assert_false(vault_get(f->vault, STR("B"), &value));
    assert_int_equal(ask(f, VAULT_LIST, "", NULL).count, 1);
    assert_int_equal(ask(f, VAULT_REMOVE, "B", NULL).code, ERR_NOT_FOUND);
    assert_string_equal(f->changes, "+B +A -B ");
}

static void what_the_vault_refuses_is_answered(void **state)
{
    struct fixture *f = *state;
    struct vault_answer a = ask(f, VAULT_REMOVE, "GONE", NULL);
    assert_int_equal(a.code, ERR_NOT_FOUND);
    assert_true(str_eqc(a.message, "there is no secret GONE"));
    a = ask(f, VAULT_SET, "1", "secret value");
    assert_int_equal(a.code, ERR_INVALID_ARGUMENT);
    a = ask(f, VAULT_SET, "A", "secret\nvalue");
    assert_int_equal(a.code, ERR_INVALID_ARGUMENT);
    assert_null(memmem(a.message.p, a.message.n, "value\n", 6));
    assert_int_equal(ask(f, VAULT_LIST, "", NULL).count, 0);
}

static void the_largest_request_comes_through_in_pieces(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF struct buf b = BUF_INIT(VAULT_REQUEST_MAX);
    static char value[VAULT_VALUE_MAX];
    struct str got;
    memset(value, 'v', sizeof(value));
    vault_request_append(&b, &(struct vault_request){VAULT_SET, STR("L"), str_n(value, sizeof(value))});
    AUTO_CLOSE int fd = dial(f);
    for (size_t at = 0; at < buf_len(&b);) {
        size_t n = MIN(at < 8 ? (size_t)1 : (size_t)5000, buf_len(&b) - at);
        send_all(fd, str_n(buf_data(&b) + at, n));
        turn(f);
        at += n;
    }
    read_answer(f, fd);
    assert_true(vault_get(f->vault, STR("L"), &got));
    assert_int_equal(got.n, VAULT_VALUE_MAX);
}

static void nonsense_is_answered_and_cut(void **state)
{
    struct fixture *f = *state;
    static const struct str wrong[] = {
        {"\0\0\0\0", 4},
        {"\xff\xff\xff\xff", 4},
        {"GET / HTTP/1.1\r\n\r\n", 18},
        {"\6\0\0\0\2\3\0\0\0\0", 10},
        {"\6\0\0\0\1\11\0\0\0\0", 10},
    };
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        assert_int_equal(ask_raw(f, wrong[i]).code, ERR_INVALID_ARGUMENT);
    /* More than one request: the first is answered, the rest is nobody's. */
    AUTO_BUF struct buf b = BUF_INIT(4096);
    vault_request_append(&b, &(struct vault_request){VAULT_SET, STR("A"), STR("1")});
    vault_request_append(&b, &(struct vault_request){VAULT_SET, STR("B"), STR("2")});
    assert_int_equal(ask_raw(f, buf_str(&b)).code, ERR_OK);
    assert_int_equal(ask(f, VAULT_LIST, "", NULL).count, 1);
}

static void half_a_request_changes_nothing(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF struct buf b = BUF_INIT(4096);
    vault_request_append(&b, &(struct vault_request){VAULT_SET, STR("A"), STR("1")});
    for (size_t n = 0; n < buf_len(&b); n++) {
        int fd = dial(f);
        send_all(fd, str_n(buf_data(&b), n));
        turn(f);
        (void)fd_close(fd);
        turn(f);
    }
    assert_int_equal(ask(f, VAULT_LIST, "", NULL).count, 0);
}

/* As another user: 0 when it was refused for that reason and the name is not told to anybody. */
static int stranger(struct fixture *f)
{
    AUTO_BUF struct buf b = BUF_INIT(4096), all = BUF_INIT(VAULT_ANSWER_MAX);
    struct vault_answer a;
    if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
        return 1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&f->address, sizeof(f->address)) < 0)
        return 2;
    vault_request_append(&b, &(struct vault_request){VAULT_SET, STR("EVIL"), STR("1")});
    (void)send(fd, buf_data(&b), buf_len(&b), MSG_NOSIGNAL);
    int r = fd_read_all(fd, &all);
    if ((r < 0 && r != -ECONNRESET) || vault_answer_parse(buf_str(&all), &a) < 0)
        return 3;
    return a.code == ERR_PERMISSION_DENIED ? 0 : 4;
}

static void strangers_are_refused(void **state)
{
    struct fixture *f = *state;
    if (getuid() != 0) {
        print_message("only root can become somebody else\n");
        skip();
    }
    assert_int_equal(chmod(f->path, 0755), 0);
    assert_int_equal(chmod(f->address.sun_path, 0666), 0);
    pid_t pid = fork();
    if (pid == 0)
        _exit(stranger(f));
    int status, r;
    while ((r = waitpid(pid, &status, WNOHANG)) == 0) {
        (void)uv_run(&f->loop, UV_RUN_NOWAIT);
        (void)usleep(1000);
    }
    assert_int_equal(r, pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(ask(f, VAULT_LIST, "", NULL).count, 0);
}

/* Clients that say nothing are cut after their time; until then, who comes when all places are taken waits and is not
 * lost. */
static void idle_clients_are_cut_and_others_wait(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF struct buf b = BUF_INIT(4096);
    int idle[VAULT_SERVER_CLIENTS];
    char byte;
    for (size_t i = 0; i < ARRAY_SIZE(idle); i++)
        idle[i] = dial(f);
    turn(f);
    AUTO_CLOSE int late = dial(f);
    vault_request_append(&b, &(struct vault_request){VAULT_LIST, STR(""), STR("")});
    send_all(late, buf_str(&b));
    turn(f);
    assert_int_equal(recv(late, &byte, 1, MSG_DONTWAIT | MSG_PEEK), -1);
    assert_int_equal(errno, EAGAIN);
    read_answer(f, late);
    struct vault_answer a;
    assert_int_equal(vault_answer_parse(buf_str(&f->answer), &a), 0);
    assert_int_equal(a.code, ERR_OK);
    for (size_t i = 0; i < ARRAY_SIZE(idle); i++) {
        read_answer(f, idle[i]);
        assert_int_equal(buf_len(&f->answer), 0);
        (void)fd_close(idle[i]);
    }
}

static void it_can_be_freed_with_clients_connected(void **state)
{
    struct fixture *f = *state;
    AUTO_CLOSE int one = dial(f), two = dial(f);
    turn(f);
    vault_server_free(TAKE_PTR(f->server));
    read_answer(f, one);
    read_answer(f, two);
    assert_int_equal(buf_len(&f->answer), 0);
}

static void only_a_listening_socket_is_served(void **state)
{
    struct fixture *f = *state;
    struct vault_server *s;
    AUTO_CLOSE int deaf = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0),
                   tcp = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(serve(f, deaf, 0, &s), -1);
    assert_int_equal(serve(f, tcp, 0, &s), -1);
    assert_int_equal(serve(f, f->dir_fd, 0, &s), -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(secrets_are_set_listed_and_removed),
        TEST(what_the_vault_refuses_is_answered),
        TEST(the_largest_request_comes_through_in_pieces),
        TEST(nonsense_is_answered_and_cut),
        TEST(half_a_request_changes_nothing),
        TEST(strangers_are_refused),
        TEST(idle_clients_are_cut_and_others_wait),
        TEST(it_can_be_freed_with_clients_connected),
        TEST(only_a_listening_socket_is_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
