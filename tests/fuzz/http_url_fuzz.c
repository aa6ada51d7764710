/* SPDX-License-Identifier: Apache-2.0 */
/* Request targets, query strings, hosts and header values. What was decoded can be encoded and decoded back. */
#include "base/arena.h"
#include "base/buf.h"
#include "http/message.h"
#include "http/url.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_inside(struct str part, struct str all)
{
    return part.n == 0 || (part.p >= all.p && part.p + part.n <= all.p + all.n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_ARENA struct arena a = ARENA_INIT;
    struct str s = str_n(data, size), path, query, value, again, name;
    uint16_t port;
    if (url_split_target(s, &path, &query) == 0) {
        if (path.n == 0 || (path.p[0] != '/' && path.p[0] != '*') || memchr(path.p, '?', path.n) ||
            !is_inside(query, s))
            abort();
        if (url_decode(&a, path, URL_PATH, &value) == 0) {
            AUTO_BUF struct buf b = BUF_INIT(8 << 20);
            if (value.n > path.n || url_encode(&b, value, true) < 0 ||
                url_decode(&a, buf_str(&b), URL_PATH, &again) < 0 || !str_eq(value, again))
                abort();
        }
    }
    struct str rest = s;
    for (struct url_param p; url_query_next(&rest, &p);) {
        if (!is_inside(p.name, s) || !is_inside(p.value, s) || memchr(p.name.p, '&', p.name.n))
            abort();
    }
    (void)!url_query_get(&a, s, "q", &value);
    if (str_split_host(s, &name, &port) == 0 && (name.n == 0 || !is_inside(name, s) || !http_is_field_value(s)))
        abort();
    (void)http_list_has(s, STR("close"));
    rest = s;
    while (http_param_next(&rest, &name, &value)) {
        if (!is_inside(name, s) || !is_inside(value, s) || !http_is_token(name))
            abort();
    }
    return 0;
}
