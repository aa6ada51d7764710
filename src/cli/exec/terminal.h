/* SPDX-License-Identifier: Apache-2.0 */
/* The person's terminal: safe printing, tables, raw mode, progress. */
#pragma once

#include "base/buf.h"

#include <termios.h>

/*
 * Text that may come from a sandbox. On a terminal control characters (C0, DEL, C1) and bytes that are not UTF-8 are
 * shown as \xNN, so that a name can't move the cursor or set the title; elsewhere bytes pass as they are.
 */
void terminal_print(FILE *out, bool is_tty, struct str text);
void terminal_escape(struct buf *b, struct str text);
void terminal_line(FILE *out, const char *fmt, ...) PRINTF_LIKE(2, 3); /* a whole line, printed so */

/* Cells of text, aligned in columns when printed. The text of cells is copied. */
struct table {
    struct buf text; /* all cells, NUL behind each */
    size_t columns, cells;
};
void table_init(struct table *t, size_t columns);
void table_add(struct table *t, struct str cell);
void table_add_cut(struct table *t, struct str cell, size_t most); /* "..." behind what is longer than so many bytes */
void table_addf(struct table *t, const char *fmt, ...) PRINTF_LIKE(2, 3);
void table_print(const struct table *t,
                 FILE *out); /* when `out` is a terminal, escapes, and breaks the last column to its width */
void table_fini(struct table *t);

/* Raw mode of the terminal on fd; restored by terminal_restore(), which does nothing when it was not set. */
struct terminal {
    int fd;
    bool is_raw;
    struct termios saved;
};
int terminal_raw(struct terminal *t, int fd) WARN_UNUSED;
void terminal_restore(struct terminal *t);
int terminal_size(int fd, uint16_t *ret_columns, uint16_t *ret_rows) WARN_UNUSED;

/* A line on stderr that shows that something goes on: only on a terminal that can rewrite a line (TERM is not "dumb"),
 * and only after a second; escaped, and no longer than the terminal is wide. */
struct terminal_progress {
    uint64_t started_us, shown_us;
    bool is_on, is_shown;
};
void progress_start(struct terminal_progress *p, bool quiet);
void progress_show(struct terminal_progress *p, const char *fmt, ...)
    PRINTF_LIKE(2, 3);                          /* at most ten times a second */
void progress_end(struct terminal_progress *p); /* clears the line */
