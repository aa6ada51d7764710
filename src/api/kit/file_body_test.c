/* SPDX-License-Identifier: Apache-2.0 */
/* Files as bodies: whole, at the pace of the slower side, and what becomes of them when their client leaves. */
#include "api/kit/file_body.h"
#include "api/kit/test_facade.h"
#include "base/fd.h"
#include "base/mem.h"

enum { BIG = 24 << 20 }; /* more than the sockets hold */

struct shelf {
    struct facade facade;
};

static void shelf_open(struct file_body *f, const struct file_entry *entry)
{
    (void)entry;
    (void)http_response_begin(f->call->req, 200, NULL, 0, -1);
}

static void shelf_get(struct call *c)
{
    struct file_body *f = file_body_new(c, NULL, shelf_open);
    file_body_begun(f,
                    file_read(c->sandbox, &c->actor, STR(""), c->args[1], 0, UINT64_MAX, FILE_BODY(f, &file_body_out)));
}

static void shelf_written(struct file_body *f, const struct file_entry *entry, const struct err *err)
{
    (void)entry;
    if (call_ok(f->call, err ? (f->call->err = *err, -1) : 0))
        call_empty(f->call, 204);
}

static void shelf_put(struct call *c)
{
    struct file_body *f = file_body_new(c, shelf_written, NULL);
    file_body_receive(f, file_write(c->sandbox, &c->actor, STR(""), c->args[1], NULL, 0, FILE_BODY(f, &file_body_in)));
}

static const struct route routes[] = {
    {HTTP_METHOD_GET, "/shelf/{}/{}", shelf_get, ROUTE_SANDBOX | ROUTE_OPEN, NULL},
    {HTTP_METHOD_PUT, "/shelf/{}/{}", shelf_put, ROUTE_SANDBOX | ROUTE_OPEN, NULL},
};

static struct sandbox *shelf_sandbox(struct call *c)
{
    access_as(c, "shelf", &PRINCIPAL_OWNER);
    return access_find_sandbox(c, c->args[0]);
}

static void shelf_error(struct buf *b, int status, enum err_code code, struct str message, const char *hint)
{
    (void)code, (void)hint;
    buf_printf(b, "%d %.*s", status, STR_ARG(message));
}

static const struct facade_ops ops = {
    .name = "shelf", .body_error = "", .find_sandbox = shelf_sandbox, .append_error = shelf_error};

static bool shelf_serve(void *facade, struct http_request *req)
{
    struct shelf *shelf = facade;
    return facade_serve(&shelf->facade, routes, ARRAY_SIZE(routes), req);
}

static void shelf_free(void *facade)
{
    struct shelf *shelf = facade;
    facade_fini(&shelf->facade);
    mem_free(shelf);
}

static int setup(void **state)
{
    struct test_facade *f = facade_open();
    struct shelf *shelf = mem_new(struct shelf);
    facade_init(&shelf->facade, &ops, f->w->core, NULL);
    facade_claim(f, &(struct claim){.prefix = "/shelf/", .serve = shelf_serve, .facade = shelf});
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    return facade_close(*state, shelf_free);
}

static struct buf *file_in(struct test_facade *f, struct sandbox *sb, const char *name)
{
    return map_get(&world_agent(f->w, sb)->files, str_of(name));
}

static void fill(struct buf *b, size_t n)
{
    for (uint32_t i = 0, v; i < n / 4; i++) {
        v = i * 2654435761U;
        (void)buf_append(b, &v, sizeof(v));
    }
}

static void files_go_in_and_out_whole(void **state)
{
    AUTO_BUF struct buf data = BUF_INIT(BIG), b = BUF_INIT(2 * BIG);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    AUTO_FREE char *path = mem_printf("/shelf/%s/a", sandbox_info(sb)->id);
    fill(&data, 3 << 20);
    assert_int_equal(facade_call(f, "PUT", path, "", buf_str(&data), NULL, &b), 204);
    assert_true(str_eq(buf_str(file_in(f, sb, "a")), buf_str(&data)));
    assert_int_equal(facade_call(f, "GET", path, "", STR_NULL, NULL, &b), 200);
    assert_true(str_eq(buf_str(&b), buf_str(&data)));
    assert_true(world_agent(f->w, sb)->most_outstanding <= WIRE_WINDOW);
    assert_int_equal(facade_call(f, "PUT", path, "", STR(""), NULL, &b), 204);
    assert_int_equal(buf_len(file_in(f, sb, "a")), 0);
    path[strlen(path) - 1] = 'b';
    assert_int_equal(facade_call(f, "GET", path, "", STR_NULL, NULL, &b), 404);
}

static int ask_for_big(struct test_facade *f, struct sandbox *sb)
{
    AUTO_FREE char *request =
        mem_printf("GET /shelf/%s/big HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", sandbox_info(sb)->id);
    struct buf *big = mem_new(struct buf);
    buf_init(big, BIG);
    fill(big, BIG);
    (void)map_put(&world_agent(f->w, sb)->files, STR("big"), big);
    int fd = facade_connect(f);
    facade_send(f, fd, str_of(request));
    world_turns(f->w, 2000);
    return fd;
}

static void who_does_not_read_stops_the_file(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(2 * BIG);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    int fd = ask_for_big(f, sb);
    const unsigned credits = world_agent(f->w, sb)->credits;
    world_turns(f->w, 500);
    assert_int_equal(world_agent(f->w, sb)->credits, credits);
    assert_true(facade_receive(f, fd, &b, "\r\n0\r\n\r\n"));
    assert_true(world_agent(f->w, sb)->credits > credits);
    assert_true(buf_len(&b) > BIG);
    fd_close(fd);
}

static void a_reader_may_leave(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    AUTO_FREE char *path = mem_printf("/shelf/%s/a", sandbox_info(sb)->id);
    fd_close(ask_for_big(f, sb));
    world_turns(f->w, 100);
    assert_int_equal(facade_call(f, "PUT", path, "", STR("x"), NULL, &b), 204);
}

static void what_a_writer_left_in_the_middle_is_no_file(void **state)
{
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    AUTO_FREE char *request = mem_printf(
        "PUT /shelf/%s/part HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n0123456789", sandbox_info(sb)->id);
    int fd = facade_connect(f);
    facade_send(f, fd, str_of(request));
    world_turns(f->w, 100);
    fd_close(fd);
    world_turns(f->w, 100);
    assert_null(file_in(f, sb, "part"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_go_in_and_out_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(who_does_not_read_stops_the_file, setup, teardown),
        cmocka_unit_test_setup_teardown(a_reader_may_leave, setup, teardown),
        cmocka_unit_test_setup_teardown(what_a_writer_left_in_the_middle_is_no_file, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
