/* SPDX-License-Identifier: Apache-2.0 */
/* What a runner of code says: the frames are the same however the bytes are cut, and nothing that is told of lies
 * outside of them. */
#include "sandbox/code/frame.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct seen {
    uint64_t sum;
    size_t n;
};

static void add(struct seen *s, struct str text)
{
    s->sum = s->sum * 31 + text.n;
    for (size_t i = 0; i < text.n; i++)
        s->sum = s->sum * 31 + (unsigned char)text.p[i];
}

static bool on_frame(void *ctx, const struct code_frame *f)
{
    struct seen *s = ctx;

    s->n++;
    s->sum = s->sum * 31 + f->kind;
    if (f->kind == CODE_FRAME_STDOUT || f->kind == CODE_FRAME_STDERR)
        add(s, f->text);
    if (f->kind == CODE_FRAME_ERROR)
        add(s, f->name), add(s, f->value), add(s, f->trace);
    for (size_t i = 0; f->kind == CODE_FRAME_RESULT && i < f->n_data; i++)
        add(s, f->data[i].type), add(s, f->data[i].data);
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct seen whole = {0}, cut = {0};
    struct buf rest = BUF_INIT(CODE_FRAME_MAX + 8), other = BUF_INIT(CODE_FRAME_MAX + 8);
    struct str bytes = str_n((const char *)data, size);
    int e = code_frames_feed(&rest, bytes, on_frame, &whole), e2 = 0;

    for (size_t n = 1; bytes.n && e2 == 0; n = n * 3 % 7) {
        struct str piece = str_n(bytes.p, MIN(n, bytes.n));

        bytes = str_sub(bytes, piece.n);
        e2 = code_frames_feed(&other, piece, on_frame, &cut);
    }
    if (e != e2 || whole.n != cut.n || whole.sum != cut.sum)
        abort();
    buf_fini(&rest);
    buf_fini(&other);
    return 0;
}
