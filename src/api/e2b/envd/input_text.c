/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/input_text.h"

ssize_t input_text_open(struct str text, unsigned *ret_depth)
{
    unsigned depth = 0;
    ssize_t at = -1;
    for (size_t i = 0; i < text.n; i++) {
        char ch = text.p[i];
        if (at >= 0) {
            if (ch == '\\')
                i++;
            else if (ch == '"')
                at = -1;
        } else if (ch == '"') {
            at = (ssize_t)i + 1;
        } else if (ch == '{' && depth < INPUT_TEXT_DEPTH) {
            depth++;
        } else if (ch == '}' && depth > 0) {
            depth--;
        } else if (strchr("{}[]", ch)) {
            return -1;
        }
    }
    *ret_depth = depth;
    return at;
}

size_t input_text_piece(struct str rest, char *text, size_t max, size_t *ret_n, bool *ret_ends)
{
    size_t used = 0, n = 0, used_whole = 0, n_whole = 0; /* whole: up to the last group of four */
    bool ends = false;
    while (used < rest.n && n < max && !ends) {
        char ch = rest.p[used++];
        if (ch == '\\' && used == rest.n)
            break;
        ends = ch == '"';
        if (ch == '\\' && rest.p[used] == '/') /* as some write a slash */
            ch = rest.p[used++];
        if (!ends)
            text[n++] = ch;
        if (ends || n % 4 == 0) {
            used_whole = used;
            n_whole = n;
        }
    }
    *ret_n = n_whole;
    *ret_ends = ends;
    return used_whole;
}
