/* SPDX-License-Identifier: Apache-2.0 */
/* Events as JSON, and the builder of their data. */
#include "base/clock.h"
#include "event/event.h"
#include "event/json.h"

void event_format_members(const struct event *e, bool for_people, struct buf *b)
{
    char time[CLOCK_TEXT_MAX];
    buf_append_str(b, STR("{\"sandbox\":"));
    buf_append_json_string(b, e->sandbox);
    buf_append_str(b, STR(",\"seq\":"));
    buf_append_u64(b, e->seq);
    buf_append_str(b, STR(",\"time\":"));
    if (for_people) {
        clock_format(e->time, 6, time);
        buf_append_json_string(b, str_of(time));
    } else {
        buf_append_u64(b, e->time);
    }
    buf_append_str(b, STR(",\"kind\":"));
    buf_append_json_string(b, e->kind_name);
    buf_append_str(b, STR(",\"source\":"));
    buf_append_json_string(b, e->source);
    buf_append_str(b, STR(",\"grade\":"));
    buf_append_json_string(b, e->grade);
    buf_append_str(b, STR(",\"actor\":"));
    buf_append_json_string(b, e->actor);
    buf_append_str(b, STR(",\"cause\":"));
    buf_append_u64(b, e->cause);
    buf_append_str(b, STR(",\"data\":"));
    buf_append_str(b, e->data);
}

void event_format_json(const struct event *e, struct buf *b)
{
    event_format_members(e, true, b);
    buf_append_str(b, STR(",\"hash\":\""));
    buf_append_hex(b, str_n(e->hash, EVENT_HASH_SIZE));
    buf_append_str(b, STR("\"}"));
}

/*
 * A member is written as a whole or not at all: what did not fit is taken back. Room for the marker and the closing
 * brace is always left.
 */
static const struct str marker = {"\"truncated\":true}", 17};

enum { EVENT_DATA_USUAL = 256 }; /* bytes; grown into in one step. No name is nearly as long */

static size_t text_begin(struct event_data *d, const char *name)
{
    struct str key = str_of(name);
    size_t mark = buf_len(&d->buf);
    char *to = buf_reserve(&d->buf, mark ? key.n + 4 : EVENT_DATA_USUAL);
    if (!to)
        return mark;
    to[0] = mark ? ',' : '{';
    to[1] = '"';
    memcpy(to + 2, key.p, key.n);
    to[key.n + 2] = '"';
    to[key.n + 3] = ':';
    buf_commit(&d->buf, key.n + 4);
    return mark;
}

static bool text_finish(struct event_data *d, size_t mark)
{
    if (buf_error(&d->buf) == 0 && buf_len(&d->buf) + 1 + marker.n <= d->buf.max)
        return true;
    d->buf.error = 0;
    d->buf.end = d->buf.start + mark;
    d->truncated = true;
    return false;
}

/* Not in the middle of a character. */
static struct str cut(struct str s, size_t max)
{
    if (s.n <= max)
        return s;
    assert(s.p);
    size_t n = max, least = max - MIN(max, (size_t)3);
    while (n > least && ((unsigned char)s.p[n] & 0xc0) == 0x80)
        n--;
    return str_n(s.p, n);
}

static void note_length(struct event_data *d, const char *name, size_t bytes)
{
    char longer[64];
    AUTO_BUF struct buf text = BUF_INIT(sizeof(longer) - 1);
    if (buf_printf(&text, "%s_bytes", name) < 0)
        return;
    memcpy(longer, buf_data(&text), buf_len(&text));
    longer[buf_len(&text)] = 0;
    event_data_u64(d, longer, bytes);
}

/* Escaped text may be six times as long, so what does not fit is tried again with less before it is left out. */
static void add_cut(struct event_data *d, const char *name, struct str value, bool base64)
{
    struct str kept = cut(value, EVENT_DATA_STRING_MAX);
    bool had_truncated = d->truncated;
    for (;; kept = cut(kept, kept.n / 4)) {
        size_t mark = text_begin(d, name);
        if (base64) {
            buf_append_char(&d->buf, '"');
            buf_append_base64(&d->buf, kept);
            buf_append_char(&d->buf, '"');
        } else {
            buf_append_json_string(&d->buf, kept);
        }
        if (text_finish(d, mark))
            break;
        if (kept.n < 64)
            return;
    }
    d->truncated = had_truncated;
    if (kept.n < value.n)
        note_length(d, name, value.n);
}

void event_data_str(struct event_data *d, const char *name, struct str value)
{
    add_cut(d, name, value, false);
}

void event_data_base64(struct event_data *d, const char *name, struct str value)
{
    add_cut(d, name, value, true);
}

void event_data_u64(struct event_data *d, const char *name, uint64_t value)
{
    size_t mark = text_begin(d, name);
    buf_append_u64(&d->buf, value);
    (void)text_finish(d, mark);
}

void event_data_i64(struct event_data *d, const char *name, int64_t value)
{
    size_t mark = text_begin(d, name);
    if (value < 0)
        buf_append_char(&d->buf, '-');
    buf_append_u64(&d->buf, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
    (void)text_finish(d, mark);
}

void event_data_bool(struct event_data *d, const char *name, bool value)
{
    size_t mark = text_begin(d, name);
    buf_append_cstr(&d->buf, value ? "true" : "false");
    (void)text_finish(d, mark);
}

void event_data_json(struct event_data *d, const char *name, struct str json)
{
    size_t mark = text_begin(d, name);
    if (json_compact(json, &d->buf) < 0 && buf_error(&d->buf) == 0)
        d->buf.error = -EILSEQ;
    (void)text_finish(d, mark);
}

void event_data_put(struct event_data *d, const struct event_member *members, size_t n)
{
    for (const struct event_member *m = members; m < members + n; m++) {
        if (m->may_lack && !m->text.p && !m->n)
            continue;
        switch (m->kind) {
        case EVENT_MEMBER_STR:
            event_data_str(d, m->name, m->text);
            break;
        case EVENT_MEMBER_JSON:
            event_data_json(d, m->name, m->text);
            break;
        case EVENT_MEMBER_U64:
            event_data_u64(d, m->name, m->n);
            break;
        case EVENT_MEMBER_I64:
            event_data_i64(d, m->name, (int64_t)m->n);
            break;
        case EVENT_MEMBER_BOOL:
            event_data_bool(d, m->name, m->n);
            break;
        }
    }
}

struct event_data event_data_of(const struct event_member *members, size_t n)
{
    struct event_data d = EVENT_DATA_INIT;
    event_data_put(&d, members, n);
    return d;
}

struct str event_data_end(struct event_data *d)
{
    bool empty = buf_len(&d->buf) == 0;
    if (d->truncated) {
        buf_append_char(&d->buf, empty ? '{' : ',');
        buf_append_str(&d->buf, marker);
    } else {
        buf_append_cstr(&d->buf, empty ? "{}" : "}");
    }
    return buf_str(&d->buf);
}

void event_data_fini(struct event_data *d)
{
    buf_fini(&d->buf);
    d->truncated = false;
}

bool event_is_traceparent(struct str t)
{
    static const char form[] = "vv-tttttttttttttttttttttttttttttttt-pppppppppppppppp-ff";
    bool has_trace = false, has_parent = false;
    if (t.n != EVENT_TRACEPARENT_LEN || !str_starts(t, STR("00-")))
        return false;
    for (size_t i = 0; i < t.n; i++) {
        if (form[i] == '-' ? t.p[i] != '-' : !str_is_hex(str_n(t.p + i, 1)))
            return false;
        has_trace |= form[i] == 't' && t.p[i] != '0';
        has_parent |= form[i] == 'p' && t.p[i] != '0';
    }
    return has_trace && has_parent;
}
