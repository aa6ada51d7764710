/* SPDX-License-Identifier: Apache-2.0 */
/* The parsers of base: the first byte of the input says which. What they accept must survive a way back. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/path.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void fuzz_clock(struct str s)
{
    usec_t t, again;
    char text[CLOCK_TEXT_MAX];
    if (clock_parse(s, &t) < 0)
        return;
    clock_format(t, 6, text);
    if (clock_parse(str_of(text), &again) < 0 || again != t)
        abort();
}

static void fuzz_path(struct str s)
{
    char once[PATH_TEXT_MAX], twice[PATH_TEXT_MAX];
    if (path_clean(s, once) < 0)
        return;
    size_t n = strlen(once);
    if (n == 0 || n > s.n || path_clean(str_of(once), twice) < 0 || strcmp(once, twice) != 0 || strstr(once, "//"))
        abort();
    if (once[0] == '/' && (strstr(once, "/../") || str_ends(str_of(once), STR("/.."))))
        abort();
    struct str base = path_base(str_of(once));
    if (base.n == 0 || (n > 1 && memchr(base.p, '/', base.n)) || path_join(path_dir(str_of(once)), base, twice) < 0)
        abort();
    if (strcmp(once, twice) != 0)
        abort();
}

static void fuzz_base64(struct str s)
{
    AUTO_BUF struct buf bytes = BUF_INIT(1 << 20), text = BUF_INIT(1 << 20), again = BUF_INIT(1 << 20);
    if (buf_append_unbase64(&bytes, s) < 0) {
        if (buf_len(&bytes))
            abort();
        return;
    }
    if (buf_append_base64(&text, buf_str(&bytes)) < 0 || buf_append_unbase64(&again, buf_str(&text)) < 0 ||
        !str_eq(buf_str(&bytes), buf_str(&again)))
        abort();
}

static void fuzz_json_string(struct str s)
{
    AUTO_BUF struct buf b = BUF_INIT(8 << 20);
    if (buf_append_json_string(&b, s) < 0 || !str_is_utf8(buf_str(&b)))
        abort();
    struct str text = buf_str(&b);
    if (text.n < 2 || text.p[0] != '"' || text.p[text.n - 1] != '"')
        abort();
    for (size_t i = 1; i + 1 < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (c < 0x20 || c == 0x7f || c == '"')
            abort();
        if (c == '\\') {
            i += text.p[i + 1] == 'u' ? 5 : 1;
            if (i + 1 >= text.n)
                abort();
        }
    }
}

static void fuzz_numbers(struct str s)
{
    uint64_t u;
    int64_t i;
    if (str_to_u64(s, &u) == 0 && u <= INT64_MAX && (str_to_i64(s, &i) < 0 || (uint64_t)i != u))
        abort();
    (void)str_is_utf8(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const parsers[])(struct str) = {fuzz_clock, fuzz_path, fuzz_base64, fuzz_json_string, fuzz_numbers};
    if (size == 0 || size > 1 << 16)
        return 0;
    /* A copy of its own, so that reading past the end shows. */
    AUTO_FREE char *copy = mem_dup(data, size);
    parsers[data[0] % ARRAY_SIZE(parsers)](str_n(copy + 1, size - 1));
    return 0;
}
