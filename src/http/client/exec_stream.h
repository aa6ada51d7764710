/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What both sides of POST /cove/v1/sandboxes/{id}/exec speak after its 101 (Upgrade: cove-exec): frames of one byte
 * kind, four bytes length (little-endian), then the payload, at most EXEC_STREAM_PAYLOAD_MAX bytes. A slow side simply
 * stops reading.
 *
 * The service sends STARTED (or ERROR), then output, then exactly one of EXIT and ERROR, then closes. The client sends
 * the others at any time; what comes after the process has ended is ignored. A client that leaves does not touch the
 * process.
 */
#pragma once

#include "base/buf.h"

#define EXEC_STREAM_PROTOCOL "cove-exec"

enum { EXEC_STREAM_HEAD = 5, EXEC_STREAM_PAYLOAD_MAX = 64 * 1024 };

enum exec_stream_kind {
    /* service to client */
    EXEC_STREAM_STARTED = 1, /* {"pid":7} */
    EXEC_STREAM_STDOUT = 2,
    EXEC_STREAM_STDERR = 3,
    EXEC_STREAM_PTY = 4,
    EXEC_STREAM_EXIT = 5,  /* {"code":0} or {"signal":9} */
    EXEC_STREAM_ERROR = 6, /* {"code":"not_found","message":"..."} */

    /* client to service */
    EXEC_STREAM_STDIN = 16,     /* bytes for stdin or the terminal */
    EXEC_STREAM_STDIN_EOF = 17, /* empty */
    EXEC_STREAM_RESIZE = 18,    /* u16 columns, u16 rows, little-endian */
    EXEC_STREAM_SIGNAL = 19,    /* u8 signal number */
};

void exec_stream_head(uint8_t ret_head[static EXEC_STREAM_HEAD], enum exec_stream_kind kind, size_t n);
void exec_stream_append(struct buf *b, enum exec_stream_kind kind, struct str payload);

struct exec_stream_frame {
    enum exec_stream_kind kind;
    struct str payload; /* borrowed from the input */
};

/* Cuts one frame off *in. 1; 0 when it is not complete yet; -EPROTO for an unknown kind or a length beyond its
 * maximum. */
int exec_stream_next(struct str *in, struct exec_stream_frame *ret_frame) WARN_UNUSED;

void exec_stream_append_resize(struct buf *b, uint16_t columns, uint16_t rows);
int exec_stream_parse_resize(struct str payload, uint16_t *ret_columns, uint16_t *ret_rows) WARN_UNUSED; /* -EPROTO */
