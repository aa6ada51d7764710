/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of a terminal, and what its client says as records that wait for the process. Private to
 * src/api/opensandbox.
 *
 *   binary, from us: 1 stdout or terminal, 2 stderr, 3 replay (8 bytes of offset, big-endian, in front); to us: 0 stdin
 *   text, from us: connected, exit, error, pong; to us: stdin, resize, signal, ping
 */
#pragma once

#include "api/opensandbox/handlers.h"

enum pty_frame { PTY_FRAME_STDIN, PTY_FRAME_STDOUT, PTY_FRAME_STDERR, PTY_FRAME_REPLAY };
enum pty_record { PTY_RECORD_STDIN, PTY_RECORD_RESIZE, PTY_RECORD_SIGNAL };
enum pty_message { PTY_MESSAGE_TAKEN, PTY_MESSAGE_PING, PTY_MESSAGE_WRONG };

/* Appends the record that it asks for, if any; in's error sticks. is_pipe: signals are signals; a terminal turns some
 * keys into them. WRONG: err says why. */
enum pty_message pty_message_read(bool is_text, struct str message, bool is_pipe, struct buf *in, struct err *err);

/* The first of those; data is a size of two uint16_t, a signal of a byte, or bytes. False: there is none. */
bool pty_record_take(struct str *in, int *ret_kind, struct str *ret_data);

/* The frame with what was written since that offset, as far as it is kept: the end of what was written in all. Nothing,
 * when there is nothing. */
void pty_message_replay(struct buf *b, struct str kept, uint64_t written, uint64_t since);
