/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/each.h"
#include "cli/exec/terminal.h"
#include "http/client/docker_names.h"

#include <unistd.h>

static const struct flag pause_flags[] = {
    {'a', "all", NULL, "Pauses every sandbox that runs, as before a restart."},
    {0, "files-only", NULL, "Frees its memory: its processes end, its files stay, and resuming starts it anew."},
    {0, "disk", NULL,
     "Saves its memory to disk and frees it; resuming continues there, even after a restart of the machine. Not in "
     "every tier."},
};

static const struct flag resume_flags[] = {
    {'a', "all", NULL, "Resumes every paused sandbox. Containers that were stopped stay so."},
    {0, "timeout", "TIME",
     "Ends it (or pauses it again) after this time: 90s, 5m; 0 for never. Default: its last timeout."},
    {0, "cold", NULL, "Discards its memory and starts it anew on its files."},
};

static int pause_all(struct context *ctx)
{
    bool files_only = false, to_disk = false, all = false;
    if (CONTEXT_READ(ctx, {"files-only", .on = &files_only}, {"disk", .on = &to_disk}, {"all", .on = &all}) < 0)
        return context_exit(ctx);
    if (files_only && to_disk)
        return context_usage(ctx, "give --files-only or --disk");
    AUTO_JSON json_t *body = json_pack("{s:b, s:s}", "memory", !files_only, "to", to_disk ? "disk" : "memory");
    if (files_only)
        (void)json_object_del(body, "to");
    return each_sandbox(
        ctx, &(struct each){"POST", "pause", "pausing", "paused", .body = body, .all = all ? "running" : NULL});
}

/* Part of an answer that is good: the exit code does not tell it. */
static void warn(const struct context *ctx, const char *id, const char *what, const char *why, const char *then)
{
    AUTO_FREE char *message = mem_printf("%s %s: %s", id, what, why);
    AUTO_FREE char *hint =
        mem_printf("mend it inside, then 'cove pause --files-only %s' and 'cove resume %s'%s", id, id, then);
    if (ctx->json) {
        AUTO_JSON json_t *json = json_pack("{s:{s:s,s:s}}", "warning", "message", message, "hint", hint);
        AUTO_FREE char *text = json_dumps(json, JSON_COMPACT);
        (void)fprintf(stderr, "%s\n", text);
    } else {
        terminal_line(stderr, "cove resume: %s", message);
        terminal_line(stderr, "  %s", hint);
    }
}

static void resumed(const struct context *ctx, const char *id, const json_t *answer)
{
    const char *volumes = json_string_value(json_object_get(answer, "volumes_failed"));
    const char *start = json_string_value(json_object_get(answer, "start_failed"));
    if (volumes)
        warn(ctx, id, "runs without all of its volumes", volumes,
             "; until then what its template starts is not started either");
    if (start)
        warn(ctx, id, "runs without what its template starts", start, "");
}

/* A container whose processes have ended is stopped: without its command there is nothing in it to resume. */
static bool resume_spares(const json_t *sandbox)
{
    return json_object_get(json_object_get(sandbox, "metadata"), DOCKER_IMAGE) &&
           !json_is_true(json_object_get(sandbox, "has_memory"));
}

static int resume_all(struct context *ctx)
{
    bool all = false;
    AUTO_JSON json_t *body = json_object();
    if (CONTEXT_READ(ctx, {"cold", .json = body}, {"all", .on = &all},
                     {"timeout", .json = body, .member = "timeout_ms", .kind = FLAG_TIME, .wanted = CONTEXT_TIME}) < 0)
        return context_exit(ctx);
    return each_sandbox(ctx, &(struct each){"POST", "resume", "resuming", "resumed", body, resumed,
                                            all ? "paused" : NULL, resume_spares});
}

const struct command cmd_pause = {
    .name = "pause",
    .summary = "pause sandboxes",
    .text = &text_pause,
    .operands = "id",
    COMMAND_FLAGS(pause_flags),
    .run = pause_all,
};

const struct command cmd_resume = {
    .name = "resume",
    .summary = "resume paused sandboxes",
    .text = &text_resume,
    .operands = "id",
    COMMAND_FLAGS(resume_flags),
    .run = resume_all,
};
