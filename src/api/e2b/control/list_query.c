/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/control/list_query.h"
#include "api/e2b/control/create_spec.h"
#include "api/e2b/control/sandbox_json.h"
#include "api/kit/facade.h"
#include "base/buf.h"
#include "http/url.h"

void cursor_format(const struct cursor *cursor, char ret_text[static CURSOR_TEXT_MAX])
{
    AUTO_BUF struct buf plain = BUF_INIT(CURSOR_TEXT_MAX);
    AUTO_BUF struct buf encoded = BUF_INIT(CURSOR_TEXT_MAX - 1);
    char time[CLOCK_TEXT_MAX];
    clock_format(cursor->started, 6, time);
    buf_printf(&plain, "%s__%s%s", time, cursor->id, cursor->ascending ? "__asc" : "");
    buf_append_base64(&encoded, buf_str(&plain));
    assert(buf_error(&encoded) == 0);
    for (size_t i = 0; i < buf_len(&encoded); i++) {
        char c = buf_data(&encoded)[i];
        ret_text[i] = (char)(c == '+' ? '-' : c == '/' ? '_' : c);
    }
    ret_text[buf_len(&encoded)] = '\0';
}

/* Cuts off the part before the next "__". */
static bool next_part(struct str *rest, struct str *ret_part)
{
    for (size_t i = 0; rest->p && i + 1 < rest->n; i++) {
        if (rest->p[i] == '_' && rest->p[i + 1] == '_') {
            *ret_part = str_n(rest->p, i);
            *rest = str_sub(*rest, i + 2);
            return true;
        }
    }
    *ret_part = *rest;
    *rest = STR_NULL;
    return false;
}

int cursor_parse(struct str text, struct cursor *ret_cursor)
{
    AUTO_BUF struct buf plain = BUF_INIT(CURSOR_TEXT_MAX);
    char standard[CURSOR_TEXT_MAX];
    struct cursor cursor = {0};
    struct str rest, time, id, order;
    if (text.n >= sizeof(standard))
        return -EINVAL;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        standard[i] = (char)(c == '-' ? '+' : c == '_' ? '/' : c);
    }
    if (buf_append_unbase64(&plain, str_n(standard, text.n)) < 0)
        return -EINVAL;

    rest = buf_str(&plain);
    if (!next_part(&rest, &time))
        return -EINVAL;
    if (next_part(&rest, &id)) {
        if (next_part(&rest, &order) || !str_eqc(order, "asc"))
            return -EINVAL;
        cursor.ascending = true;
    }
    if (clock_parse(time, &cursor.started) < 0 || id.n == 0 || id.n >= sizeof(cursor.id) || str_has_nul(id))
        return -EINVAL;
    memcpy(cursor.id, id.p, id.n);
    *ret_cursor = cursor;
    return 0;
}

bool cursor_is_before(const struct cursor *cursor, usec_t started, const char *id)
{
    if (started != cursor->started)
        return cursor->ascending ? started > cursor->started : started < cursor->started;
    return cursor->ascending ? strcmp(id, cursor->id) < 0 : strcmp(id, cursor->id) > 0;
}

/* After one decoding (the query's) the value is encoded as a whole once more, and each key and value in it once
 * again. */
static int parse_metadata(struct str value, struct arena *arena, struct list_query *q)
{
    struct str rest, filter;
    if (url_decode(arena, value, URL_QUERY, &rest) < 0 || rest.n == 0)
        return -EINVAL;
    while (str_split(&rest, '&', &filter)) {
        struct pair *pair = &q->metadata[q->n_metadata];
        ssize_t equals = str_find_char(filter, '=');
        if (q->n_metadata == LIST_FILTERS_MAX || equals < 0 ||
            str_find_char(str_sub(filter, (size_t)equals + 1), '=') >= 0 ||
            url_decode(arena, str_n(filter.p, (size_t)equals), URL_QUERY, &pair->key) < 0 ||
            url_decode(arena, str_sub(filter, (size_t)equals + 1), URL_QUERY, &pair->value) < 0)
            return -EINVAL;
        q->n_metadata++;
    }
    return 0;
}

static int invalid_parameter(struct err *err, const char *name, const char *problem)
{
    return err_set(err, ERR_INVALID_ARGUMENT, "validation error: parameter \"%s\" in query has an error: %s", name,
                   problem);
}

static int parse_states(struct str value, struct list_query *q, struct err *err)
{
    struct str state;
    if (value.n == 0)
        return invalid_parameter(err, "state", "empty value is not allowed");
    q->running = q->paused = false;
    while (str_split(&value, ',', &state)) {
        if (str_eq(state, STR("running")))
            q->running = true;
        else if (str_eq(state, STR("paused")))
            q->paused = true;
        else
            return invalid_parameter(err, "state", "value is not one of the allowed values [\"running\",\"paused\"]");
    }
    return 0;
}

static int parse_limit(struct str value, struct list_query *q, struct err *err)
{
    uint64_t limit;
    if (value.n == 0)
        return 0;
    if (str_to_u64(value, &limit) < 0)
        return invalid_parameter(err, "limit", "an invalid integer");
    if (limit < 1 || limit > LIST_LIMIT_MAX)
        return invalid_parameter(err, "limit", "number must be between 1 and 100");
    q->limit = (unsigned)limit;
    return 0;
}

static int parse_template(struct str value, struct arena *arena, struct list_query *q, struct err *err)
{
    if (str_find_char(value, ':') >= 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "Invalid template: tags do not tell sandboxes apart");
    if (template_ref_read(value, arena, &q->template, err) < 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "Invalid template: invalid template ID: %.*s", STR_ARG(value));
    return 0;
}

/* 1, 0 when absent, -1 when malformed. */
static int get(struct arena *arena, struct str query, const char *name, struct str *ret_value, struct err *err)
{
    int r = url_query_get(arena, query, name, ret_value);
    return r < 0 ? invalid_parameter(err, name, "malformed escape") : r;
}

int list_query_parse(struct str query, struct arena *arena, struct list_query *ret_query, struct err *err)
{
    struct list_query *q = arena_alloc(arena, sizeof(*q));
    struct str value;
    int r;
    q->running = q->paused = true;
    q->limit = LIST_LIMIT_MAX;
    if ((r = get(arena, query, "state", &value, err)) < 0 || (r && parse_states(value, q, err) < 0))
        return -1;
    if ((r = get(arena, query, "limit", &value, err)) < 0 || (r && parse_limit(value, q, err) < 0))
        return -1;
    if ((r = get(arena, query, "order", &value, err)) < 0)
        return -1;
    if (r && !str_eq(value, STR("asc")) && !str_eq(value, STR("desc")))
        return invalid_parameter(err, "order", "value is not one of the allowed values [\"asc\",\"desc\"]");
    q->ascending = r && str_eq(value, STR("asc"));
    if ((r = get(arena, query, "startedAfter", &value, err)) < 0)
        return -1;
    if (r && clock_parse(value, &q->started_after) < 0)
        return invalid_parameter(err, "startedAfter", "string doesn't match the format \"date-time\"");
    if ((r = get(arena, query, "nextToken", &value, err)) < 0)
        return -1;
    if (r && value.n) {
        if (cursor_parse(value, &q->cursor) < 0 || q->cursor.ascending != q->ascending)
            return err_set(err, ERR_INVALID_ARGUMENT, "Invalid next token");
        q->has_cursor = true;
    }
    if ((r = get(arena, query, "metadata", &value, err)) < 0)
        return -1;
    if (r && parse_metadata(value, arena, q) < 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "Error parsing metadata");
    if ((r = get(arena, query, "template", &value, err)) < 0 || (r && parse_template(value, arena, q, err) < 0))
        return -1;
    *ret_query = *q;
    return 0;
}

static bool has_metadata(const struct sandbox_info *info, const struct pair *wanted)
{
    for (size_t i = 0; i < info->n_metadata; i++)
        if (str_eq(info->metadata[i].key, wanted->key) && !facade_owns_key(wanted->key))
            return str_eq(info->metadata[i].value, wanted->value);
    return false;
}

bool list_query_matches(const struct list_query *q, const struct sandbox_info *info)
{
    const char *state = sandbox_json_state(info->state);
    if (!state || info->hidden || !(state[0] == 'r' ? q->running : q->paused) || info->started < q->started_after)
        return false;
    if (q->template.p && !str_eqc(q->template, info->template_id) &&
        !(info->template_alias && str_eqc(q->template, info->template_alias)))
        return false;
    for (size_t i = 0; i < q->n_metadata; i++)
        if (!has_metadata(info, &q->metadata[i]))
            return false;
    return true;
}
