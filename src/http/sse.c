/* SPDX-License-Identifier: Apache-2.0 */
#include "http/sse.h"

static bool is_one_line(struct str s)
{
    return str_find_char(s, '\n') < 0 && str_find_char(s, '\r') < 0 && !str_has_nul(s);
}

static void sse_append_line(struct buf *b, const char *field, struct str value)
{
    buf_append_cstr(b, field);
    buf_append_str(b, value);
    buf_append_char(b, '\n');
}

int sse_append(struct buf *b, const struct sse_event *event)
{
    if (!is_one_line(event->id) || !is_one_line(event->event))
        return -EINVAL;
    if (event->id.p)
        sse_append_line(b, "id: ", event->id);
    if (event->event.p)
        sse_append_line(b, "event: ", event->event);
    /* A client ends lines at CR, LF and CR LF alike and joins them with LF. */
    struct str rest = event->data;
    for (;;) {
        size_t n = 0;
        while (n < rest.n && rest.p[n] != '\n' && rest.p[n] != '\r')
            n++;
        sse_append_line(b, "data: ", str_n(rest.p, n));
        if (n == rest.n)
            break;
        n += rest.p[n] == '\r' && n + 1 < rest.n && rest.p[n + 1] == '\n' ? 2 : 1;
        rest = str_sub(rest, n);
    }
    return buf_append_char(b, '\n');
}
