/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/again.h"
#include "base/buf.h"
#include "base/mem.h"
#include "cli/events.h"
#include "cli/exec/exec.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"

#include <unistd.h>

enum { AGAIN_OUTPUT_MAX = 1 << 20, AGAIN_FILE_MAX = 64 << 20, AGAIN_PATHS_SHOWN = 100 };

struct again {
    struct context *ctx;
    struct service *s;
    const char *old;
    char *new;
    json_t *events;      /* of the old one, since it was handed over */
    json_t *create;      /* its first event */
    json_t *checkpoints; /* seqs; empty: none */
    json_t *done;        /* the exec.start of each command that was done again, in this order */
    size_t n_done, n_skipped, n_differ;
    bool old_lives;
};

static const json_t *again_data(const json_t *event)
{
    return json_object_get(event, "data");
}

static json_int_t again_number(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

static void again_say(struct again *a, const json_t *event, const char *verdict, const char *why)
{
    json_int_t seq = again_number(event, "seq");
    if (a->ctx->json) {
        AUTO_JSON json_t *line = json_pack("{s:I, s:s, s:s, s:s}", "seq", seq, "kind", service_text(event, "kind"),
                                           "result", verdict, "why", why);
        print_json(line);
        return;
    }
    AUTO_FREE char *data = json_dumps(again_data(event), JSON_COMPACT);
    terminal_line(stdout, "%5lld  %-8s %s: %s %.200s", (long long)seq, verdict, why, service_text(event, "kind"),
                  data ? data : "");
}

static void again_skip(struct again *a, const json_t *event, const char *why)
{
    a->n_skipped++;
    again_say(a, event, "skipped", why);
}

static void again_differs(struct again *a, const json_t *event, const char *why)
{
    a->n_differ++;
    again_say(a, event, "differs", why);
}

/* ---- the record ---- */

/* All events of a sandbox since it was handed over, and the policy that it was made with. */
static int again_read(struct again *a, const char *id, json_t *into, json_t **ret_create)
{
    AUTO_FREE char *target = service_target(id, "/events?from=1");
    bool is_started = false;
    json_t *event;
    int r;
    if (service_stream(a->s, "GET", target) < 0)
        return -1;
    while ((r = service_object(a->s, &event)) > 0) {
        const char *kind = service_text(event, "kind");
        if (ret_create && !*ret_create && strcmp(kind, "sandbox.create") == 0)
            *ret_create = json_incref(event);
        if (is_started || strcmp(kind, "net.policy") == 0)
            (void)json_array_append(into, event);
        is_started |= strcmp(kind, "sandbox.started") == 0;
    }
    if (r < 0)
        return -1;
    return is_started
               ? 0
               : err_set(&a->ctx->err, ERR_FAILED_PRECONDITION, "the beginning of its record is gone, or it never ran");
}

/* The event of this kind with this cause; NULL. */
static const json_t *again_effect(const json_t *events, json_int_t cause, const char *kind)
{
    JSON_FOREACH (event, events)
        if (again_number(event, "cause") == cause && strcmp(service_text(event, "kind"), kind) == 0)
            return event;
    return NULL;
}

/* Something else was begun while this ran. */
static bool again_overlaps(const struct again *a, size_t at)
{
    const json_t *event = json_array_get(a->events, at);
    const json_t *end = again_effect(a->events, again_number(event, "seq"), "exec.exit");
    for (size_t i = at + 1; i < json_array_size(a->events); i++) {
        const json_t *other = json_array_get(a->events, i);
        if (end && again_number(other, "seq") > again_number(end, "seq"))
            return false;
        const char *kind = service_text(other, "kind");
        if (strcmp(kind, "exec.start") == 0 || strcmp(kind, "file.write") == 0)
            return true;
    }
    return !end;
}

/* ---- the new sandbox ---- */

static int again_make(struct again *a)
{
    AUTO_JSON json_t *answer = NULL, *body = NULL;
    const json_t *data = again_data(a->create), *sandbox;
    json_int_t first = json_integer_value(json_array_get(a->checkpoints, 0));
    if (first) {
        AUTO_FREE char *target = service_target(a->old, "/fork");
        body = json_pack("{s:I}", "at", first);
        if (service_call(a->s, "POST", target, body, "forking its beginning", &answer) < 0)
            return -1;
        sandbox = json_object_get(json_array_get(json_object_get(answer, "forks"), 0), "sandbox");
    } else if (json_object_get(data, "fork_of")) {
        return err_set(&a->ctx->err, ERR_FAILED_PRECONDITION, "it is a fork, and has no checkpoint of its beginning");
    } else {
        body = json_pack("{s:s, s:I, s:I, s:b, s:O*}", "template", service_text(data, "template"), "memory_bytes",
                         again_number(data, "memory_bytes"), "cpu_milli", again_number(data, "cpu_milli"), "internet",
                         json_is_true(json_object_get(data, "allow_internet")), "tier", json_object_get(data, "tier"));
        JSON_FOREACH (event, a->events) {
            if (strcmp(service_text(event, "kind"), "net.policy") == 0) /* of which the record has not all */
                (void)json_object_set_new(body, "internet", json_false());
        }
        if (service_call(a->s, "POST", "/cove/v1/sandboxes", body, "making a sandbox", &answer) < 0)
            return -1;
        sandbox = answer;
    }
    return service_id(a->ctx, sandbox, &a->new);
}

/* ---- commands ---- */

static int again_exec(struct again *a, char *const *argv, const char *user, const char *cwd,
                      struct exec_result *ret_result)
{
    AUTO_BUF struct buf out = BUF_INIT(AGAIN_OUTPUT_MAX), err = BUF_INIT(AGAIN_OUTPUT_MAX);
    const struct exec_request request = {
        .id = a->new, .argv = argv, .user = *user ? user : NULL, .cwd = *cwd ? cwd : NULL};
    const struct exec_io io = {
        .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1, .captured_stdout = &out, .captured_stderr = &err};
    AUTO(service_close) struct service *s = service_open(a->ctx);
    int r = s ? exec_in_sandbox(a->ctx, s, &request, &io, ret_result) : -1;
    return r < 0 && ret_result->refused ? 0 : r; /* which is what came of it */
}

static int again_command(struct again *a, size_t at)
{
    const json_t *event = json_array_get(a->events, at), *data = again_data(event);
    const json_t *args = json_object_get(data, "args");
    struct exec_result result = {0};
    if (json_is_true(json_object_get(data, "pty")))
        return again_skip(a, event, "somebody had a terminal"), 0;
    if (json_object_get(data, "args_cut") || json_object_get(data, "truncated"))
        return again_skip(a, event, "the record has not all of its arguments"), 0;
    if (again_overlaps(a, at))
        return again_skip(a, event, "it ran beside others"), 0;
    char **argv = mem_array(json_array_size(args) + 2, sizeof(char *));
    argv[0] = (char *)service_text(data, "cmd");
    JSON_FOREACH_AT (i, one, args)
        argv[i + 1] = (char *)json_string_value(one);
    int r = again_exec(a, argv, service_text(data, "user"), service_text(data, "cwd"), &result);
    mem_free(argv);
    if (r < 0)
        return -1;
    a->n_done++;
    (void)json_array_append(a->done, (json_t *)event);
    return 0;
}

/* What it wrote to a channel, as far as events have it. */
static void again_output(const json_t *events, const json_t *start, const char *channel, struct buf *b)
{
    const json_t *output = again_effect(events, again_number(start, "seq"), "exec.output");
    AUTO_FREE char *coded = mem_printf("%s_base64", channel);
    JSON_FOREACH (piece, json_object_get(again_data(output), "output")) {
        if (json_object_get(piece, coded))
            (void)!buf_append_unbase64(b, str_of(service_text(piece, coded)));
        buf_append_cstr(b, service_text(piece, channel));
    }
}

static bool again_same_output(const struct again *a, const json_t *old, const json_t *new_events, const json_t *new)
{
    static const char *const channels[] = {"stdout", "stderr"}, *const members[] = {"tail", "tail_base64", "artefacts"};
    const json_t *was = again_data(again_effect(a->events, again_number(old, "seq"), "exec.exit"));
    const json_t *is = again_data(again_effect(new_events, again_number(new, "seq"), "exec.exit"));
    bool same = again_number(was, "output_bytes") == again_number(is, "output_bytes");
    for (size_t i = 0; i < ARRAY_SIZE(channels); i++) {
        AUTO_BUF struct buf x = BUF_INIT(AGAIN_OUTPUT_MAX), y = BUF_INIT(AGAIN_OUTPUT_MAX);
        again_output(a->events, old, channels[i], &x);
        again_output(new_events, new, channels[i], &y);
        same = same && str_eq(buf_str(&x), buf_str(&y));
    }
    for (size_t i = 0; i < ARRAY_SIZE(members); i++) {
        const json_t *x = json_object_get(was, members[i]), *y = json_object_get(is, members[i]);
        same = same && (x == y || json_equal(x, y));
    }
    return same;
}

static void again_compare_one(struct again *a, const json_t *old, const json_t *events, const json_t *new)
{
    static const char *const ends[] = {"exit_code", "signal"};
    const json_t *was = again_effect(a->events, again_number(old, "seq"), "exec.exit");
    const json_t *is = again_effect(events, again_number(new, "seq"), "exec.exit");
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        const json_t *x = json_object_get(again_data(was), ends[i]), *y = json_object_get(again_data(is), ends[i]);
        if (x != y && !json_equal(x, y)) {
            AUTO_FREE char *old_text = x ? json_dumps(x, JSON_ENCODE_ANY) : NULL;
            AUTO_FREE char *new_text = y ? json_dumps(y, JSON_ENCODE_ANY) : NULL;
            AUTO_FREE char *why =
                mem_printf("%s %s, was %s", ends[i], new_text ? new_text : "none", old_text ? old_text : "none");
            again_differs(a, old, why);
            return;
        }
    }
    if (!again_same_output(a, old, events, new))
        again_differs(a, old, "its output");
}

static int again_compare(struct again *a)
{
    AUTO_JSON json_t *events = json_array(), *create = NULL;
    size_t n = 0;
    (void)usleep(100000); /* what was observed last is in the record a moment later */
    if (again_read(a, a->new, events, &create) < 0)
        return -1;
    if (json_string_length(json_object_get(again_data(a->create), "layer")) && !json_array_size(a->checkpoints) &&
        strcmp(service_text(again_data(create), "layer"), service_text(again_data(a->create), "layer")) != 0)
        again_differs(a, a->create, "its template was built anew since");
    JSON_FOREACH (event, events) {
        const json_t *old = json_array_get(a->done, n);
        if (!old || strcmp(service_text(event, "kind"), "exec.start") != 0)
            continue;
        n++;
        if (!again_number(old, "is_file"))
            again_compare_one(a, old, events, event);
    }
    return 0;
}

/* ---- files ---- */

/* Nothing wrote to it after that. */
static bool again_is_last_write(const struct again *a, size_t at, const char *path)
{
    for (size_t i = at + 1; i < json_array_size(a->events); i++) {
        const json_t *event = json_array_get(a->events, i);
        const char *kind = service_text(event, "kind");
        if (strcmp(kind, "exec.start") == 0 ||
            (str_starts(str_of(kind), STR("file.")) && strcmp(service_text(again_data(event), "path"), path) == 0 &&
             strcmp(kind, "file.read") != 0))
            return false;
    }
    return true;
}

static int again_fetch(struct again *a, const char *from, const char *path, const char *user, struct buf *b)
{
    AUTO_FREE char *target = service_files(from, "files", path, user);
    return service_stream(a->s, "GET", target) < 0 || http_client_read_all(service_client(a->s), b) < 0 ? -1 : 0;
}

/* The contents of a write: 1; 0: nobody knows them any more; -1. */
static int again_contents(struct again *a, size_t at, struct buf *b)
{
    const json_t *event = json_array_get(a->events, at);
    const json_t *done = again_effect(a->events, again_number(event, "seq"), "file.done");
    const char *path = service_text(again_data(event), "path"), *user = service_text(again_data(event), "user");
    JSON_FOREACH (seq, a->checkpoints) {
        if (json_integer_value(seq) != again_number(done, "seq"))
            continue;
        AUTO_JSON json_t *body = json_pack("{s:I}", "at", json_integer_value(seq)), *answer = NULL;
        AUTO_FREE char *target = service_target(a->old, "/fork");
        if (service_call(a->s, "POST", target, body, "looking at a checkpoint", &answer) < 0)
            return -1;
        const json_t *sandbox = json_object_get(json_array_get(json_object_get(answer, "forks"), 0), "sandbox");
        const char *id = json_string_value(json_object_get(sandbox, "id"));
        int r = id ? again_fetch(a, id, path, user, b) : -1;
        if (id)
            (void)!service_remove(a->s, id, NULL);
        return r < 0 ? -1 : 1;
    }
    if (!a->old_lives || !again_is_last_write(a, at, path))
        return 0;
    int r = again_fetch(a, a->old, path, user, b);
    return r == 0 && (json_int_t)buf_len(b) == again_number(again_data(done), "bytes");
}

static int again_write(struct again *a, size_t at)
{
    const json_t *event = json_array_get(a->events, at), *data = again_data(event);
    AUTO_BUF struct buf contents = BUF_INIT(AGAIN_FILE_MAX);
    int r = again_contents(a, at, &contents);
    if (r < 0)
        return -1;
    if (r == 0)
        return again_skip(a, event, "nobody has its contents any more"), 0;
    AUTO_FREE char *target = service_files(a->new, "files", service_text(data, "path"), service_text(data, "user"));
    if (service_put(a->s, target, buf_str(&contents)) < 0)
        return -1;
    a->n_done++;
    return 0;
}

/* By the commands that do the same; what they write is not looked at. */
static int again_change(struct again *a, const json_t *event, const char *program, const char *option)
{
    const json_t *data = again_data(event);
    const char *destination = service_text(data, "destination");
    char *argv[] = {(char *)program,
                    (char *)option,
                    "--",
                    (char *)service_text(data, "path"),
                    *destination ? (char *)destination : NULL,
                    NULL};
    struct exec_result result = {0};
    if (again_exec(a, argv, service_text(data, "user"), "", &result) < 0)
        return -1;
    a->n_done++;
    AUTO_JSON json_t *mark = json_pack("{s:i}", "is_file", 1);
    (void)json_array_append(a->done, mark);
    bool failed = again_effect(a->events, again_number(event, "seq"), "file.failed") != NULL;
    if (failed != (!result.ended || result.signaled || result.code))
        again_differs(a, event, failed ? "it failed before" : "it fails");
    return 0;
}

/* What is different in the end, when the old one is there to be looked at. */
static int again_files(struct again *a)
{
    AUTO_FREE char *target = mem_printf("/cove/v1/diff?a=%s&b=%s", a->old, a->new);
    json_t *one;
    size_t n = 0;
    int r;
    if (service_stream(a->s, "GET", target) < 0)
        return -1;
    while ((r = service_object(a->s, &one)) > 0) {
        const char *path = service_text(one, "path");
        if (!*path || n++ >= AGAIN_PATHS_SHOWN)
            continue;
        if (a->ctx->json)
            print_json(one);
        else
            terminal_line(stdout, "files  differs  %s: %s", service_text(one, "change"), path);
    }
    a->n_differ += n;
    return r < 0 ? -1 : 0;
}

/* ---- all of it ---- */

static int again_one(struct again *a, size_t at)
{
    static const struct {
        const char *kind, *program, *option;
    } changes[] = {{"file.mkdir", "mkdir", "-p"}, {"file.remove", "rm", "-r"}, {"file.move", "mv", "-T"}};
    static const char lost[] = "file.unpack exec.input code.run code.restart sandbox.rewind";
    const json_t *event = json_array_get(a->events, at);
    const char *kind = service_text(event, "kind");
    if (strcmp(kind, "exec.start") == 0)
        return again_command(a, at);
    if (strcmp(kind, "file.write") == 0)
        return again_write(a, at);
    for (size_t i = 0; i < ARRAY_SIZE(changes); i++)
        if (strcmp(kind, changes[i].kind) == 0)
            return again_change(a, event, changes[i].program, changes[i].option);
    if (str_word(str_of(kind), lost) >= 0)
        again_skip(a, event, "the record does not say enough of it");
    return 0;
}

static int again_look(struct again *a)
{
    AUTO_JSON json_t *answer = NULL, *sandbox = NULL;
    AUTO_FREE char *old = service_target(a->old, "%s", ""), *target = service_target(a->old, "/checkpoints");
    if (again_read(a, a->old, a->events, &a->create) < 0)
        return -1;
    a->old_lives = service_call(a->s, "GET", old, NULL, NULL, &sandbox) == 0 &&
                   json_is_null(json_object_get(sandbox, "ended_at")) &&
                   strcmp(service_text(sandbox, "state"), "stopping") != 0 &&
                   service_call(a->s, "GET", target, NULL, NULL, &answer) == 0;
    JSON_FOREACH (one, json_object_get(answer, "checkpoints"))
        (void)json_array_append(a->checkpoints, json_object_get(one, "seq"));
    return again_make(a);
}

int again_run(struct context *ctx, struct service *s, const char *id, bool keeps)
{
    struct again a = {
        .ctx = ctx, .s = s, .old = id, .events = json_array(), .checkpoints = json_array(), .done = json_array()};
    int r = again_look(&a);
    for (size_t i = 0; r == 0 && i < json_array_size(a.events); i++)
        r = again_one(&a, i);
    if (r == 0)
        r = again_compare(&a);
    if (r == 0 && a.old_lives)
        r = again_files(&a);
    if (a.new && !keeps)
        (void)!service_remove(a.s, a.new, NULL);
    if (r == 0 && !ctx->json)
        (void)printf("%s: %zu done again, %zu skipped, %zu differ%s\n", a.new, a.n_done, a.n_skipped, a.n_differ,
                     a.old_lives ? "" : "; the files were not compared, as the sandbox has ended");
    json_decref(a.events);
    json_decref(a.create);
    json_decref(a.checkpoints);
    json_decref(a.done);
    mem_free(a.new);
    return r < 0 ? context_fail(ctx, STATUS_FAILED) : a.n_differ ? STATUS_FAILED : STATUS_OK;
}
