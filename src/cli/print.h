/* SPDX-License-Identifier: Apache-2.0 */
/* What commands write to stdout: JSON for programs, and text that others wrote, which may come from a sandbox or from a
 * service that is not to be trusted. */
#pragma once

#include "base/json.h"

struct buf;

/* On one line, as everything that --json writes; on a terminal in ASCII. */
void print_json(const json_t *json);

/* A JSON string of any length, in pieces: escaped, it may be six times as long. Bytes that are not UTF-8 become
 * U+FFFD. */
void print_json_string(FILE *out, struct str text);

/* What a service wrote on one line, as it did; on a terminal as print_json(). */
void print_json_line(const json_t *json, struct str line);

/* Any number of lines, the last of which ends, too: as terminal_print(), but for tabs, of which sources are full. */
void print_lines(struct str text);

/*
 * A command with its arguments as a shell is told them, of each word at most `most` bytes; behind 16 KiB the rest is
 * left out. Where a login shell only starts it, by this line, that shell isn't told.
 */
#define PRINT_SHELL_LINE "\"$0\" \"$@\""
void print_words(struct buf *b, const json_t *argv, size_t most);

/* As terminal_print(); print_line() ends the line, too. */
void print_text(const char *text);
void print_line(const char *text);
