/* SPDX-License-Identifier: Apache-2.0 */
#include "http/fields.h"

void fields_init(struct fields *f, unsigned most, size_t bytes)
{
    assert(most <= FIELDS_MAX);
    buf_init(&f->text, bytes);
    f->most = most;
    fields_reset(f);
}

void fields_fini(struct fields *f)
{
    buf_fini(&f->text);
    f->n = 0;
}

void fields_reset(struct fields *f)
{
    buf_clear(&f->text);
    f->line.n = f->n = 0;
    f->name_done = false;
}

static int fields_add(struct fields *f, struct span *span, const char *p, size_t n)
{
    if (span->n == 0)
        span->at = (uint32_t)buf_len(&f->text);
    span->n += (uint32_t)n;
    return buf_append(&f->text, p, n) < 0 ? -ENOBUFS : 0;
}

int fields_add_line(struct fields *f, const char *p, size_t n)
{
    return fields_add(f, &f->line, p, n);
}

int fields_add_name(struct fields *f, const char *p, size_t n)
{
    if (f->n == 0 || f->name_done) {
        if (f->n == f->most)
            return -E2BIG;
        memset(&f->at[f->n++], 0, sizeof(f->at[0]));
        f->name_done = false;
    }
    return fields_add(f, &f->at[f->n - 1].name, p, n);
}

int fields_name_done(struct fields *f)
{
    if (f->n == 0 || f->name_done || f->at[f->n - 1].name.n == 0)
        return -EINVAL;
    f->name_done = true;
    return 0;
}

int fields_add_value(struct fields *f, const char *p, size_t n)
{
    return f->name_done ? fields_add(f, &f->at[f->n - 1].value, p, n) : -EINVAL;
}

int fields_status(int r, const char **ret_why)
{
    *ret_why = r == -EINVAL ? "a header has no name" : r == -E2BIG ? "too many headers" : "the headers are too large";
    return r == -EINVAL ? 400 : 431;
}

static struct str fields_span(const struct fields *f, struct span s)
{
    return s.n ? str_n(buf_data(&f->text) + s.at, s.n) : STR("");
}

struct str fields_line(const struct fields *f)
{
    return fields_span(f, f->line);
}

struct http_header fields_at(const struct fields *f, unsigned i)
{
    assert(i < f->n);
    return (struct http_header){fields_span(f, f->at[i].name), str_trim(fields_span(f, f->at[i].value))};
}

struct str fields_get(const struct fields *f, struct str name)
{
    for (unsigned i = 0; i < f->n; i++) {
        if (str_eq_nocase(fields_span(f, f->at[i].name), name))
            return fields_at(f, i).value;
    }
    return STR_NULL;
}

bool fields_is_hop_by_hop(const struct http_header *headers, size_t n, struct str name)
{
    if (http_list_has(STR("connection,keep-alive,proxy-connection,te,trailer,transfer-encoding,upgrade"), name))
        return true;
    for (size_t i = 0; i < n; i++) {
        if (str_eq_nocase(headers[i].name, STR("connection")) && http_list_has(headers[i].value, name))
            return true;
    }
    return false;
}
