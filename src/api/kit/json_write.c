/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/json_write.h"
#include "base/mem.h"
#include "sandbox/sandbox.h"

void json_put_comma(struct buf *b)
{
    if (buf_len(b) && !strchr("{[:,\n", buf_data(b)[buf_len(b) - 1]))
        (void)buf_append_char(b, ',');
}

void json_put_value(struct buf *b, json_t *value)
{
    AUTO_FREE char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(value);
    json_put_comma(b);
    (void)buf_append_cstr(b, text ? text : "null");
}

static void json_put_name(struct buf *b, const char *name)
{
    json_put_comma(b);
    buf_printf(b, "\"%s\":", name);
}

void json_put_str(struct buf *b, const char *name, struct str value)
{
    json_put_name(b, name);
    (void)buf_append_json_string(b, value);
}

void json_put_text(struct buf *b, const char *name, const char *value)
{
    json_put_name(b, name);
    if (value)
        (void)buf_append_json_string(b, str_of(value));
    else
        (void)buf_append_cstr(b, "null");
}

void json_put_time(struct buf *b, const char *name, usec_t at, int digits)
{
    char text[CLOCK_TEXT_MAX];
    clock_format(at, digits, text);
    json_put_text(b, name, text);
}

void json_put_pairs(struct buf *b, const char *name, const struct pair *pairs, size_t n)
{
    json_put_name(b, name);
    (void)buf_append_char(b, '{');
    for (size_t i = 0; i < n; i++) {
        json_put_comma(b);
        (void)buf_append_json_string(b, pairs[i].key);
        (void)buf_append_char(b, ':');
        (void)buf_append_json_string(b, pairs[i].value);
    }
    (void)buf_append_char(b, '}');
}

void json_put_strs(struct buf *b, const char *name, const struct str *strs, size_t n)
{
    json_put_name(b, name);
    (void)buf_append_char(b, '[');
    for (size_t i = 0; i < n; i++) {
        json_put_comma(b);
        (void)buf_append_json_string(b, strs[i]);
    }
    (void)buf_append_char(b, ']');
}

void json_open(struct buf *b, const char *name, struct str value)
{
    json_put_comma(b);
    (void)buf_append_char(b, '{');
    json_put_str(b, name, value);
}
