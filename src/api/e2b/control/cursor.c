/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/control/cursor.h"
#include "base/buf.h"

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
