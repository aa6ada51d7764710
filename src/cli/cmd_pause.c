/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/commands.h"
#include "cli/each.h"
#include "config/units.h"

enum { FLAG_FILES_ONLY = 256, FLAG_TIMEOUT, FLAG_COLD };

static const struct flag pause_flags[] = {
    {FLAG_FILES_ONLY, 0, "files-only", NULL,
     "Gives its memory up: its processes end, its files stay, and resuming starts it anew."},
};

static const struct flag resume_flags[] = {
    {FLAG_TIMEOUT, 0, "timeout", "TIME",
     "Ends it (or pauses it again) so long after it runs: 90s, 5m; 0 for never. Default: what it was given last."},
    {FLAG_COLD, 0, "cold", NULL, "Gives the memory up that it was paused with: a new start on its files."},
};

static int pause(struct context *ctx)
{
    const char *value;
    bool files_only = false;
    int flag;
    while ((flag = context_next_flag(ctx, &value)) > 0)
        files_only = true;
    if (flag < 0)
        return context_exit(ctx);
    AUTO_JSON json_t *body = json_pack("{s:b}", "memory", !files_only);
    return each_sandbox(ctx, &(struct each){"pause", "pausing", "paused", body});
}

static int resume(struct context *ctx)
{
    AUTO_JSON json_t *body = json_object();
    const char *value;
    uint64_t ms;
    int flag;
    while ((flag = context_next_flag(ctx, &value)) > 0) {
        if (flag == FLAG_COLD) {
            (void)json_object_set_new(body, "cold", json_true());
            continue;
        }
        if (unit_parse_duration(str_of(value), &ms) < 0 || ms > INT64_MAX)
            return context_usage(ctx, "--timeout %s: write a time such as 90s or 5m", value);
        (void)json_object_set_new(body, "timeout_ms", json_integer((json_int_t)ms));
    }
    if (flag < 0)
        return context_exit(ctx);
    return each_sandbox(ctx, &(struct each){"resume", "resuming", "resumed", body});
}

const struct command cmd_pause = {
    .name = "pause",
    .summary = "let sandboxes stand still",
    .synopsis = "[--files-only] ID...",
    .description =
        "Stops all that runs in the sandboxes where it is. Memory, processes, connections inside, terminals and timers stay, and go on with "
        "'cove resume'; meanwhile no CPU time is used, and the time until a sandbox ends does not run. One that is paused is kept until it is "
        "resumed or removed.\n"
        "\n"
        "With --files-only its processes end and its memory is free; its files stay. That is also what becomes of one that is paused with its "
        "memory when the service stops or the machine restarts.\n"
        "\n"
        "Prints the id of each that is paused. One that can't be paused does not keep the others from it.",
    .exit_status = " 0  all were paused\n 1  one was not; stderr says which and why\n 2  the command line is wrong",
    .examples = "cove pause i3k\n"
                "cove pause --files-only i3k\n"
                "cove ls -q | xargs -r cove pause",
    .operands = "id",
    COMMAND_FLAGS(pause_flags),
    .run = pause,
};

const struct command cmd_resume = {
    .name = "resume",
    .summary = "let paused sandboxes go on",
    .synopsis = "[--timeout TIME] [--cold] ID...",
    .description =
        "Lets the sandboxes go on where they were paused. One whose files alone were kept is started anew on them: as after a restart, with "
        "no process of before. Prints the id of each that runs again. One that can't be resumed does not keep the others from it.",
    .exit_status = " 0  all run\n 1  one does not; stderr says which and why\n 2  the command line is wrong",
    .examples = "cove resume i3k\n"
                "cove resume --timeout 1h i3k",
    .operands = "id",
    COMMAND_FLAGS(resume_flags),
    .run = resume,
};
