/* SPDX-License-Identifier: Apache-2.0 */
/* docker run, exec and logs: what has to do with a command. */
#include "base/mem.h"
#include "cli/docker/docker.h"
#include "cli/events.h"
#include "cli/exec/environment.h"
#include "cli/exec/exec.h"
#include "cli/exec/terminal.h"
#include "cli/files/copy.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- a command ---- */

/* Asked before anything is made. */
static int docker_check_tty(struct docker *d)
{
    const bool lacks = d->tty && !d->detach && !isatty(STDIN_FILENO);
    return lacks ? docker_refuse(d, "the input device is not a TTY") : 0;
}

static int docker_command(struct docker *d, const char *id, char *const *argv, const char *tag, int *ret_status)
{
    AUTO_JSON json_t *env = d->tty ? environment_of_terminal(d->env, getenv("TERM")) : json_incref(d->env);
    struct exec_request request = {
        .id = id,
        .argv = argv,
        .env = env,
        .user = d->user ? d->user : "root",
        .cwd = d->cwd,
        .has_stdin = !d->detach && (d->interactive || d->tty),
        .has_pty = d->tty && !d->detach,
        .tag = tag,
        .leaves = d->detach,
    };
    const struct exec_io io = {
        .stdin_fd = STDIN_FILENO, .stdout_fd = STDOUT_FILENO, .stderr_fd = STDERR_FILENO, .forwards_signals = true};
    struct exec_result result = {0};
    if (docker_check_tty(d) != 0)
        return DOCKER_USAGE;
    AUTO(service_close) struct service *s = service_open(d->ctx);
    const bool failed = !s || exec_in_sandbox(d->ctx, s, &request, &io, &result) < 0;
    *ret_status = exec_status(&result, failed);
    return failed ? docker_fail(d, *ret_status) : 0;
}

int docker_exec(struct docker *d)
{
    AUTO_JSON json_t *sandbox = NULL;
    int status = 0;
    if (d->n < 2)
        return docker_refuse(d, "\"docker exec\" requires at least 2 arguments.");
    if (docker_find(d, d->operands[0], &sandbox) < 0)
        return docker_fail(d, DOCKER_FAILED);
    const char *cwd = docker_label(sandbox, DOCKER_CWD), *user = docker_label(sandbox, DOCKER_USER);
    d->cwd = d->cwd || !*cwd ? d->cwd : cwd;
    d->user = d->user || !*user ? d->user : user;
    exec_block_signals();
    int r = docker_command(d, service_text(sandbox, "id"), d->operands + 1, NULL, &status);
    return r ? r : status;
}

/* ---- directories of this machine: copies ---- */

struct docker_volume {
    char *from, *to;
    bool is_read_only, is_ours; /* one of Cove's volumes, by name */
};

static int docker_volume_parse(struct docker *d, const char *text, struct docker_volume *v)
{
    AUTO_FREE char *all = mem_strdup(text);
    char *to = strchr(all, ':'), *options = to ? strchr(to + 1, ':') : NULL;
    if (options)
        *options++ = '\0';
    if (!to || to[1] != '/' || (options && strcmp(options, "ro") != 0 && strcmp(options, "rw") != 0))
        return docker_refuse(d, "--volume %s is not supported: write FROM:/TO, with :ro or :rw behind it", text);
    *to++ = '\0';
    v->is_read_only = options && strcmp(options, "ro") == 0;
    v->is_ours = !strchr(all, '/');
    v->from = mem_strdup(all);
    v->to = mem_strdup(to);
    const char *how = getenv("COVE_DOCKER_VOLUMES");
    if (!v->is_ours && !v->is_read_only && (d->detach || !how || strcmp(how, "copy") != 0))
        return docker_refuse(
            d,
            "--volume %s is not supported: no directory of this machine can be written from inside; :ro "
            "gives a copy, and with COVE_DOCKER_VOLUMES=copy run, without -d, copies back at the end",
            text);
    return 0;
}

static int docker_volumes(struct docker *d, json_t *spec, struct docker_volume *all)
{
    json_t *ours = json_array();
    (void)json_object_set_new(spec, "volumes", ours);
    for (size_t i = 0; i < d->n_volumes; i++) {
        int r = docker_volume_parse(d, d->volumes[i], &all[i]);
        if (r)
            return r;
        if (all[i].is_ours)
            (void)json_array_append_new(ours, json_pack("{s:s, s:s, s:b}", "name", all[i].from, "path", all[i].to,
                                                        "read_only", all[i].is_read_only));
    }
    return 0;
}

/* ---- run ---- */

struct docker_running {
    struct docker_volume volumes[DOCKER_LIST_MAX];
    char *id;
};

/* -w makes the directory. */
static int docker_copy_in(struct docker *d, struct docker_running *run)
{
    for (size_t i = 0; i < d->n_volumes; i++) {
        const struct docker_volume *v = &run->volumes[i];
        struct copy c = {.ctx = d->ctx, .service = d->s, .id = run->id, .user = "root"};
        if (!v->is_ours && copy_to_sandbox(&c, v->from, v->to) < 0)
            return err_prefix(&d->ctx->err, "copy %s", v->from);
    }
    if (!d->cwd)
        return 0;
    char *const make[] = {(char *)(uintptr_t) "mkdir", (char *)(uintptr_t) "-p", (char *)(uintptr_t) "--",
                          (char *)(uintptr_t)d->cwd, NULL};
    const struct exec_request request = {.id = run->id, .argv = make, .user = "root", .cwd = "/"};
    AUTO_BUF struct buf out = BUF_INIT(4096), err = BUF_INIT(4096);
    const struct exec_io io = {
        .stdin_fd = -1, .stdout_fd = -1, .stderr_fd = -1, .captured_stdout = &out, .captured_stderr = &err};
    struct exec_result result = {0};
    AUTO(service_close) struct service *s = service_open(d->ctx);
    if (!s || exec_in_sandbox(d->ctx, s, &request, &io, &result) < 0)
        return -1;
    return result.code
               ? err_set(&d->ctx->err, ERR_INVALID_ARGUMENT, "--workdir %.100s: %.*s", d->cwd, STR_ARG(buf_str(&err)))
               : 0;
}

static int docker_copy_out(struct docker *d, const struct docker_running *run)
{
    for (size_t i = 0; i < d->n_volumes; i++) {
        const struct docker_volume *v = &run->volumes[i];
        struct copy c = {.ctx = d->ctx, .service = d->s, .id = run->id, .user = "root"};
        AUTO_FREE char *content = mem_printf("%s/.", v->to);
        if (!v->is_ours && !v->is_read_only && copy_from_sandbox(&c, content, v->from) < 0)
            return err_prefix(&d->ctx->err, "copy %s back", v->from);
    }
    return 0;
}

static int docker_pull_aside(struct context *ctx UNUSED, void *docker)
{
    struct docker *d = docker;
    return docker_pull_image(d, d->operands[0], true) ? -1 : 0;
}

/* Without the image, it is pulled first. A volume may be missing, too. */
static int docker_create(struct docker *d, const json_t *spec, json_t **ret_sandbox)
{
    const char *image = d->operands[0];
    if (service_call(d->s, "POST", "/cove/v1/sandboxes", spec, NULL, ret_sandbox) == 0)
        return 0;
    if (d->ctx->err.code != ERR_NOT_FOUND || (d->pull && strcmp(d->pull, "never") == 0) || docker_has_image(d, image))
        return -1;
    terminal_line(stderr, "Unable to find image '%s' locally", image);
    if (template_build_aside(d->ctx, docker_pull_aside, d) < 0)
        return err_set(&d->ctx->err, ERR_NOT_FOUND, "pull access denied for %.100s", image);
    return service_call(d->s, "POST", "/cove/v1/sandboxes", spec, NULL, ret_sandbox);
}

static int docker_spec(struct docker *d, char *const *argv, json_t **ret_spec, struct docker_running *run)
{
    AUTO_FREE char *template_name = docker_template(d->operands[0]);
    AUTO_BUF struct buf command = BUF_INIT(4096);
    AUTO_JSON json_t *taken = NULL;
    for (; *argv; argv++)
        buf_printf(&command, "%s%s", buf_len(&command) ? " " : "", *argv);
    if (d->name && docker_find(d, d->name, &taken) == 0)
        return docker_refuse(d,
                             "Error response from daemon: Conflict. The container name \"/%s\" is already in use by "
                             "container \"%s\".",
                             d->name, service_text(taken, "id"));
    json_t *spec =
        json_pack("{s:s, s:i, s:{s:s, s:s, s:s%, s:s, s:s, s:s}}", "template", template_name, "timeout_ms", 0,
                  "metadata", DOCKER_IMAGE, d->operands[0], DOCKER_NAME, d->name ? d->name : "", DOCKER_COMMAND,
                  buf_len(&command) ? buf_data(&command) : "", buf_len(&command), DOCKER_RM, d->removes ? "1" : "",
                  DOCKER_CWD, d->cwd ? d->cwd : "", DOCKER_USER, d->user ? d->user : "");
    if (!spec)
        return docker_refuse(d, "arguments must be UTF-8");
    *ret_spec = spec;
    (void)json_object_update_missing(json_object_get(spec, "metadata"), d->labels);
    (void)json_object_set(spec, "env", d->env);
    if (d->memory_bytes)
        (void)json_object_set_new(spec, "memory_bytes", json_integer((json_int_t)d->memory_bytes));
    if (d->cpu_milli)
        (void)json_object_set_new(spec, "cpu_milli", json_integer(d->cpu_milli));
    (void)json_object_set_new(spec, "tier", json_string(d->tier));
    if (d->has_no_network)
        (void)json_object_set_new(spec, "network", json_pack("{s:s}", "default", "deny"));
    return docker_volumes(d, spec, run->volumes);
}

/* Afterwards it is gone with --rm; else its processes have ended and its files are there. */
static int docker_end(struct docker *d, const char *id)
{
    AUTO_FREE char *target = service_target(id, "%s", d->removes ? "" : "/pause");
    AUTO_JSON json_t *body = d->removes ? NULL : json_pack("{s:b}", "memory", 0);
    return service_call(d->s, d->removes ? "DELETE" : "POST", target, body, NULL, NULL);
}

static int docker_run_in(struct docker *d, struct docker_running *run, char *const *argv)
{
    int status = DOCKER_USAGE;
    if (docker_copy_in(d, run) < 0)
        status = docker_fail(d, DOCKER_USAGE);
    else if (docker_command(d, run->id, argv, DOCKER_TAG, &status) == 0 && d->detach && status == 0) {
        (void)printf("%s\n", run->id);
        return 0;
    } else if (!d->detach && docker_copy_out(d, run) < 0) {
        status = docker_fail(d, DOCKER_USAGE);
    }
    if (docker_end(d, run->id) < 0)
        (void)docker_fail(d, DOCKER_USAGE);
    return status;
}

int docker_run(struct docker *d)
{
    AUTO_JSON json_t *spec = NULL, *sandbox = NULL;
    struct docker_running run = {0};
    AUTO_FREE char **argv = mem_array((size_t)d->n + 2, sizeof(*argv));
    size_t n = 0;
    if (d->entrypoint && *d->entrypoint)
        argv[n++] = (char *)(uintptr_t)d->entrypoint;
    for (int i = 1; i < d->n; i++)
        argv[n++] = d->operands[i];
    if (n == 0 || d->n == 0)
        return docker_refuse(d, "No command specified: of an image's CMD and ENTRYPOINT nothing is kept");
    if (docker_check_tty(d) != 0)
        return DOCKER_USAGE;
    exec_block_signals();
    int status = docker_spec(d, argv, &spec, &run);
    if (status == 0 && docker_create(d, spec, &sandbox) < 0)
        status = docker_fail(d, DOCKER_USAGE);
    else if (status == 0) {
        run.id = mem_strdup(service_text(sandbox, "id"));
        status = docker_run_in(d, &run, argv);
    }
    for (size_t i = 0; i < d->n_volumes; i++) {
        mem_free(run.volumes[i].from);
        mem_free(run.volumes[i].to);
    }
    mem_free(run.id);
    return status;
}

/* ---- logs ---- */

static void docker_print_output(const json_t *data)
{
    JSON_FOREACH (piece, json_object_get(data, "output")) {
        JSON_FOREACH_MEMBER (channel, value, piece) {
            AUTO_BUF struct buf bytes = BUF_INIT(1 << 20);
            struct str text = str_n(json_string_value(value), json_string_length(value));
            if (str_ends(str_of(channel), STR("_base64")) && buf_append_unbase64(&bytes, text) == 0)
                text = buf_str(&bytes);
            (void)fwrite(text.p, 1, text.n, str_starts(str_of(channel), STR("stderr")) ? stderr : stdout);
        }
    }
}

/* Of long output, the record has the beginning and the end. */
int docker_record(struct docker *d, const json_t *sandbox, bool prints, int *ret_status)
{
    json_t *event;
    json_int_t start = -1;
    int r;
    AUTO_FREE char *target = service_target(service_text(sandbox, "id"), "/events?from=1&kind=exec.%s",
                                            prints && d->follow ? "&follow=1" : "");
    *ret_status = -1;
    if (service_stream(d->s, "GET", target) < 0)
        return -1;
    http_client_timeout(service_client(d->s), -1);
    while ((r = service_object(d->s, &event)) > 0) {
        const json_t *data = json_object_get(event, "data"), *code = json_object_get(data, "exit_code");
        const char *kind = service_text(event, "kind"), *tag = json_string_value(json_object_get(data, "tag"));
        if (strcmp(kind, "exec.start") == 0 && tag && strcmp(tag, DOCKER_TAG) == 0)
            start = json_integer_value(json_object_get(event, "seq"));
        if (start < 0 || json_integer_value(json_object_get(event, "cause")) != start)
            continue;
        if (prints && strcmp(kind, "exec.output") == 0)
            docker_print_output(data);
        if (strcmp(kind, "exec.exit") != 0)
            continue;
        *ret_status = code ? (int)json_integer_value(code) : 128 + (int)service_number(data, "signal");
        const char *tail = json_string_value(json_object_get(data, "tail"));
        (void)fputs(prints && tail ? tail : "", stdout);
        if (prints && d->follow)
            return 0;
    }
    return r;
}

int docker_logs(struct docker *d)
{
    AUTO_JSON json_t *sandbox = NULL;
    int ended;
    if (d->n != 1)
        return docker_refuse(d, "\"docker logs\" requires exactly 1 argument.");
    return docker_find(d, d->operands[0], &sandbox) < 0 || docker_record(d, sandbox, true, &ended) < 0
               ? docker_fail(d, DOCKER_FAILED)
               : 0;
}
