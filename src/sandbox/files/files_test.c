/* SPDX-License-Identifier: Apache-2.0 */
/* Files, watches and dials: whole round trips, back-pressure both ways, leaving in the middle. */
#include "base/mem.h"
#include "sandbox/exec/stream.h"
#include "sandbox/test_world.h"

#include <setjmp.h>

#include <cmocka.h>

struct client {
    struct file_call *call;
    unsigned opens, ends, readies, events, entries, eofs;
    struct err err;
    uint64_t size;
    struct buf data;
    struct str to_send;
    bool slow, leaves, has_entry;
    char last[64];
};

static void note_end(struct client *c, const struct err *err)
{
    c->ends++;
    c->call = NULL;
    c->err = err ? *err : (struct err){0};
}

static void check_entry(const struct file_entry *e)
{
    assert_true(e->path.p[0] == '/');
    assert_true(str_eqc(e->owner, "user"));
    assert_int_equal(e->mode, 0100644);
    assert_int_equal(e->n_metadata, 1);
    assert_true(str_eqc(e->metadata[0].value, "value"));
    assert_int_equal(e->mtime_ns, 1234567890123456789u);
}

static void on_entry(void *ctx, const struct file_entry *entry, const struct err *err)
{
    struct client *c = ctx;
    note_end(c, err);
    c->has_entry = entry != NULL;
    if (entry)
        check_entry(entry);
}

static void on_each(void *ctx, const struct file_entry *entry)
{
    struct client *c = ctx;
    check_entry(entry);
    c->entries++;
    assert_int_equal(entry->size, c->entries);
    if (c->leaves)
        file_call_cancel(TAKE_PTR(c->call));
}

static void on_open(void *ctx, const struct file_entry *entry)
{
    struct client *c = ctx;
    c->opens++;
    c->size = entry->size;
}

static void on_data(void *ctx, struct str bytes)
{
    struct client *c = ctx;
    assert_int_equal(buf_append_str(&c->data, bytes), 0);
    if (c->leaves)
        file_call_cancel(TAKE_PTR(c->call));
    else if (!c->slow)
        file_read_ack(c->call, bytes.n);
}

static void on_read_end(void *ctx, const struct err *err)
{
    note_end(ctx, err);
}

static void on_ready(void *ctx)
{
    struct client *c = ctx;
    c->readies++;
    while (c->to_send.n) {
        size_t n = file_write_data(c->call, str_n(c->to_send.p, MIN(c->to_send.n, (size_t)100000)));
        c->to_send = str_sub(c->to_send, n);
        if (!n)
            return;
    }
    file_write_eof(c->call);
}

static const struct file_read_ops read_ops = {on_open, on_data, on_read_end};
static const struct file_write_ops write_ops = {on_ready, on_entry};

static void put(struct world *w, struct sandbox *sb, const char *path, size_t n)
{
    struct buf *file = mem_new(struct buf);
    *file = BUF_INIT(64 << 20);
    for (size_t i = 0; i < n; i++)
        (void)buf_append_char(file, (char)(i * 31 >> 3));
    (void)map_put(&world_agent(w, sb)->files, str_of(path), file);
}

static void fini(struct client *c)
{
    file_call_cancel(TAKE_PTR(c->call));
    buf_fini(&c->data);
    *c = (struct client){.data = BUF_INIT(64 << 20)};
}

static void unary(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client c = {0};
    struct err err;
    put(w, sb, "/home/user/a", 10);
    assert_int_equal(file_stat(sb, &test_actor, STR("user"), STR("/home/user/a"), on_entry, &c, &c.call, &err), 0);
    WAIT(w, c.ends == 1);
    assert_true(c.has_entry);
    assert_int_equal(file_stat(sb, &test_actor, STR("user"), STR("/missing"), on_entry, &c, &c.call, &err), 0);
    WAIT(w, c.ends == 2);
    assert_int_equal(c.err.code, ERR_NOT_FOUND);
    assert_int_equal(file_make_dir(sb, &test_actor, STR(""), STR("/home/user/d"), on_entry, &c, &c.call, &err), 0);
    WAIT(w, c.ends == 3);
    assert_true(c.has_entry);
    assert_int_equal(file_move(sb, &test_actor, STR(""), STR("/home/user/a"), STR("/b"), on_entry, &c, &c.call, &err),
                     0);
    WAIT(w, c.ends == 4);
    assert_int_equal(file_remove(sb, &test_actor, STR(""), STR("/b"), on_entry, &c, &c.call, &err), 0);
    WAIT(w, c.ends == 5);
    assert_false(c.has_entry);
    assert_int_equal(c.err.code, 0);
    /* Refused at once. */
    char path[5000];
    memset(path, 'x', sizeof(path));
    assert_int_equal(file_stat(sb, &test_actor, STR(""), str_n(path, 4096), on_entry, &c, &c.call, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    assert_int_equal(file_stat(sb, &test_actor, STR(""), STR("a\0b"), on_entry, &c, &c.call, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    assert_int_equal(file_stat(sb, &test_actor, STR(""), str_n(path, 4095), on_entry, &c, &c.call, &err), 0);
    file_call_cancel(TAKE_PTR(c.call));
    world_turns(w, 20);
    assert_int_equal(c.ends, 5);
    assert_int_equal(world_count_events(w, sandbox_info(sb)->id, EVENT_FILE_MOVE), 1);
    assert_int_equal(world_count_events(w, sandbox_info(sb)->id, EVENT_FILE_DONE), 3);
}

static void list(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client c = {0};
    struct err err;
    assert_int_equal(file_list(sb, &test_actor, STR(""), STR("/home/user"), 1, on_each, on_entry, &c, &c.call, &err),
                     0);
    WAIT(w, c.ends == 1);
    assert_int_equal(c.entries, 3); /* though frames cut the records anywhere */
    assert_int_equal(c.err.code, 0);
    c = (struct client){.leaves = true};
    assert_int_equal(file_list(sb, &test_actor, STR(""), STR("/home/user"), 1, on_each, on_entry, &c, &c.call, &err),
                     0);
    WAIT(w, c.entries == 1);
    world_turns(w, 20);
    assert_int_equal(c.entries, 1);
    assert_int_equal(c.ends, 0);
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_RUNNING);
}

static void read_it(void **state)
{
    enum { N = 5000000 };
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client c = {.data = BUF_INIT(64 << 20)};
    struct err err;
    put(w, sb, "/f", N);
    assert_int_equal(file_read(sb, &test_actor, STR(""), STR("/f"), 0, UINT64_MAX, &read_ops, &c, &c.call, &err), 0);
    WAIT(w, c.ends);
    assert_int_equal(c.err.code, 0);
    assert_int_equal(c.size, N);
    assert_int_equal(buf_len(&c.data), N);
    assert_memory_equal(buf_data(&c.data), buf_data((struct buf *)map_get(&world_agent(w, sb)->files, STR("/f"))), N);
    assert_true(world_agent(w, sb)->most_outstanding <= WIRE_WINDOW);
    fini(&c);

    c.slow = true;
    assert_int_equal(file_read(sb, &test_actor, STR(""), STR("/f"), 0, UINT64_MAX, &read_ops, &c, &c.call, &err), 0);
    WAIT(w, buf_len(&c.data) == WIRE_WINDOW);
    world_turns(w, 30);
    assert_int_equal(buf_len(&c.data), WIRE_WINDOW);
    file_read_ack(c.call, WIRE_WINDOW);
    WAIT(w, buf_len(&c.data) == 2 * WIRE_WINDOW);
    fini(&c); /* leaves */

    c.leaves = true;
    assert_int_equal(file_read(sb, &test_actor, STR(""), STR("/f"), 0, UINT64_MAX, &read_ops, &c, &c.call, &err), 0);
    WAIT(w, c.opens && !c.call);
    world_turns(w, 30);
    assert_int_equal(c.ends, 0);
    assert_int_equal(map_count(&sb->session->streams), 0);
    fini(&c);
}

static void write_it(void **state)
{
    enum { N = 5000000 };
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client c = {.data = BUF_INIT(64 << 20)};
    struct err err;
    char *bytes = mem_alloc(N);
    for (size_t i = 0; i < N; i++)
        bytes[i] = (char)(i * 7 >> 2);
    c.to_send = str_n(bytes, N);
    assert_int_equal(file_write(sb, &test_actor, STR(""), STR("/new"), NULL, 0, &write_ops, &c, &c.call, &err), 0);
    WAIT(w, c.ends);
    assert_int_equal(c.err.code, 0);
    assert_true(c.has_entry);
    struct buf *file = map_get(&world_agent(w, sb)->files, STR("/new"));
    assert_non_null(file);
    assert_int_equal(buf_len(file), N);
    assert_memory_equal(buf_data(file), bytes, N);
    assert_true(c.readies > 5);
    assert_string_equal(world_event_data(w, sandbox_info(sb)->id, EVENT_FILE_DONE), "{\"bytes\":5000000}");
    fini(&c);

    /* An agent that takes nothing: no more than the window is sent, and the outbox stays small. */
    c.to_send = str_n(bytes, N);
    assert_int_equal(file_write(sb, &test_actor, STR(""), STR("/new"), NULL, 0, &write_ops, &c, &c.call, &err), 0);
    WAIT(w, c.readies == 1);
    struct fake_agent *a = world_agent(w, sb);
    a->deaf = true;
    fake_flush(a);
    world_turns(w, 30);
    assert_true(c.to_send.n >= N - 3 * WIRE_WINDOW);
    assert_true(buf_len(&sb->session->outbox) <= WIRE_WINDOW + 64);
    a->deaf = false;
    fake_flush(a);
    WAIT(w, c.ends);
    assert_int_equal(buf_len((struct buf *)map_get(&a->files, STR("/new"))), N);
    fini(&c);
    mem_free(bytes);
}

/* ---- watches ---- */

static void on_start(void *ctx)
{
    ((struct client *)ctx)->opens++;
}

static void on_event(void *ctx, enum wire_watch_kind kind, struct str name, const struct file_entry *entry)
{
    struct client *c = ctx;
    assert_true((kind == WIRE_WATCH_CREATE) == (entry != NULL));
    c->events++;
    memcpy(c->last, name.p, name.n);
    c->last[name.n] = 0;
    if (!c->slow)
        file_watch_ack(c->call, 1);
}

static const struct file_watch_ops watch_ops = {on_start, on_event, on_read_end};

static void watch(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct fake_agent *a = world_agent(w, sb);
    struct client c = {0};
    struct err err;
    char name[16];
    assert_int_equal(
        file_watch(sb, &test_actor, STR(""), STR("/d"), WIRE_WATCH_RECURSIVE, &watch_ops, &c, &c.call, &err), 0);
    WAIT(w, c.opens);
    fake_watch_event(a, WIRE_WATCH_CREATE, "new");
    fake_watch_event(a, WIRE_WATCH_WRITE, "new");
    WAIT(w, c.events == 2);
    c.slow = true;
    for (unsigned i = 0; i < 3000; i++) {
        (void)snprintf(name, sizeof(name), "f%u", i);
        fake_watch_event(a, WIRE_WATCH_REMOVE, name);
    }
    WAIT(w, c.events == 2 + 1024);
    world_turns(w, 30);
    assert_int_equal(c.events, 2 + 1024); /* the others wait */
    file_watch_ack(c.call, 10);
    assert_int_equal(c.events, 2 + 1024);
    WAIT(w, c.events == 2 + 1034);
    assert_string_equal(c.last, "f1033");
    c.slow = false;
    file_watch_ack(c.call, 1024);
    WAIT(w, c.events == 2 + 3000);
    assert_string_equal(c.last, "f2999");
    file_call_cancel(TAKE_PTR(c.call));
    world_turns(w, 20);
    assert_int_equal(c.ends, 0);
    assert_int_equal(map_count(&sb->session->streams), 0);
}

/* ---- dials ---- */

static void on_dial_open(void *ctx)
{
    ((struct client *)ctx)->opens++;
}

static void on_dial_data(void *ctx, struct str bytes)
{
    struct client *c = ctx;
    assert_int_equal(buf_append_str(&c->data, bytes), 0);
    file_read_ack(c->call, bytes.n);
}

static void on_writable(void *ctx)
{
    struct client *c = ctx;
    c->readies++;
    while (c->to_send.n) {
        size_t n = file_write_data(c->call, c->to_send);
        c->to_send = str_sub(c->to_send, n);
        if (!n)
            return;
    }
    file_write_eof(c->call);
}

static void on_eof(void *ctx)
{
    ((struct client *)ctx)->eofs++;
}

static const struct dial_ops dial_ops = {on_dial_open, on_dial_data, on_writable, on_eof, on_read_end};

static void dial(void **state)
{
    enum { N = 2000000 };
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client c = {.data = BUF_INIT(64 << 20)};
    struct err err;
    assert_int_equal(dial_open(sb, &test_actor, 0, &dial_ops, &c, &c.call, &err), -1);
    assert_int_equal(dial_open(sb, &test_actor, 81, &dial_ops, &c, &c.call, &err), 0);
    WAIT(w, c.ends == 1);
    assert_int_equal(c.err.code, ERR_UNAVAILABLE);
    assert_string_equal(c.err.msg, "connection refused");
    char *bytes = mem_alloc(N);
    for (size_t i = 0; i < N; i++)
        bytes[i] = (char)(i * 7 >> 2);
    assert_int_equal(dial_open(sb, &test_actor, 80, &dial_ops, &c, &c.call, &err), 0);
    WAIT(w, c.opens);
    c.to_send = str_n(bytes, N);
    on_writable(&c);
    assert_true(c.to_send.n > 0);
    WAIT(w, c.ends == 2);
    assert_int_equal(c.err.code, 0);
    assert_int_equal(c.eofs, 1);
    assert_int_equal(buf_len(&c.data), N);
    assert_memory_equal(buf_data(&c.data), bytes, N);
    assert_int_equal(world_count_events(w, sandbox_info(sb)->id, EVENT_DIAL), 2);
    assert_int_equal(world_count_events(w, sandbox_info(sb)->id, EVENT_DIAL_FAILED), 1);
    assert_int_equal(world_count_events(w, sandbox_info(sb)->id, EVENT_FILE_DONE), 0);
    mem_free(bytes);
    fini(&c);
}

/* A stranger who connects again and again does not fill the log, nor push out of it what was there. */
static void many_dials(void **state)
{
    enum { N = 3000 };
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    const char *id = sandbox_info(sb)->id;
    struct client c = {0};
    struct err err;
    usec_t begin = clock_mono();
    for (unsigned i = 1; i <= N; i++) {
        assert_int_equal(dial_open(sb, &test_actor, 81, &dial_ops, &c, &c.call, &err), 0);
        WAIT(w, c.ends == i);
    }
    size_t most = ((clock_mono() - begin) / USEC_PER_SEC + 2) * 100;
    assert_in_range(world_count_events(w, id, EVENT_DIAL), 100, most);
    assert_int_equal(world_count_events(w, id, EVENT_DIAL_FAILED), world_count_events(w, id, EVENT_DIAL));
    WAIT(w, world_count_events(w, id, EVENT_LOG_SUPPRESSED) > 0);
    assert_non_null(strstr(world_event_data(w, id, EVENT_LOG_SUPPRESSED), "\"kind\":\"dial\""));
    sb->n_dials_told = EVENT_TOLD_CLOSELY; /* as if it had gone on */
    size_t before = world_count_events(w, id, EVENT_DIAL);
    for (unsigned i = N + 1; i <= N + 50; i++) {
        assert_int_equal(dial_open(sb, &test_actor, 81, &dial_ops, &c, &c.call, &err), 0);
        WAIT(w, c.ends == i);
    }
    assert_in_range(world_count_events(w, id, EVENT_DIAL), before, before + 10);
    fini(&c);
}

static void sandbox_ends(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client c[4] = {{.data = BUF_INIT(1 << 20)}, {.data = BUF_INIT(1 << 20)}, {0}, {0}};
    struct err err;
    put(w, sb, "/f", 1000000);
    c[0].slow = true;
    assert_int_equal(file_read(sb, &test_actor, STR(""), STR("/f"), 0, UINT64_MAX, &read_ops, &c[0], &c[0].call, &err),
                     0);
    assert_int_equal(dial_open(sb, &test_actor, 80, &dial_ops, &c[1], &c[1].call, &err), 0);
    assert_int_equal(file_watch(sb, &test_actor, STR(""), STR("/d"), 0, &watch_ops, &c[2], &c[2].call, &err), 0);
    WAIT(w, c[0].opens && c[1].opens && c[2].opens);
    assert_int_equal(file_stat(sb, &test_actor, STR(""), STR("/f"), on_entry, &c[3], &c[3].call, &err), 0);
    assert_int_equal(sandbox_kill(sb, &test_actor, NULL, NULL, &err), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(c[i].ends, 0);
    assert_int_equal(file_write_data(c[1].call, STR("x")), 0); /* harmless */
    WAIT(w, c[0].ends && c[1].ends && c[2].ends && c[3].ends);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(c[i].ends, 1);
        assert_int_equal(c[i].err.code, ERR_UNAVAILABLE);
        fini(&c[i]);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(unary), TEST(list), TEST(read_it),    TEST(write_it),
                                       TEST(watch), TEST(dial), TEST(many_dials), TEST(sandbox_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
