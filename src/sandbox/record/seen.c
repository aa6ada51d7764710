/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel saw the processes of a sandbox do, as events of grade observed-kernel.
 *
 *  1. What a message of coved has of one sandbox and kind, one after the other, is one event: a row of its own for each
 *     program would cost three times as much (seen_batch).
 *  2. A sandbox can cause any number of them: about SUP_SEEN_PER_SEC of each kind are logged in a second, fewer the
 *     more there are (event_limit_after()). The others are counted (log.suppressed), as is what the kernel itself, or
 *     coved, had no room for.
 */
#include "policy/mask.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"

#include <sys/wait.h>

#define SEEN_THING ((struct event_data){.buf = BUF_INIT(EVENT_DATA_MAX - SEEN_FRAME)})

enum {
    SEEN_FRAME = 32,              /* bytes of an event around its things */
    ARGV_JSON_MAX = 6 * 2048 + 64 /* each byte takes six at most */
};

uint64_t record_observed(struct sandbox *sb, const struct event_draft *draft, const struct event_limit *limit,
                         uint64_t *told)
{
    struct core *core = sb->core;
    uint64_t seq = 0;
    struct err err;
    int r = limit ? event_append_limited(core->config.events, draft, limit, &seq, &err)
                  : event_append(core->config.events, draft, &seq, &err);
    if (r < 0) {
        core_unrecorded(core, &err);
        return 0;
    }
    *told += seq ? MAX(draft->count, 1u) : 0;
    keeper_wrote(core->keeper);
    return seq;
}

static struct event_limit seen_limit(const struct sandbox *sb)
{
    struct event_limit limit = event_limit_after(sb->n_seen, SUP_SEEN_PER_SEC);
    limit.burst *= SUP_SEEN_SECONDS;
    limit.window *= SUP_SEEN_SECONDS;
    return limit;
}

/* count 0: it is no thing that was seen, and has no limit. */
static void seen_append(struct sandbox *sb, enum event_kind kind, uint32_t count, struct str data)
{
    const struct event_draft draft = {.sandbox = sb->info.id,
                                      .kind = kind,
                                      .source = EVENT_KERNEL,
                                      .grade = EVENT_OBSERVED_KERNEL,
                                      .data = data,
                                      .count = count};
    const struct event_limit limit = seen_limit(sb);
    (void)record_observed(sb, &draft, count ? &limit : NULL, &sb->n_seen);
}

/* Counted as what is beyond the limit is, without a look at how much of that is left. */
static void seen_more(struct sandbox *sb, enum event_kind kind, uint32_t count)
{
    const struct event_draft draft = {
        .sandbox = sb->info.id, .kind = kind, .source = EVENT_KERNEL, .grade = EVENT_OBSERVED_KERNEL, .count = count};
    struct event_limit limit = seen_limit(sb);
    limit.burst = 0;
    (void)record_observed(sb, &draft, &limit, &sb->n_seen);
}

static void seen_batch_end(struct seen_batch *b)
{
    if (b->n) {
        (void)buf_append_cstr(&b->data, "]}");
        seen_append(b->sb, b->kind, b->n, buf_str(&b->data));
    }
    buf_fini(&b->data);
    b->n = 0;
}

/* That of this sandbox, or an empty one. */
static struct seen_batch *seen_batch_of(struct sandbox *sb)
{
    struct seen_batch *batches = sb->core->seen, *unused = NULL;
    for (size_t i = 0; i < SEEN_BATCHES; i++) {
        if (batches[i].n && batches[i].sb == sb)
            return &batches[i];
        unused = batches[i].n ? unused : &batches[i];
    }
    if (!unused)
        seen_batch_end(unused = batches);
    return unused;
}

static void seen_add(struct sandbox *sb, enum event_kind kind, const char *list, struct event_data *thing)
{
    struct seen_batch *b = seen_batch_of(sb);
    struct str text = event_data_end(thing);
    if (b->n && (b->kind != kind || buf_len(&b->data) + text.n + SEEN_FRAME > EVENT_DATA_MAX))
        seen_batch_end(b);
    if (b->n == 0) {
        b->sb = sb;
        b->kind = kind;
        buf_init(&b->data, EVENT_DATA_MAX);
        (void)buf_printf(&b->data, "{\"%s\":[", list);
    }
    (void)buf_append_cstr(&b->data, b->n++ ? "," : "");
    (void)buf_append_str(&b->data, text);
}

/* count 0: nobody knows how many. */
static void seen_lost(struct sandbox *sb, const char *kinds, uint64_t count)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("kind", kinds), DATA_COUNT("count", count));
    seen_append(sb, EVENT_LOG_SUPPRESSED, 0, event_data_end(&d));
}

/* Arguments as a list, without credentials. */
static void seen_put_argv(struct event_data *d, struct str argv)
{
    AUTO_BUF struct buf list = BUF_INIT(ARGV_JSON_MAX), shown = BUF_INIT(2 * SUP_SEEN_TEXT);
    bool hides = false;
    (void)buf_append_char(&list, '[');
    for (struct str argument; argv.n && str_split(&argv, 0, &argument);) {
        buf_clear(&shown);
        mask_secrets(hides ? STR("***") : argument, &shown);
        hides = mask_wants_next(argument);
        (void)buf_append_cstr(&list, buf_len(&list) > 1 ? "," : "");
        (void)buf_append_json_string(&list, buf_str(&shown));
    }
    (void)buf_append_char(&list, ']');
    if (!buf_error(&list))
        event_data_json(d, "argv", buf_str(&list));
}

static void seen_put_status(struct event_data *d, int status)
{
    if (WIFSIGNALED(status))
        event_data_u64(d, "signal", (uint64_t)WTERMSIG(status));
    else
        event_data_u64(d, "exit_code", (uint64_t)WEXITSTATUS(status));
}

static void seen_exec(struct sandbox *sb, const struct sup_seen *s)
{
    AUTO_EVENT_DATA struct event_data d = SEEN_THING;
    EVENT_DATA_PUT(&d, DATA_U64("at", s->at), DATA_U64("pid", s->pid), DATA_U64("parent", s->parent),
                   DATA_U64("host_pid", s->host_pid));
    if (s->uid != UINT32_MAX)
        event_data_u64(&d, "uid", s->uid);
    if (s->has_ended)
        seen_put_status(&d, (int)s->status);
    if (s->argv_bytes > s->argv)
        event_data_u64(&d, "argv_bytes", s->argv_bytes);
    /* By what they are worth: an event has no room for all where each byte of a path takes six. */
    seen_put_argv(&d, str_n(s->text, s->argv));
    event_data_str(&d, "program", str_n(s->text + s->argv, s->program));
    if (s->path)
        event_data_str(&d, "cwd", str_n(s->text + s->argv + s->program, s->path));
    seen_add(sb, EVENT_PROC_EXEC, "programs", &d);
}

static void seen_exit(struct sandbox *sb, const struct sup_seen *s)
{
    AUTO_EVENT_DATA struct event_data d = SEEN_THING;
    EVENT_DATA_PUT(&d, DATA_U64("at", s->at), DATA_U64("pid", s->pid), DATA_U64("host_pid", s->host_pid));
    seen_put_status(&d, (int)s->status);
    seen_add(sb, EVENT_PROC_EXIT, "ended", &d);
}

static void seen_file(struct sandbox *sb, const struct sup_seen *s)
{
    AUTO_EVENT_DATA struct event_data d = SEEN_THING;
    event_data_str(&d, "path", str_n(s->text, s->path));
    if (s->kind == SUP_SEEN_MOVE)
        event_data_str(&d, "from", str_n(s->text + s->path, s->program));
    EVENT_DATA_PUT(&d, DATA_U64("bytes", s->bytes), DATA_U64("host_pid", s->host_pid));
    seen_add(sb, EVENT_FILE_WRITTEN, "files", &d);
}

static bool seen_is_open(const struct sandbox *sb)
{
    return sb && sb->info.state != SANDBOX_ENDED && sb->info.state != SANDBOX_FAILED;
}

void seen_record(void *ctx, const struct sup_seen *s)
{
    struct core *core = ctx;
    for (size_t i = 0; !s && i < SEEN_BATCHES; i++)
        seen_batch_end(&core->seen[i]);
    struct sandbox *sb = s ? map_get(&core->by_id, str_of(s->id)) : NULL;
    if (!s || core->closing)
        return;
    LIST_FOREACH (struct sandbox, each, &core->live, node) {
        if (s->kind == SUP_SEEN_LOST && !s->id[0] && seen_is_open(each))
            seen_lost(each, "file.written", 0);
    }
    if (!seen_is_open(sb))
        return;
    if (s->kind == SUP_SEEN_MORE)
        seen_more(sb, EVENT_FILE_WRITTEN, s->lost);
    else if (s->lost || s->kind == SUP_SEEN_LOST)
        seen_lost(sb, s->lost ? "proc." : "proc.,file.written", s->lost);
    if (s->kind == SUP_SEEN_EXEC)
        seen_exec(sb, s);
    else if (s->kind == SUP_SEEN_EXIT)
        seen_exit(sb, s);
    else if (s->kind == SUP_SEEN_WRITE || s->kind == SUP_SEEN_MOVE)
        seen_file(sb, s);
}
