/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

static int json_append_object(struct buf *b, const json_t *object)
{
    char before = '{';
    JSON_FOREACH_MEMBER (name, value, object) {
        (void)buf_append_char(b, before);
        (void)buf_append_json_string(b, str_of(name));
        (void)buf_append_char(b, ':');
        (void)buf_append_json(b, value);
        before = ',';
    }
    return buf_append_cstr(b, before == '{' ? "{}" : "}");
}

static int json_append_array(struct buf *b, const json_t *array)
{
    char before = '[';
    JSON_FOREACH (value, array) {
        (void)buf_append_char(b, before);
        (void)buf_append_json(b, value);
        before = ',';
    }
    return buf_append_cstr(b, before == '[' ? "[]" : "]");
}

int buf_append_json(struct buf *b, const json_t *json)
{
    char number[64];
    switch (json ? json_typeof(json) : JSON_NULL) {
    case JSON_OBJECT:
        return json_append_object(b, json);
    case JSON_ARRAY:
        return json_append_array(b, json);
    case JSON_STRING:
        return buf_append_json_string(b, json_str(json));
    case JSON_INTEGER:
    case JSON_REAL:
        return buf_append(b, number, json_dumpb(json, number, sizeof(number), JSON_ENCODE_ANY));
    default:
        return buf_append_cstr(b, json_is_true(json) ? "true" : json_is_false(json) ? "false" : "null");
    }
}

char *json_text(const json_t *json)
{
    struct buf b = BUF_INIT(SIZE_MAX / 2);
    (void)buf_append_json(&b, json);
    return buf_take(&b);
}
