/* SPDX-License-Identifier: Apache-2.0 */
/* Who follows a log while the machine's clock is set back, and who looks for what is not in it. The log is a real one;
 * what the core and the other handlers do is stood in for here. */
#include "api/native/handlers.h"
#include "base/fd.h"
#include "base/mem.h"
#include "event/log.h"
#include "http/test_server.h"
#include "sandbox/action.h"
#include "sandbox/tenant.h"
#include "sandbox/volume/volumes.h"
#include "store/store.h"
#include "store/test_dir.h"

#include <stdio.h>
#include <sys/socket.h>

#define ID "i23456789abcdefghijkm"
#define OTHER "i23456789abcdefghijkn"
#define HIDDEN "i23456789abcdefghijkp"

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

void core_flush(struct core *core)
{
    struct err err;
    (void)core;
    assert_int_equal(store_commit(w.store, &err), 0);
}

const struct volume *volume_find(struct core *core, uint64_t view, struct str ref)
{
    (void)core, (void)view, (void)ref;
    return NULL;
}

const char *tenant_log(struct core *core, uint64_t number)
{
    (void)core, (void)number;
    return SERVICE_LOG_ID;
}

struct sandbox *sandbox_find(struct core *core, struct str id)
{
    (void)core;
    assert_true(str_eqc(id, ID));
    return (struct sandbox *)&w;
}

bool access_has_log(const struct call *c, const char *id)
{
    (void)c, (void)id;
    return true;
}

bool sandbox_is_hidden(struct core *core, struct str id)
{
    (void)core;
    return str_eqc(id, HIDDEN);
}

const struct sandbox_info *sandbox_info(const struct sandbox *sb)
{
    (void)sb;
    return &w.info;
}

json_t *native_error(const struct err *err, const char *hint)
{
    (void)hint;
    fail_msg("%s", err->msg);
    return NULL;
}

/* ---- the world ---- */

static void append_error(struct buf *b, int status, enum err_code code, struct str message, const char *hint)
{
    (void)b, (void)status, (void)code, (void)hint;
    fail_msg("%.*s", STR_ARG(message));
}

static const struct facade_ops ops = {.append_error = append_error};

static void (*cleanup)(struct call *c);

static void on_over(struct call *c)
{
    if (cleanup && c->state)
        cleanup(c);
    w.server.closes++;
    w.is_over = true;
}

static void on_request(struct http_request *req, void *ctx)
{
    struct call *c;
    (void)ctx;
    w.server.requests++;
    c = call_new(&w.native.facade, req, NULL);
    c->cleanup = on_over;
    if (str_eqc(http_path(req), "/ping")) {
        call_respond(c, 200, NULL, STR("pong"));
        return;
    }
    c->args[0] = STR(ID);
    if (str_eqc(http_path(req), "/events"))
        native_events_stream(c);
    else if (str_eqc(http_path(req), "/feed"))
        native_events_feed(c);
    else
        native_events_logs(c);
    if (c->cleanup != on_over)
        cleanup = c->cleanup;
    c->cleanup = on_over;
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
    w.native.facade.ops = &ops;
    list_init(&w.native.feeds);
    list_init(&w.native.verifying);
    slices_init(&w.native.facade.slices, &w.server.loop);
    timers_init(&w.native.facade.timers, &w.server.loop);
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
    slices_fini(&w.native.facade.slices);
    timers_fini(&w.native.facade.timers);
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

static void append(uint64_t n)
{
    struct err err;
    const struct event_draft draft = {
        .sandbox = ID, .kind = EVENT_SANDBOX_TIMEOUT, .source = EVENT_CLIENT, .grade = EVENT_OBSERVED_HOST};
    while (n--)
        assert_int_equal(event_append(w.native.config.events, &draft, NULL, &err), 0);
    assert_int_equal(store_commit(w.store, &err), 0);
}

static void ask(int client, const char *target)
{
    AUTO_FREE char *request = mem_printf("GET %s HTTP/1.1\r\nHost: x\r\n\r\n", target);
    assert_int_equal(send(client, request, strlen(request), 0), strlen(request));
}

/* Of a connection that is known to the server. */
static int greeted(void)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    int client = test_connect(&w.server);
    ask(client, "/ping");
    test_receive(&w.server, client, &b, STR("pong"));
    test_turn(&w.server);
    return client;
}

static void others_are_answered_while_one_looks_for_what_is_not_there(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(4096);
    char piece[4096];
    unsigned turns = 0, answered_after = 0;
    test_server_open_with(&w.server, NULL, false, on_request);
    w.native.facade.ops = &ops;
    list_init(&w.native.feeds);
    list_init(&w.native.verifying);
    slices_init(&w.native.facade.slices, &w.server.loop);
    timers_init(&w.native.facade.timers, &w.server.loop);
    append(40 * SLICE_STEPS);
    int walker = greeted(), other = greeted();
    ask(walker, "/events?kind=nothing");
    ask(other, "/ping");
    for (w.is_over = false; w.server.closes < 4; turns++) {
        (void)uv_run(&w.server.loop, UV_RUN_ONCE);
        if (!answered_after && recv(other, piece, sizeof(piece), 0) > 0)
            answered_after = turns + 1;
    }
    assert_true(turns >= 40);
    assert_in_range(answered_after, 1, turns - 30);
    test_receive(&w.server, walker, &b, STR("\r\n0\r\n\r\n")); /* no event, and a clean end */
    assert_null(memmem(buf_data(&b), buf_len(&b), "seq", 3));

    (void)fd_close(walker);
    (void)fd_close(other);
    slices_fini(&w.native.facade.slices);
    timers_fini(&w.native.facade.timers);
    test_server_close(&w.server);
}

static void who_leaves_in_the_midst_of_it_is_forgotten(void **state)
{
    (void)state;
    test_server_open_with(&w.server, NULL, false, on_request);
    w.native.facade.ops = &ops;
    list_init(&w.native.feeds);
    list_init(&w.native.verifying);
    slices_init(&w.native.facade.slices, &w.server.loop);
    timers_init(&w.native.facade.timers, &w.server.loop);
    append(40 * SLICE_STEPS);
    int client = greeted();
    ask(client, "/events?kind=nothing");
    for (int turns = 0; list_empty(&w.native.facade.slices.waiting); turns++) {
        assert_true(turns < 30);
        (void)uv_run(&w.server.loop, UV_RUN_ONCE);
    }
    (void)fd_close(client);
    for (int turns = 0; w.server.closes < 2; turns++) {
        assert_true(turns < 30);
        (void)uv_run(&w.server.loop, UV_RUN_ONCE);
    }
    assert_true(list_empty(&w.native.facade.slices.waiting));
    slices_fini(&w.native.facade.slices);
    timers_fini(&w.native.facade.timers);
    test_server_close(&w.server);
}

/* What was found, across the slices: all of it, in order. */
static void nothing_is_lost_between_two_slices(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(16 << 20);
    uint64_t next = 1;
    test_server_open_with(&w.server, NULL, false, on_request);
    w.native.facade.ops = &ops;
    list_init(&w.native.feeds);
    list_init(&w.native.verifying);
    slices_init(&w.native.facade.slices, &w.server.loop);
    timers_init(&w.native.facade.timers, &w.server.loop);
    append(5 * SLICE_STEPS + 1);
    int client = greeted();
    ask(client, "/events?kind=sandbox.");
    test_receive(&w.server, client, &b, STR("\r\n0\r\n\r\n"));
    struct str rest = buf_str(&b), line;
    while (str_split(&rest, '\n', &line)) {
        AUTO_FREE char *seq = mem_printf("\"seq\":%llu,", (unsigned long long)next);
        next += str_starts(line, STR("{")) && memmem(line.p, line.n, seq, strlen(seq)) != NULL;
    }
    assert_int_equal(next, 5 * SLICE_STEPS + 2);
    (void)fd_close(client);
    slices_fini(&w.native.facade.slices);
    timers_fini(&w.native.facade.timers);
    test_server_close(&w.server);
}

/* ---- the feed ---- */

/* The cursor that a line begins with; 0: it does not. */
static uint64_t cursor_of(struct str line)
{
    const struct str head = STR("{\"cursor\":");
    struct str digits;
    uint64_t cursor = 0;
    if (str_starts(line, head)) {
        line = str_sub(line, head.n);
        assert_true(str_split(&line, ',', &digits));
        assert_int_equal(str_to_u64(digits, &cursor), 0);
    }
    return cursor;
}

static void open_world(void)
{
    test_server_open_with(&w.server, NULL, false, on_request);
    w.native.facade.ops = &ops;
    list_init(&w.native.feeds);
    list_init(&w.native.verifying);
    slices_init(&w.native.facade.slices, &w.server.loop);
    timers_init(&w.native.facade.timers, &w.server.loop);
}

static void close_world(void)
{
    slices_fini(&w.native.facade.slices);
    timers_fini(&w.native.facade.timers);
    test_server_close(&w.server);
}

static void append_to(const char *id, enum event_kind kind)
{
    struct err err;
    const struct event_draft draft = {
        .sandbox = id, .kind = kind, .source = EVENT_CLIENT, .grade = EVENT_OBSERVED_HOST};
    assert_int_equal(event_append(w.native.config.events, &draft, NULL, &err), 0);
}

static void commit_all(void)
{
    struct err err;
    assert_int_equal(store_commit(w.store, &err), 0);
}

/* The cursors that came, in order: "1 2 4 ". */
static void expect_cursors(int client, const char *headers, const char *target, const char *until, const char *text)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), got = BUF_INIT(4096);
    AUTO_FREE char *request = mem_printf("GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n", target, headers);
    assert_int_equal(send(client, request, strlen(request), 0), strlen(request));
    test_receive(&w.server, client, &b, str_of(until));
    struct str rest = buf_str(&b), line;
    while (str_split(&rest, '\n', &line)) {
        if (cursor_of(line))
            buf_printf(&got, "%llu ", (unsigned long long)cursor_of(line));
        else if (str_starts(line, STR("id: ")))
            buf_printf(&got, "%.*s ", STR_ARG(str_sub(line, 4)));
        else if (memmem(line.p, line.n, "{\"gap\"", 6))
            buf_append_cstr(&got, "gap ");
    }
    buf_append_char(&got, 0);
    assert_string_equal(buf_data(&got), text);
}

static void the_feed_is_of_all_logs(void **state)
{
    (void)state;
    static const char end[] = "\r\n0\r\n\r\n";
    struct err err;
    open_world();
    append_to(ID, EVENT_SANDBOX_CREATE);
    append_to(HIDDEN, EVENT_SANDBOX_CREATE);
    append_to(OTHER, EVENT_SANDBOX_CREATE);
    append_to(ID, EVENT_SANDBOX_ENDED);
    append_to(OTHER, EVENT_EXEC_START);
    commit_all();
    int client = greeted();
    expect_cursors(client, "", "/feed", end, "1 3 4 5 ");
    expect_cursors(client, "", "/feed?hidden", end, "1 2 3 4 5 ");
    expect_cursors(client, "", "/feed?from=4", end, "4 5 ");
    expect_cursors(client, "", "/feed?last=1", end, "5 ");
    expect_cursors(client, "", "/feed?last=100", end, "1 3 4 5 ");
    expect_cursors(client, "", "/feed?last=0", end, "");
    expect_cursors(client, "", "/feed?kind=exec.,sandbox.ended", end, "4 5 ");
    expect_cursors(client, "Accept: text/event-stream\r\n", "/feed", end, "1 3 4 5 ");
    expect_cursors(client, "Accept: text/event-stream\r\nLast-Event-ID: 3\r\n", "/feed?from=1", end, "4 5 ");
    expect_cursors(client, "Last-Event-ID: 5\r\n", "/feed", end, "");
    while (event_erase(w.native.config.events, OTHER, &err) == 1)
        commit_all();
    commit_all();
    expect_cursors(client, "", "/feed", end, "1 gap 4 gap ");
    /* A sandbox that ends does not end the feed. */
    expect_cursors(client, "", "/feed?follow&last=2", "gap", "4 gap ");
    (void)fd_close(client);
    for (int turns = 0; w.server.closes < 12; turns++) {
        assert_true(turns < 1000);
        (void)uv_run(&w.server.loop, UV_RUN_ONCE);
    }
    close_world();
}

static void who_asks_has_what_was_observed_until_then(void **state)
{
    (void)state;
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    open_world();
    int client = greeted();
    append_to(ID, EVENT_LIMIT_OOM);
    append_to(ID, EVENT_SANDBOX_ENDED);
    w.info.ended = 1;
    ask(client, "/events?follow");
    test_receive(&w.server, client, &b, STR("\r\n0\r\n\r\n"));
    assert_non_null(memmem(buf_data(&b), buf_len(&b), "limit.oom", 9));
    w.info.ended = 0;
    (void)fd_close(client);
    close_world();
}

/* Many follow, one of them does not read: each of the others has everything once, and he has what is queued for him and
 * no more. */
static void a_slow_follower_delays_nobody(void **state)
{
    enum { FOLLOWERS = 20, BATCHES = 200, EACH = 50 };
    (void)state;
    static struct {
        int fd;
        struct buf got;
        uint64_t next;
    } followers[FOLLOWERS];
    char piece[65536];
    open_world();
    int lazy = greeted();
    ask(lazy, "/feed?follow");
    for (int i = 0; i < FOLLOWERS; i++) {
        followers[i].fd = greeted();
        buf_init(&followers[i].got, 1 << 20);
        followers[i].next = 1;
        ask(followers[i].fd, "/feed?follow");
    }
    test_turn(&w.server);
    for (int batch = 0, done = 0; done < FOLLOWERS; batch++) {
        for (int i = 0; batch < BATCHES && i < EACH; i++)
            append_to(i % 2 ? ID : OTHER, EVENT_SANDBOX_TIMEOUT);
        commit_all();
        (void)uv_run(&w.server.loop, UV_RUN_NOWAIT);
        done = 0;
        for (int i = 0; i < FOLLOWERS; i++) {
            struct str line, rest;
            for (ssize_t n; (n = recv(followers[i].fd, piece, sizeof(piece), 0)) > 0;)
                assert_int_equal(buf_append(&followers[i].got, piece, (size_t)n), 0);
            rest = buf_str(&followers[i].got);
            while (str_find_char(rest, '\n') >= 0 && str_split(&rest, '\n', &line)) {
                if (cursor_of(line))
                    assert_int_equal(cursor_of(line), followers[i].next++);
            }
            buf_consume(&followers[i].got, buf_len(&followers[i].got) - rest.n);
            done += followers[i].next == BATCHES * EACH + 1;
        }
        assert_true(batch < 200000);
    }
    for (int i = 0; i < FOLLOWERS; i++) {
        (void)fd_close(followers[i].fd);
        buf_fini(&followers[i].got);
    }
    /* He reads at last, and nothing is missing. */
    AUTO_BUF struct buf all = BUF_INIT(16 << 20);
    test_receive(&w.server, lazy, &all, STR("{\"cursor\":10000,"));
    (void)fd_close(lazy);
    for (int turns = 0; w.server.closes < 2 * (FOLLOWERS + 1); turns++) {
        assert_true(turns < 10000);
        (void)uv_run(&w.server.loop, UV_RUN_ONCE);
    }
    uint64_t next = 1;
    struct str rest = buf_str(&all), line;
    while (str_split(&rest, '\n', &line)) {
        if (cursor_of(line))
            assert_int_equal(cursor_of(line), next++);
    }
    assert_int_equal(next, 10001);
    close_world();
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
        cmocka_unit_test_setup_teardown(others_are_answered_while_one_looks_for_what_is_not_there, setup, teardown),
        cmocka_unit_test_setup_teardown(who_leaves_in_the_midst_of_it_is_forgotten, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_is_lost_between_two_slices, setup, teardown),
        cmocka_unit_test_setup_teardown(the_feed_is_of_all_logs, setup, teardown),
        cmocka_unit_test_setup_teardown(who_asks_has_what_was_observed_until_then, setup, teardown),
        cmocka_unit_test_setup_teardown(a_slow_follower_delays_nobody, setup, teardown),
    };
    return cmocka_run_group_tests_name("native_events", tests, NULL, NULL);
}
