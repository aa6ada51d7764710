/* SPDX-License-Identifier: Apache-2.0 */
/* EXEC and ATTACH: starting a process, following its output. */
#include "agent/exec/process.h"
#include "agent/verb.h"
#include "base/arena.h"
#include "base/mem.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum { COMMAND_SHOWN_MAX = 512 };

static struct agent_follower *follower_of(struct agent_stream *s)
{
    return container_of(s, struct agent_follower, stream);
}

/* An EXEC request; everything is borrowed from the payload. */
struct follow_exec_request {
    struct str cmd, args, env, user, cwd, tag; /* args, env: the items' bytes without the count */
    uint32_t n_args, n_env;
    uint8_t flags;
    uint16_t cols, rows;
};

static struct str get_list(struct wire_reader *r, uint32_t *ret_count, int strs_per_item)
{
    uint32_t count = wire_get_count(r, 4 * (size_t)strs_per_item);
    const uint8_t *from = r->p;
    for (uint64_t i = 0; i < (uint64_t)count * (uint64_t)strs_per_item && !r->bad; i++)
        (void)wire_get_str(r);
    *ret_count = count;
    return str_n(from, r->bad ? 0 : (size_t)(r->p - from));
}

static bool get_request(struct wire_reader *r, struct follow_exec_request *ret_q)
{
    struct follow_exec_request q = {.cmd = wire_get_str(r)};
    q.args = get_list(r, &q.n_args, 1);
    q.env = get_list(r, &q.n_env, 2);
    q.user = wire_get_str(r);
    q.cwd = wire_get_str(r);
    q.tag = wire_get_str(r);
    q.flags = wire_get_u8(r);
    q.cols = wire_get_u16(r);
    q.rows = wire_get_u16(r);
    *ret_q = q;
    return wire_done(r) && !(q.flags & ~(WIRE_EXEC_PTY | WIRE_EXEC_STDIN | WIRE_EXEC_TAG));
}

/* "cmd arg arg", as far as it is worth showing. */
static char *command_text(const struct follow_exec_request *q)
{
    AUTO_BUF struct buf b = BUF_INIT(COMMAND_SHOWN_MAX);
    struct wire_reader r = wire_reader_of(q->args);
    (void)buf_append(&b, q->cmd.p, MIN(q->cmd.n, b.max));
    for (uint32_t i = 0; i < q->n_args; i++) {
        struct str arg = wire_get_str(&r);
        if (buf_len(&b) + 1 + arg.n > b.max)
            break;
        (void)buf_append_char(&b, ' ');
        (void)buf_append_str(&b, arg);
    }
    return mem_strndup(buf_data(&b) ? buf_data(&b) : "", buf_len(&b));
}

static char **make_argv(struct arena *a, const struct follow_exec_request *q, bool *ret_nul)
{
    struct wire_reader r = wire_reader_of(q->args);
    char **argv = arena_alloc(a, ((size_t)q->n_args + 2) * sizeof(*argv));
    struct str s = q->cmd;
    for (uint32_t i = 0; i <= q->n_args; i++) {
        *ret_nul |= str_has_nul(s);
        argv[i] = arena_strndup(a, s.p, s.n);
        if (i < q->n_args)
            s = wire_get_str(&r);
    }
    return argv;
}

/* An environment under construction: a later value replaces an earlier one in its place. */
struct follow_env {
    struct arena *arena;
    struct map index; /* name -> where in vars, plus one */
    char **vars;
    size_t n;
};

static void env_set(struct follow_env *e, struct str name, struct str value)
{
    uintptr_t at = (uintptr_t)map_get(&e->index, name);
    char *s = arena_alloc(e->arena, name.n + value.n + 2);
    memcpy(s, name.p, name.n);
    s[name.n] = '=';
    if (value.n)
        memcpy(s + name.n + 1, value.p, value.n);
    if (at == 0) {
        at = ++e->n;
        (void)map_put(&e->index, name, (void *)at); /* NOLINT(performance-no-int-to-ptr) */
    }
    e->vars[at - 1] = s;
}

static const char *env_get(const struct follow_env *e, struct str name)
{
    uintptr_t at = (uintptr_t)map_get(&e->index, name);
    return at ? e->vars[at - 1] + name.n + 1 : NULL;
}

static void env_set_pairs(struct follow_env *e, struct str pairs, uint32_t n, bool *ret_nul)
{
    struct wire_reader r = wire_reader_of(pairs);
    for (uint32_t i = 0; i < n; i++) {
        struct str name = wire_get_str(&r), value = wire_get_str(&r);
        *ret_nul |= str_has_nul(name) || str_has_nul(value);
        env_set(e, name, value);
    }
}

static void make_env(struct follow_env *e, const struct agent *a, const struct follow_exec_request *q,
                     const struct user *u, bool *ret_nul)
{
    size_t most = (size_t)q->n_env + a->n_env + 10;
    for (const char *const *v = a->config.environment; v && *v; v++)
        most++;
    e->vars = arena_alloc(e->arena, most * sizeof(*e->vars));
    env_set(e, STR("PATH"), STR(DEFAULT_PATH));
    for (const char *const *v = a->config.environment; v && *v; v++) {
        struct str value = str_of(*v), name;
        if (str_split(&value, '=', &name) && value.p && (str_eqc(name, "LANG") || str_eqc(name, "PATH")))
            env_set(e, name, value);
    }
    if (a->identity.what) {
        env_set(e, STR("COVE_SANDBOX"), STR("true"));
        env_set(e, STR("COVE_SANDBOX_ID"), str_of(a->identity.id));
        env_set(e, STR("COVE_TEMPLATE_ID"), str_of(a->identity.template_id));
    }
    env_set_pairs(e, a->env, a->n_env, ret_nul);
    env_set(e, STR("HOME"), str_of(u->home));
    env_set(e, STR("USER"), str_of(u->name));
    env_set(e, STR("LOGNAME"), str_of(u->name));
    env_set(e, STR("SHELL"), str_of(u->shell));
    env_set_pairs(e, q->env, q->n_env, ret_nul);
}

/* tag, cmd, args, env, cwd, user, as a record of WIRE_PROCESSES has them. */
static char *make_record(const struct follow_exec_request *q, const struct user *u, size_t *ret_n)
{
    struct buf b = BUF_INIT(WIRE_PAYLOAD_MAX + 1024);
    wire_put_str(&b, q->tag);
    wire_put_str(&b, q->cmd);
    wire_put_u32(&b, q->n_args);
    (void)buf_append_str(&b, q->args);
    wire_put_u32(&b, q->n_env);
    (void)buf_append_str(&b, q->env);
    wire_put_str(&b, q->cwd);
    wire_put_str(&b, str_of(u->name));
    *ret_n = buf_len(&b);
    char *record = buf_take(&b);
    buf_fini(&b);
    return record;
}

static uint8_t process_flags(const struct follow_exec_request *q)
{
    bool pty = q->flags & WIRE_EXEC_PTY, stdin_pipe = !pty && q->flags & WIRE_EXEC_STDIN;
    return (uint8_t)((pty ? WIRE_PROC_PTY : 0) | (stdin_pipe ? WIRE_PROC_STDIN : 0) |
                     (q->flags & WIRE_EXEC_TAG ? WIRE_PROC_TAG : 0));
}

/* What the child needs, all of it in the arena. command: as it is shown. */
static int make_spawn(const struct agent *a, const struct follow_exec_request *q, const struct user *u,
                      const char *command, struct arena *arena, struct spawn *ret_spawn, struct failure *why)
{
    char cwd[PATH_TEXT_MAX];
    struct follow_env env = {.arena = arena};
    bool nul_arg = str_has_nul(q->cwd), nul_env = false;
    char **argv = make_argv(arena, q, &nul_arg);
    if (nul_arg)
        return failure_set(why, ERR_INVALID_ARGUMENT, "error starting process '%s': invalid argument", command);
    if (user_path(u, q->cwd, cwd, why) < 0)
        return -1;
    make_env(&env, a, q, u, &nul_env);
    struct str search = str_of(env_get(&env, STR("PATH")));
    map_fini(&env.index);
    if (nul_env)
        return failure_set(why, ERR_INVALID_ARGUMENT,
                           "error starting process '%s': exec: environment variable contains NUL", command);
    gid_t *groups = arena_alloc(arena, u->n_groups * sizeof(*groups));
    memcpy(groups, u->groups, u->n_groups * sizeof(*groups));
    *ret_spawn = (struct spawn){
        .argv = argv,
        .envp = env.vars,
        .search = search,
        .cwd = arena_strdup(arena, cwd),
        .uid = u->uid,
        .gid = u->gid,
        .groups = groups,
        .n_groups = u->n_groups,
        .nofile = &a->nofile,
        .pty = q->flags & WIRE_EXEC_PTY,
        .stdin_pipe = q->flags & WIRE_EXEC_STDIN,
        .cols = q->cols,
        .rows = q->rows,
    };
    return 0;
}

static int follow_start(struct agent_follower *f, const struct follow_exec_request *q, struct failure *why)
{
    struct agent *a = f->stream.session->agent;
    AUTO_USER struct user user = {0};
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct spawn *s = arena_alloc(&arena, sizeof(*s));
    struct agent_process *p;
    f->command = command_text(q);
    if (user_lookup(&a->config.users, q->user, true, &user, why) < 0 ||
        make_spawn(a, q, &user, f->command, &arena, s, why) < 0)
        return -1;
    if (a->n_live >= PROCESS_LIVE_MAX)
        return failure_set(why, ERR_RESOURCE_EXHAUSTED, "error starting process '%s': %d processes are running already",
                           f->command, PROCESS_LIVE_MAX);
    f->cwd = mem_strdup(s->cwd);
    size_t record_bytes;
    char *record = make_record(q, &user, &record_bytes);
    int r = process_start(a, s, &arena, record, record_bytes, process_flags(q), &p);
    if (r < 0 && q->flags & WIRE_EXEC_PTY)
        return failure_errno(why, ERR_INVALID_ARGUMENT, -r,
                             "error starting pty with command '%s' in dir '%s' with '%u' cols and '%u' rows",
                             f->command, f->cwd, q->cols, q->rows);
    if (r < 0)
        return failure_errno(why, ERR_INVALID_ARGUMENT, -r, "error starting process '%s'", f->command);
    process_follow(p, f);
    return 0;
}

static void exec_open(struct agent_stream *s, struct wire_reader *r)
{
    struct follow_exec_request q;
    struct failure why;
    if (!get_request(r, &q))
        stream_malformed(s);
    else if (follow_start(follower_of(s), &q, &why) < 0)
        stream_fail(s, &why);
}

static void put_head(struct agent_follower *f)
{
    struct buf *b = stream_head(&f->stream);
    wire_put_u32(b, (uint32_t)f->process->pid);
    wire_put_u64(b, f->start);
    stream_head_commit(&f->stream);
    mem_free(TAKE_PTR(f->command));
    mem_free(TAKE_PTR(f->cwd));
    stream_ready(&f->stream);
}

void follow_started(struct agent_follower *f)
{
    put_head(f);
}

void follow_not_started(struct agent_follower *f, const struct spawn_report *report)
{
    struct agent_stream *s = &f->stream;
    struct wire_reader r = wire_reader_of(str_n(f->process->record, f->process->record_bytes));
    (void)wire_get_str(&r); /* the tag */
    struct str cmd = wire_get_str(&r);
    int shown = (int)MIN(cmd.n, (size_t)COMMAND_SHOWN_MAX);
    const char *text = errno_text(report->errnum);
    switch (report->stage) {
    case SPAWN_CWD:
        if (report->errnum == ENOENT)
            stream_failf(s, ERR_INVALID_ARGUMENT, "cwd '%s' does not exist", f->cwd);
        else
            stream_failf(s, ERR_INVALID_ARGUMENT, "error starting process '%s': chdir %s: %s", f->command, f->cwd,
                         text);
        break;
    case SPAWN_SEARCH:
        stream_failf(s, ERR_FAILED_PRECONDITION, "error starting process '%s': exec: \"%.*s\": %s", f->command, shown,
                     cmd.p, report->errnum == ENOENT ? "executable file not found in $PATH" : text);
        break;
    case SPAWN_EXEC:
        stream_failf(s, ERR_FAILED_PRECONDITION, "error starting process '%s': fork/exec %.*s: %s", f->command, shown,
                     cmd.p, text);
        break;
    default:
        stream_failf(s, ERR_INTERNAL, "error starting process '%s': %s: %s", f->command,
                     report->stage == SPAWN_USER ? "set user" : "set up", text);
        break;
    }
}

static void attach_open(struct agent_stream *s, struct wire_reader *r)
{
    struct agent_follower *f = follower_of(s);
    struct failure why;
    struct agent_process *p = process_find(s->session->agent, r, true, &why);
    uint8_t from = wire_get_u8(r);
    uint64_t offset = wire_get_u64(r);
    if (!wire_done(r) || from > WIRE_FROM_OFFSET || (!p && why.code == ERR_OK)) {
        stream_malformed(s);
        return;
    }
    if (!p) {
        stream_fail(s, &why);
        return;
    }
    if (p->n_followers >= PROCESS_FOLLOWERS_MAX) {
        stream_failf(s, ERR_RESOURCE_EXHAUSTED, "process with pid %d has %d followers already", p->pid,
                     PROCESS_FOLLOWERS_MAX);
        return;
    }
    if (from != WIRE_FROM_OFFSET)
        offset = from == WIRE_FROM_NOW ? p->output.head : p->seen;
    f->start = f->sent = MIN(MAX(offset, output_tail(&p->output)), p->output.head);
    process_follow(p, f);
    put_head(f);
}

static void follow_credit(struct agent_stream *s, uint32_t bytes, bool delivered)
{
    struct agent_follower *f = follower_of(s);
    f->granted += bytes;
    if (!f->process)
        return;
    if (delivered)
        f->process->seen = MAX(f->process->seen, MIN(f->sent, f->start + f->granted));
    process_consumed(f->process);
    stream_ready(s);
}

static bool follow_produce(struct agent_stream *s)
{
    struct agent_follower *f = follower_of(s);
    struct agent_process *p = f->process;
    size_t room = stream_room(s);
    if (!s->replied)
        return false;
    if (f->sent < p->output.head) {
        struct iovec iov[2];
        bool second;
        if (room == 0)
            return false;
        int n = output_peek(&p->output, f->sent, room, iov, &second);
        stream_send(s, p->flags & WIRE_PROC_PTY ? WIRE_PTY : second ? WIRE_STDERR : WIRE_STDOUT, iov, n);
        f->sent += iov[0].iov_len + (n > 1 ? iov[1].iov_len : 0);
        process_consumed(p);
    }
    if (f->sent < p->output.head)
        return true;
    if (!p->done)
        return false;
    process_follower_ended(f);
    struct buf *b = stream_tail(s);
    wire_put_u8(b, p->how);
    wire_put_u32(b, p->code);
    wire_put_u64(b, p->output.head);
    stream_tail_commit(s);
    return false;
}

static void follow_fini(struct agent_stream *s)
{
    struct agent_follower *f = follower_of(s);
    process_unfollow(f);
    MEM_FREE(f->command, f->cwd);
}

const struct verb verb_exec = {
    .size = sizeof(struct agent_follower),
    .open = exec_open,
    .credit = follow_credit,
    .produce = follow_produce,
    .fini = follow_fini,
};

const struct verb verb_attach = {
    .size = sizeof(struct agent_follower),
    .open = attach_open,
    .credit = follow_credit,
    .produce = follow_produce,
    .fini = follow_fini,
};
