/* SPDX-License-Identifier: Apache-2.0 */
/* What was kept of a long output, by the action that it is of or by its digest: for as long as the sandbox's log has
 * it, however the sandbox is. */
#include "api/native/handlers.h"
#include "base/fd.h"
#include "base/id.h"
#include "sandbox/exec/exec.h"

#include <unistd.h>

static int channel_of(struct call *c, enum wire_channel *ret_channel)
{
    struct str name;
    *ret_channel = WIRE_STDOUT;
    if (!call_query(c, "channel", &name))
        return 0;
    const int which = str_word(name, "stdout stderr pty");
    if (which < 0) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "channel must be stdout, stderr or pty");
        return -1;
    }
    *ret_channel = (enum wire_channel)(WIRE_STDOUT + which);
    return 0;
}

/* ---- the file, a piece at a time, as fast as the client reads ---- */

struct output_stream {
    int fd;
    uint64_t left;
};

static void output_closed(struct call *c)
{
    struct output_stream *o = c->state;
    (void)fd_close(o->fd);
    o->fd = -1;
}

static void output_pump(struct call *c)
{
    struct output_stream *o = c->state;
    char piece[32 * 1024];
    for (int i = 0; o->left && !http_response_full(c->req); i++) {
        if (i == 16) {
            call_later(c, output_pump);
            return;
        }
        ssize_t n = read(o->fd, piece, (size_t)MIN(o->left, (uint64_t)sizeof(piece)));
        if (n <= 0) {
            http_abort(c->req); /* shorter than it was promised to be */
            return;
        }
        o->left -= (uint64_t)n;
        if (http_response_write(c->req, str_n(piece, (size_t)n)) < 0)
            return;
    }
    if (!o->left)
        (void)http_response_end(c->req);
}

static void output_send(struct call *c, const struct exec_kept *kept)
{
    char text[32];
    struct output_stream *o = call_state(c, sizeof(*o), output_closed);
    *o = (struct output_stream){kept->fd, kept->bytes};
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)kept->dropped);
    struct http_header headers[] = {HTTP_HEADER("content-type", "application/octet-stream"),
                                    HTTP_HEADER("cache-control", "no-store"),
                                    HTTP_HEADER_STR("x-cove-dropped", str_of(text))};
    (void)http_response_begin(c->req, 200, headers, ARRAY_SIZE(headers), (int64_t)kept->bytes);
    call_on_drain(c, output_pump);
    output_pump(c);
}

/* Whether or not the sandbox is still there. NULL: answered. */
static const char *output_sandbox(struct call *c)
{
    if (id_is_sandbox(c->args[0]) && access_has_log(c, c->args[0].p))
        return arena_str(http_arena(c->req), c->args[0]).p;
    call_refuse(c, ERR_NOT_FOUND, "there is no sandbox %.*s", STR_ARG_MAX(c->args[0], 64));
    return NULL;
}

void native_output_get(struct call *c)
{
    enum wire_channel channel;
    struct exec_kept kept;
    struct err err;
    uint64_t seq;
    const char *id = output_sandbox(c);
    if (!id || call_query_u64(c, "seq", &seq) < 0 || channel_of(c, &channel) < 0)
        return;
    if (exec_kept_output(call_core(c), id, seq, channel, &kept, &err) == 0)
        output_send(c, &kept);
    else
        call_fail_hint(c, &err,
                       err.code == ERR_NOT_FOUND
                           ? "seq must be that of an exec.start; short output is in its exec.output and exec.exit"
                           : NULL);
}

void native_output_artefact(struct call *c)
{
    struct exec_kept kept;
    const char *id = output_sandbox(c);
    if (id && call_ok(c, exec_kept_artefact(call_core(c), id, c->args[1], &kept, &c->err)))
        output_send(c, &kept);
}
