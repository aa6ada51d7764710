/* SPDX-License-Identifier: Apache-2.0 */
/* Calls whose action waits until somebody answers: both ways, too late, too many, and clients that don't wait. */
#include "api/kit/call.h"
#include "api/kit/test_facade.h"
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/life/pause.h"

#include <stdio.h>

/* ---- a façade: one action, and two of them ---- */

struct waiting {
    struct facade facade;
    unsigned runs;
};

static struct waiting *waiting_of(const struct call *c)
{
    return container_of(c->facade, struct waiting, facade);
}

static void waiting_cleanup(struct call *c)
{
    buf_fini(c->state);
}

static void waiting_timeout(struct call *c)
{
    struct buf *b = arena_alloc(http_arena(c->req), sizeof(*b));
    int64_t ms = 0;
    struct err err;
    waiting_of(c)->runs++;
    buf_init(b, 4096);
    buf_append_cstr(b, "what a handler that is run again must not leak");
    c->state = b;
    c->cleanup = waiting_cleanup;
    if (!CALL_WANTS(c, JSON_NEED_INT("ms", 1, 1000000, &ms)))
        return;
    if (sandbox_set_timeout(c->sandbox, &c->actor, (uint64_t)ms, false, &err) < 0)
        call_fail_err(c, &err);
    else
        call_empty(c, 204);
}

static void waiting_paused(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    (void)sb;
    if (c)
        call_empty(c, 204);
}

static void waiting_pause_step(struct call *c)
{
    struct err err;
    waiting_of(c)->runs++;
    if (sandbox_pause(c->sandbox, &c->actor, true, waiting_paused, call_hold(c), &err) < 0)
        call_drop(c, &err);
}

static void waiting_both(struct call *c)
{
    struct err err;
    waiting_of(c)->runs++;
    if (sandbox_set_timeout(c->sandbox, &c->actor, 60000, false, &err) < 0)
        call_fail_err(c, &err);
    else
        call_step(c, waiting_pause_step);
}

static void waiting_later(struct call *c)
{
    struct err err;
    if (sandbox_set_timeout(c->sandbox, &c->actor, 60000, false, &err) < 0)
        call_fail_err(c, &err);
    else
        call_empty(c, 204);
}

/* Outside of a step. */
static void waiting_timer(struct call *c)
{
    call_set_timer(c, 1, waiting_later);
}

static const struct route waiting_routes[] = {
    {HTTP_METHOD_POST, "/timeout/{}", waiting_timeout, ROUTE_SANDBOX | ROUTE_BODY, NULL},
    {HTTP_METHOD_POST, "/both/{}", waiting_both, ROUTE_SANDBOX, NULL},
    {HTTP_METHOD_POST, "/later/{}", waiting_timer, ROUTE_SANDBOX, NULL},
};

static bool waiting_authenticate(struct call *c)
{
    access_as(c, "tester", &PRINCIPAL_OWNER);
    return true;
}

static struct sandbox *waiting_sandbox(struct call *c)
{
    return sandbox_find(call_core(c), c->args[0]);
}

static void waiting_error(struct buf *b, int status, enum err_code code, struct str message, const char *hint)
{
    (void)status, (void)hint;
    buf_printf(b, "%s: %.*s", err_code_name(code), STR_ARG(message));
}

static const struct facade_ops waiting_ops = {.name = "waiting",
                                              .body_max = 1024,
                                              .body_error = "",
                                              .method_error = "no such method",
                                              .method_error_status = 405,
                                              .authenticate = waiting_authenticate,
                                              .find_sandbox = waiting_sandbox,
                                              .append_error = waiting_error};

static bool waiting_serve(void *facade, struct http_request *req)
{
    return facade_serve(&((struct waiting *)facade)->facade, waiting_routes, ARRAY_SIZE(waiting_routes), req);
}

static void waiting_free(void *facade)
{
    facade_fini(&((struct waiting *)facade)->facade);
    mem_free(facade);
}

/* ---- the guard ---- */

static enum guard_verdict verdict;

static enum guard_verdict decide(void *ctx, const struct guard_question *q, const char **ret_rule)
{
    (void)ctx;
    *ret_rule = "ask-me";
    return str_eqc(q->actor, "tester") ? verdict : GUARD_ALLOW;
}

static const struct guard guard = {.decide = decide};

static int setup(void **state)
{
    struct test_facade *f = facade_open();
    struct waiting *waiting = mem_new(struct waiting);
    facade_init(&waiting->facade, &waiting_ops, f->w->core, NULL);
    facade_claim(f, &(struct claim){.serve = waiting_serve, .facade = waiting});
    f->w->core->guard = &guard;
    verdict = GUARD_ASK;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    return facade_close(*state, waiting_free);
}

struct seen {
    char id[HOLD_ID_LEN + 1];
    enum event_kind kind;
    size_t n;
};

static bool see(void *ctx, const struct hold_info *info)
{
    struct seen *seen = ctx;
    assert_string_equal(info->answer.rule, "ask-me");
    assert_true(str_eqc(info->question.actor, "tester"));
    assert_true(info->until > info->asked);
    (void)snprintf(seen->id, sizeof(seen->id), "%s", info->id);
    seen->kind = info->question.kind;
    seen->n++;
    return true;
}

/* Waits until so many wait; the last one. */
static struct seen holds(struct test_facade *f, size_t n)
{
    struct seen seen = {.n = 0};
    WAIT(f->w, f->w->core->n_holds == n);
    hold_each(f->w->core, see, &seen);
    assert_int_equal(seen.n, n);
    return seen;
}

static void answer(struct test_facade *f, const struct seen *seen, bool is_allowed)
{
    struct err err;
    assert_int_equal(hold_answer(f->w->core, str_of(seen->id), is_allowed, "boss", &err), 0);
    assert_int_equal(hold_answer(f->w->core, str_of(seen->id), true, "boss", &err), -1); /* once */
    assert_int_equal(err.code, ERR_NOT_FOUND);
}

static int ask(struct test_facade *f, const char *route, const struct sandbox *sb, const char *body)
{
    AUTO_BUF struct buf request = BUF_INIT(4096);
    int fd = facade_connect(f);
    buf_printf(&request,
               "POST /%s/%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", route,
               sandbox_info(sb)->id, strlen(body), body);
    facade_send(f, fd, buf_str(&request));
    return fd;
}

static void assert_answer(struct test_facade *f, int fd, const char *text)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    facade_receive(f, fd, &b, NULL);
    assert_has(&b, text);
    fd_close(fd);
}

/* ---- tests ---- */

static void what_is_allowed_is_done_once_and_says_by_whom(void **state)
{
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, false);
    const char *id = sandbox_info(sb)->id;
    usec_t end = sandbox_info(sb)->end_at;
    int fd = ask(f, "timeout", sb, "{\"ms\":900000}");
    struct seen seen = holds(f, 1);
    assert_int_equal(seen.kind, EVENT_SANDBOX_TIMEOUT);
    assert_true(sandbox_info(sb)->end_at == end);
    assert_int_equal(world_count_events(f->w, id, EVENT_SANDBOX_TIMEOUT), 0);
    assert_non_null(
        strstr(world_event_data(f->w, id, EVENT_GUARD_ASKED), "\"kind\":\"sandbox.timeout\",\"rule\":\"ask-me\""));
    assert_non_null(strstr(world_event_data(f->w, id, EVENT_GUARD_ASKED), "\"timeout_ms\":900000"));
    answer(f, &seen, true);
    assert_answer(f, fd, "204 No Content");
    assert_true(sandbox_info(sb)->end_at > end);
    assert_int_equal(((struct waiting *)f->claims[0].facade)->runs, 2);
    assert_int_equal(world_count_events(f->w, id, EVENT_SANDBOX_TIMEOUT), 1);
    assert_non_null(strstr(world_event_data(f->w, id, EVENT_GUARD_ANSWERED), seen.id));
    assert_non_null(strstr(world_event_data(f->w, id, EVENT_GUARD_ANSWERED), "\"answer\":\"allowed\""));
    /* Good for that one only. */
    fd = ask(f, "timeout", sb, "{\"ms\":900000}");
    seen = holds(f, 1);
    answer(f, &seen, false);
    assert_answer(f, fd, "permission_denied: sandbox.timeout was not allowed");
}

static void what_is_denied_is_not_done(void **state)
{
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, false);
    int fd = ask(f, "timeout", sb, "{\"ms\":900000}");
    struct seen seen = holds(f, 1);
    answer(f, &seen, false);
    verdict = GUARD_ALLOW; /* a denial stays one */
    assert_answer(f, fd, "403 Forbidden");
    assert_int_equal(world_count_events(f->w, sandbox_info(sb)->id, EVENT_SANDBOX_TIMEOUT), 0);
    assert_non_null(
        strstr(world_event_data(f->w, sandbox_info(sb)->id, EVENT_GUARD_ANSWERED), "\"answer\":\"denied\""));
}

static void what_the_guard_denies_meanwhile_is_denied(void **state)
{
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, false);
    int fd = ask(f, "timeout", sb, "{\"ms\":900000}");
    struct seen seen = holds(f, 1);
    verdict = GUARD_DENY;
    answer(f, &seen, true);
    assert_answer(f, fd, "sandbox.timeout is denied by rule 'ask-me'");
    assert_int_equal(world_count_events(f->w, sandbox_info(sb)->id, EVENT_GUARD_DENIED), 1);
}

static void nobody_answers(void **state)
{
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, false);
    int fd;
    f->w->core->config.hold_ms = 1;
    fd = ask(f, "timeout", sb, "{\"ms\":900000}");
    assert_answer(f, fd, "was not allowed: nobody answered in time");
    assert_non_null(
        strstr(world_event_data(f->w, sandbox_info(sb)->id, EVENT_GUARD_ANSWERED), "\"answer\":\"timeout\""));
    assert_int_equal(f->w->core->n_holds, 0);
    assert_int_equal(f->w->core->hold_bytes, 0);
}

static void a_client_that_leaves_takes_its_question_along(void **state)
{
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, false);
    int fd = ask(f, "timeout", sb, "{\"ms\":900000}");
    (void)holds(f, 1);
    fd_close(fd);
    WAIT(f->w, f->w->core->n_holds == 0);
    assert_non_null(strstr(world_event_data(f->w, sandbox_info(sb)->id, EVENT_GUARD_ANSWERED), "\"answer\":\"gone\""));
    assert_int_equal(world_count_events(f->w, sandbox_info(sb)->id, EVENT_SANDBOX_TIMEOUT), 0);
}

static void a_sandbox_that_ends_takes_its_questions_along(void **state)
{
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, false);
    char id[ID_SANDBOX_LEN + 1];
    int fd = ask(f, "timeout", sb, "{\"ms\":900000}");
    memcpy(id, sandbox_info(sb)->id, sizeof(id));
    (void)holds(f, 1);
    world_end_agent(f->w, world_agent(f->w, sb), SUP_CAUSE_SIGNALED);
    assert_answer(f, fd, "not_found: sandbox");
    assert_non_null(strstr(world_event_data(f->w, id, EVENT_GUARD_ANSWERED), "\"answer\":\"ended\""));
}

static void two_actions_are_two_questions(void **state)
{
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, false);
    const char *id = sandbox_info(sb)->id;
    int fd = ask(f, "both", sb, "");
    struct seen seen = holds(f, 1);
    assert_int_equal(seen.kind, EVENT_SANDBOX_TIMEOUT);
    answer(f, &seen, true);
    WAIT(f->w, world_count_events(f->w, id, EVENT_SANDBOX_TIMEOUT) == 1);
    seen = holds(f, 1);
    assert_int_equal(seen.kind, EVENT_SANDBOX_PAUSE);
    answer(f, &seen, true);
    assert_answer(f, fd, "204 No Content");
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_PAUSED);
    /* The first action was begun again for its own answer only. */
    assert_int_equal(((struct waiting *)f->claims[0].facade)->runs, 4);
    assert_int_equal(world_count_events(f->w, id, EVENT_SANDBOX_TIMEOUT), 1);
}

static void what_is_no_step_does_not_wait(void **state)
{
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, false);
    assert_answer(f, ask(f, "later", sb, ""), "requires approval of sandbox.timeout, and it can't wait for that here");
    assert_non_null(strstr(world_event_data(f->w, sandbox_info(sb)->id, EVENT_GUARD_DENIED), "\"why\":\"can't wait\""));
}

static void what_waits_is_bounded(void **state)
{
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, false), *other = facade_sandbox(f, false);
    int fds[HOLDS_OF_ONE], fd;
    AUTO_BUF struct buf many = BUF_INIT(1024);
    buf_append_cstr(&many, "{\"ms\":900000,\"x\":[{}");
    for (size_t i = 1; i < 200; i++)
        buf_append_cstr(&many, ",{}");
    buf_append_cstr(&many, "]}");
    buf_append_char(&many, '\0');
    fds[0] = ask(f, "timeout", sb, buf_data(&many));
    (void)holds(f, 1);
    assert_in_range(f->w->core->hold_bytes, 200 * 200, 200 * 300); /* what it takes once it is read */
    for (size_t i = 1; i < HOLDS_OF_ONE; i++)
        fds[i] = ask(f, "timeout", sb, "{\"ms\":900000}");
    (void)holds(f, HOLDS_OF_ONE);
    assert_answer(f, ask(f, "timeout", sb, "{\"ms\":900000}"), "and too many actions are already waiting");
    assert_non_null(
        strstr(world_event_data(f->w, sandbox_info(sb)->id, EVENT_GUARD_DENIED), "\"why\":\"too many wait\""));
    fd = ask(f, "timeout", other, "{\"ms\":900000}"); /* has room of its own */
    (void)holds(f, HOLDS_OF_ONE + 1);
    f->w->core->hold_bytes += HOLDS_BYTES;
    assert_answer(f, ask(f, "timeout", other, "{\"ms\":900000}"), "and too many actions are already waiting");
    f->w->core->hold_bytes -= HOLDS_BYTES;
    f->w->core->n_holds += HOLDS_MAX;
    assert_answer(f, ask(f, "timeout", other, "{\"ms\":900000}"), "and too many actions are already waiting");
    f->w->core->n_holds -= HOLDS_MAX;
    f->w->core->n_holds += HOLDS_MAX - 2 * (HOLDS_OF_ONE + 1); /* of others: a tenant leaves as much as it has */
    assert_answer(f, ask(f, "timeout", other, "{\"ms\":900000}"), "and too many actions are already waiting");
    f->w->core->n_holds -= HOLDS_MAX - 2 * (HOLDS_OF_ONE + 1);
    for (size_t i = 0; i < HOLDS_OF_ONE; i++)
        fd_close(fds[i]);
    fd_close(fd);
    WAIT(f->w, f->w->core->n_holds == 0);
    assert_int_equal(f->w->core->hold_bytes, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_allowed_is_done_once_and_says_by_whom),
        TEST(what_is_denied_is_not_done),
        TEST(what_the_guard_denies_meanwhile_is_denied),
        TEST(nobody_answers),
        TEST(a_client_that_leaves_takes_its_question_along),
        TEST(a_sandbox_that_ends_takes_its_questions_along),
        TEST(two_actions_are_two_questions),
        TEST(what_is_no_step_does_not_wait),
        TEST(what_waits_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
