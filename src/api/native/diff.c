/* SPDX-License-Identifier: Apache-2.0 */
/* What differs between two file trees, as NDJSON. */
#include "api/kit/diff_read.h"
#include "api/native/handlers.h"
#include "base/mem.h"

enum { LINE_MAX_BYTES = 10 * LAYERS_PATH_MAX };

static void native_diff_on_end(void *ctx, const struct err *err)
{
    struct call *c = ctx;
    /* The usual advice is about sandboxes that run. */
    const char *hint = err && err->code == ERR_RESOURCE_EXHAUSTED ? DIFF_READ_HINT : NULL;
    if (err && !http_response_begun(c->req)) {
        call_fail_hint(c, err, hint);
        return;
    }
    native_begin_lines(c);
    if (err) {
        AUTO_BUF struct buf b = BUF_INIT(4096);
        json_put_value(&b, native_error(err, hint));
        buf_append_char(&b, '\n');
        (void)http_response_write(c->req, buf_str(&b));
    }
    (void)http_response_end(c->req);
}

static void native_diff_on_change(void *ctx, const struct layers_change *change)
{
    AUTO_BUF struct buf line = BUF_INIT(LINE_MAX_BYTES);
    struct call *c = ctx;
    buf_printf(&line, "{\"change\":\"%s\",\"type\":\"%s\",\"path\":", change->change, change->type);
    AUTO_FREE char *path = mem_printf("/%.*s", STR_ARG(change->path));
    buf_append_json_string(&line, str_of(path));
    if (!str_is_utf8(str_of(path))) { /* several such have the same "path" */
        (void)buf_append_cstr(&line, ",\"path_base64\":\"");
        (void)buf_append_base64(&line, str_of(path));
        (void)buf_append_cstr(&line, "\"");
    }
    buf_printf(&line, ",\"mode\":%u,\"size\":%llu}\n", change->mode, (unsigned long long)change->size);
    native_begin_lines(c);
    (void)http_response_write(c->req, buf_str(&line));
}

static bool native_diff_is_full(void *ctx)
{
    const struct call *c = ctx;
    return http_response_full(c->req);
}

static void native_diff_on_drain(struct call *c)
{
    diff_read_resume(c->state);
}

static void native_diff_on_closed(struct call *c)
{
    diff_read_close(c->state);
}

void native_diff(struct call *c)
{
    static const struct diff_read_ops ops = {native_diff_on_change, native_diff_is_full, native_diff_on_end};
    struct str a = STR(""), b = STR_NULL;
    struct diff_read *d;
    (void)call_query(c, "a", &a);
    if (!call_query(c, "b", &b) || !b.n) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "b is missing: a sandbox's id, or a template's or snapshot's name");
        return;
    }
    if (!call_ok(c, diff_read_start(call_core(c), c->actor.who.view, a, b, &ops, c, &d, &c->err)))
        return;
    c->state = d;
    c->cleanup = native_diff_on_closed;
    call_on_drain(c, native_diff_on_drain);
}
