/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/agent/receipt.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cli/events.h"
#include "cli/exec/terminal.h"
#include "cli/net_flags.h"
#include "cli/print.h"

#include <unistd.h>

enum { RECEIPT_SHOWN_MAX = 8, LATE_USEC = 500 * 1000 };

/* Commands end in any order, and a connection belongs to each that ran when it was opened. */
struct receipt {
    json_t *commands, *reached, *refused, *explained, *running; /* running: seq -> command */
    const char *tag;
    json_int_t left_out; /* of commands */
};

static json_int_t receipt_number(const json_t *object, const char *name)
{
    return json_integer_value(json_object_get(object, name));
}

static void receipt_count(json_t *hosts, const char *host, json_int_t n, const json_t *d)
{
    if (!json_object_get(hosts, host) && json_object_size(hosts) >= RECEIPT_HOSTS_MAX)
        host = "others";
    json_t *one = json_object_get(hosts, host);
    if (!one)
        (void)json_object_set_new(hosts, host, one = json_pack("{s:i,s:i,s:i}", "count", 0, "sent", 0, "received", 0));
    (void)json_object_set_new(one, "count", json_integer(receipt_number(one, "count") + n));
    (void)json_object_set_new(one, "sent", json_integer(receipt_number(one, "sent") + receipt_number(d, "sent")));
    (void)json_object_set_new(one, "received",
                              json_integer(receipt_number(one, "received") + receipt_number(d, "received")));
    if (*service_text(d, "suggestion"))
        (void)json_object_set(one, "suggestion", json_object_get(d, "suggestion"));
}

static void receipt_network(struct receipt *r, const char *list, json_t *all, json_int_t n, const json_t *d)
{
    const char *name = service_text(d, "name");
    const json_int_t port = receipt_number(d, "port"); /* 0: its name was asked for, and not given */
    if (!*name)
        name = service_text(d, "address");
    AUTO_FREE char *host = port ? mem_printf("%s:%lld", name, (long long)port) : mem_strdup(name);
    receipt_count(all, host, n, d);
    JSON_FOREACH_MEMBER (seq, command, r->running) {
        receipt_count(json_object_get(command, list), host, n, d);
    }
}

static void receipt_start(struct receipt *r, const json_t *event, const json_t *d)
{
    json_t *argv = json_pack("[s]", service_text(d, "cmd")), *args = json_object_get(d, "args");
    const char *tag = service_text(d, "tag");
    if (r->tag && strcmp(tag, r->tag) == 0) {
        r->left_out = 0;
        (void)json_array_clear(r->commands);
        (void)json_object_clear(r->reached);
        (void)json_object_clear(r->refused);
        (void)json_object_clear(r->running);
    }
    if (json_is_array(args))
        (void)json_array_extend(argv, args);
    json_t *one =
        json_pack("{s:O, s:o, s:s, s:O?, s:O?, s:{}, s:{}, s:o*}", "seq", json_object_get(event, "seq"), "argv", argv,
                  "cwd", service_text(d, "cwd"), "at", json_object_get(event, "time"), "actor",
                  json_object_get(event, "actor"), "reached", "refused", "tag", *tag ? json_string(tag) : NULL);
    AUTO_FREE char *seq = mem_printf("%lld", (long long)receipt_number(event, "seq"));
    if (json_array_size(r->commands) < RECEIPT_COMMANDS_MAX)
        (void)json_array_append(r->commands, one);
    else
        r->left_out++;
    (void)json_object_set_new(r->running, seq, one);
}

static void receipt_end(struct receipt *r, const json_t *event, const json_t *d)
{
    static const char *const taken[] = {"exit_code", "signal", "duration_ms", "deadline_exceeded"};
    AUTO_FREE char *seq = mem_printf("%lld", (long long)receipt_number(event, "cause"));
    json_t *one = json_object_get(r->running, seq);
    for (size_t i = 0; one && i < ARRAY_SIZE(taken); i++)
        if (json_object_get(d, taken[i]))
            (void)json_object_set(one, taken[i], json_object_get(d, taken[i]));
    if (one)
        (void)json_object_set(one, "grade", json_object_get(event, "grade"));
    if (one && *service_text(d, "message"))
        (void)json_object_set(one, "error", json_object_get(d, "message"));
    (void)json_object_del(r->running, seq);
}

static usec_t receipt_time(const json_t *object, const char *name)
{
    usec_t at = 0;
    return clock_parse(str_of(service_text(object, name)), &at) < 0 ? 0 : at;
}

/* It is told a moment later: of each that ran then, or had ended at most LATE_USEC before. */
static void receipt_wrote(struct receipt *r, const json_t *event, const json_t *d)
{
    const usec_t at = receipt_time(event, "time");
    JSON_FOREACH (one, r->commands) {
        const usec_t began = receipt_time(one, "at"), ran = (usec_t)receipt_number(one, "duration_ms") * 1000;
        if (at < began || (json_object_get(one, "grade") && at > began + ran + LATE_USEC))
            continue;
        json_t *wrote = json_setdefault(one, "wrote", json_object());
        JSON_FOREACH (file, json_object_get(d, "files")) {
            json_t *bytes = json_object_get(file, "bytes");
            if (json_object_size(wrote) < RECEIPT_FILES_MAX)
                (void)json_object_set_new(wrote, service_text(file, "path"), bytes ? json_incref(bytes) : json_null());
        }
    }
}

/* Of what may have changed something since commits came out last. */
static void receipt_explain(struct receipt *r, const char *kind, const json_t *explanation)
{
    const size_t n = json_array_size(r->explained);
    if (strcmp(kind, "env.received") == 0)
        (void)json_array_clear(r->explained);
    if (!explanation || strcmp(kind, "file.read") == 0 || strcmp(kind, "file.list") == 0 ||
        json_equal(explanation, json_array_get(r->explained, n - 1)))
        return;
    if (n == RECEIPT_EXPLAINED_MAX)
        (void)json_array_remove(r->explained, 0);
    (void)json_array_append(r->explained, (json_t *)explanation);
}

static void receipt_take(struct receipt *r, const json_t *event)
{
    const char *kind = service_text(event, "kind");
    const json_t *d = json_object_get(event, "data");
    const json_int_t count = receipt_number(d, "count");
    receipt_explain(r, kind, json_object_get(d, "explanation"));
    if (strcmp(kind, "exec.start") == 0)
        receipt_start(r, event, d);
    else if (strcmp(kind, "exec.exit") == 0 || strcmp(kind, "exec.failed") == 0)
        receipt_end(r, event, d);
    else if (strcmp(kind, "file.written") == 0)
        receipt_wrote(r, event, d);
    else if (strcmp(kind, "net.open") == 0)
        receipt_network(r, "reached", r->reached, 1, d);
    else if (strcmp(kind, "net.close") == 0)
        receipt_network(r, "reached", r->reached, 0, d);
    else if (strcmp(kind, "net.denied") == 0)
        receipt_network(r, "refused", r->refused, count ? count : 1, d);
}

int receipt_collect(struct context *ctx, const char *id, uint64_t from, const char *tag, json_t **ret_receipt)
{
    AUTO(service_close) struct service *s = service_open(ctx);
    AUTO_FREE char *target = service_target(id, "/events?from=%llu", (unsigned long long)from);
    AUTO_JSON json_t *all = json_pack("{s:[], s:{}, s:{}, s:[]}", "commands", "reached", "refused", "explained");
    AUTO_JSON json_t *running = json_object();
    struct receipt r = {json_object_get(all, "commands"),
                        json_object_get(all, "reached"),
                        json_object_get(all, "refused"),
                        json_object_get(all, "explained"),
                        running,
                        tag,
                        0};
    json_t *event;
    int more = s ? service_stream(s, "GET", target) : -1;
    while (more == 0 && (more = service_object(s, &event)) > 0) {
        receipt_take(&r, event);
        if (json_object_get(event, "hash")) {
            (void)json_object_set(all, "seq", json_object_get(event, "seq"));
            (void)json_object_set(all, "hash", json_object_get(event, "hash"));
        }
        more = 0;
    }
    if (more < 0)
        return -1;
    if (r.left_out)
        (void)json_object_set_new(all, "left_out", json_integer(r.left_out));
    *ret_receipt = TAKE_PTR(all);
    return 0;
}

/* ---- for a person ---- */

static void receipt_tell_hosts(const json_t *hosts, const char *what, bool suggests)
{
    const char *more;
    size_t n = 0;
    JSON_FOREACH_MEMBER (host, one, hosts) {
        AUTO_BUF struct buf line = BUF_INIT(4096);
        long long count = (long long)json_integer_value(json_object_get(one, "count"));
        if (n++ == RECEIPT_SHOWN_MAX) {
            (void)fprintf(stderr, "  %-9s and %zu more\n", what, json_object_size(hosts) - RECEIPT_SHOWN_MAX);
            return;
        }
        buf_printf(&line, "  %-9s %.200s", what, host);
        if (count > 1)
            buf_printf(&line, " (%lld times)", count);
        if (suggests && (more = json_string_value(json_object_get(one, "suggestion")))) {
            buf_append_cstr(&line, "; ");
            net_flags_suggest(&line, more);
        }
        terminal_line(stderr, "%.*s", STR_ARG(buf_str(&line)));
    }
}

static void receipt_tell_command(const json_t *one)
{
    AUTO_BUF struct buf line = BUF_INIT(64 * 1024);
    const json_t *sig = json_object_get(one, "signal"), *code = sig ? sig : json_object_get(one, "exit_code");
    print_words(&line, json_object_get(one, "argv"), 60);
    line.end = MIN(line.end, line.start + 100);
    if (code)
        buf_printf(&line, ": %s %lld, %.1f s", sig ? "signal" : "exit code", (long long)json_integer_value(code),
                   (double)json_integer_value(json_object_get(one, "duration_ms")) / 1000);
    terminal_line(stderr, "  ran       %.*s", STR_ARG(buf_str(&line)));
}

/* Those that only carry the copy are not told. */
static void receipt_tell_commands(const json_t *commands)
{
    size_t n = 0;
    JSON_FOREACH (one, commands) {
        const char *tag = json_string_value(json_object_get(one, "tag"));
        if (!(tag && strcmp(tag, ENV_TAG) == 0) && n++ < RECEIPT_SHOWN_MAX)
            receipt_tell_command(one);
    }
    if (n > RECEIPT_SHOWN_MAX)
        (void)fprintf(stderr, "  ran       and %zu more\n", n - RECEIPT_SHOWN_MAX);
}

int receipt_tell(struct context *ctx, struct env *e, const char *tag, int status)
{
    AUTO_BUF struct buf files = BUF_INIT(4096), commits = BUF_INIT(256);
    AUTO_JSON json_t *receipt = NULL;
    AUTO_FREE char *range = mem_printf("%s..%s", e->at.base, e->at.head);
    uint64_t n = 0;
    if (REPO_ASK(&e->repo, REPO_OURS, &files, "diff", "--shortstat", "--no-ext-diff", e->at.base, e->at.work, "--") <
            0 ||
        REPO_ASK(&e->repo, REPO_OURS, &commits, "rev-list", "--count", range, "--") < 0 ||
        receipt_collect(ctx, e->id, 1, tag, &receipt) < 0)
        return -1;
    if (str_to_u64(repo_line(&commits), &n) < 0)
        n = 0;
    struct str changed = str_trim(repo_line(&files));
    AUTO_FREE char *review = mem_printf("cove env diff %s", e->name);
    if (ctx->json) {
        (void)json_object_update_new(receipt, json_pack("{s:s, s:s, s:i, s:I, s:s%, s:s, s:s, s:s}", "environment",
                                                        e->name, "sandbox", e->id, "status", status, "commits",
                                                        (json_int_t)n, "changed", changed.p ? changed.p : "", changed.n,
                                                        "base", e->at.base, "head", e->at.head, "review", review));
        print_json(receipt);
        return 0;
    }
    (void)fprintf(stderr, "\n%s: ended with status %d\n  changed   %.*s, %llu commit%s\n", e->name, status,
                  changed.n ? (int)changed.n : 7, changed.n ? changed.p : "nothing", (unsigned long long)n,
                  n == 1 ? "" : "s");
    receipt_tell_commands(json_object_get(receipt, "commands"));
    receipt_tell_hosts(json_object_get(receipt, "reached"), "reached", false);
    receipt_tell_hosts(json_object_get(receipt, "refused"), "refused", true);
    (void)fprintf(stderr, "  review    %s\n", review);
    return 0;
}
