/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel saw the processes of a sandbox do, as events of grade observed-kernel. A sandbox can cause any number of them: SEEN_PER_SEC of each kind are logged in a second, fewer
 * the more there are (event_limit_after()); the others are counted (log.suppressed), as is what the kernel itself, or coved, had no room for.
 */
#include "base/mem.h"
#include "policy/mask.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"

#include <sys/wait.h>

enum { SEEN_PER_SEC = 200, ARGV_JSON_MAX = 12288 };

uint64_t record_observed(struct sandbox *sb, const struct event_draft *draft, uint32_t per_sec, uint64_t *told)
{
    struct core *core = sb->core;
    const struct event_limit limit = event_limit_after(*told, per_sec);
    uint64_t seq = 0;
    struct err err;
    int r = per_sec ? event_append_limited(core->config.events, draft, &limit, &seq, &err)
                    : event_append(core->config.events, draft, &seq, &err);
    if (r < 0) {
        core_unrecorded(core, &err);
        return 0;
    }
    *told += seq != 0;
    keeper_wrote(core->keeper);
    return seq;
}

static void seen_append(struct sandbox *sb, enum event_kind kind, struct event_data *d)
{
    const struct event_draft draft = {.sandbox = sb->info.id,
                                      .kind = kind,
                                      .source = EVENT_KERNEL,
                                      .grade = EVENT_OBSERVED_KERNEL,
                                      .data = event_data_end(d)};
    (void)record_observed(sb, &draft, kind == EVENT_LOG_SUPPRESSED ? 0 : SEEN_PER_SEC, &sb->n_seen);
}

/* count 0: nobody knows how many. */
static void seen_lost(struct sandbox *sb, const char *kinds, uint64_t count)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    event_data_str(&d, "kind", str_of(kinds));
    if (count)
        event_data_u64(&d, "count", count);
    seen_append(sb, EVENT_LOG_SUPPRESSED, &d);
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
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    event_data_u64(&d, "pid", s->pid);
    event_data_u64(&d, "parent", s->parent);
    event_data_u64(&d, "host_pid", s->host_pid);
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
    seen_append(sb, EVENT_PROC_EXEC, &d);
}

static void seen_exit(struct sandbox *sb, const struct sup_seen *s)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    event_data_u64(&d, "pid", s->pid);
    event_data_u64(&d, "host_pid", s->host_pid);
    seen_put_status(&d, (int)s->status);
    seen_append(sb, EVENT_PROC_EXIT, &d);
}

static void seen_file(struct sandbox *sb, const struct sup_seen *s)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    event_data_str(&d, "path", str_n(s->text, s->path));
    if (s->kind == SUP_SEEN_MOVE)
        event_data_str(&d, "from", str_n(s->text + s->path, s->program));
    event_data_u64(&d, "bytes", s->bytes);
    event_data_u64(&d, "host_pid", s->host_pid);
    seen_append(sb, EVENT_FILE_WRITTEN, &d);
}

static bool seen_is_open(const struct sandbox *sb)
{
    return sb && sb->info.state != SANDBOX_ENDED && sb->info.state != SANDBOX_FAILED;
}

void seen_record(void *ctx, const struct sup_seen *s)
{
    struct core *core = ctx;
    struct sandbox *sb = map_get(&core->by_id, str_of(s->id));
    if (core->closing)
        return;
    LIST_FOREACH (struct sandbox, each, &core->live, node) {
        if (s->kind == SUP_SEEN_LOST && !s->id[0] && seen_is_open(each))
            seen_lost(each, "file.written", 0);
    }
    if (!seen_is_open(sb))
        return;
    if (s->lost || s->kind == SUP_SEEN_LOST)
        seen_lost(sb, s->lost ? "proc." : "proc.,file.written", s->lost);
    if (s->kind == SUP_SEEN_EXEC)
        seen_exec(sb, s);
    else if (s->kind == SUP_SEEN_EXIT)
        seen_exit(sb, s);
    else if (s->kind == SUP_SEEN_WRITE || s->kind == SUP_SEEN_MOVE)
        seen_file(sb, s);
}
