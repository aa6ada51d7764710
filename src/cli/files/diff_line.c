/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/files/diff_line.h"
#include "base/char.h"
#include "cli/exec/terminal.h"

enum { PATH_BYTES = 64 * 1024 };

static char letter_of(const char *change)
{
    const int i = str_word(str_of(change), "added modified deleted");
    return i < 0 ? 0 : "AMD"[i];
}

int diff_line_read(struct buf *b, const json_t *object)
{
    const char letter = letter_of(json_string_value(json_object_get(object, "change")));
    const char *type = json_string_value(json_object_get(object, "type"));
    const char *shown = json_string_value(json_object_get(object, "path"));
    const json_t *exact = json_object_get(object, "path_base64");
    AUTO_BUF struct buf path = BUF_INIT(PATH_BYTES);
    if (!letter || !type || !shown)
        return -EILSEQ;
    int r = exact ? buf_append_unbase64(&path, str_of(json_is_string(exact) ? json_string_value(exact) : "?"))
                  : buf_append_cstr(&path, shown);
    if (r < 0)
        return r;
    if (str_has_nul(buf_str(&path)))
        return -EILSEQ;
    (void)buf_append_char(b, letter);
    (void)buf_append_char(b, ' ');
    (void)buf_append_str(b, buf_str(&path));
    if (strcmp(type, "directory") == 0 && !str_eqc(buf_str(&path), "/"))
        (void)buf_append_char(b, '/');
    return buf_error(b);
}

/*
 * A character that is there and takes no room (U+200B to U+200D, U+2060 to U+2064, U+FEFF). Text that is read may need
 * them, as Persian and some pictures do; of two names that differ in them alone, nobody would see that they do.
 */
static bool is_unseen(struct str s)
{
    const uint32_t c = char_take(&s);
    return (c >= 0x200b && c <= 0x200d) || (c >= 0x2060 && c <= 0x2064) || c == 0xfeff;
}

void diff_line_escape(struct buf *b, struct str line)
{
    for (size_t at = 0; line.n > 0; at = 0) {
        /* Their first bytes are within no other character. */
        while (at < line.n && line.p[at] != '\\' && !is_unseen(str_sub(line, at)))
            at++;
        terminal_escape(b, str_n(line.p, at));
        line = str_sub(line, at);
        if (line.n == 0)
            return;
        const size_t n = *line.p == '\\' ? 1 : 3;
        if (n == 1)
            (void)buf_append_cstr(b, "\\\\");
        for (size_t i = 0; n > 1 && i < n; i++)
            (void)buf_printf(b, "\\x%02x", (unsigned char)line.p[i]);
        line = str_sub(line, n);
    }
}
