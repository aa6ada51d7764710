/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands beside a container's own. What is known of one is kept here until its container ends, or DOCKER_EXECS_MAX
 * later ones were made.
 */
#include "api/docker/handlers.h"
#include "base/id.h"
#include "base/mem.h"

static char *exec_take_config(struct docker_exec *e)
{
    e->process.box->exec_bytes -= e->config ? strlen(e->config) : 0;
    return TAKE_PTR(e->config);
}

void docker_exec_free(struct docker_exec *e)
{
    mem_free(exec_take_config(e));
    (void)map_del(&e->process.box->docker->execs, str_of(e->id));
    e->process.box->n_execs--;
    list_remove(&e->node);
    docker_process_fini(&e->process);
    mem_free(e);
}

static struct docker_exec *exec_of(struct call *c)
{
    return map_get(&docker_of(c)->execs, c->args[0]);
}

/* ---- create ---- */

static int exec_read(struct arena *arena, const json_t *body, struct exec_spec *spec, struct err *err)
{
    static const char known[] =
        "AttachStderr AttachStdin AttachStdout Cmd ConsoleSize Container Detach DetachKeys Env Tty User "
        "WorkingDir";
    const struct str *words = NULL;
    size_t n = 0;
    if (docker_members(body, "", known, NULL, 0, err) < 0 ||
        JSON_WANTS_OF(body, arena, err, JSON_WANT_BOOL("Tty", &spec->pty),
                      JSON_WANT_BOOL("AttachStdin", &spec->stdin_open), JSON_WANT_STR("User", &spec->user),
                      JSON_WANT_STR("WorkingDir", &spec->cwd)) < 0 ||
        docker_env(arena, json_object_get(body, "Env"), &spec->envs, &spec->n_envs, err) < 0 ||
        docker_strings(arena, json_object_get(body, "Cmd"), "Cmd", &words, &n, err) < 0)
        return -1;
    if (!n || !words[0].n)
        return err_set(err, ERR_INVALID_ARGUMENT, "No exec command specified");
    spec->cmd = words[0];
    spec->args = words + 1;
    spec->n_args = n - 1;
    return 0;
}

/* True: there is room for one more. */
static bool exec_make_room(struct docker_box *box, size_t bytes)
{
    if (box->exec_bytes + bytes > DOCKER_EXECS_BYTES)
        return false;
    LIST_FOREACH (struct docker_exec, e, &box->execs, node) {
        if (box->n_execs < DOCKER_EXECS_MAX)
            return true;
        if (!e->config && !e->process.follow)
            docker_exec_free(e);
    }
    return box->n_execs < DOCKER_EXECS_MAX;
}

static void exec_over(struct docker_process *p UNUSED)
{
    /* its code stays */
}

void docker_exec_create(struct call *c)
{
    struct exec_spec spec = {0};
    struct docker_box *box = docker_box_running(c);
    if (!box || !call_ok(c, exec_read(http_arena(c->req), c->body, &spec, &c->err)))
        return;
    AUTO_FREE char *text = json_dumps(c->body, JSON_COMPACT);
    if (!exec_make_room(box, strlen(text))) {
        call_refuse(c, ERR_RESOURCE_EXHAUSTED,
                    "a container has at most %d commands at a time, and 1 MiB of requests for them", DOCKER_EXECS_MAX);
        return;
    }
    struct docker_exec *e = mem_new(struct docker_exec);
    docker_process_init(&e->process, box, 0);
    e->process.over = exec_over;
    e->process.tty = spec.pty;
    box->exec_bytes += strlen(text);
    e->config = TAKE_PTR(text);
    id_token(e->id, DOCKER_EXEC_ID);
    list_append(&box->execs, &e->node);
    box->n_execs++;
    (void)map_put(&docker_of(c)->execs, str_of(e->id), e);
    call_value(c, 201, json_pack("{s:s}", "Id", e->id));
}

/* ---- start ---- */

static void exec_started(struct docker_process *p UNUSED, struct call *c, const struct err *err)
{
    if (c && err)
        call_fail_err(c, err);
    else if (c)
        call_empty(c, 200);
}

void docker_exec_start(struct call *c)
{
    struct docker_exec *e = exec_of(c);
    struct exec_spec spec = {.cols = 80, .rows = 24};
    bool is_detached = false, is_bare = false;
    if (!e || !e->config) {
        call_fail(c, 409, "exec command %.*s was started already", STR_ARG(c->args[0]));
        return;
    }
    struct docker_process *p = &e->process;
    AUTO_JSON json_t *config = json_loads(e->config, 0, NULL);
    const json_t *size = json_object_get(c->body, "ConsoleSize");
    if (!call_ok(c, JSON_WANTS_OF(c->body, http_arena(c->req), &c->err, JSON_WANT_BOOL("Detach", &is_detached),
                                  JSON_WANT_BOOL("Tty", &is_bare))) ||
        !call_ok(c, exec_read(http_arena(c->req), config, &spec, &c->err)))
        return;
    json_int_t rows = json_integer_value(json_array_get(size, 0)),
               columns = json_integer_value(json_array_get(size, 1));
    spec.rows = rows >= 1 && rows <= 10000 ? (uint16_t)rows : spec.rows;
    spec.cols = columns >= 1 && columns <= 10000 ? (uint16_t)columns : spec.cols;
    spec.cwd = spec.cwd.n ? spec.cwd : sandbox_label(c->sandbox, STR(DOCKER_CWD));
    spec.user = spec.user.n ? spec.user : sandbox_label(c->sandbox, STR(DOCKER_USER));
    spec.user = spec.user.n ? spec.user : STR("root");
    spec.stdin_open = spec.stdin_open && !is_detached;
    if (!call_ok(c, docker_process_start(p, c, &spec, exec_started)))
        return;
    mem_free(exec_take_config(e));
    if (is_detached)
        docker_process_await(p, c);
    else
        /* As with Docker, whether parts have heads is what this request says, not whether there is a terminal. */
        docker_stream_open(c, p,
                           DOCKER_STDOUT | DOCKER_STDERR | DOCKER_LIVE | (spec.stdin_open ? DOCKER_STDIN : 0) |
                               (is_bare ? DOCKER_BARE : 0),
                           0);
}

/* ---- inspect, resize ---- */

void docker_exec_inspect(struct call *c)
{
    const struct docker_exec *e = exec_of(c); /* is there: nothing has waited */
    const struct docker_process *p = &e->process;
    bool has_ended = !e->config && !p->follow;
    call_value(c, 200,
               json_pack("{s:s, s:b, s:o, s:i, s:s, s:{s:b, s:s, s:[]}, s:b, s:b, s:b}", "ID", e->id, "Running",
                         p->follow != NULL, "ExitCode", has_ended ? json_integer(p->code) : json_null(), "Pid",
                         (int)p->pid, "ContainerID", sandbox_info(p->box->sb)->id, "ProcessConfig", "tty", p->tty,
                         "entrypoint", "", "arguments", "OpenStdin", false, "OpenStdout", true, "OpenStderr", true));
}

void docker_exec_resize(struct call *c)
{
    struct docker_exec *e = exec_of(c);
    if (e) /* it may have waited */
        docker_resize(c, &e->process);
    else
        call_refuse(c, ERR_NOT_FOUND, "No such exec instance: %.*s", STR_ARG(c->args[0]));
}
