/* SPDX-License-Identifier: Apache-2.0 */
/* Events of a stream, in the dialect that the SDKs read. */
#include "api/opensandbox/handlers.h"

void sse_begin(struct buf *b, const char *type)
{
    buf_printf(b, "{\"type\":\"%s\",\"timestamp\":%llu", type, (unsigned long long)(clock_real() / USEC_PER_MS));
}

void sse_text(struct buf *b, const char *type, struct str text)
{
    sse_begin(b, type);
    json_put_str(b, "text", text);
    buf_append_cstr(b, "}\n\n");
}

void sse_complete(struct buf *b, usec_t took)
{
    sse_begin(b, "execution_complete");
    buf_printf(b, ",\"execution_time\":%llu}\n\n", (unsigned long long)(took / USEC_PER_MS));
}

void sse_error(struct buf *b, const char *value, const char *trace)
{
    sse_begin(b, "error");
    buf_append_cstr(b, ",\"error\":{\"ename\":\"CommandExecError\",\"evalue\":");
    buf_append_json_string(b, str_of(value));
    buf_append_cstr(b, ",\"traceback\":[");
    buf_append_json_string(b, str_of(trace));
    buf_append_cstr(b, "]}}\n\n");
}

void sse_start(struct call *c)
{
    const struct http_header headers[] = {HTTP_HEADER("content-type", "text/event-stream"),
                                          HTTP_HEADER("cache-control", "no-cache"),
                                          HTTP_HEADER("x-accel-buffering", "no")};
    (void)http_response_begin(c->req, 200, headers, ARRAY_SIZE(headers), -1);
}

void sse_ping(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(256);
    sse_text(&b, "ping", STR("pong"));
    (void)http_response_write(c->req, buf_str(&b));
    call_set_timer(c, SSE_PING_MS, sse_ping);
}

void sse_line_flush(struct sse_lines *l, const char *type, struct buf *b)
{
    sse_text(b, type, buf_len(&l->rest) ? buf_str(&l->rest) : STR("\n"));
    buf_clear(&l->rest);
}

void sse_lines_take(struct sse_lines *l, const char *type, struct str bytes, struct buf *b)
{
    for (size_t i = 0, from = 0; i <= bytes.n; i++) {
        bool is_end = i == bytes.n || bytes.p[i] == '\n' || bytes.p[i] == '\r';
        if (!is_end && buf_len(&l->rest) + i - from < SSE_LINE_MAX)
            continue;
        (void)buf_append_str(&l->rest, str_n(bytes.p + from, i - from));
        from = i;
        if (i == bytes.n)
            return;
        if (!is_end) {
            sse_line_flush(l, type, b);
            continue;
        }
        from++;
        if (bytes.p[i] == '\r' || !l->after_cr || buf_len(&l->rest))
            sse_line_flush(l, type, b);
        l->after_cr = bytes.p[i] == '\r';
    }
}
