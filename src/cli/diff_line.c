/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/diff_line.h"
#include "cli/terminal.h"

#include <errno.h>
#include <string.h>

enum { PATH_BYTES = 64 * 1024 };

static char letter_of(const char *change)
{
    static const char *const changes[] = {"added", "modified", "deleted"};
    for (size_t i = 0; i < ARRAY_SIZE(changes); i++)
        if (change && strcmp(change, changes[i]) == 0)
            return "AMD"[i];
    return 0;
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
    if (strcmp(type, "directory") == 0)
        (void)buf_append_char(b, '/');
    return buf_error(b);
}

void diff_line_escape(struct buf *b, struct str line)
{
    struct str part;
    for (bool is_first = true; str_split(&line, '\\', &part); is_first = false) {
        if (!is_first)
            (void)buf_append_cstr(b, "\\\\");
        terminal_escape(b, part);
    }
}
