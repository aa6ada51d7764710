/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every route of every façade that isn't GET or HEAD stands in the table below: with the action that it records, which
 * is then denied once and asked about once, or with the reason why it needs none. A route that is in a façade and not
 * here fails the test.
 */
#include "api/docker/handlers.h"
#include "api/e2b/call.h"
#include "api/e2b/control/control.h"
#include "api/e2b/envd/envd.h"
#include "api/e2b/volumes/volume_content.h"
#include "api/fusion/handlers.h"
#include "api/kit/test_facade.h"
#include "api/mcp/handlers.h"
#include "api/native/handlers.h"
#include "api/opensandbox/handlers.h"
#include "base/fd.h"
#include "base/mem.h"
#include "build/builder.h"
#include "build/spec.h"
#include "daemon/facades.h"
#include "daemon/test_gate_routes.h"
#include "http/client/exec_stream.h"
#include "sandbox/action.h"
#include "sandbox/code/code.h"
#include "sandbox/key.h"
#include "sandbox/life/checkpoint_life.h"
#include "sandbox/life/snapshot.h"
#include "sandbox/templates.h"
#include "sandbox/tenant.h"
#include "sandbox/volume/volumes.h"
#include "sandbox/webhook.h"
#include "template/builds.h"

#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LEAVE_TURNS = 4 };

/* ---- the guard: what façades ask for */

static struct {
    enum guard_verdict verdict; /* about this kind; all else is allowed */
    enum event_kind kind;
    unsigned asked;
} gate;

static enum guard_verdict gate_decide(void *ctx, const struct guard_question *q, const char **ret_rule)
{
    (void)ctx;
    *ret_rule = "test";
    if (q->kind != gate.kind || (!str_starts(q->actor, STR("e2b:")) && !str_starts(q->actor, STR("native:")) &&
                                 !str_starts(q->actor, STR("opensandbox")) && !str_starts(q->actor, STR("mcp:")) &&
                                 !str_starts(q->actor, STR("run-code:")) && !str_starts(q->actor, STR("docker:"))))
        return GUARD_ALLOW;
    gate.asked++;
    return gate.verdict;
}

static const struct guard gate_guard = {.decide = gate_decide};

/* ---- the site */

struct gate_site {
    struct test_facade *f;
    struct builder *builder;
    struct facades facades;
    struct sandbox *running, *paused;
    char webhook[WEBHOOK_ID_LEN + 1], volume[64], volume_token[64], build[ID_UUID_LEN + 1], under_way[ID_UUID_LEN + 1];
    char upload_token[UPLOAD_TOKEN_LEN + 1], snapshot[64];
    char context[CODE_ID_MAX + 1];
    char operation[64]; /* what an id of one begins with */
    char created[ID_SANDBOX_LEN + 1], container[ID_SANDBOX_LEN + 1], exec[DOCKER_EXEC_ID + 1];
    int process; /* the client of pid 101 */
};

static struct gate_site site;

static void gate_on_volume(void *ctx, const struct volume *v, const struct err *err)
{
    assert_null(err);
    (void)snprintf(site.volume, sizeof(site.volume), "%s", v->id);
    (void)snprintf(site.volume_token, sizeof(site.volume_token), "%s", v->token);
    *(bool *)ctx = true;
}

static void gate_on_snapshot(void *ctx, const struct template *t, const struct err *err)
{
    assert_null(err);
    (void)snprintf(site.snapshot, sizeof(site.snapshot), "%s", t->ref);
    *(bool *)ctx = true;
}

static void gate_request(const char *name, char ret_id[static ID_UUID_LEN + 1])
{
    const struct template_request q = {.name = str_of(name), .cpu_milli = 1000, .memory_bytes = 1 << 28};
    const struct template_build *b;
    struct err err;
    assert_int_equal(template_request(core_templates(site.f->w->core), &q, &b, &err), 0);
    memcpy(ret_id, b->id, ID_UUID_LEN + 1);
}

static void gate_put_file(const char *path)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    char target[256];
    (void)snprintf(target, sizeof(target), NATIVE_PREFIX "/sandboxes/%s/files?path=%s", sandbox_info(site.running)->id,
                   path);
    assert_int_equal(facade_call(site.f, "PUT", target, "X-API-KEY: " KEY "\r\n", STR("content"), NULL, &b), 200);
}

static void gate_put_volume_file(void)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    char target[256], headers[256];
    (void)snprintf(target, sizeof(target), "/volumecontent/%s/file?path=/x&force=true", site.volume);
    (void)snprintf(headers, sizeof(headers), "Authorization: Bearer %s\r\n", site.volume_token);
    assert_int_equal(facade_call(site.f, "PUT", target, headers, STR("content"), NULL, &b), 201);
}

static void gate_start_process(void)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), request = BUF_INIT(4096);
    static const char body[] = "{\"cmd\":[\"cat\"],\"stdin\":true}";
    site.process = facade_connect(site.f);
    buf_printf(&request,
               "POST " NATIVE_PREFIX "/sandboxes/%s/exec HTTP/1.1\r\nHost: localhost\r\nX-API-KEY: " KEY
               "\r\nConnection: upgrade\r\nUpgrade: cove-exec\r\nContent-Length: %zu\r\n\r\n%s",
               sandbox_info(site.running)->id, strlen(body), body);
    facade_send(site.f, site.process, buf_str(&request));
    facade_receive(site.f, site.process, &b, "\"pid\":101");
}

static void gate_take_operation(void)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    char target[256];
    (void)snprintf(target, sizeof(target), "/v1/sandboxes/%s/proxy/44772/execution/instance",
                   sandbox_info(site.running)->id);
    assert_int_equal(facade_call(site.f, "GET", target, "OPEN-SANDBOX-API-KEY: " KEY "\r\n", STR(""), NULL, &b), 200);
    json_t *instance AUTO_JSON = json_loadb(buf_data(&b), buf_len(&b), 0, NULL);
    (void)snprintf(site.operation, sizeof(site.operation), "%s.%lld",
                   json_string_value(json_object_get(instance, "instance_id")),
                   json_integer_value(json_object_get(instance, "issued_at")));
}

static const struct pair runs_code = {{"COVE_CODE", 9}, {"/code python", 12}};

static bool gate_take_context(void *ctx, const struct code_context_info *info)
{
    (void)ctx;
    (void)snprintf(site.context, sizeof(site.context), "%s", info->id);
    return false;
}

/* The "Id" of the answer. */
static void gate_docker(const char *target, const char *body, int status, char *ret_id, size_t size)
{
    static const char before[] = "{\"Id\":\"";
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    AUTO_FREE char *path = mem_printf("/v1.44%s", target);

    assert_int_equal(facade_call(site.f, "POST", path, "X-API-KEY: " KEY "\r\n", str_of(body), NULL, &b), status);
    if (!ret_id)
        return;
    assert_true(str_starts(buf_str(&b), str_of(before)));
    const char *id = buf_data(&b) + strlen(before);
    (void)snprintf(ret_id, size, "%.*s", (int)strcspn(id, "\""), id);
}

static void gate_make_containers(void)
{
    static const char body[] = "{\"Image\":\"base\",\"Cmd\":[\"cat\"],\"Tty\":true,\"OpenStdin\":true}";
    gate_docker("/containers/create", body, 201, site.created, sizeof(site.created));
    gate_docker("/containers/create", body, 201, site.container, sizeof(site.container));
    AUTO_FREE char *start = mem_printf("/containers/%s/start", site.container);
    AUTO_FREE char *exec = mem_printf("/containers/%s/exec", site.container);
    gate_docker(start, "", 204, NULL, 0);
    gate_docker(exec, "{\"Cmd\":[\"echo\",\"hi\"]}", 201, site.exec, sizeof(site.exec));
}

/* with_containers: for the routes of Docker's API alone; they cost each of the others two sandboxes. */
static void gate_open(bool with_containers)
{
    struct test_facade *f = facade_open();
    struct err err;
    bool is_made = false, is_snapshot = false;
    gate.kind = EVENT_KIND_UNKNOWN;
    site = (struct gate_site){.f = f};
    f->w->core->guard = &gate_guard;
    const struct builder_config config = {
        .core = f->w->core, .data_dir = f->w->dir->path, .concurrency = 1, .disk_reserve_bytes = UPLOADS_RESERVE_NONE};
    assert_int_equal(builder_new(&config, &site.builder, &err), 0);
    key_set_builtin(f->w->core, STR(KEY));
    facades_open(
        &site.facades,
        &(struct native_config){.core = f->w->core, .builder = site.builder, .events = f->w->events, .version = "1"},
        "sandboxes.test", false);
    facade_claim(f, &(struct claim){.serve = facades_serve, .facade = &site.facades});
    f->w->is_flag_up = true;

    site.running = facade_sandbox(f, false);
    site.running->info.envs = &runs_code;
    site.running->info.n_envs = 1;
    code_each(site.running, gate_take_context, NULL);
    site.paused = facade_sandbox(f, false);
    json_t *checkpoints AUTO_JSON = json_pack("{s:[[i,i,s]]}", "all", 1, 1, "layer-00000000000000000000");
    checkpoint_fill(site.paused, checkpoints);
    world_pause(f->w, site.paused, true);
    assert_int_equal(volume_make(f->w->core, &test_actor, STR("data"), 0, gate_on_volume, &is_made, &err), 0);
    assert_int_equal(
        sandbox_snapshot(site.running, &test_actor, STR("kept"), false, gate_on_snapshot, &is_snapshot, &err), 0);
    WAIT(f->w, is_made && is_snapshot);
    world_template(f->w, "app", NULL, NULL);
    world_template(f->w, "run-code", NULL, NULL);
    world_template(f->w, "code-interpreter-v1", NULL, NULL);
    const char *build;
    assert_int_equal(
        core_template_tag(f->w->core, &test_actor, STR("app"), (const struct str[]){STR("v1")}, 1, &build, &err), 0);
    gate_put_file("/t/1");
    gate_put_file("/t/2");
    gate_put_file("/run/cove-opensandbox/" SESSION ".session");
    gate_put_volume_file();
    gate_start_process();
    gate_take_operation();
    char key[KEY_TEXT_LEN + 1];
    struct key_info info;
    const struct webhook *hook;
    json_t *hook_config AUTO_JSON = json_loads("{\"name\":\"there\",\"url\":\"https://a.test/\",\"secret\":\"s\","
                                               "\"enabled\":true,\"types\":[\"killed\"]}",
                                               0, NULL);
    assert_int_equal(webhook_create(f->w->core, &test_actor, hook_config, &hook, &err), 0);
    (void)snprintf(site.webhook, sizeof(site.webhook), "%s", hook->id);
    assert_int_equal(key_create(f->w->core, &test_actor, &(struct key_spec){.name = STR("there"), .scope = SCOPE_READ},
                                key, &info, &err),
                     0);
    assert_int_equal(tenant_create(f->w->core, &test_actor, STR("there"), NULL, &err), 0);
    gate_request("built", site.build);
    if (with_containers)
        gate_make_containers();
    uploads_grant(builder_uploads(site.builder), TENANT_DEFAULT, HASH, site.upload_token);
}

/* One that never ends: its sandbox isn't made. */
static void gate_start_build(void)
{
    const struct build_spec spec = {.template_ref = "base"};
    struct build_step step = {.type = BUILD_RUN, .args = &STR("flag"), .n_args = 1};
    struct build_spec with_step = spec;
    struct err err;
    with_step.steps = &step;
    with_step.n_steps = 1;
    gate_request("under-way", site.under_way);
    site.f->w->create_mute = true;
    assert_int_equal(builder_start(site.builder, &test_actor, site.under_way, &with_step, &err), 0);
}

static void gate_free(void *facades)
{
    facades_free(facades);
    builder_free(site.builder);
}

static void gate_close(void)
{
    char path[256];
    struct test_dir *dir = site.f->w->dir;
    fd_close(site.process);
    (void)snprintf(path, sizeof(path), "%s/uploads/" HASH, dir->path);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/uploads", dir->path);
    (void)rmdir(path);
    assert_int_equal(facade_close(site.f, gate_free), 0);
}

/* ---- requests */

static void gate_expand(struct buf *b, const char *text)
{
    char soon[CLOCK_TEXT_MAX], encoded[3 * sizeof(site.snapshot)] = "";
    for (const char *at = site.snapshot; *at; at++)
        (void)snprintf(encoded + strlen(encoded), 4, *at == '/' ? "%%2F" : "%c", *at);
    const struct {
        char name;
        const char *value;
    } values[] = {{'S', sandbox_info(site.running)->id},
                  {'P', sandbox_info(site.paused)->id},
                  {'V', site.volume},
                  {'W', site.webhook},
                  {'N', "app"},
                  {'T', site.snapshot},
                  {'R', site.under_way},
                  {'B', site.build},
                  {'H', HASH},
                  {'K', site.upload_token},
                  {'E', soon},
                  {'U', encoded},
                  {'C', site.context},
                  {'O', site.operation},
                  {'D', site.created},
                  {'G', site.container},
                  {'X', site.exec}};
    clock_format(clock_real() + 600 * USEC_PER_SEC, 0, soon);

    for (; text && *text; text++) {
        const char *value = NULL;
        for (size_t i = 0; *text == '$' && i < ARRAY_SIZE(values); i++)
            value = values[i].name == text[1] ? values[i].value : value;
        if (value)
            buf_append_cstr(b, value), text++;
        else
            buf_append_char(b, *text);
    }
}

static const char *gate_method(enum http_method method)
{
    return method == HTTP_METHOD_POST     ? "POST"
           : method == HTTP_METHOD_PUT    ? "PUT"
           : method == HTTP_METHOD_PATCH  ? "PATCH"
           : method == HTTP_METHOD_DELETE ? "DELETE"
                                          : "GET";
}

static bool gate_is_stream(const struct gated *g)
{
    return g->plane == GATE_MCP ||
           (g->plane == GATE_ENVD && (g->kind == EVENT_EXEC_START || g->kind == EVENT_EXEC_CONNECT ||
                                      strstr(g->target, "StreamInput") || strstr(g->target, "WatchDir")));
}

/* Messages are separated by '|'. */
static void gate_envelopes(struct buf *b, const char *messages)
{
    struct str rest = str_of(messages), one;
    while (str_split(&rest, '|', &one)) {
        const uint8_t head[5] = {0, 0, 0, (uint8_t)(one.n >> 8), (uint8_t)one.n};
        buf_append(b, head, sizeof(head));
        buf_append_str(b, one);
    }
}

static void gate_append_request(struct buf *b, const struct gated *g)
{
    AUTO_BUF struct buf body = BUF_INIT(1 << 20);
    bool is_exec = g->plane == GATE_NATIVE && (g->kind == EVENT_EXEC_START || g->kind == EVENT_EXEC_CONNECT);
    bool is_file = g->plane == GATE_ENVD && str_starts(str_of(g->target), STR("/files?"));
    if (gate_is_stream(g) && g->plane != GATE_MCP)
        gate_envelopes(&body, g->body);
    else
        gate_expand(&body, g->body);
    buf_printf(b, "%s ", gate_method(g->method));
    gate_expand(b, g->plane == GATE_LIFECYCLE ? "/v1"
                   : g->plane == GATE_COMMAND || g->plane == GATE_FILES || g->plane == GATE_CODE
                       ? "/v1/sandboxes/$S/proxy/44772"
                   : g->plane == GATE_DOCKER ? "/v1.44"
                   : g->plane == GATE_EGRESS ? "/v1/sandboxes/$S/proxy/18080"
                                             : "");
    gate_expand(b, g->target);
    buf_printf(b, " HTTP/1.1\r\nHost: localhost\r\n%s",
               is_exec ? "Connection: upgrade\r\nUpgrade: cove-exec\r\n" : "Connection: close\r\n");
    if (g->plane == GATE_ENVD || g->plane == GATE_INTERPRETER)
        buf_printf(b, "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: %d\r\n", sandbox_info(site.running)->id,
                   g->plane == GATE_ENVD ? ENVD_PORT : INTERPRETER_PORT);
    else if (g->plane == GATE_VOLUME)
        buf_printf(b, "Authorization: Bearer %s\r\n", site.volume_token);
    else
        buf_append_cstr(b, g->plane >= GATE_LIFECYCLE && g->plane != GATE_MCP && g->plane != GATE_FUSION &&
                                   g->plane != GATE_DOCKER
                               ? "OPEN-SANDBOX-API-KEY: " KEY "\r\n"
                               : "X-API-KEY: " KEY "\r\n");
    buf_printf(b, "Content-Type: %s\r\n",
               gate_is_stream(g) && g->plane != GATE_MCP ? "application/connect+json"
               : is_file                                 ? "application/octet-stream"
               : (g->plane == GATE_ENVD && strcmp(g->target, "/files") == 0) || strcmp(g->target, "/files/upload") == 0
                   ? "multipart/form-data; boundary=x"
                   : "application/json");
    if (g->plane == GATE_MCP)
        buf_printf(b, "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: %s\r\n", g->note);
    if (g->body)
        buf_printf(b, "Content-Length: %zu\r\n", buf_len(&body));
    buf_append_cstr(b, "\r\n");
    buf_append_str(b, buf_str(&body));
    assert_int_equal(buf_error(b), 0);
}

static bool gate_allow(void *ctx, const struct hold_info *info)
{
    assert_int_equal(info->question.kind, gate.kind);
    (void)snprintf(ctx, HOLD_ID_LEN + 1, "%s", info->id);
    return false;
}

/* Sends it, allows whatever is asked about, and returns the status; *ret_holds: how often it was asked. */
static int gate_call(const struct gated *g, struct buf *answer, unsigned *ret_holds)
{
    AUTO_BUF struct buf request = BUF_INIT(1 << 20);
    AUTO_CLOSE int fd = facade_connect(site.f);
    struct core *core = site.f->w->core;
    usec_t until = clock_mono() + 20 * USEC_PER_SEC;
    struct err err;
    *ret_holds = 0;
    gate_append_request(&request, g);
    facade_send(site.f, fd, buf_str(&request));
    for (;;) {
        char *to = buf_reserve(answer, 65536), id[HOLD_ID_LEN + 1] = "";
        ssize_t n = recv(fd, to, 65535, 0);
        if (n > 0)
            buf_commit(answer, (size_t)n);
        else if (n == 0)
            break;
        to = buf_reserve(answer, 1);
        *to = 0;
        bool is_head = buf_len(answer) && memmem(buf_data(answer), buf_len(answer), "\r\n\r\n", 4);
        bool has_end = g->note && g->plane != GATE_MCP;
        if (has_end && is_head && memmem(buf_data(answer), buf_len(answer), g->note, strlen(g->note)))
            break;
        if (is_head && !str_starts(buf_str(answer), STR("HTTP/1.1 2")) &&
            !str_starts(buf_str(answer), STR("HTTP/1.1 101")))
            break;
        if (has_end && buf_len(answer) && memmem(buf_data(answer), buf_len(answer), "permission_denied", 17))
            break;
        if (core->n_holds) {
            hold_each(core, gate_allow, id);
            assert_int_equal(hold_answer(core, str_of(id), true, "boss", &err), 0);
            ++*ret_holds;
        }
        if (clock_mono() > until)
            fail_msg("%s %s: only %.*s", gate_method(g->method), g->target, STR_ARG(buf_str(answer)));
        world_turn(site.f->w);
    }
    uint64_t status = 0;
    bool is_answer = buf_len(answer) > 12 && str_to_u64(str_n(buf_data(answer) + 9, 3), &status) == 0;
    return is_answer ? (int)status : 0;
}

static bool gate_count_volume(void *ctx, const struct volume *v)
{
    (void)v;
    ++*(size_t *)ctx;
    return true;
}

/* What an action of this kind leaves behind, wherever. */
static size_t gate_traces(enum event_kind kind)
{
    struct world *w = site.f->w;
    size_t n = sandbox_count(w->core) * (kind == EVENT_SANDBOX_CREATE || kind == EVENT_NET_POLICY), volumes = 0;
    volume_each(w->core, TENANT_ANY, gate_count_volume, &volumes);
    n += kind == EVENT_VOLUME_CREATE ? volumes : 0;
    n += world_count_events(w, SERVICE_LOG_ID, kind) + world_count_events(w, site.volume, kind);
    size_t at = 0;
    for (struct sandbox *sb; (sb = map_next(&w->core->by_id, &at));)
        n += world_count_events(w, sb->info.id, kind);
    return n;
}

static bool gate_says_denied(const struct buf *answer)
{
    return memmem(buf_data(answer), buf_len(answer), "permission_denied", 17) != NULL;
}

/* ---- tests */

static void what_is_denied_changes_nothing_and_what_is_asked_about_is_done_once_allowed(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(gated); i++) {
        AUTO_BUF struct buf answer = BUF_INIT(1 << 20), allowed = BUF_INIT(1 << 20);
        const struct gated *g = &gated[i];
        unsigned holds;
        if (g->kind == EVENT_KIND_UNKNOWN)
            continue;
        gate_open(g->plane == GATE_DOCKER);
        if (g->kind == EVENT_TEMPLATE_CANCEL)
            gate_start_build();
        gate.kind = g->kind;
        gate.asked = 0;
        gate.verdict = GUARD_DENY;
        size_t before = gate_traces(g->kind);
        int status = gate_call(g, &answer, &holds);
        bool is_refused = status == 403 || (gate_is_stream(g) && gate_says_denied(&answer));
        if (!is_refused || gate.asked == 0 || gate_traces(g->kind) != before)
            fail_msg("%s %s denied: asked %u times, %zu traces after %zu, answer %s", gate_method(g->method), g->target,
                     gate.asked, gate_traces(g->kind), before, buf_data(&answer));

        gate.verdict = GUARD_ASK;
        status = gate_call(g, &allowed, &holds);
        if (status < 100 || status >= 300 || gate_says_denied(&allowed) || holds == 0 || gate_traces(g->kind) == before)
            fail_msg("%s %s allowed: asked %u times, %zu traces after %zu, answer %s", gate_method(g->method),
                     g->target, holds, gate_traces(g->kind), before, buf_data(&allowed));
        gate.kind = EVENT_KIND_UNKNOWN;
        gate_close();
    }
}

/* Whatever is under way for them then: what comes of it finds nothing of the request any more. */
static void clients_leave_at_any_time(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(gated); i++) {
        gate_open(gated[i].plane == GATE_DOCKER);
        for (unsigned turns = 1; turns <= LEAVE_TURNS; turns *= 4) {
            AUTO_BUF struct buf request = BUF_INIT(1 << 20);
            AUTO_CLOSE int fd = facade_connect(site.f);
            gate_append_request(&request, &gated[i]);
            facade_send(site.f, fd, buf_str(&request));
            for (unsigned n = 0; n < turns; n++)
                world_turn(site.f->w);
        }
        world_turns(site.f->w, 5);
        gate_close();
    }
}

/* What the client sends while the process runs is an action, too: each frame waits by itself, and nothing overtakes
 * it. */
static void frames_of_an_attached_process_wait(void **state)
{
    AUTO_BUF struct buf frames = BUF_INIT(4096), answer = BUF_INIT(1 << 20);
    char id[HOLD_ID_LEN + 1] = "", resized[] = {80, 0, 24, 0};
    struct err err;
    (void)state;
    gate_open(false);
    struct core *core = site.f->w->core;
    gate.kind = EVENT_EXEC_INPUT;
    gate.verdict = GUARD_ASK;
    exec_stream_append(&frames, EXEC_STREAM_STDIN, STR("hello"));
    exec_stream_append(&frames, EXEC_STREAM_RESIZE, str_n(resized, sizeof(resized)));
    facade_send(site.f, site.process, buf_str(&frames));
    WAIT(site.f->w, core->n_holds == 1);
    hold_each(core, gate_allow, id);
    assert_int_equal(gate_traces(EVENT_EXEC_RESIZE), 0);
    assert_int_equal(hold_answer(core, str_of(id), true, "boss", &err), 0);
    facade_receive(site.f, site.process, &answer, "hello");
    WAIT(site.f->w, gate_traces(EVENT_EXEC_RESIZE) == 1);
    assert_int_equal(gate_traces(EVENT_EXEC_INPUT), 1);

    /* What is denied is told, and ends the stream; the process goes on. */
    gate.verdict = GUARD_DENY;
    buf_clear(&frames);
    exec_stream_append(&frames, EXEC_STREAM_STDIN, STR("more"));
    facade_send(site.f, site.process, buf_str(&frames));
    facade_receive(site.f, site.process, &answer, "exec.input is denied by rule 'test'");
    assert_int_equal(gate_traces(EVENT_EXEC_INPUT), 1);
    assert_int_equal(gate_traces(EVENT_EXEC_EXIT), 0);
    gate.kind = EVENT_KIND_UNKNOWN;
    gate_close();
}

/* By what is known of the error, whatever its words. */
static void hints_say_what_to_do_next(void **state)
{
    const struct {
        const char *method, *target, *body, *hint;
    } cases[] = {{"PUT", "/sandboxes/$S/files?path=/full/a", "x", "give it a larger disk"},
                 {"PUT", "/sandboxes/$S/files?path=/busy/a", "x", NULL},
                 {"POST", "/sandboxes", "{}", "raise limits.sandboxes"}};
    (void)state;
    gate_open(false);
    site.f->w->core->config.max_sandboxes = 1;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        AUTO_BUF struct buf b = BUF_INIT(1 << 20), target = BUF_INIT(4096);
        buf_append_cstr(&target, NATIVE_PREFIX);
        gate_expand(&target, cases[i].target);
        buf_append_char(&target, 0);
        assert_int_equal(facade_call(site.f, cases[i].method, buf_data(&target),
                                     "X-API-KEY: " KEY "\r\nContent-Type: application/json\r\n", str_of(cases[i].body),
                                     NULL, &b),
                         429);
        if (cases[i].hint)
            assert_has(&b, cases[i].hint);
        else
            assert_null(memmem(buf_data(&b), buf_len(&b), "hint", 4));
    }
    gate_close();
}

static const struct route *gate_route(const struct gated *g, const struct route *routes, size_t n)
{
    struct str args[ROUTE_ARGS_MAX], path = str_of(g->target), query = path;
    const struct route *route = NULL;
    str_split(&query, '?', &path);
    return route_find(routes, n, g->method, path, &route, args, NULL) == ROUTE_FOUND ? route : NULL;
}

static void every_route_that_changes_something_is_in_the_table(void **state)
{
    const struct {
        enum gate_plane plane;
        const struct route *routes;
        size_t n;
    } tables[] = {{GATE_NATIVE, native_routes, native_routes_n},
                  {GATE_CONTROL, control_routes, control_routes_n},
                  {GATE_ENVD, envd_routes, envd_routes_n},
                  {GATE_VOLUME, volume_routes, volume_routes_n},
                  {GATE_LIFECYCLE, lifecycle_routes, lifecycle_n_routes},
                  {GATE_COMMAND, command_routes, command_n_routes},
                  {GATE_FILES, file_routes, file_n_routes},
                  {GATE_EGRESS, egress_routes, egress_n_routes},
                  {GATE_MCP, mcp_routes, mcp_n_routes},
                  {GATE_FUSION, fusion_routes, fusion_n_routes},
                  {GATE_DOCKER, docker_routes, docker_n_routes},
                  {GATE_CODE, code_routes, code_n_routes},
                  {GATE_INTERPRETER, interpreter_routes, interpreter_routes_n}};
    (void)state;
    for (size_t t = 0; t < ARRAY_SIZE(tables); t++) {
        for (size_t r = 0; r < tables[t].n; r++) {
            const struct route *route = &tables[t].routes[r];
            bool is_there = route->method == HTTP_METHOD_GET || route->method == HTTP_METHOD_HEAD;
            for (size_t i = 0; i < ARRAY_SIZE(gated) && !is_there; i++)
                is_there =
                    gated[i].plane == tables[t].plane && gate_route(&gated[i], tables[t].routes, tables[t].n) == route;
            if (!is_there)
                fail_msg("%s %s: say in this file which action it records, or why none", gate_method(route->method),
                         route->pattern);
        }
        for (size_t i = 0; i < ARRAY_SIZE(gated); i++) {
            if (gated[i].plane == tables[t].plane && !gate_route(&gated[i], tables[t].routes, tables[t].n))
                fail_msg("there is no route for %s", gated[i].target);
            assert_true(gated[i].kind != EVENT_KIND_UNKNOWN || gated[i].note);
        }
    }
}

static void every_tool_that_changes_something_is_in_the_table(void **state)
{
    (void)state;
    for (size_t t = 0; t < mcp_n_tools; t++) {
        bool is_there = mcp_tools[t].flags & (MCP_HARMLESS | MCP_ABSENT);
        for (size_t i = 0; i < ARRAY_SIZE(gated) && !is_there; i++)
            is_there = gated[i].plane == GATE_MCP && strcmp(gated[i].note, mcp_tools[t].name) == 0;
        if (!is_there)
            fail_msg("%s: say in this file which action it records, or why none", mcp_tools[t].name);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_route_that_changes_something_is_in_the_table),
        cmocka_unit_test(every_tool_that_changes_something_is_in_the_table),
        cmocka_unit_test(hints_say_what_to_do_next),
        cmocka_unit_test(frames_of_an_attached_process_wait),
        cmocka_unit_test(clients_leave_at_any_time),
        cmocka_unit_test(what_is_denied_changes_nothing_and_what_is_asked_about_is_done_once_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
