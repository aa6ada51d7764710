/* SPDX-License-Identifier: Apache-2.0 */
/* Placeholders in a text, one line each in front of it as "placeholder=value": what comes out is what a byte by byte
 * walk makes of it. */
#include "egress/http/substitute.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t longest_at(struct str text, const struct substitute *all, size_t n)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        if (str_starts(text, all[i].placeholder) && (best == n || all[i].placeholder.n > all[best].placeholder.n))
            best = i;
    return best;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str text = str_n((const char *)data, size), line, name;
    struct substitute all[SUBSTITUTES_MAX];
    size_t n = 0;
    enum substitute_code code;
    while (n < SUBSTITUTES_MAX && str_find_char(text, '\n') >= 0) {
        (void)str_split(&text, '\n', &line);
        ssize_t at = str_find_char(line, '=');
        name = str_n(line.p, at < 0 ? 0 : (size_t)at);
        if (!name.n)
            break;
        all[n++] = (struct substitute){name, str_sub(line, name.n + 1)};
    }
    (void)substitute_code_of(text, &code);
    AUTO_BUF struct buf got = BUF_INIT(1 << 20), expected = BUF_INIT(1 << 20), json = BUF_INIT(1 << 22);
    bool fits = substitute(text, all, n, SUBSTITUTE_RAW, &got) == 0;
    for (struct str rest = text; rest.n;) {
        size_t i = longest_at(rest, all, n);
        (void)buf_append_str(&expected, i < n ? all[i].value : str_n(rest.p, 1));
        rest = str_sub(rest, i < n ? all[i].placeholder.n : 1);
    }
    if (fits != (buf_error(&expected) == 0) || (fits && !str_eq(buf_str(&got), buf_str(&expected))))
        abort();
    for (int c = SUBSTITUTE_URL; c <= SUBSTITUTE_JSON; c++) {
        buf_clear(&json);
        if (substitute(text, all, n, (enum substitute_code)c, &json) == 0 && n == 0 && !str_eq(buf_str(&json), text))
            abort();
    }
    return 0;
}
