/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox lives exactly as long as `cove run`, whatever happens to it: it is made with a short time to live, which is
 * prolonged while the command runs; so a `cove run` that is killed leaves a sandbox that ends by itself soon.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/domain/vault_client.h"
#include "cli/events.h"
#include "cli/exec/environment.h"
#include "cli/exec/exec_input.h"
#include "cli/exec/exec_report.h"
#include "cli/exec/terminal.h"
#include "cli/net_flags.h"
#include "config/units.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

/* What coved gives to none; less of a disk is a slip of the pen. */
enum { MEMORY_LEAST = 16 << 20, DISK_LEAST = 1 << 20 };
enum { RUN_LEASE_MS = 120000, RUN_RENEW_MS = 30000, RUN_WATCH_MS = 500, LOG_MS = 10000 };

static const struct flag run_flags[] = {
    {'e', "env", "NAME[=VALUE]",
     "Sets an environment variable of the command; without a value, to the one it has here. May be given several "
     "times."},
    {'u', "user", "NAME", "Runs the command as this user of the sandbox. Default: user."},
    {'w', "cwd", "DIR", "Runs the command in this directory. Default: the user's home."},
    EXEC_STDIN_FLAGS,
    {'v', "verbose", NULL, "Prints the sandbox's id to stderr before the command starts."},
    {0, "keep", NULL, "Keeps the sandbox, and prints its id and when it ends to stderr."},
    {0, "timeout", "TIME",
     "Ends the sandbox after this time: 90s, 5m, 1h30m. Default: with the command; with --keep the service's. 0: "
     "never by itself."},
    {0, "pause-on-timeout", NULL,
     "Pauses the sandbox at its timeout instead of ending it; 'cove resume' continues it. Implies --keep."},
    {0, "template", "NAME", "The template of the sandbox. Default: base."},
    {0, "memory", "SIZE", "The most memory that it may use: 512M, 2GiB. Default: the template's."},
    {0, "cpus", "NUMBER", "The most CPU time that it may use, in CPUs: 1.5. Default: the template's."},
    {0, "disk", "SIZE",
     "The most that it may write to its disk: 2GiB. Default: the template's. Not every pool can limit this ('cove "
     "pool')."},
    {0, "tier", "NAME", "The boundary around it ('cove doctor' lists them). Default: the template's."},
    {0, "volume", "NAME:PATH[:ro]",
     "Mounts a volume ('cove volume') at this absolute path; :ro makes it read-only. May be given several times."},
    {0, "metadata", "KEY=VALUE", "Labels the sandbox. May be given several times."},
    {0, "checkpoint", "WHEN",
     "When to keep a checkpoint for 'cove rewind': action, N (every "
     "Nth) or risk."},
    {0, "open", NULL,
     "Makes a sandbox without an access token: anybody who knows its id, which is part of the host names of its "
     "ports, can run commands and use files in it."},
    NET_FLAGS,
    NET_SECRET_FLAG,
};

struct run {
    struct context *ctx;
    struct service *service; /* what is done to the sandbox; the command has a connection of its own */
    json_t *spec;
    struct exec_request exec;
    char *id;
    struct net_flags net;
    bool keeps, has_timeout, says_id;
    bool pauses, was_paused; /* at its timeout */
    bool was_killed;         /* the command, by SIGKILL */
    uint64_t memory_bytes;
    enum exec_stdin stdin_choice;
    usec_t started;
    struct buf out, err; /* what it wrote, for --json */
    struct exec_result result;
    char end_at[CLOCK_TEXT_MAX]; /* of one that is kept; "": never, or not known */
    const char *reason; /* of the end, when it is not the command's own, or not for a reason of its own; for --json */
};

static const char reason_timeout[] = "timeout";

/* What stands for a secret is the sandbox's to know, so that whatever is started in it later knows it too. */
static int add_network(struct context *ctx, struct run *r)
{
    AUTO_JSON json_t *env = NULL;
    json_t *policy;
    if (net_flags_policy(ctx, &r->net, &env, &policy) < 0)
        return -1;
    if (policy)
        (void)json_object_set_new(r->spec, "network", policy);
    if (vault_check_names(ctx, r->net.secrets, policy) < 0)
        return -1;
    JSON_FOREACH_MEMBER (name, value, env)
        if (json_object_get(r->exec.env, name))
            return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "the variable %s is set by -e and by --secret", name);
    if (env)
        (void)json_object_set(r->spec, "env", env);
    return 0;
}

/* NAME:PATH[:ro] */
static int run_take_volume(struct context *ctx, void *arg, const char *flag UNUSED, const char *text)
{
    struct run *r = arg;
    const char *colon = strchr(text, ':');
    size_t n = colon ? strlen(colon + 1) : 0;
    bool read_only = n > 3 && strcmp(colon + 1 + n - 3, ":ro") == 0;
    if (!colon || colon == text || colon[1] != '/')
        return context_usage(ctx, "--volume %s: write NAME:/PATH, or NAME:/PATH:ro", text);
    json_t *one = json_pack("{s:s%, s:s%, s:b}", "name", text, (size_t)(colon - text), "path", colon + 1,
                            n - (read_only ? 3 : 0), "read_only", read_only);
    if (!one || json_array_append_new(json_setdefault(r->spec, "volumes", json_array()), one) < 0)
        return context_usage(ctx, "--volume must be UTF-8");
    return 0;
}

static int run_take_metadata(struct context *ctx, void *arg, const char *flag UNUSED, const char *text)
{
    struct run *r = arg;
    AUTO_FREE char *key = mem_strndup(text, strcspn(text, "="));
    if (!strchr(text, '=') || !*key)
        return context_usage(ctx, "--metadata %s: write KEY=VALUE", text);
    return json_object_set_new(json_setdefault(r->spec, "metadata", json_object()), key,
                               json_string(strchr(text, '=') + 1)) < 0
               ? context_usage(ctx, "--metadata must be UTF-8")
               : 0;
}

static int run_read(struct context *ctx, struct run *r)
{
    bool is_open = false;
    json_t *spec = r->spec;
    const struct flag_into into[] = {
        {"template", .json = spec},
        {"checkpoint", .json = spec},
        {"tier", .json = spec},
        {"memory", .json = spec, .member = "memory_bytes", .kind = FLAG_SIZE, .least = MEMORY_LEAST},
        {"disk", .json = spec, .member = "disk_bytes", .kind = FLAG_SIZE, .least = DISK_LEAST},
        {"cpus", .json = spec, .member = "cpu_milli", .kind = FLAG_CPUS, .least = 1, .wanted = "a number such as 1.5"},
        {"timeout", .json = spec, .member = "timeout_ms", .kind = FLAG_TIME, .wanted = CONTEXT_TIME},
        {"pause-on-timeout", .on = &r->pauses},
        {"open", .on = &is_open},
        {"keep", .on = &r->keeps},
        {"verbose", .on = &r->says_id},
        {"user", .text = &r->exec.user},
        {"cwd", .text = &r->exec.cwd},
        {"tty", .on = &r->exec.has_pty},
        {"interactive", .take = exec_take_stdin, .arg = &r->stdin_choice},
        {"no-stdin", .take = exec_take_stdin, .arg = &r->stdin_choice},
        {"env", .take = environment_take, .arg = &r->exec.env},
        {"metadata", .take = run_take_metadata, .arg = r},
        {"volume", .take = run_take_volume, .arg = r},
        {"", .take = net_flags_take, .arg = &r->net}};
    if (context_read(ctx, into) < 0)
        return -1;
    if (is_open)
        (void)json_object_set_new(spec, "secure", json_false());
    if (r->pauses)
        (void)json_object_set_new(spec, "on_timeout", json_string("pause"));
    r->keeps |= r->pauses;
    r->has_timeout = json_integer_value(json_object_get(spec, "timeout_ms")) > 0;
    return 0;
}

static int parse(struct context *ctx, struct run *r)
{
    if (run_read(ctx, r) < 0)
        return context_exit(ctx);
    if (context_operands(ctx) == 0)
        return context_usage(ctx, "the command is missing: cove run -- echo hello");
    if (r->says_id && strstr(ctx->argv[ctx->argi], ":/")) /* what -v is elsewhere */
        return context_usage(ctx, "-v is --verbose; did you mean --volume %s?", ctx->argv[ctx->argi]);
    if (exec_choose_stdin(ctx, &r->exec, r->stdin_choice) < 0)
        return context_fail(ctx, STATUS_USAGE);
    if (r->exec.has_pty && ctx->json)
        return context_usage(ctx, "--json and -t exclude each other");
    r->exec.argv = ctx->argv + ctx->argi;
    if (add_network(ctx, r) < 0)
        return context_fail(ctx, STATUS_USAGE);
    return -1;
}

static int run_create(struct run *r)
{
    AUTO_JSON json_t *sandbox = NULL;
    if (!r->has_timeout && !r->keeps)
        (void)json_object_set_new(r->spec, "timeout_ms", json_integer(RUN_LEASE_MS));
    if (service_call(r->service, "POST", "/cove/v1/sandboxes", r->spec, "making a sandbox", &sandbox) < 0 ||
        service_id(r->ctx, sandbox, &r->id) < 0)
        return -1;
    r->exec.id = r->id;
    r->memory_bytes = (uint64_t)json_integer_value(json_object_get(sandbox, "memory_bytes"));
    return 0;
}

/* A renewal that fails is tried again next time: there is time for three. */
static int run_renew(void *ctx)
{
    const struct run *r = ctx;
    service_extend_aside(r->ctx, r->id, RUN_LEASE_MS);
    return 0;
}

/* While it stands still, nothing comes of waiting. */
static int watch_pause(void *ctx)
{
    struct run *r = ctx;
    AUTO_JSON json_t *sandbox = service_look_aside(r->ctx, r->id);
    r->was_paused = strcmp(service_text(sandbox, "state"), "paused") == 0;
    return r->was_paused ? err_set(&r->ctx->err, ERR_DEADLINE_EXCEEDED, "the sandbox's time was up, and it was paused")
                         : 0;
}

/* Says why, when the sandbox ended under the command. */
static void explain(struct run *r)
{
    static const struct timespec pause = {.tv_nsec = 20000000};
    AUTO_JSON json_t *sandbox = service_look_aside(r->ctx, r->id);
    const char *cause;
    /* The command is told a moment before its sandbox is wholly gone. */
    for (int i = 0; !(cause = json_string_value(json_object_get(sandbox, "end_cause"))) && sandbox && i < 50; i++) {
        (void)nanosleep(&pause, NULL);
        json_decref(sandbox);
        sandbox = service_look_aside(r->ctx, r->id);
    }
    if (!cause)
        return;
    bool timed_out = strcmp(cause, "timeout") == 0;
    r->reason = timed_out ? reason_timeout : "sandbox_ended";
    if (timed_out)
        (void)err_set(&r->ctx->err, ERR_DEADLINE_EXCEEDED, "the sandbox's time was up");
    else
        (void)err_set(&r->ctx->err, ERR_ABORTED, "the sandbox ended while the command ran (%.32s)", cause);
}

/* What becomes of it now, and what to type. */
static void run_keep(struct run *r)
{
    AUTO_JSON json_t *sandbox = service_look_aside(r->ctx, r->id);
    const char *end_at = json_string_value(json_object_get(sandbox, "end_at"));
    char left[UNIT_TEXT_MAX];
    usec_t at, now = clock_real();
    if (end_at && clock_parse(str_of(end_at), &at) == 0) {
        (void)snprintf(r->end_at, sizeof(r->end_at), "%s", end_at);
        unit_format_duration((at - MIN(at, now)) / USEC_PER_SEC * 1000, left);
    }
    if (r->ctx->json || (sandbox && json_is_string(json_object_get(sandbox, "end_cause"))))
        return;
    (void)fprintf(stderr, "cove run: sandbox %s is ", r->id);
    if (r->was_paused)
        (void)fprintf(stderr, "paused; 'cove resume %s' continues it\n", r->id);
    else if (*r->end_at)
        (void)fprintf(stderr, "kept and %s in %s; 'cove rm %s' removes it\n", r->pauses ? "pauses" : "ends", left,
                      r->id);
    else
        (void)fprintf(stderr, "kept%s; 'cove rm %s' removes it\n", sandbox ? " and never ends by itself" : "", r->id);
}

static void run_print_report(const struct run *r)
{
    AUTO_FREE char *end_at = *r->end_at ? mem_printf("\"%s\"", r->end_at) : mem_strdup("null");
    AUTO_FREE char *head = mem_printf("\"sandbox\":\"%s\",\"kept\":%s,\"end_at\":%s,\"duration_ms\":%llu,", r->id,
                                      r->keeps ? "true" : "false", end_at,
                                      (unsigned long long)((clock_mono() - r->started) / USEC_PER_MS));
    exec_report_print(head, &(struct exec_report){&r->result, r->reason, &r->out, &r->err});
}

static int run_command(struct run *r)
{
    struct context *ctx = r->ctx;
    struct exec_result *result = &r->result;
    const struct exec_io io = {
        .stdin_fd = STDIN_FILENO,
        .stdout_fd = ctx->json ? -1 : STDOUT_FILENO,
        .stderr_fd = ctx->json ? -1 : STDERR_FILENO,
        .captured_stdout = &r->out,
        .captured_stderr = &r->err,
        .forwards_signals = true,
        .tick = r->pauses                    ? watch_pause
                : r->has_timeout || r->keeps ? NULL
                                             : run_renew,
        .tick_ctx = r,
        .tick_ms = r->pauses ? RUN_WATCH_MS : RUN_RENEW_MS,
    };
    AUTO(service_close) struct service *s = service_open(ctx);
    bool failed = !s || exec_in_sandbox(ctx, s, &r->exec, &io, result) < 0;
    r->reason = r->was_paused ? reason_timeout : exec_report_reason(result, failed);
    if (failed) {
        if (!r->was_paused && result->started)
            explain(r);
        return context_fail(ctx, r->reason == reason_timeout ? STATUS_TIMEOUT : exec_status(result, failed));
    }
    r->was_killed = result->signaled ? result->code == SIGKILL : result->code == STATUS_SIGNAL + SIGKILL;
    if (!ctx->json && exec_status(result, failed))
        exec_explain_files(ctx, &r->exec);
    if (!ctx->json)
        exec_explain_silence(ctx, &r->exec, result);
    return exec_status(result, failed);
}

/* Of the log; when the sandbox has gone, to its end. Until fn says true, which is the answer then. */
static bool any_event(struct run *r, const char *query, bool (*fn)(const json_t *event, void *ctx), void *ctx)
{
    struct context scratch = *r->ctx;
    AUTO(service_close) struct service *s = service_open(&scratch);
    AUTO_FREE char *target = service_target(r->id, "/events?from=1%s%s", query, r->keeps ? "" : "&follow=1");
    json_t *event;
    r->ctx->config = scratch.config;
    if (!s || service_stream(s, "GET", target) < 0)
        return false;
    http_client_timeout(service_client(s), LOG_MS);
    while (service_object(s, &event) > 0)
        if (fn(event, ctx))
            return true;
    return false;
}

/* Known when the sandbox has ended, and then the log says it: of one that is kept, or whose log can't be read, we don't
 * know. */
static bool is_out_of_memory(const json_t *event, void *ctx UNUSED)
{
    const char *kind = json_string_value(json_object_get(event, "kind"));
    return kind && strcmp(kind, "limit.oom") == 0;
}

enum { DENIALS_SHOWN = 5 };

struct denials {
    char last[300];
    unsigned n;
};

static bool tell_denial(const json_t *event, void *ctx)
{
    struct denials *told = ctx;
    const json_t *d = json_object_get(event, "data");
    const char *name = service_text(d, "name"), *suggestion = service_text(d, "suggestion");
    const char *target = *name ? name : service_text(d, "address");
    AUTO_BUF struct buf b = BUF_INIT(4096);
    long long port = json_integer_value(json_object_get(d, "port")); /* of a name that was only looked up: none */
    buf_printf(&b, "%.200s", target);
    if (port)
        buf_printf(&b, ":%lld", port);
    if (strncmp(told->last, buf_data(&b), buf_len(&b)) == 0)
        return false;
    (void)snprintf(told->last, sizeof(told->last), "%.*s", STR_ARG(buf_str(&b)));
    buf_printf(&b, " was denied: %.200s", service_text(d, "reason"));
    if (*suggestion) {
        buf_append_cstr(&b, "; ");
        net_flags_suggest(&b, suggestion);
    }
    terminal_line(stderr, "cove run: network: %.*s", STR_ARG(buf_str(&b)));
    return ++told->n == DENIALS_SHOWN;
}

/* A command that failed may have failed for that, and says something else, or nothing. */
static void explain_denials(struct run *r)
{
    struct denials told = {.n = 0};
    if (any_event(r, "&kind=net.denied", tell_denial, &told))
        (void)fprintf(stderr, "cove run: network: 'cove net %s' shows the rest\n", r->id);
}

/* Exit code 137 and nothing else is what people see of a limit. */
static void explain_kill(struct run *r)
{
    char size[UNIT_TEXT_MAX];
    bool of_memory = !r->keeps && any_event(r, "", is_out_of_memory, NULL);
    unit_format_size(r->memory_bytes, size);
    if (of_memory)
        r->reason = "out_of_memory";
    if (r->ctx->json)
        return;
    if (r->keeps)
        (void)fprintf(stderr, "cove run: the command was killed (SIGKILL); it may use %s of memory\n", size);
    else if (of_memory)
        (void)fprintf(stderr,
                      "cove run: killed because it ran out of memory: it may use %s\n"
                      "  give it more with --memory SIZE\n",
                      size);
}

static int run_all(struct run *r)
{
    struct context *ctx = r->ctx;
    r->started = clock_mono();
    exec_block_signals();
    r->service = service_open(ctx);
    if (!r->service || run_create(r) < 0)
        return context_fail(ctx, STATUS_COVE);
    if (r->says_id)
        (void)fprintf(stderr, "cove run: sandbox %s\n", r->id);
    int sig = exec_pending_signal();
    int status = sig ? STATUS_SIGNAL + sig : run_command(r);
    if (r->keeps)
        run_keep(r);
    else if (service_remove(r->service, r->id, "removing the sandbox") < 0 && ctx->err.code != ERR_NOT_FOUND) {
        (void)context_fail(ctx, 0);
        r->was_killed = false;
    }
    if (r->was_killed)
        explain_kill(r);
    if (status && r->result.started && !ctx->json)
        explain_denials(r);
    if (ctx->json && (r->result.started || r->result.interrupted))
        run_print_report(r);
    return status;
}

static int run_sandbox(struct context *ctx)
{
    struct run r = {
        .ctx = ctx, .spec = json_object(), .out = BUF_INIT(EXEC_CAPTURE_MAX), .err = BUF_INIT(EXEC_CAPTURE_MAX)};
    int status = parse(ctx, &r);
    if (status < 0)
        status = run_all(&r);
    service_close(r.service);
    json_decref(r.spec);
    json_decref(r.exec.env);
    net_flags_fini(&r.net);
    buf_fini(&r.out);
    buf_fini(&r.err);
    mem_free(r.id);
    return status;
}

const struct command cmd_run = {
    .name = "run",
    .summary = "run a command in a sandbox of its own",
    .text = &text_run,
    .operands = "command",
    COMMAND_FLAGS(run_flags),
    .flag_groups = "env THE COMMAND\n"
                   "keep HOW LONG THE SANDBOX LIVES\n"
                   "template WHAT IT IS AND HAS\n"
                   "open WHO AND WHAT CAN BE REACHED",
    .flags_end_at_operand = true,
    .run = run_sandbox,
};
