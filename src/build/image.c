/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images: coved starts a process that fetches and unpacks one into a new layer; we hold the other end of its socket,
 * say what is wanted, and read its progress (image/job.h). The layer is there when both have said so: the process with
 * "ok", coved with its answer.
 */
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "build/internal.h"

#include <sys/socket.h>

enum { IMAGE_REQUEST_MAX = 64 * 1024, IMAGE_LINE_MAX = 256 * 1024, TELL_MS = 2000 };

struct image_link {
    struct build_job *job; /* NULL: it does not care any more */
    uv_poll_t poll;
    int fd, archive_fd;
    bool writing, sent_archive, eof, layer_done, told_ok, failed;
    struct buf out, in;
    struct err err; /* of failed */
    bool layer_failed;
    struct err layer_err;
    usec_t told;
    unsigned open; /* the handle, coved's answer */
};

static void image_put(struct image_link *l)
{
    if (--l->open)
        return;
    buf_fini(&l->out);
    buf_fini(&l->in);
    (void)fd_close(l->fd);
    (void)fd_close(l->archive_fd);
    mem_free(l);
}

static void image_on_closed(uv_handle_t *handle)
{
    image_put(container_of((uv_poll_t *)handle, struct image_link, poll));
}

static void hang_up(struct image_link *l)
{
    if (!uv_is_closing((uv_handle_t *)&l->poll)) {
        (void)uv_poll_stop(&l->poll);
        (void)shutdown(l->fd, SHUT_RDWR);
        uv_close((uv_handle_t *)&l->poll, image_on_closed);
    }
}

void image_stop(struct build_job *j)
{
    struct image_link *l = j->image;
    j->image = NULL;
    if (!l)
        return;
    l->job = NULL;
    hang_up(l); /* which cancels the job */
}

static void set_failed(struct image_link *l, enum err_code code, const char *message)
{
    if (!l->failed)
        (void)err_set(&l->err, code, "%s", message);
    l->failed = true;
}

/* ---- what it tells ---- */

static const char *text_in(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

static double mib(const json_t *object, const char *name)
{
    json_int_t n = json_integer_value(json_object_get(object, name));
    return n > 0 ? (double)n / (1 << 20) : 0;
}

static void tell_progress(struct image_link *l, const json_t *line)
{
    const char *phase = text_in(line, "phase");
    usec_t now = clock_mono();
    bool is_pull = strcmp(phase, "pull") == 0;
    if (is_pull && now < l->told + TELL_MS * USEC_PER_MS)
        return;
    l->told = now;
    long long index = json_integer_value(json_object_get(line, "index")) + 1,
              layers = json_integer_value(json_object_get(line, "layers"));
    if (is_pull)
        job_log(l->job, TEMPLATE_INFO, "[base] layer %lld of %lld: %.1f of %.1f MiB", index, layers, mib(line, "bytes"),
                mib(line, "of"));
    else if (strcmp(phase, "unpack") == 0)
        job_log(l->job, TEMPLATE_DEBUG, "[base] layer %lld of %lld is unpacked: %.1f MiB so far", index, layers,
                mib(line, "unpacked"));
    else
        job_log(l->job, TEMPLATE_DEBUG, "[base] %.32s", phase);
}

/* Entrypoint and command are one list by now: a container of the image, told nothing else, runs it. */
static void take_command(struct build_job *j, const json_t *config)
{
    AUTO_JSON json_t *image =
        json_pack("{s:[],s:s,s:s}", "argv", "workdir", text_in(config, "workdir"), "user", text_in(config, "user"));
    (void)json_array_extend(json_object_get(image, "argv"), json_object_get(config, "entrypoint"));
    (void)json_array_extend(json_object_get(image, "argv"), json_object_get(config, "cmd"));
    AUTO_FREE char *text = json_dumps(image, JSON_COMPACT);
    build_context_set_image(&j->ctx, text);
}

static void take_config(struct image_link *l, const json_t *line)
{
    const json_t *config = json_object_get(line, "config"), *envs = json_object_get(config, "env");
    struct build_job *j = l->job;
    struct err err;
    JSON_FOREACH (env, envs) {
        const char *text = json_string_value(env);
        if (text && build_context_set_lines(&j->ctx, &text, 1, &err) < 0) {
            set_failed(l, err.code, err.msg);
            return;
        }
    }
    take_command(j, config);
    job_log(j, TEMPLATE_INFO, "[base] %s: %.1f MiB, %lld files, %.1f s", text_in(line, "digest"), mib(line, "bytes"),
            (long long)json_integer_value(json_object_get(line, "entries")),
            (double)(clock_mono() - j->step_started) / USEC_PER_SEC);
    json_int_t bytes = json_integer_value(json_object_get(line, "bytes"));
    j->image_bytes = bytes > 0 ? (uint64_t)bytes : 0;
    l->told_ok = true;
}

static enum err_code image_code_of(const char *name)
{
    static const struct {
        const char *name;
        enum err_code code;
    } codes[] = {{"not_found", ERR_NOT_FOUND},       {"unauthenticated", ERR_UNAUTHENTICATED},
                 {"denied", ERR_PERMISSION_DENIED},  {"invalid", ERR_INVALID_ARGUMENT},
                 {"unsupported", ERR_UNIMPLEMENTED}, {"too_large", ERR_OUT_OF_RANGE},
                 {"full", ERR_RESOURCE_EXHAUSTED},   {"unavailable", ERR_UNAVAILABLE},
                 {"timeout", ERR_DEADLINE_EXCEEDED}, {"canceled", ERR_CANCELED}};
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
        if (strcmp(name, codes[i].name) == 0)
            return codes[i].code;
    return ERR_INTERNAL;
}

static void on_line(struct image_link *l, struct str text)
{
    json_t *line = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, NULL);
    const json_t *error = json_object_get(line, "error");
    if (!json_is_object(line))
        set_failed(l, ERR_INTERNAL, "the process that unpacks the image sent an invalid message");
    else if (error)
        set_failed(l, image_code_of(text_in(error, "code")), text_in(error, "message"));
    else if (json_is_true(json_object_get(line, "ok")))
        take_config(l, line);
    else if (json_object_get(line, "warning"))
        job_log(l->job, TEMPLATE_WARN, "[base] %.500s", text_in(line, "warning"));
    else
        tell_progress(l, line);
    json_decref(line);
}

/* Both sides have said what they have to say. The process knows better what went wrong than coved, which sees its exit
 * code. */
static void image_settle(struct image_link *l)
{
    struct build_job *j = l->job;
    if (!j || !l->eof || !l->layer_done)
        return;
    if (l->layer_failed)
        set_failed(l, l->layer_err.code, l->layer_err.msg);
    else if (!l->told_ok)
        set_failed(l, ERR_INTERNAL, "the process that unpacks the image ended early");
    struct err err = l->err;
    bool failed = l->failed;
    j->image = NULL;
    l->job = NULL;
    hang_up(l);
    if (failed) {
        job_fail(j, "image '%.200s': %s", j->spec.image ? j->spec.image : "archive", err.msg);
        return;
    }
    memcpy(j->layer, j->next, sizeof(j->next));
    layers_settled(j->b->config.core, j->layer);
    base_have_image(j);
}

static void image_on_layer(void *ctx, const struct err *err)
{
    struct image_link *l = ctx;
    l->layer_done = true;
    l->layer_failed = err != NULL;
    if (err)
        l->layer_err = *err;
    image_settle(l);
    image_put(l);
}

/* ---- the socket ---- */

static void image_receive(struct image_link *l)
{
    char *at = buf_reserve(&l->in, 32 * 1024);
    ssize_t n = at ? recv(l->fd, at, 32 * 1024, MSG_DONTWAIT) : -1;
    if (!at) {
        set_failed(l, ERR_INTERNAL, "the process that unpacks the image sent too many messages");
        l->eof = true;
        return;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        l->eof = true;
        return;
    }
    buf_commit(&l->in, (size_t)n);
    for (;;) {
        struct str all = buf_str(&l->in);
        ssize_t end = str_find_char(all, '\n');
        if (end < 0 || !l->job)
            return;
        on_line(l, str_n(all.p, (size_t)end));
        if (!l->job)
            return;
        buf_consume(&l->in, (size_t)end + 1);
    }
}

static int send_some(struct image_link *l)
{
    while (buf_len(&l->out)) {
        ssize_t n;
        if (l->archive_fd >= 0 && !l->sent_archive) {
            int r = fd_send(l->fd, buf_data(&l->out), buf_len(&l->out), &l->archive_fd, 1);
            n = r < 0 ? r : (ssize_t)buf_len(&l->out);
            l->sent_archive = r >= 0;
        } else {
            n = send(l->fd, buf_data(&l->out), buf_len(&l->out), MSG_DONTWAIT | MSG_NOSIGNAL);
            n = n < 0 ? -errno : n;
        }
        if (n == -EAGAIN || n == -EINTR)
            return 0;
        if (n < 0)
            return (int)n;
        buf_consume(&l->out, (size_t)n);
    }
    return 0;
}

static void image_on_poll(uv_poll_t *handle, int status, int events)
{
    struct image_link *l = container_of(handle, struct image_link, poll);
    if (status < 0)
        l->eof = true;
    if (events & UV_WRITABLE) {
        if (send_some(l) < 0)
            buf_clear(&l->out); /* what it says, or that it ended, is read */
    }
    if (!l->eof && events & (UV_READABLE | UV_DISCONNECT))
        image_receive(l);
    if (uv_is_closing((uv_handle_t *)handle))
        return;
    if (l->eof)
        (void)uv_poll_stop(handle);
    else
        (void)uv_poll_start(handle, UV_READABLE | (buf_len(&l->out) ? UV_WRITABLE : 0), image_on_poll);
    image_settle(l);
}

static int make_request(struct image_link *l, struct build_job *j, struct err *err)
{
    struct buf *b = &l->out;
    uint64_t size;
    if (j->spec.archive) {
        buf_append_cstr(b, "{\"archive\":true}\n");
        return uploads_open(j->b->uploads, j->spec.archive, &l->archive_fd, &size, err);
    }
    buf_append_cstr(b, "{\"image\":");
    buf_append_json_string(b, str_of(j->spec.image));
    if (j->spec.username || j->spec.password) {
        buf_append_cstr(b, ",\"auth\":{\"username\":");
        buf_append_json_string(b, str_of(j->spec.username ? j->spec.username : ""));
        buf_append_cstr(b, ",\"password\":");
        buf_append_json_string(b, str_of(j->spec.password ? j->spec.password : ""));
        buf_append_char(b, '}');
    }
    buf_append_cstr(b, ",\"insecure\":[");
    for (size_t i = 0; i < j->b->config.n_insecure; i++) {
        if (i)
            buf_append_char(b, ',');
        buf_append_json_string(b, str_of(j->b->config.insecure[i]));
    }
    buf_append_cstr(b, "]}\n");
    return buf_error(b) < 0 ? err_set(err, ERR_INVALID_ARGUMENT, "the image's name or credentials are too long") : 0;
}

void image_start(struct build_job *j)
{
    struct image_link *l = mem_new(struct image_link);
    struct err err;
    int pair[2];
    l->fd = l->archive_fd = -1;
    l->out = BUF_INIT(IMAGE_REQUEST_MAX);
    l->in = BUF_INIT(IMAGE_LINE_MAX + 32 * 1024);
    l->open = 1;
    if (make_request(l, j, &err) < 0) {
        image_put(l);
        job_fail(j, "%s", err.msg);
        return;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        image_put(l);
        job_fail(j, "image: %s", strerror(errno));
        return;
    }
    l->fd = pair[0];
    if (fd_nonblock(pair[1], false) < 0)
        log_warn("build %s: fetching its image may be slow", j->id);
    (void)uv_poll_init(core_loop(j->b->config.core), &l->poll, l->fd);
    layer_name_new(j->next);
    l->job = j;
    j->image = l;
    l->open++;
    if (layers_image(j->b->config.core, j->actor.who.tenant, j->next, pair[1], image_on_layer, l, &err) < 0) {
        l->open--;
        job_fail(j, "image '%.200s': %s", j->spec.image ? j->spec.image : "archive", err.msg);
        return;
    }
    (void)uv_poll_start(&l->poll, UV_READABLE | UV_WRITABLE, image_on_poll);
}
