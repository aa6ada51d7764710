/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is run inside: scripts of ours, commands, and those of sessions. A session is a file inside with what a shell
 * knew when its last command ended: functions, aliases, variables, the directory. Each command of a session is a shell
 * that begins with it.
 */
#include "api/opensandbox/handlers.h"
#include "base/id.h"

/* ---- scripts ---- */

struct script {
    struct buf output;
    void (*done)(struct call *c, uint32_t code, struct str output);
};

static void script_closed(struct call *c)
{
    buf_fini(&((struct script *)c->state)->output);
}

static void script_output(void *ctx, enum wire_channel channel UNUSED, struct str bytes)
{
    struct call *c = ctx;
    struct script *s = c->state;
    (void)buf_append_str(&s->output, str_n(bytes.p, MIN(bytes.n, SCRIPT_OUTPUT_MAX - buf_len(&s->output))));
    exec_ack(c->follow, bytes.n);
}

static void script_end(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    struct call *c = ctx;
    struct script *s = c->state;
    if (err)
        call_fail_err(c, err);
    else
        s->done(c, exit->signaled ? UINT32_MAX : exit->code, str_trim(buf_str(&s->output)));
}

void script_run(struct call *c, const char *script, const struct str *args, size_t n_args,
                void (*done)(struct call *c, uint32_t code, struct str output))
{
    static const struct exec_ops ops = {.on_output = script_output, .on_end = script_end};
    struct script *s = arena_alloc(http_arena(c->req), sizeof(*s));
    struct str *argv = arena_alloc(http_arena(c->req), (n_args + 3) * sizeof(*argv));
    struct exec_spec spec = {
        .cmd = STR("/bin/sh"), .args = argv, .n_args = n_args + 3, .user = STR("root"), .timeout_ms = 30000};
    *s = (struct script){.done = done};
    buf_init(&s->output, SCRIPT_OUTPUT_MAX);
    argv[0] = STR("-c");
    argv[1] = str_of(script);
    argv[2] = STR("sh");
    if (n_args)
        memcpy(argv + 3, args, n_args * sizeof(*args));
    if (!call_ok(c, exec_start(c->sandbox, &c->actor, &spec, &ops, c, &c->follow, &c->err)))
        return;
    if (c->cleanup)
        c->cleanup(c);
    c->state = s;
    c->cleanup = script_closed;
}

/* ---- commands ---- */

#define PRELUDE_NAME "cove" /* the name of the shell of session_prelude() */
#define SESSION                                                                                                          \
    "__f=" COMMAND_DIRECTORY "/$1.session; shopt -s expand_aliases; . \"$__f\" >/dev/null 2>&1; "                        \
    "[ -z \"$3\" ] || cd -- \"$3\" || exit 1; "                                                                          \
    "trap '__c=$?; { declare -p; declare -f; alias -p; printf \"cd -- %q\\n\" \"$PWD\"; } >\"$__f.new\" 2>/dev/null && " \
    "mv -f \"$__f.new\" \"$__f\"; exit $__c' EXIT; eval \"$2\""
#define SHELL "[ ! -x /bin/bash ] || exec /bin/bash -c \"$1\"; exec /bin/sh -c \"$1\""

const char *command_id_once(struct call *c)
{
    struct str operation = http_header_get(c->req, COMMAND_OPERATION_HEADER);
    if (!c->args[1].p) {
        char *id = arena_alloc(http_arena(c->req), COMMAND_ID_LEN + 1);
        id_token(id, COMMAND_ID_LEN);
        if (operation.n) {
            const char *all =
                arena_printf(http_arena(c->req), "%s %.*s", sandbox_info(c->sandbox)->id, STR_ARG(operation));
            opensandbox_digest(str_of(all), id, COMMAND_ID_LEN);
        }
        c->args[1] = str_of(id);
    }
    return c->args[1].p;
}

/*
 * As other users, or into a log: what comes is the command. All else is in the script, so that "$@" is the command,
 * which the guard reads.
 */
static struct str session_prelude(struct call *c, struct str log, int64_t uid, int64_t gid)
{
    AUTO_BUF struct buf b = BUF_INIT(1024);
    if (log.n)
        buf_printf(&b, COMMAND_MAKE_DIRECTORY " && exec >" COMMAND_DIRECTORY "/%.*s.log 2>&1 </dev/null; ",
                   STR_ARG(log));
    buf_append_cstr(&b, "exec ");
    if (uid >= 0 && gid >= 0)
        buf_printf(&b, "setpriv --reuid=%lld --regid=%lld --clear-groups -- ", (long long)uid, (long long)gid);
    else if (uid >= 0)
        buf_printf(&b,
                   "setpriv --reuid=%1$lld --regid=\"$(id -g %1$lld 2>/dev/null || echo %1$lld)\" "
                   "--groups=\"$({ id -G %1$lld 2>/dev/null || echo %1$lld; } | tr ' ' ,)\" -- ",
                   (long long)uid);
    buf_append_cstr(&b, "\"$@\"");
    return arena_str(http_arena(c->req), buf_str(&b));
}

static void session_argv(struct call *c, struct exec_spec *spec, struct str log, int64_t uid, int64_t gid,
                         const struct str *argv, size_t argc)
{
    struct str *args = arena_alloc(http_arena(c->req), (argc + 3) * sizeof(*args));
    size_t n = 0;
    if (log.n || uid >= 0) {
        spec->cmd = STR("/bin/sh");
        args[n++] = STR("-c");
        args[n++] = session_prelude(c, log, uid, gid);
        args[n++] = STR(PRELUDE_NAME);
    } else {
        spec->cmd = *argv++;
        argc--;
    }
    memcpy(args + n, argv, argc * sizeof(*args));
    spec->args = args;
    spec->n_args = n + argc;
}

void session_shell(struct call *c, struct exec_spec *spec, struct str log, int64_t uid, int64_t gid, struct str command)
{
    const struct str argv[] = {STR("/bin/sh"), STR("-c"), STR(SHELL), STR("sh"), command},
                     by_bash[] = {STR("/bin/bash"), STR("-c"), command};
    bool is_plain = !log.n && uid < 0 && !c->route->what; /* an operation starts once */

    if (is_plain && command_has_bash(opensandbox_of_execd(c), c->sandbox))
        session_argv(c, spec, log, uid, gid, by_bash, ARRAY_SIZE(by_bash));
    else
        session_argv(c, spec, log, uid, gid, argv, ARRAY_SIZE(argv));
}

const char *session_content(const json_t *start)
{
    const char *const shells[] = {SHELL, SESSION}, *cmd = json_string_value(json_object_get(start, "cmd"));
    const json_t *args = json_object_get(start, "args");
    size_t n = json_array_size(args), at = 0;
#define ARG(i) (json_string_value(json_array_get(args, (i))) ? json_string_value(json_array_get(args, (i))) : "")
    if (strcmp(ARG(2), PRELUDE_NAME) == 0) {
        cmd = ARG(3);
        at = 4;
    }
    for (size_t i = 0; i < ARRAY_SIZE(shells); i++)
        if (strcmp(ARG(at + 1), shells[i]) == 0)
            return ARG(at + (i ? 4 : 3));
    return n == 2 && cmd && strcmp(cmd, "/bin/bash") == 0 ? ARG(1) : cmd ? cmd : "";
#undef ARG
}

void session_command(struct call *c)
{
    struct str command = STR(""), cwd = STR("");
    const struct str *argv = NULL;
    int64_t timeout_ms = 0, uid = -1, gid = -1;
    bool is_background = false;
    struct exec_spec spec = {.user = STR("root")};
    size_t argc = 0;
    const char *id = command_id_once(c);
    if (!CALL_WANTS(c, JSON_WANT_STR("command", &command), JSON_WANT_STRS("argv", &argv, &argc),
                    JSON_WANT_STR("cwd", &cwd), JSON_WANT_BOOL("background", &is_background),
                    JSON_WANT_INT("timeout", 1, INT64_MAX / 1000, &timeout_ms),
                    JSON_WANT_INT("uid", 0, INT32_MAX, &uid), JSON_WANT_INT("gid", 0, INT32_MAX, &gid),
                    JSON_WANT_PAIRS("envs", &spec.envs, &spec.n_envs)))
        return;
    if (!command.n == !argc || (gid >= 0 && uid < 0)) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "exactly one of command and argv is needed; gid goes with uid");
        return;
    }
    struct str log = is_background ? str_of(id) : STR("");
    if (command.n || !argv)
        session_shell(c, &spec, log, uid, gid, command);
    else
        session_argv(c, &spec, log, uid, gid, argv, argc);
    spec.cwd = cwd;
    spec.timeout_ms = (uint64_t)timeout_ms;
    command_run(c, &spec, command.n || !argv ? command : argv[0], is_background, id);
}

/* ---- sessions ---- */

static void session_made(struct call *c, uint32_t code, struct str output)
{
    if (code)
        call_fail(c, 400, "%.*s", STR_ARG_MAX(output, 200));
    else
        call_value(c, 200, json_pack("{s:s}", "session_id", c->args[1].p));
}

void session_make(struct call *c)
{
    struct str args[2] = {str_of(command_id_once(c)), STR("/root")};
    if (!CALL_WANTS(c, JSON_WANT_STR("cwd", &args[1])))
        return;
    script_run(c,
               "[ ! -e " COMMAND_DIRECTORY "/\"$1\".session ] || exit 0; cd -- \"$2\" && " COMMAND_MAKE_DIRECTORY
               " && export >" COMMAND_DIRECTORY "/\"$1\".session && printf 'cd -- \"%s\"\\n'"
               " \"$PWD\" >>" COMMAND_DIRECTORY "/\"$1\".session",
               args, 2, session_made);
}

struct session_run {
    struct str command, cwd;
    int64_t timeout_ms;
    char id[COMMAND_ID_LEN + 1]; /* of the command */
};

static void session_start_command(struct call *c)
{
    const struct session_run *r = c->state;
    const struct str args[] = {STR("-c"), STR(SESSION), STR("bash"), c->args[0], r->command, r->cwd};
    const struct exec_spec spec = {.cmd = STR("/bin/bash"),
                                   .args = args,
                                   .n_args = ARRAY_SIZE(args),
                                   .user = STR("root"),
                                   .timeout_ms = (uint64_t)r->timeout_ms};
    command_run(c, &spec, r->command, false, r->id);
}

static void session_missing(struct call *c)
{
    opensandbox_fail(c, 404, "CONTEXT_NOT_FOUND", "there is no such session");
}

static void session_found(struct call *c, const struct file_entry *entry UNUSED, const struct err *err)
{
    call_step(c, err ? session_missing : session_start_command);
}

void session_run_command(struct call *c)
{
    struct session_run *r = call_state(c, sizeof(*r), NULL);
    char path[64];
    *r = (struct session_run){STR(""), STR(""), 0, ""};
    id_token(r->id, COMMAND_ID_LEN);
    if (!CALL_WANTS(c, JSON_NEED_STR("command", &r->command), JSON_WANT_STR("cwd", &r->cwd),
                    JSON_WANT_INT("timeout", 1, INT64_MAX / 1000, &r->timeout_ms)))
        return;
    (void)snprintf(path, sizeof(path), COMMAND_DIRECTORY "/%.*s.session", STR_ARG_MAX(c->args[0], COMMAND_ID_LEN));
    if (command_is_id(c->args[0]))
        call_ok(c, file_stat(c->sandbox, &c->actor, STR("root"), str_of(path), CALL_FILE_END(c, session_found)));
    else
        session_missing(c);
}

static void session_gone(struct call *c, uint32_t code, struct str output UNUSED)
{
    if (code)
        session_missing(c);
    else
        call_empty(c, 200);
}

void session_remove(struct call *c)
{
    struct str id = command_is_id(c->args[0]) ? c->args[0] : STR("none");
    script_run(c, "rm -- " COMMAND_DIRECTORY "/\"$1\".session", &id, 1, session_gone);
}
