/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/exec/environment.h"
#include "cli/exec/exec_input.h"
#include "cli/exec/exec_report.h"

#include <unistd.h>

static const struct flag exec_flags[] = {
    EXEC_STDIN_FLAGS,
    {'d', "detach", NULL, "Returns once the command has started; it goes on by itself."},
    {'e', "env", "NAME[=VALUE]",
     "Sets an environment variable of the command; without a value, to the one it has here. May be given several "
     "times."},
    {'u', "user", "NAME", "Runs the command as this user of the sandbox. Default: user."},
    {'w', "cwd", "DIR", "Runs the command in this directory. Default: the user's home."},
};

static int run_in(struct context *ctx, struct exec_request *request)
{
    AUTO(service_close) struct service *s = NULL;
    AUTO_FREE char *id = NULL;
    AUTO_BUF struct buf out = BUF_INIT(EXEC_CAPTURE_MAX), err = BUF_INIT(EXEC_CAPTURE_MAX);
    struct exec_result result = {0};
    const struct exec_io io = {
        .stdin_fd = STDIN_FILENO,
        .stdout_fd = ctx->json ? -1 : STDOUT_FILENO,
        .stderr_fd = ctx->json ? -1 : STDERR_FILENO,
        .captured_stdout = &out,
        .captured_stderr = &err,
        .forwards_signals = true,
    };
    s = service_open(ctx);
    if (!s || service_resolve(s, request->id, &id) < 0)
        return context_fail(ctx, STATUS_COVE);
    request->id = id;
    exec_block_signals();
    bool failed = exec_in_sandbox(ctx, s, request, &io, &result) < 0;
    int status = exec_status(&result, failed);
    if (ctx->json && (result.started || result.interrupted))
        exec_report_print("", &(struct exec_report){&result, exec_report_reason(&result, failed), &out, &err});
    if (failed)
        return context_fail(ctx, status);
    if (!ctx->json && !request->leaves)
        exec_explain_silence(ctx, request, &result);
    return status;
}

/* "ID -it -- bash": no program is called -it. One that is comes after a --. */
static int refuse_late_options(struct context *ctx, const struct exec_request *request)
{
    AUTO_BUF struct buf line = BUF_INIT(160);
    char *const *word = request->argv, *const *end = word;
    while (*end && strcmp(*end, "--") != 0)
        end++;
    bool has_command = end[0] && end[1];
    buf_append_cstr(&line, "cove exec ");
    while (word < end && (has_command || **word == '-'))
        buf_printf(&line, "%s ", *word++);
    buf_printf(&line, "%s --", request->id);
    word = has_command ? end + 1 : word;
    while (*word && word != end)
        buf_printf(&line, " %s", *word++);
    return buf_error(&line) ? context_usage(ctx, "options go before the id: cove exec %s ID -- COMMAND", *request->argv)
                            : context_usage(ctx, "options go before the id: %.*s", STR_ARG(buf_str(&line)));
}

static int exec_run(struct context *ctx)
{
    AUTO_JSON json_t *env = NULL;
    struct exec_request request = {0};
    enum exec_stdin choice = EXEC_STDIN_BY_KIND;
    if (CONTEXT_READ(ctx, {"tty", .on = &request.has_pty}, {"detach", .on = &request.leaves},
                     {"user", .text = &request.user}, {"cwd", .text = &request.cwd},
                     {"env", .take = environment_take, .arg = &env}, {"", .take = exec_take_stdin, .arg = &choice}) < 0)
        return context_exit(ctx);
    request.argv = ctx->argv + ctx->argi;
    if (context_operands(ctx) == 0)
        return context_one_sandbox(ctx, 0);
    request.id = *request.argv++;
    if (*request.argv && strcmp(*request.argv, "--") == 0)
        request.argv++;
    else if (*request.argv && **request.argv == '-')
        return refuse_late_options(ctx, &request);
    if (!*request.argv)
        return context_usage(ctx, "the command is missing: cove exec %s -- ls", request.id);
    if (request.leaves && (request.has_pty || choice == EXEC_STDIN_ALWAYS || ctx->json))
        return context_usage(ctx, "-d excludes -i, -t and --json");
    if (exec_choose_stdin(ctx, &request, request.leaves ? EXEC_STDIN_NEVER : choice) < 0)
        return context_fail(ctx, STATUS_USAGE);
    if (request.has_pty && ctx->json)
        return context_usage(ctx, "--json and -t exclude each other");
    request.env = env;
    return run_in(ctx, &request);
}

const struct command cmd_exec = {
    .name = "exec",
    .summary = "run a command in an existing sandbox",
    .text = &text_exec,
    .operands = "id|command",
    COMMAND_FLAGS(exec_flags),
    .flags_end_at_operand = true,
    .run = exec_run,
};
