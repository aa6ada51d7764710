/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/events.h"
#include "base/mem.h"
#include "cli/env/env.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"
#include "cli/service.h"

#include <unistd.h>

enum { ASK_AGAIN_MS = 500, ASK_AGAIN_TIMES = 60 };

void events_time(const json_t *event, char ret_text[static EVENTS_TIME_MAX])
{
    const char *time = strchr(service_text(event, "time"), 'T');
    (void)snprintf(ret_text, EVENTS_TIME_MAX, "%.12s", time ? time + 1 : "");
}

void events_command(struct buf *b, const json_t *data)
{
    buf_append_cstr(b, service_text(data, "cmd"));
    JSON_FOREACH (arg, json_object_get(data, "args")) {
        const char *text = json_string_value(arg);
        bool plain = text && *text && !text[strcspn(text, " \t\n'\"$`\\|&;<>()*?[]#~")];
        buf_printf(b, plain ? " %s" : " '%s'", text ? text : "");
    }
}

/* Bytes are for --json, which has them all. */
static void events_shorten(json_t *data)
{
    static const struct str mark = {"_base64", 7};
    enum { SHOWN = 64 };
    JSON_FOREACH (one, json_is_array(data) ? data : NULL)
        events_shorten(one);
    JSON_FOREACH_MEMBER (key, value, json_is_object(data) ? data : NULL) {
        if (!json_is_string(value))
            events_shorten(value);
        else if (str_ends(str_of(key), mark) && json_string_length(value) > SHOWN)
            (void)json_string_set_nocheck(value, "...");
    }
}

static void events_line(const json_t *e)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    const json_t *gap = json_object_get(e, "gap");
    if (gap) {
        (void)printf("events %lld to %lld are no longer kept\n",
                     (long long)json_integer_value(json_object_get(gap, "from")),
                     (long long)json_integer_value(json_object_get(gap, "to")));
        return;
    }
    long long cause = json_integer_value(json_object_get(e, "cause"));
    const json_t *cursor = json_object_get(e, "cursor");
    if (cursor)
        buf_printf(&b, "%8lld  %-24s", (long long)json_integer_value(cursor), service_text(e, "sandbox"));
    buf_printf(&b, "%5lld  %s  %-20s  %-15s  ", (long long)json_integer_value(json_object_get(e, "seq")),
               service_text(e, "time"), service_text(e, "kind"), service_text(e, "grade"));
    if (cause > 0)
        buf_printf(&b, "of %lld  ", cause);
    if (*service_text(e, "actor"))
        buf_printf(&b, "by %s  ", service_text(e, "actor"));
    AUTO_JSON json_t *shown = json_deep_copy(json_object_get(e, "data"));
    events_shorten(shown);
    AUTO_FREE char *data = json_dumps(shown, JSON_COMPACT);
    buf_append_cstr(&b, data ? data : "");
    terminal_line(stdout, "%.*s", STR_ARG(buf_str(&b)));
}

uint64_t events_number(const json_t *e)
{
    const json_t *gap = json_object_get(e, "gap"), *cursor = json_object_get(e, "cursor");
    const json_t *n = gap ? json_object_get(gap, "to") : cursor ? cursor : json_object_get(e, "seq");
    json_int_t number = json_integer_value(n);
    return number > 0 ? (uint64_t)number : 0;
}

/* Until the stream ends: 0, or -1. *from moves on. */
static int events_take_some(struct context *ctx, struct service *s, const struct events_want *want, uint64_t *from)
{
    AUTO_FREE char *whole = mem_printf("%s%llu", want->target, (unsigned long long)*from);
    json_t *event;
    int r;
    if (service_stream(s, "GET", whole) < 0)
        return -1;
    if (want->follows)
        http_client_timeout(service_client(s), -1);
    while ((r = service_object(s, &event)) > 0) {
        if ((r = want->take(ctx, event, service_line(s), want->arg)) <= 0)
            return r;
        *from = MAX(*from, events_number(event) + 1);
    }
    return r;
}

int events_take(struct context *ctx, struct service *s, const struct events_want *want, uint64_t from)
{
    uint64_t told = from;
    int r = events_take_some(ctx, s, want, &from);
    for (int i = 0; r < 0 && want->follows && from > told && ctx->err.code == ERR_UNAVAILABLE && i < ASK_AGAIN_TIMES;
         i++) {
        (void)usleep(ASK_AGAIN_MS * 1000);
        AUTO(service_close) struct service *again = service_open(ctx);
        uint64_t before = from;
        r = again ? events_take_some(ctx, again, want, &from) : -1;
        i = from > before ? 0 : i;
    }
    return r < 0 ? context_fail(ctx, STATUS_FAILED) : STATUS_OK;
}

/* What the kernel saw processes do by themselves, of which there can be much more than of all else. */
static const struct {
    const char *kind, *list;
} events_inside[] = {{"proc.exec", "programs"}, {"proc.exit", "ended"}, {"file.written", "files"}};

struct events_printing {
    const struct events_printed *what;
    size_t n_left_out;
};

static bool events_leave_out(struct events_printing *p, const json_t *event)
{
    for (size_t i = 0; !p->what->has_inside && i < ARRAY_SIZE(events_inside); i++) {
        if (strcmp(service_text(event, "kind"), events_inside[i].kind) == 0) {
            p->n_left_out += json_array_size(json_object_get(json_object_get(event, "data"), events_inside[i].list));
            return true;
        }
    }
    return false;
}

static int events_print_one(struct context *ctx, const json_t *event, struct str line, void *arg)
{
    struct events_printing *p = arg;
    const char *time = service_text(event, "time"); /* of one length: they compare as text. A gap has none */
    if (*time && p->what->since && strcmp(time, p->what->since) < 0)
        return 1;
    if (*time && p->what->until && strcmp(time, p->what->until) >= 0)
        return 0;
    if (ctx->json)
        print_json_line(event, line);
    else if (!events_leave_out(p, event))
        events_line(event);
    return !p->what->follows || fflush(stdout) == 0;
}

int events_print(struct context *ctx, struct service *s, const char *target, uint64_t from,
                 const struct events_printed *what)
{
    struct events_printing p = {what, 0};
    int status = events_take(ctx, s, &(struct events_want){target, what->follows, events_print_one, &p}, from);
    if (p.n_left_out)
        (void)fprintf(
            stderr,
            "left out: programs and written files that the kernel saw inside, %zu in all; --inside prints them\n",
            p.n_left_out);
    return status;
}

/*
 * One of the commands that `cove env` runs for itself, or what became of it. starts: those that run, by number; *n
 * counts them.
 */
static bool events_is_own(const json_t *event, json_t *starts, size_t *n)
{
    char number[24];
    const char *kind = service_text(event, "kind");
    const bool starts_here = strcmp(kind, "exec.start") == 0;
    (void)snprintf(number, sizeof(number), "%llu", service_number(event, starts_here ? "seq" : "cause"));
    if (!starts_here) {
        const bool is_own = json_object_get(starts, number);
        if (strcmp(kind, "exec.exit") == 0 || strcmp(kind, "exec.failed") == 0)
            (void)json_object_del(starts, number);
        return is_own;
    }
    if (strcmp(service_text(json_object_get(event, "data"), "tag"), ENV_TAG) != 0)
        return false;
    *n += 1;
    return json_object_set_new(starts, number, json_true()) == 0;
}

struct events_showing {
    const struct events *what;
    bool follows;
    json_t *own; /* as above; NULL: they are shown, too */
    size_t n_own;
};

static int events_show(struct context *ctx, const json_t *event, struct str line, void *arg)
{
    struct events_showing *showing = arg;
    const struct str kind = str_of(service_text(event, "kind"));
    if (ctx->json && str_starts(kind, str_of(showing->what->json_kinds)))
        print_json_line(event, line);
    else if (!ctx->json && !(showing->own && events_is_own(event, showing->own, &showing->n_own)))
        showing->what->print(event);
    return !showing->follows || fflush(stdout) == 0;
}

int events_run(struct context *ctx, const struct events *what)
{
    bool follows = false, is_last = false, has_own = false;
    if (CONTEXT_READ(ctx, {"follow", .on = &follows}, {"last", .on = &is_last}, {"own", .on = &has_own}) < 0)
        return context_exit(ctx);
    if (is_last && context_operands(ctx))
        return context_usage(ctx, "--last takes no id");
    if (!is_last && context_operands(ctx) != 1)
        return context_one_sandbox(ctx, context_operands(ctx));

    AUTO_FREE char *id = NULL, *target = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || (is_last ? service_newest(s, &id) : service_resolve_log(s, ctx->argv[ctx->argi], &id)) < 0)
        return context_fail(ctx, STATUS_FAILED);
    target = service_target(id, "/events?%sfollow=%d&from=", what->query, follows);
    AUTO_JSON json_t *own = what->leaves_own_out && !has_own ? json_object() : NULL;
    struct events_showing showing = {what, follows, own, 0};
    int status = events_take(ctx, s, &(struct events_want){target, follows, events_show, &showing}, 1);
    if (showing.n_own)
        (void)fprintf(stderr, "left out: %zu command%s that 'cove env' ran for itself; --own prints %s\n",
                      showing.n_own, showing.n_own == 1 ? "" : "s", showing.n_own == 1 ? "it" : "them");
    return status;
}
