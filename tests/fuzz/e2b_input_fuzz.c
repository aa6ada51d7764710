/* SPDX-License-Identifier: Apache-2.0 */
/* What is read of a message before all of it is there is what is read of it afterwards. The first byte says where it is
 * cut. */
#include "api/e2b/envd/input_text.h"
#include "api/kit/json_read.h"
#include "base/buf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_BUF struct buf all = BUF_INIT(1 << 20), closed = BUF_INIT(1 << 20);
    AUTO_JSON json_t *whole = NULL, *cut = NULL;
    unsigned depth = 0;
    char text[64];
    struct err err;
    size_t n;
    bool ends = false;

    if (size < 2)
        return 0;
    struct str message = str_n((const char *)data + 1, size - 1), rest;
    ssize_t at = input_text_open(str_n(message.p, (size_t)data[0] * message.n / 255), &depth);
    if (at < 0)
        return 0;
    assert(depth <= INPUT_TEXT_DEPTH && (size_t)at <= message.n && message.p[at - 1] == '"');

    /* Its pieces, as if they came in twos: the same as at once. */
    rest = str_sub(message, (size_t)at);
    for (size_t used; !ends && (used = input_text_piece(rest, text, sizeof(text), &n, &ends));
         rest = str_sub(rest, used)) {
        assert(used <= rest.n && n <= sizeof(text) && (ends || n % 4 == 0));
        (void)buf_append(&all, text, n);
    }
    if (!ends || memchr(buf_data(&all) ? buf_data(&all) : "", '\\', buf_len(&all)))
        return 0;

    /* With the same text between what was before it and the ends, it is the same message, when it ends there. */
    for (size_t i = 0; i < rest.n; i++)
        if (rest.p[i] != '}')
            return 0;
    (void)buf_append(&closed, message.p, (size_t)at);
    (void)buf_append_str(&closed, buf_str(&all));
    (void)buf_append_char(&closed, '"');
    (void)buf_append_str(&closed, rest);
    if (json_read_object(message, false, &whole, &err) < 0)
        return 0;
    assert(rest.n == depth);
    assert(json_read_object(buf_str(&closed), false, &cut, &err) == 0 && json_equal(whole, cut));
    return 0;
}
