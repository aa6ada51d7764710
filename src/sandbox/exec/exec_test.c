/* SPDX-License-Identifier: Apache-2.0 */
/* Processes: starting, following, feeding, leaving, deadlines, and what the record keeps of them. */
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/exec/process.h"
#include "sandbox/exec/stream.h"
#include "sandbox/test_world.h"

#include <setjmp.h>
#include <signal.h>

#include <cmocka.h>

struct client {
    struct follow *follow;
    uint32_t pid;
    struct buf output;
    uint8_t channel;
    unsigned starts, exits, errors;
    struct exec_exit exit;
    struct err err;
    bool slow, leaves; /* does not acknowledge; closes at the first output */
    size_t full_at;    /* of bounded_ops: bytes that it takes */
};

static void on_start(void *ctx, uint32_t pid)
{
    struct client *c = ctx;
    c->starts++;
    c->pid = pid;
}

static void on_output(void *ctx, enum wire_channel channel, struct str bytes)
{
    struct client *c = ctx;
    c->channel = (uint8_t)channel;
    assert_int_equal(buf_append_str(&c->output, bytes), 0);
    if (c->leaves)
        exec_close(TAKE_PTR(c->follow));
    else if (!c->slow)
        exec_ack(c->follow, bytes.n);
}

static void on_end(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    struct client *c = ctx;
    assert_null(c->follow);
    assert_true(!exit == !!err);
    c->exits += exit != NULL;
    c->errors += err != NULL;
    if (exit)
        c->exit = *exit;
    else
        c->err = *err;
}

static const struct exec_ops ops = {on_start, on_output, on_end, NULL};

static void run(struct sandbox *sb, struct client *c, const char *cmd, const char *arg, const struct exec_spec *more)
{
    struct err err;
    struct str args[] = {str_of(arg)};
    struct exec_spec spec = more ? *more : (struct exec_spec){0};
    spec.cmd = str_of(cmd);
    spec.args = args;
    spec.n_args = arg ? 1 : 0;
    c->output.max = 64 << 20;
    if (exec_start(sb, &test_actor, &spec, &ops, c, &c->follow, &err) < 0)
        fail_msg("exec: %s", err.msg);
    assert_int_equal(c->starts + c->exits + c->errors, 0);
}

static void attach(struct sandbox *sb, struct client *c, uint32_t pid, uint64_t timeout_ms)
{
    struct err err;
    c->output.max = 64 << 20;
    if (exec_attach(sb, &test_actor, &(struct exec_select){.pid = pid}, timeout_ms, &ops, c, &c->follow, &err) < 0)
        fail_msg("attach: %s", err.msg);
}

static void fini(struct client *c)
{
    exec_close(TAKE_PTR(c->follow));
    buf_fini(&c->output);
    *c = (struct client){0};
}

static const char *id_of(const struct sandbox *sb)
{
    return sandbox_info(sb)->id;
}

static void assert_output(const struct client *c, size_t from, size_t n)
{
    assert_int_equal(buf_len(&c->output), n);
    for (size_t i = 0; i < n; i++)
        if (buf_data(&c->output)[i] != (char)('a' + (from + i) % 23))
            fail_msg("byte %zu is wrong", i);
}

static void echo(void **state)
{
    struct world *w = *state;
    struct pair box_envs[] = {{STR("A"), STR("1")}, {STR("B"), STR("2")}}, envs[] = {{STR("B"), STR("secret-value")}};
    struct sandbox_spec box = {.timeout_ms = 60000, .envs = box_envs, .n_envs = 2};
    struct sandbox *sb = world_sandbox(w, &box);
    struct client c = {0};
    run(sb, &c, "echo", "hi there",
        &(struct exec_spec){.envs = envs, .n_envs = 1, .tag = STR("t"), .cwd = STR("/tmp")});
    WAIT(w, c.exits);
    assert_int_equal(c.starts, 1);
    assert_true(str_eqc(buf_str(&c.output), "hi there\n"));
    assert_int_equal(c.channel, WIRE_STDOUT);
    assert_false(c.exit.signaled);
    assert_int_equal(c.exit.code, 0);
    assert_int_equal(c.exit.output_bytes, 9);
    assert_string_equal(world_agent(w, sb)->last_env, "LANG=C.UTF-8;A=1;B=secret-value;");
    const char *data = world_event_data(w, id_of(sb), EVENT_EXEC_START);
    assert_non_null(
        strstr(data, "\"cmd\":\"echo\",\"args\":[\"hi there\"],\"envs\":[\"B\"],\"cwd\":\"/tmp\",\"tag\":\"t\""));
    assert_null(strstr(data, "secret"));
    assert_string_equal(world_event_data(w, id_of(sb), EVENT_EXEC_OUTPUT),
                        "{\"pid\":101,\"output\":[{\"stdout\":\"hi there\\n\"}]}");
    data = world_event_data(w, id_of(sb), EVENT_EXEC_EXIT);
    assert_non_null(strstr(data, "{\"pid\":101,\"exit_code\":0,\"output_bytes\":9,"));
    assert_null(strstr(data, "tail"));
    assert_int_equal(world_count_events(w, id_of(sb), EVENT_EXEC_STARTED), 1);
    fini(&c);
}

static void fails_to_start(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client c = {0};
    struct err err;
    run(sb, &c, "fail", NULL, NULL);
    WAIT(w, c.errors);
    assert_int_equal(c.err.code, ERR_INVALID_ARGUMENT);
    assert_string_equal(c.err.msg, "cwd '/nowhere' does not exist");
    assert_int_equal(world_count_events(w, id_of(sb), EVENT_EXEC_FAILED), 1);
    assert_string_equal(world_event_grade(w, id_of(sb), EVENT_EXEC_FAILED), "claimed");
    fini(&c);
    struct exec_spec spec = {.cmd = STR("")};
    assert_int_equal(exec_start(sb, &test_actor, &spec, &ops, &c, &c.follow, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    spec.cmd = STR("a\0b");
    assert_int_equal(exec_start(sb, &test_actor, &spec, &ops, &c, &c.follow, &err), -1);
    char *big = mem_alloc(WIRE_PAYLOAD_MAX);
    memset(big, 'x', WIRE_PAYLOAD_MAX);
    struct str arg = str_n(big, WIRE_PAYLOAD_MAX);
    spec = (struct exec_spec){.cmd = STR("echo"), .args = &arg, .n_args = 1};
    assert_int_equal(exec_start(sb, &test_actor, &spec, &ops, &c, &c.follow, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    assert_string_equal(world_event_grade(w, id_of(sb), EVENT_EXEC_FAILED),
                        "observed-host"); /* the agent never heard of it */
    mem_free(big);
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_RUNNING);
}

static void long_output(void **state)
{
    enum { N = 3 << 20 };
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client c = {0};
    struct err err;
    run(sb, &c, "count", "3145728", NULL);
    WAIT(w, c.exits);
    assert_output(&c, 0, N);
    assert_int_equal(c.exit.code, 3);
    assert_true(world_agent(w, sb)->most_outstanding <= WIRE_WINDOW);
    const char *data = world_event_data(w, id_of(sb), EVENT_EXEC_EXIT);
    assert_non_null(strstr(data, "\"output_bytes\":3145728"));
    assert_non_null(strstr(data, "\"tail\":\""));
    assert_int_equal(world_count_events(w, id_of(sb), EVENT_EXEC_OUTPUT), 1);
    /* All of it is kept, and its event says under which name. */
    struct exec_kept kept;
    AUTO_BUF struct buf stored = BUF_INIT(4 << 20);
    data = world_event_data(w, id_of(sb), EVENT_EXEC_EXIT);
    const char *named = strstr(data, "\"artefacts\":[{\"channel\":\"stdout\",\"sha256\":\"");
    assert_non_null(named);
    assert_non_null(strstr(data, "\"bytes\":3145728}],"));
    struct str digest = str_n(strstr(named, "sha256") + 9, 64);
    assert_int_equal(exec_kept_artefact(w->core, id_of(sb), digest, &kept, &err), 0);
    assert_int_equal(kept.bytes, 3145728);
    assert_int_equal(kept.dropped, 0);
    assert_int_equal(fd_read_all(kept.fd, &stored), 0);
    (void)fd_close(kept.fd);
    assert_int_equal(buf_len(&stored), 3145728);
    assert_memory_equal(buf_data(&stored), buf_data(&c.output), MIN(buf_len(&c.output), buf_len(&stored)));
    assert_int_equal(exec_kept_output(w->core, id_of(sb), 3, WIRE_STDOUT, &kept, &err), 0);
    (void)fd_close(kept.fd);
    assert_int_equal(exec_kept_artefact(w->core, "iaaaaaaaaaaaaaaaaaaaa", digest, &kept, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    fini(&c);
}

static void binary_output(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client c = {0};
    run(sb, &c, "stderr", "\xff\xfe not text \x80", NULL);
    WAIT(w, c.exits);
    assert_int_equal(c.channel, WIRE_STDERR);
    assert_non_null(strstr(world_event_data(w, id_of(sb), EVENT_EXEC_OUTPUT), "stderr_base64"));
    fini(&c);
}

static void slow_client(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client c = {.slow = true}, other = {0};
    run(sb, &c, "spew", "2097152", NULL);
    WAIT(w, buf_len(&c.output) == WIRE_WINDOW);
    run(sb, &other, "echo", "not blocked", NULL);
    WAIT(w, other.exits);
    world_turns(w, 30);
    assert_int_equal(buf_len(&c.output), WIRE_WINDOW); /* and not one byte more */
    exec_ack(c.follow, 1000);
    WAIT(w, buf_len(&c.output) > WIRE_WINDOW);
    world_turns(w, 30);
    assert_int_equal(buf_len(&c.output), WIRE_WINDOW + 1000);
    assert_int_equal(world_agent(w, sb)->processes->next->seen, 1000);
    exec_ack(c.follow, 1 << 30); /* more than it got: only that */
    c.slow = false;
    WAIT(w, buf_len(&c.output) == 2097152);
    assert_output(&c, 0, 2097152);
    fini(&c);
    fini(&other);
}

enum { PIECE = 10000 };

static size_t room(void *ctx)
{
    const struct client *c = ctx;
    return buf_len(&c->output) < c->full_at ? PIECE : 0;
}

static const struct exec_ops bounded_ops = {on_start, on_output, on_end, room};

/* What comes while it is full, and the end, wait for it, in order. */
static void full_client(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client c = {.slow = true, .full_at = 50000, .output = BUF_INIT(1 << 20)};
    const struct str args[] = {STR("200000")};
    const struct exec_spec spec = {.cmd = STR("count"), .args = args, .n_args = 1};
    struct err err;
    assert_int_equal(exec_start(sb, &test_actor, &spec, &bounded_ops, &c, &c.follow, &err), 0);
    WAIT(w, buf_len(&c.output) >= c.full_at);
    WAIT(w, world_agent(w, sb)->processes->sent == 200000);
    world_turns(w, 30);
    assert_true(buf_len(&c.output) < c.full_at + PIECE);
    assert_int_equal(c.exits, 0);
    while (!c.exits) {
        size_t had = buf_len(&c.output);
        c.full_at = MIN(had + 50000, 200001);
        exec_ack(c.follow, 0);
        WAIT(w, c.exits || buf_len(&c.output) >= c.full_at);
        world_turns(w, 30);
        assert_true(buf_len(&c.output) < c.full_at + PIECE);
    }
    assert_output(&c, 0, 200000);
    fini(&c);

    struct client gone = {.slow = true, .full_at = 1, .output = BUF_INIT(1 << 20)};
    assert_int_equal(exec_start(sb, &test_actor, &spec, &bounded_ops, &gone, &gone.follow, &err), 0);
    WAIT(w, buf_len(&gone.output));
    world_turns(w, 30);
    exec_close(TAKE_PTR(gone.follow)); /* with what is held, and the end */
    fini(&gone);
}

static void client_leaves(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client first = {.slow = true}, second = {0}, third = {0};
    run(sb, &first, "spew", "1000000", NULL);
    WAIT(w, buf_len(&first.output) == WIRE_WINDOW);
    uint32_t pid = first.pid;
    exec_ack(first.follow, 100000);
    exec_close(TAKE_PTR(first.follow)); /* the process goes on, to its end */
    WAIT(w, world_agent(w, sb)->processes->sent == 1000000);
    assert_int_equal(world_agent(w, sb)->processes->seen, 100000);
    attach(sb, &second, pid, 0);
    WAIT(w, buf_len(&second.output) == WIRE_WINDOW); /* what is still kept of what nobody got */
    assert_int_equal(second.pid, pid);
    assert_output(&second, 1000000 - WIRE_WINDOW, WIRE_WINDOW);
    attach(sb, &third, pid, 0); /* the second one follows: from now on */
    WAIT(w, third.starts);
    world_turns(w, 20);
    assert_int_equal(buf_len(&third.output), 0);
    fini(&second);
    struct exec_call *call;
    struct err err;
    unsigned done = 0;
    (void)done;
    assert_int_equal(exec_signal(sb, &test_actor, &(struct exec_select){.pid = pid}, SIGTERM, NULL, NULL, &call, &err),
                     0);
    exec_call_cancel(call);
    WAIT(w, third.exits);
    assert_true(third.exit.signaled);
    assert_int_equal(third.exit.code, SIGTERM);
    assert_int_equal(world_count_events(w, id_of(sb), EVENT_EXEC_CONNECT), 2);
    fini(&first);
    fini(&third);
}

static void leaves_within_output(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client c = {.leaves = true}, again = {0};
    run(sb, &c, "count", "500000", NULL);
    WAIT(w, world_count_events(w, id_of(sb), EVENT_EXEC_EXIT) == 1);
    assert_null(c.follow);
    assert_int_equal(c.exits + c.errors, 0);
    attach(sb, &again, c.pid, 0); /* it ended, and what it wrote last is still there */
    WAIT(w, again.exits);
    assert_int_equal(buf_len(&again.output), WIRE_WINDOW);
    fini(&c);
    fini(&again);
}

static void delivered_is_not_repeated(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client c = {0}, again = {0};
    run(sb, &c, "count", "5000", NULL);
    WAIT(w, c.exits);
    attach(sb, &again, c.pid, 0);
    WAIT(w, again.exits);
    assert_int_equal(buf_len(&again.output), 0);
    assert_int_equal(again.exit.output_bytes, 5000);
    fini(&c);
    fini(&again);
}

static void deadline(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client c = {0}, left = {0}, watcher = {0}, forever = {0};
    run(sb, &forever, "sleep", NULL, &(struct exec_spec){.timeout_ms = INT64_MAX});
    run(sb, &c, "sleep", NULL, &(struct exec_spec){.timeout_ms = 30});
    run(sb, &left, "sleep", NULL, &(struct exec_spec){.timeout_ms = 60000});
    WAIT(w, left.starts);
    uint32_t pid = left.pid;
    exec_close(TAKE_PTR(left.follow));
    attach(sb, &watcher, pid, 20);
    WAIT(w, watcher.errors);
    assert_int_equal(watcher.err.code, ERR_DEADLINE_EXCEEDED);
    struct process *p = process_find(sb, &(struct exec_select){.pid = pid});
    assert_true(p->alarm.slot);
    process_arm(p, clock_mono()); /* now that it has started and its client left, however long that took */
    WAIT(w, c.errors);
    assert_int_equal(c.err.code, ERR_DEADLINE_EXCEEDED);
    WAIT(w, world_agent(w, sb)->signals == 2); /* also the one whose client left; not for the watcher's */
    WAIT(w, world_count_events(w, id_of(sb), EVENT_EXEC_EXIT) == 2);
    assert_non_null(strstr(world_event_data(w, id_of(sb), EVENT_EXEC_EXIT), "\"signal\":9,\"deadline_exceeded\":true"));
    fini(&c);
    fini(&left);
    fini(&watcher);
    assert_int_equal(forever.starts, 1);
    assert_int_equal(forever.exits + forever.errors, 0);
    exec_close(TAKE_PTR(forever.follow));
    fini(&forever);
}

static void never_answered(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client c = {0}, closed = {0};
    run(sb, &c, "mute", NULL, &(struct exec_spec){.timeout_ms = 30});
    run(sb, &closed, "mute", NULL, NULL);
    exec_close(TAKE_PTR(closed.follow));
    WAIT(w, c.errors);
    assert_int_equal(c.err.code, ERR_DEADLINE_EXCEEDED);
    struct err err;
    struct sandbox *ended = sandbox_ref(sb);
    assert_int_equal(sandbox_kill(sb, &test_actor, NULL, NULL, &err), 0);
    sandbox_unref(ended);
    fini(&c);
    fini(&closed);
}

struct unary {
    unsigned calls;
    struct err err;
};

static void on_unary(void *ctx, const struct err *err)
{
    struct unary *u = ctx;
    u->calls++;
    u->err = err ? *err : (struct err){0};
}

static void input(void **state)
{
    enum { N = 300000 };
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client c = {0};
    struct unary u = {0};
    struct exec_call *call;
    struct err err;
    run(sb, &c, "cat", NULL, &(struct exec_spec){.stdin_open = true, .tag = STR("the cat")});
    WAIT(w, c.starts);
    char *bytes = mem_alloc(N);
    for (size_t i = 0; i < N; i++)
        bytes[i] = (char)('a' + i % 23);
    struct exec_select which = {.by_tag = true, .tag = STR("the cat")};
    assert_int_equal(exec_input(sb, &test_actor, &which, false, str_n(bytes, N), on_unary, &u, &call, &err), 0);
    mem_free(bytes);
    assert_int_equal(u.calls, 0);
    WAIT(w, u.calls == 1 && buf_len(&c.output) == N);
    assert_output(&c, 0, N);
    assert_int_equal(exec_close_stdin(sb, &test_actor, &which, on_unary, &u, &call, &err), 0);
    WAIT(w, u.calls == 2 && c.exits);
    assert_int_equal(u.err.code, 0);
    assert_int_equal(
        exec_resize(sb, &test_actor, &(struct exec_select){.pid = 9999}, 80, 25, on_unary, &u, &call, &err), 0);
    WAIT(w, u.calls == 3);
    assert_int_equal(u.err.code, ERR_NOT_FOUND);
    assert_int_equal(exec_signal(sb, &test_actor, &which, 0, on_unary, &u, &call, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    assert_int_equal(world_count_events(w, id_of(sb), EVENT_EXEC_INPUT), 1);
    fini(&c);
}

struct listing {
    unsigned calls;
    size_t n;
    struct err err;
    uint32_t pid;
};

static void on_list(void *ctx, const struct exec_process *processes, size_t n, const struct err *err)
{
    struct listing *l = ctx;
    l->calls++;
    l->n = n;
    l->err = err ? *err : (struct err){0};
    for (size_t i = 0; i < n; i++) {
        l->pid = processes[i].pid;
        assert_int_equal(processes[i].n_args, 2);
        assert_true(str_eqc(processes[i].args[0], "arg"));
        assert_int_equal(processes[i].n_envs, 1);
        assert_true(str_eqc(processes[i].envs[0].value, "V"));
        assert_true(processes[i].has_tag == (processes[i].tag.n > 0));
    }
}

static void list(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client c[3] = {0};
    struct listing l = {0};
    struct exec_call *call;
    struct err err;
    run(sb, &c[0], "sleep", NULL, &(struct exec_spec){.tag = STR("x")});
    run(sb, &c[1], "echo", "ends", NULL);
    run(sb, &c[2], "sleep", NULL, NULL);
    WAIT(w, c[1].exits && c[2].starts);
    assert_int_equal(exec_list(sb, &test_actor, on_list, &l, &call, &err), 0);
    WAIT(w, l.calls);
    assert_int_equal(l.n, 2);
    assert_int_equal(exec_list(sb, &test_actor, on_list, &l, &call, &err), 0);
    exec_call_cancel(call);
    world_turns(w, 20);
    assert_int_equal(l.calls, 1);
    for (int i = 0; i < 3; i++)
        fini(&c[i]);
}

static void sandbox_ends(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client first = {0}, second = {0}, third = {.slow = true};
    struct unary u = {0};
    struct exec_call *call;
    struct err err;
    run(sb, &first, "sleep", NULL, NULL);
    run(sb, &third, "spew", "1000000", NULL);
    WAIT(w, first.starts && buf_len(&third.output));
    attach(sb, &second, first.pid, 0);
    WAIT(w, second.starts);
    assert_int_equal(exec_signal(sb, &test_actor, &(struct exec_select){.pid = 1}, SIGTERM, on_unary, &u, &call, &err),
                     0);
    assert_int_equal(sandbox_kill(sb, &test_actor, NULL, NULL, &err), 0);
    assert_int_equal(first.errors + second.errors + third.errors + u.calls, 0); /* nothing from within */
    WAIT(w, first.errors && second.errors && third.errors && u.calls);
    assert_int_equal(world_count_events(w, id_of(sb), EVENT_EXEC_FAILED), 2);
    assert_string_equal(world_event_grade(w, id_of(sb), EVENT_EXEC_FAILED), "observed-host");
    assert_int_equal(first.err.code, ERR_UNAVAILABLE);
    assert_int_equal(second.err.code, ERR_UNAVAILABLE);
    assert_int_equal(u.err.code, ERR_UNAVAILABLE);
    struct exec_spec spec = {.cmd = STR("echo")};
    assert_int_equal(exec_start(sb, &test_actor, &spec, &ops, &first, &first.follow, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    fini(&first);
    fini(&second);
    fini(&third);
}

static void cancel_at_each_step(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    for (unsigned turns = 0; turns < 6; turns++) {
        struct client c = {0};
        run(sb, &c, "count", "100000", &(struct exec_spec){.timeout_ms = 60000});
        for (unsigned i = 0; i < turns && c.follow; i++)
            world_turn(w);
        exec_close(TAKE_PTR(c.follow));
        fini(&c);
    }
    WAIT(w, world_count_events(w, id_of(sb), EVENT_EXEC_EXIT) == 6);
    for (unsigned turns = 0; turns < 4; turns++) {
        struct client c = {0}, second = {0};
        run(sb, &c, "sleep", NULL, NULL);
        WAIT(w, c.starts);
        attach(sb, &second, c.pid, 1000);
        for (unsigned i = 0; i < turns && second.follow; i++)
            world_turn(w);
        fini(&second);
        fini(&c);
    }
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_RUNNING);
    WAIT(w, map_count(&sb->session->streams) == 4); /* the sleeping ones' */
}

static void many_processes(void **state)
{
    enum { N = 1500 };
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct client c = {0};
    for (unsigned i = 0; i < N; i++) {
        run(sb, &c, "echo", "x", NULL);
        if (i % 3 == 0)
            exec_close(TAKE_PTR(c.follow));
        else
            WAIT(w, c.exits);
        fini(&c);
    }
    WAIT(w, world_count_events(w, id_of(sb), EVENT_EXEC_EXIT) == N);
    assert_true(sb->n_ended_processes <= 1024);
}

/* Full when a process failed: told, though there is room again long before the next sample. */
static void fails_for_want_of_room(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, &(struct sandbox_spec){.timeout_ms = 60000, .disk_bytes = 1000});
    struct client c = {0};
    loop_alarm_clear(sb->core->loop, &sb->sample_alarm);
    w->disk_limit = w->disk_used = 1000;
    unsigned usages = w->usages;
    run(sb, &c, "echo", "went well", NULL);
    WAIT(w, c.exits);
    fini(&c);
    assert_int_equal(w->usages, usages);
    for (int i = 0; i < 3; i++) { /* once in SUSPECT_MS, which takes an hour here */
        run(sb, &c, "count", "1", NULL);
        WAIT(w, c.exits);
        fini(&c);
        assert_true(sb->suspected_at);
        sb->suspected_at = clock_mono() + 3600 * USEC_PER_SEC;
    }
    WAIT(w, world_count_events(w, id_of(sb), EVENT_LIMIT_DISK) == 1);
    w->disk_used = 0;
    world_turns(w, 30);
    assert_int_equal(w->usages, usages + 1);
    assert_true(sb->suspect_alarm.slot);
    loop_alarm_clear(sb->core->loop, &sb->suspect_alarm);

    /* Of processes it may have too few, whether it has a limit of its disk or none. */
    struct sandbox *free_one = world_sandbox(w, NULL);
    loop_alarm_clear(free_one->core->loop, &free_one->sample_alarm);
    w->pids_refused = 5;
    run(free_one, &c, "count", "1", NULL);
    WAIT(w, c.exits);
    fini(&c);
    WAIT(w, world_count_events(w, id_of(free_one), EVENT_LIMIT_PIDS) == 1);
    assert_int_equal(w->usages, usages + 2);
    for (int i = 0; i < 2; i++) { /* it was told, and its disk has no limit */
        run(free_one, &c, "count", "1", NULL);
        WAIT(w, c.exits);
        fini(&c);
    }
    world_turns(w, 30);
    assert_int_equal(w->usages, usages + 2);

    /* Who closes the core asks nothing more, though processes end by it. */
    sb->disk_is_full = false;
    sb->suspected_at = 0;
    run(sb, &c, "cat", NULL, NULL);
    WAIT(w, c.starts);
    world_close(w);
    assert_int_equal(w->usages, usages + 2);
    world_open(w);
    fini(&c);
}

/* What a façade's clients look for inside goes to the agent with every session, before anything else. */
static void names_of_the_facade(void **state)
{
    static const struct core_guest guest = {.marker = "X_BOX", .id = "X_ID", .attributes = "user.x."};
    struct world *w = *state;
    struct client c = {0};
    struct sandbox *sb = world_sandbox(w, NULL);
    run(sb, &c, "count", "1", NULL);
    WAIT(w, c.exits);
    fini(&c);
    char own[160], want[256];
    (void)snprintf(own, sizeof(own), "COVE_SANDBOX=true;COVE_SANDBOX_ID=%s;COVE_TEMPLATE_ID=%s;", id_of(sb),
                   sandbox_info(sb)->template_id);
    (void)snprintf(want, sizeof(want), ";%s", own);
    assert_string_equal(world_agent(w, sb)->hello, want);
    world_close(w);
    w->config.guest = &guest;
    world_open(w);
    sb = world_sandbox(w, NULL);
    run(sb, &c, "count", "1", NULL);
    WAIT(w, c.exits);
    fini(&c);
    (void)snprintf(own, sizeof(own), "COVE_SANDBOX=true;COVE_SANDBOX_ID=%s;COVE_TEMPLATE_ID=%s;", id_of(sb),
                   sandbox_info(sb)->template_id);
    (void)snprintf(want, sizeof(want), "user.x.;%sX_BOX=true;X_ID=%s;", own, id_of(sb));
    assert_string_equal(world_agent(w, sb)->hello, want);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, world_setup, world_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(echo),
        TEST(names_of_the_facade),
        TEST(fails_to_start),
        TEST(long_output),
        TEST(binary_output),
        TEST(slow_client),
        TEST(full_client),
        TEST(client_leaves),
        TEST(leaves_within_output),
        TEST(delivered_is_not_repeated),
        TEST(deadline),
        TEST(fails_for_want_of_room),
        TEST(never_answered),
        TEST(input),
        TEST(list),
        TEST(sandbox_ends),
        TEST(cancel_at_each_step),
        TEST(many_processes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
