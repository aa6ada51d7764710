/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/print.h"
#include "base/buf.h"
#include "cli/exec/terminal.h"

#include <unistd.h>

enum { PRINT_WORDS_MAX = 16 * 1024 };

enum { PIECE = 64 * 1024, CHARACTER_MAX = 4 };

void print_json(const json_t *json)
{
    const size_t ascii = isatty(STDOUT_FILENO) == 1 ? JSON_ENSURE_ASCII : 0;
    if (!json || json_dumpf(json, stdout, JSON_COMPACT | JSON_ENCODE_ANY | ascii) < 0)
        (void)fputs("null", stdout);
    (void)fputc('\n', stdout);
}

void print_json_line(const json_t *json, struct str line)
{
    if (isatty(STDOUT_FILENO) == 1)
        print_json(json);
    else
        (void)printf("%.*s\n", STR_ARG(line));
}

/* How much goes into the next piece: no character is cut in two. */
static size_t piece_of(struct str text)
{
    if (text.n <= PIECE)
        return text.n;
    for (size_t n = PIECE; n > PIECE - CHARACTER_MAX; n--)
        if (((unsigned char)text.p[n] & 0xc0) != 0x80)
            return n;
    return PIECE; /* no character has so many bytes that continue it */
}

void print_json_string(FILE *out, struct str text)
{
    AUTO_BUF struct buf b = BUF_INIT(6 * PIECE + 2);
    (void)fputc('"', out);
    while (text.n > 0) {
        size_t n = piece_of(text);
        buf_clear(&b);
        buf_append_json_string(&b, str_n(text.p, n));
        (void)fwrite(buf_data(&b) + 1, 1, buf_len(&b) - 2, out); /* less its quotes */
        text = str_sub(text, n);
    }
    (void)fputc('"', out);
}

void print_lines(struct str text)
{
    const bool is_tty = isatty(STDOUT_FILENO) == 1;
    struct str line, part;
    if (!is_tty) {
        (void)fwrite(text.p, 1, text.n, stdout);
        (void)(text.n && !str_ends(text, STR("\n")) && putchar('\n'));
    }
    while (is_tty && text.n && str_split(&text, '\n', &line)) {
        (void)str_split(&line, '\t', &part);
        terminal_print(stdout, true, part);
        while (line.p && str_split(&line, '\t', &part)) {
            (void)putchar('\t');
            terminal_print(stdout, true, part);
        }
        (void)putchar('\n');
    }
}

void print_text(const char *text)
{
    terminal_print(stdout, isatty(STDOUT_FILENO) == 1, str_of(text));
}

void print_line(const char *text)
{
    print_text(text);
    (void)fputc('\n', stdout);
}

/* Of the shell in which `cove shell` starts a command: as many words. */
static size_t print_shell_words(const json_t *argv)
{
    static const char *const words[] = {"bash", "-l", "-c", PRINT_SHELL_LINE};
    size_t n = 0;
    while (n < ARRAY_SIZE(words) && str_eqc(json_str(json_array_get(argv, n)), words[n]))
        n++;
    return n == ARRAY_SIZE(words) && json_array_size(argv) > n ? n : 0;
}

void print_words(struct buf *b, const json_t *argv, size_t most)
{
    const size_t first = print_shell_words(argv);
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
    JSON_FOREACH_AT (i, word, argv) {
        if (i < first)
            continue;
        const char *text = json_is_string(word) ? json_string_value(word) : "?";
        if (buf_len(b) > PRINT_WORDS_MAX) {
            buf_append_cstr(b, " ...");
            return;
        }
        const char *quote = *text && !text[strspn(text, plain)] ? "" : "'";
        buf_printf(b, "%s%s", i > first ? " " : "", quote);
        for (size_t k = 0; k < most && text[k]; k++)
            if (text[k] == '\'')
                buf_append_cstr(b, "'\\''");
            else
                buf_append_char(b, text[k]);
        buf_append_cstr(b, quote);
    }
}
