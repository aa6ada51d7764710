/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON message with one long string of base64, read before all of it is there. */
#pragma once

#include "base/str.h"

enum { INPUT_TEXT_DEPTH = 8 };

/* Where the string that is open at the end of text begins, and how many objects are around it; -1: none is open, or it
 * lies in an array, or too deep. */
ssize_t input_text_open(struct str text, unsigned *ret_depth);

/*
 * Takes the next piece of the string's content, unescaped, in whole groups of four characters unless the string ends
 * with it; at most max (a multiple of four) of them. Returns how much of rest was used: 0 when more must come. The
 * quote at the end is used, but no part of the text.
 */
size_t input_text_piece(struct str rest, char *text, size_t max, size_t *ret_n, bool *ret_ends);
