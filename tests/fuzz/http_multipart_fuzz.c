/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multipart bodies, whole and byte by byte: the same parts, the same bytes, the same verdict. The first line is the
 * content type.
 */
#include "base/buf.h"
#include "http/multipart.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_part(const struct multipart_part *part, void *ctx)
{
    return buf_printf(ctx, "\n[%.*s|%d%.*s|%.*s]", STR_ARG(part->name), part->filename.p != NULL,
                      STR_ARG(part->filename), STR_ARG(part->content_type));
}

static int on_data(struct str bytes, void *ctx)
{
    return bytes.n ? buf_append_str(ctx, bytes) : -EINVAL;
}

static int on_part_end(void *ctx)
{
    return buf_append_char(ctx, '$');
}

static int run(struct str type, struct str body, size_t step, struct buf *seen)
{
    static const struct multipart_ops ops = {on_part, on_data, on_part_end};
    static const struct multipart_limits limits = {.parts = 5, .part_bytes = 5000};
    AUTO(multipart_free) struct multipart *m = NULL;
    int r = multipart_new(type, &ops, &limits, seen, &m);
    while (r == 0 && body.n) {
        r = multipart_feed(m, str_n(body.p, MIN(step, body.n)));
        body = str_sub(body, step);
    }
    return r == 0 ? multipart_end(m) : r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_BUF struct buf whole = BUF_INIT(1 << 20), pieces = BUF_INIT(1 << 20);
    struct str body = str_n(data, size), type;
    if (!str_split(&body, '\n', &type) || !body.p)
        return 0;
    int a = run(type, body, body.n + 1, &whole);
    int b = run(type, body, 1, &pieces);
    /* Where a limit strikes, bytes of one piece are refused together. */
    if (a != b || (a == 0 && !str_eq(buf_str(&whole), buf_str(&pieces))))
        abort();
    return 0;
}
