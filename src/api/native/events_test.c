/* SPDX-License-Identifier: Apache-2.0 */
/* Who follows a log while the machine's clock is set back. The log is a real one; what the core and the other handlers do is stood in for here. */
#include "api/native/call.h"
#include "base/fd.h"
#include "base/mem.h"
#include "event/log.h"
#include "http/test_server.h"
#include "sandbox/volumes.h"
#include "store/store.h"
#include "store/test_dir.h"

#include <stdio.h>
#include <sys/socket.h>

#define ID "i23456789abcdefghijkm"

enum { BEFORE = 3000, ALL = 3004 }; /* more than a client's queue holds */

static struct world {
    struct test_server server;
    struct test_dir *dir;
    struct store *store;
    struct native native;
    struct sandbox_info info;
    uint64_t made;
    struct buf got;
    bool is_over;
} w;

uv_loop_t *core_loop(const struct core *core)
{
    (void)core;
    return &w.server.loop;
}

const struct volume *volume_find(struct core *core, struct str ref)
{
    (void)core, (void)ref;
    return NULL;
}

struct sandbox *sandbox_find(struct core *core, struct str id)
{
    (void)core;
    assert_true(str_eqc(id, ID));
    return (struct sandbox *)&w;
}

const struct sandbox_info *sandbox_info(const struct sandbox *sb)
{
    (void)sb;
    return &w.info;
}

bool native_query(struct call *c, const char *name, struct str *ret_value)
{
    return http_query_get(c->req, name, ret_value) == 1;
}

int native_query_u64(struct call *c, const char *name, uint64_t *value)
{
    struct str text;
    *value = 0;
    return http_query_get(c->req, name, &text) == 1 ? str_to_u64(text, value) : 0;
}

int native_query_bool(struct call *c, const char *name, bool *value)
{
    struct str text;
    *value = http_query_get(c->req, name, &text) == 1;
    return 0;
}

bool native_is_full(const struct call *c)
{
    return http_response_queued(c->req) >= HTTP_LIMITS_DEFAULT.write_high;
}

void native_refuse(struct call *c, enum err_code code, const char *fmt, ...)
{
    (void)c, (void)code;
    fail_msg("%s", fmt);
}

void native_error(struct call *c, const struct err *err)
{
    (void)c;
    fail_msg("%s", err->msg);
}

void native_error_json(struct buf *b, const struct err *err)
{
    (void)b;
    fail_msg("%s", err->msg);
}

void native_json(struct call *c, int status, struct buf *body)
{
    (void)c, (void)body;
    fail_msg("%d", status);
}

struct wait *native_wait_new(struct call *c)
{
    (void)c;
    fail();
    return NULL;
}

struct call *native_wait_take(struct wait *wait)
{
    (void)wait;
    fail();
    return NULL;
}

/* ---- the world ---- */

static void on_close(struct http_request *req, void *ctx)
{
    struct call *c = ctx;
    (void)req;
    if (c->closed)
        c->closed(c);
    w.server.closes++;
    w.is_over = true;
}

static void on_request(struct http_request *req, void *ctx)
{
    struct call *c = arena_alloc(http_arena(req), sizeof(*c));
    (void)ctx;
    w.server.requests++;
    c->native = &w.native;
    c->req = req;
    c->id = STR(ID);
    http_on_close(req, on_close, c);
    native_events_logs(c);
}

static void add(enum event_kind kind, usec_t at)
{
    struct err err;
    AUTO_FREE char *data = mem_printf("{\"n\":%llu}", (unsigned long long)++w.made);
    const struct event_draft draft = {.sandbox = ID,
                                      .kind = kind,
                                      .source = EVENT_CLIENT,
                                      .grade = EVENT_OBSERVED_HOST,
                                      .data = str_of(data),
                                      .time = at};
    assert_int_equal(event_append(w.native.config.events, &draft, NULL, &err), 0);
    assert_int_equal(store_commit(w.store, &err), 0);
}

static void on_tick(uv_timer_t *timer)
{
    (void)timer;
}

static void read_more(int client)
{
    char piece[16384];
    (void)uv_run(&w.server.loop, UV_RUN_ONCE);
    for (ssize_t n; (n = recv(client, piece, sizeof(piece), 0)) > 0;)
        assert_int_equal(buf_append(&w.got, piece, (size_t)n), 0);
}

static bool has(uint64_t n)
{
    AUTO_FREE char *text = mem_printf("{\\\"n\\\":%llu}", (unsigned long long)n);
    return buf_len(&w.got) && memmem(buf_data(&w.got), buf_len(&w.got), text, strlen(text)) != NULL;
}

#define TURN_UNTIL(condition)                                                                                          \
    for (int turns_ = 0; !(condition); turns_++) {                                                                     \
        assert_true(turns_ < 20000);                                                                                   \
        read_more(client);                                                                                             \
    }

static void check_lines(uint64_t first)
{
    struct str rest = buf_str(&w.got), line;
    uint64_t n = first;
    while (str_split(&rest, '\n', &line)) {
        AUTO_FREE char *head = mem_printf("{\"seq\":%llu,", (unsigned long long)n);
        AUTO_FREE char *data = mem_printf("{\\\"n\\\":%llu}\"}", (unsigned long long)n);
        if (!str_starts(line, STR("{")))
            continue; /* the head of the answer, and the lengths of its chunks */
        assert_true(str_starts(line, str_of(head)));
        assert_true(str_ends(line, str_of(data)));
        n++;
    }
    assert_int_equal(n, ALL + 1);
}

static void lines_of(const char *query, uint64_t first)
{
    AUTO_FREE char *request = mem_printf("GET /?%s HTTP/1.1\r\nHost: x\r\n\r\n", query);
    uv_timer_t tick;
    usec_t now = clock_real();
    test_server_open_with(&w.server, NULL, false, on_request);
    assert_int_equal(uv_timer_init(&w.server.loop, &tick), 0);
    assert_int_equal(uv_timer_start(&tick, on_tick, 1, 1), 0);
    int client = test_connect(&w.server);
    buf_init(&w.got, 4 << 20);
    w.is_over = false;
    w.made = 0;

    /* Before there is a client: one time for several, and an hour back in the midst of them. */
    for (int i = 0; i < BEFORE; i++)
        add(EVENT_SANDBOX_TIMEOUT, i < 10 ? now : now - 3600 * USEC_PER_SEC);
    TURN_UNTIL(send(client, request, strlen(request), 0) == (ssize_t)strlen(request));
    TURN_UNTIL(has(BEFORE));
    /* And under its eyes: back, forth, back. */
    add(EVENT_SANDBOX_TIMEOUT, now - 7200 * USEC_PER_SEC);
    TURN_UNTIL(has(BEFORE + 1));
    add(EVENT_SANDBOX_TIMEOUT, now + 60 * USEC_PER_SEC);
    add(EVENT_SANDBOX_TIMEOUT, now);
    TURN_UNTIL(has(BEFORE + 3));
    assert_false(w.is_over);
    add(EVENT_SANDBOX_ENDED, now - USEC_PER_SEC);
    TURN_UNTIL(w.is_over);
    TURN_UNTIL(has(ALL));
    check_lines(first);

    uv_close((uv_handle_t *)&tick, NULL);
    test_server_close(&w.server);
    (void)fd_close(client);
    buf_fini(&w.got);
}

static void each_line_comes_once_whatever_the_clock_does(void **state)
{
    (void)state;
    lines_of("follow", 1);
}

static void lines_go_on_where_a_client_was(void **state)
{
    (void)state;
    lines_of("follow&from=2999", 2999);
}

static int setup(void **state)
{
    struct err err;
    w = (struct world){0};
    assert_int_equal(test_dir_setup(state), 0);
    w.dir = *state;
    assert_int_equal(store_open(w.dir->db, &w.store, &err), 0);
    assert_int_equal(event_log_open(w.store, &w.native.config.events, &err), 0);
    return 0;
}

static int teardown(void **state)
{
    event_log_close(w.native.config.events);
    store_close(w.store);
    return test_dir_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(each_line_comes_once_whatever_the_clock_does, setup, teardown),
        cmocka_unit_test_setup_teardown(lines_go_on_where_a_client_was, setup, teardown),
    };
    return cmocka_run_group_tests_name("native_events", tests, NULL, NULL);
}
