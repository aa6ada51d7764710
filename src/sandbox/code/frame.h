/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a runner of code (templates/code-interpreter/runners) and we say to each other on its stdin and stdout: frames,
 * little-endian, a u32 of payload bytes and a u8 kind in front. Values as in wire/frame.h: a string is a u32 of bytes
 * and these.
 *
 *   to it    RUN       u64 cell, str code, u32 n, n times str name, str value: variables for this cell alone
 *   from it  READY     nothing: the next request may come
 *            STDOUT    str: bytes of any kind, cut anywhere
 *            STDERR    the same
 *            RESULT    u8 is it the value of the last expression, u32 n, n times str MIME type, str data: text; base64 where that type is binary
 *            ERROR     str name, str value, str traceback
 *            COUNT     u32 how many cells there were, with this one
 *            END       u64 cell: nothing more comes of it
 *
 * A cell runs in the same process as its runner: what comes from there is the sandbox's claim, and is checked as such.
 */
#pragma once

#include "base/buf.h"

enum code_frame_kind {
    CODE_FRAME_READY = 1,
    CODE_FRAME_STDOUT,
    CODE_FRAME_STDERR,
    CODE_FRAME_RESULT,
    CODE_FRAME_ERROR,
    CODE_FRAME_COUNT,
    CODE_FRAME_END,
};

enum { CODE_FRAME_RUN = 1 /* the only one to it */, CODE_FRAME_MAX = 8 << 20, CODE_DATA_MAX = 32 };

struct code_datum {
    struct str type, data; /* type: printable ASCII */
};

/* What one says; everything is borrowed from the bytes. Texts are as they came, of any bytes. */
struct code_frame {
    enum code_frame_kind kind;
    struct str text;               /* STDOUT, STDERR */
    struct str name, value, trace; /* ERROR */
    struct code_datum data[CODE_DATA_MAX];
    size_t n_data;
    bool is_main;
    uint64_t cell;
    uint32_t count;
};

/*
 * Calls fn for each frame that is complete; what is left stays in `rest` (made with CODE_FRAME_MAX + 8) for the next
 * call. fn returns false to stop: the rest is dropped then. -EPROTO: what came is no frame; -ENOMEM.
 */
int code_frames_feed(struct buf *rest, struct str bytes, bool (*fn)(void *ctx, const struct code_frame *f),
                     void *ctx) WARN_UNUSED;
