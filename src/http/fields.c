/* SPDX-License-Identifier: Apache-2.0 */
#include "http/fields.h"

void fields_init(struct fields *f)
{
    buf_init(&f->text, FIELDS_BYTES_MAX);
    f->n = 0;
    f->name_done = false;
}

void fields_fini(struct fields *f)
{
    buf_fini(&f->text);
    f->n = 0;
}

void fields_reset(struct fields *f)
{
    buf_clear(&f->text);
    f->n = 0;
    f->name_done = false;
}

int fields_add_name(struct fields *f, const char *p, size_t n)
{
    if (f->n == 0 || f->name_done) {
        if (f->n == FIELDS_MAX)
            return -1;
        f->at[f->n].name_at = (uint32_t)buf_len(&f->text);
        f->at[f->n].name_n = f->at[f->n].value_n = 0;
        f->n++;
        f->name_done = false;
    }
    f->at[f->n - 1].name_n += (uint32_t)n;
    return buf_append(&f->text, p, n) < 0 ? -1 : 0;
}

int fields_name_done(struct fields *f)
{
    if (f->n == 0 || f->name_done || f->at[f->n - 1].name_n == 0)
        return -1; /* a header without a name */
    f->name_done = true;
    f->at[f->n - 1].value_at = (uint32_t)buf_len(&f->text);
    return 0;
}

int fields_add_value(struct fields *f, const char *p, size_t n)
{
    if (f->n == 0)
        return -1;
    f->at[f->n - 1].value_n += (uint32_t)n;
    return buf_append(&f->text, p, n) < 0 ? -1 : 0;
}

struct http_header fields_at(const struct fields *f, unsigned i)
{
    const char *text = buf_data(&f->text);
    assert(i < f->n);
    return (struct http_header){str_n(text + f->at[i].name_at, f->at[i].name_n),
                                str_trim(str_n(text + f->at[i].value_at, f->at[i].value_n))};
}

struct str fields_get(const struct fields *f, struct str name)
{
    for (unsigned i = 0; i < f->n; i++) {
        struct http_header h = fields_at(f, i);
        if (str_eq_nocase(h.name, name))
            return h.value;
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
