/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/exec/terminal.h"
#include "base/char.h"
#include "base/clock.h"
#include "base/mem.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    TABLE_MAX = 64 * 1024 * 1024,
    TABLE_ROOM_LEAST = 20,
    CELL_MAX = 4096,
    TERMINAL_TEXT_MAX = 1024 * 1024,
    PROGRESS_AFTER_US = 1000000
};

/* C0, DEL, C1, and what changes the direction of what follows. */
static bool is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x61c || c == 0x200e || c == 0x200f ||
           (c >= 0x202a && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
}

void terminal_escape(struct buf *b, struct str text)
{
    while (text.n > 0) {
        const char *p = text.p;
        const uint32_t c = char_take(&text);
        const size_t n = (size_t)(text.p - p);
        if (!is_control(c) && str_is_utf8(str_n(p, n)))
            buf_append(b, p, n);
        else
            for (size_t i = 0; i < n; i++)
                buf_printf(b, "\\x%02x", (unsigned char)p[i]);
    }
}

void terminal_print(FILE *out, bool is_tty, struct str text)
{
    if (!is_tty) {
        (void)fwrite(text.p, 1, text.n, out);
        return;
    }
    AUTO_BUF struct buf b = BUF_INIT(4 * TERMINAL_TEXT_MAX);
    terminal_escape(&b, str_n(text.p, MIN(text.n, (size_t)TERMINAL_TEXT_MAX)));
    (void)fwrite(buf_data(&b), 1, buf_len(&b), out);
}

void terminal_line(FILE *out, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    AUTO_FREE char *line = mem_vprintf(fmt, args);
    va_end(args);
    terminal_print(out, isatty(fileno(out)) == 1, str_of(line));
    (void)fputc('\n', out);
}

/* ---- tables ---- */

void table_init(struct table *t, size_t columns)
{
    *t = (struct table){.text = BUF_INIT(TABLE_MAX), .columns = columns};
}

void table_fini(struct table *t)
{
    buf_fini(&t->text);
}

void table_add(struct table *t, struct str cell)
{
    /* Escaped here as for a terminal: a NUL, tab or line break would break the columns anywhere. */
    terminal_escape(&t->text, str_n(cell.p, MIN(cell.n, (size_t)CELL_MAX)));
    buf_append_char(&t->text, '\0');
    t->cells++;
}

void table_add_cut(struct table *t, struct str cell, size_t most)
{
    struct str s = str_n(cell.p, MIN(cell.n, most));
    while (s.n < cell.n && s.n && !str_is_utf8(s))
        s.n--;
    if (s.n == cell.n)
        table_add(t, cell);
    else
        table_addf(t, "%.*s...", STR_ARG(s));
}

void table_addf(struct table *t, const char *fmt, ...)
{
    char cell[512];
    FORMAT_ARGS(cell, fmt);
    table_add(t, str_of(cell));
}

/* Cells that a terminal uses: one for each character, which is right but for wide scripts. */
static size_t width(const char *cell)
{
    size_t n = 0;
    for (; *cell; cell++)
        n += ((unsigned char)*cell & 0xc0) != 0x80;
    return n;
}

/* The last cell of a row: on a terminal broken at spaces, and its further lines begin where it begins. */
static void table_print_last(const char *cell, size_t indent, size_t columns, FILE *out)
{
    const size_t room = columns > indent + TABLE_ROOM_LEAST ? columns - indent : SIZE_MAX;
    while (width(cell) > room) {
        size_t n = 0, cells = 0, space = 0;
        for (; cell[n] && (cells <= room || !space); n++) {
            space = cell[n] == ' ' ? n : space;
            cells += ((unsigned char)cell[n] & 0xc0) != 0x80;
        }
        if (!space)
            break;
        (void)fprintf(out, "%.*s\n%*s", (int)space, cell, (int)indent, "");
        cell += space + 1;
    }
    (void)fprintf(out, "%s\n", cell);
}

void table_print(const struct table *t, FILE *out)
{
    size_t widths[16] = {0}, indent = 0;
    uint16_t columns = 0, rows;
    if (terminal_size(fileno(out), &columns, &rows) < 0)
        columns = 0;
    assert(t->columns <= ARRAY_SIZE(widths) && t->cells % t->columns == 0);
    const char *cell = buf_data(&t->text);
    for (size_t i = 0; i < t->cells && !buf_error(&t->text); i++, cell += strlen(cell) + 1)
        widths[i % t->columns] = MAX(widths[i % t->columns], width(cell));
    cell = buf_data(&t->text);
    for (size_t i = 0; i < t->cells && !buf_error(&t->text); i++, cell += strlen(cell) + 1) {
        size_t column = i % t->columns;
        if (column + 1 == t->columns) {
            table_print_last(cell, indent, columns, out);
            indent = 0;
        } else {
            (void)fprintf(out, "%s%*s", cell, (int)(widths[column] - width(cell) + 2), "");
            indent += widths[column] + 2;
        }
    }
}

/* ---- raw mode ---- */

int terminal_raw(struct terminal *t, int fd)
{
    struct termios raw;
    if (tcgetattr(fd, &t->saved) < 0)
        return -errno;
    raw = t->saved;
    cfmakeraw(&raw);
    if (tcsetattr(fd, TCSADRAIN, &raw) < 0)
        return -errno;
    t->fd = fd;
    t->is_raw = true;
    return 0;
}

void terminal_restore(struct terminal *t)
{
    if (t->is_raw)
        (void)tcsetattr(t->fd, TCSADRAIN, &t->saved);
    t->is_raw = false;
}

int terminal_size(int fd, uint16_t *ret_columns, uint16_t *ret_rows)
{
    struct winsize size;
    if (ioctl(fd, TIOCGWINSZ, &size) < 0)
        return -errno;
    if (size.ws_col == 0 || size.ws_row == 0)
        return -ENODATA;
    *ret_columns = size.ws_col;
    *ret_rows = size.ws_row;
    return 0;
}

/* ---- progress ---- */

/* One that is dumb, such as that of an editor, would show how a line is rewritten. */
static bool can_rewrite(int fd)
{
    const char *kind = getenv("TERM");
    return isatty(fd) == 1 && !(kind && strcmp(kind, "dumb") == 0);
}

void progress_start(struct terminal_progress *p, bool quiet)
{
    *p = (struct terminal_progress){.started_us = clock_mono(), .is_on = !quiet && can_rewrite(STDERR_FILENO)};
}

/* A line that wraps could not be taken back. */
static size_t cut_to_width(struct str line)
{
    uint16_t columns = 80, rows;
    size_t width = 0, n = 0;
    int ignored UNUSED = terminal_size(STDERR_FILENO, &columns, &rows);
    for (; line.p && n < line.n; n++) {
        width += ((unsigned char)line.p[n] & 0xc0) != 0x80;
        if (width >= columns)
            break;
    }
    return n;
}

void progress_show(struct terminal_progress *p, const char *fmt, ...)
{
    uint64_t now = clock_mono();
    if (!p->is_on || now - p->started_us < PROGRESS_AFTER_US || now - p->shown_us < 100000)
        return;
    char text[512];
    FORMAT_ARGS(text, fmt);
    AUTO_BUF struct buf line = BUF_INIT(4 * sizeof(text));
    terminal_escape(&line, str_of(text));
    (void)fprintf(stderr, "\r\033[K%.*s", (int)cut_to_width(buf_str(&line)), buf_len(&line) ? buf_data(&line) : "");
    (void)fflush(stderr);
    p->shown_us = now;
    p->is_shown = true;
}

void progress_end(struct terminal_progress *p)
{
    if (p->is_shown)
        (void)fputs("\r\033[K", stderr);
    p->is_shown = false;
}
