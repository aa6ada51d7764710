/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines are compared with Myers' greedy algorithm ("An O(ND) Difference Algorithm and Its Variations", 1986), after
 * what is the same at both ends was set aside. It remembers each of its D rounds, so it takes D * D: beyond
 * PATCH_ROUNDS_MAX the whole middle is one change, which is as right and less short.
 */
#include "cli/files/patch.h"
#include "base/mem.h"
#include "base/sha1.h"

#include <zlib.h>

enum { PATCH_CONTEXT = 3, PATCH_ROUNDS_MAX = 2000, PATCH_PROBE = 8000, PATCH_LINE_BYTES = 52 };

/* ---- lines ---- */

struct patch_lines {
    struct str *all;
    bool *changed; /* deleted on the old side, added on the new one */
    size_t n;
};

static void patch_lines_init(struct patch_lines *l, struct str text)
{
    size_t n = 0, room = 1;
    for (size_t i = 0; i < text.n; i++)
        room += text.p[i] == '\n';
    l->all = mem_array(room, sizeof(*l->all));
    while (text.n > 0) {
        const char *end = memchr(text.p, '\n', text.n);
        size_t length = end ? (size_t)(end - text.p) + 1 : text.n;
        l->all[n++] = str_n(text.p, length); /* with its end, which it may lack */
        text = str_sub(text, length);
    }
    l->n = n;
    l->changed = mem_array(n + 1, sizeof(*l->changed));
    memset(l->changed, 0, (n + 1) * sizeof(*l->changed));
}

static void patch_lines_fini(struct patch_lines *l)
{
    MEM_FREE(l->all, l->changed);
}

/* ---- which of them changed ---- */

/* The old lines [a, a + n) and the new ones [b, b + m), which differ at both ends. False: more than so many rounds. */
static bool patch_compare(struct patch_lines *old, struct patch_lines *new, long a, long n, long b, long m)
{
    const long most = MIN(n + m, (long)PATCH_ROUNDS_MAX), width = 2 * most + 3;
    long *v = mem_array((size_t)width, sizeof(*v)), **rounds = mem_array((size_t)most + 1, sizeof(*rounds));
    long d, k, x = 0, y = 0, done = -1, kept = 0;
    long *at = v + most + 1; /* at[k]: how far diagonal k = x - y has come */
    memset(v, 0, (size_t)width * sizeof(*v));
    for (d = 0; d <= most && done < 0; d++) {
        rounds[d] = mem_array((size_t)(2 * d + 3), sizeof(*v));
        memcpy(rounds[d], at - d - 1, (size_t)(2 * d + 3) * sizeof(*v)); /* what the round began with */
        kept = d + 1;
        for (k = -d; k <= d && done < 0; k += 2) {
            x = k == -d || (k != d && at[k - 1] < at[k + 1]) ? at[k + 1] : at[k - 1] + 1;
            for (y = x - k; x < n && y < m && str_eq(old->all[a + x], new->all[b + y]); y++)
                x++;
            at[k] = x;
            if (x >= n && y >= m)
                done = d;
        }
    }
    x = n;
    y = m;
    for (d = done; d > 0; d--) { /* back along the way */
        const long *before = rounds[d] + d + 1;
        k = x - y;
        const bool down = k == -d || (k != d && before[k - 1] < before[k + 1]);
        const long from = down ? k + 1 : k - 1;
        x = before[from];
        y = x - from;
        if (down)
            new->changed[b + y] = true;
        else
            old->changed[a + x] = true;
    }
    for (d = 0; d < kept; d++)
        mem_free(rounds[d]);
    MEM_FREE(rounds, v);
    return done >= 0;
}

static void patch_mark(struct patch_lines *old, struct patch_lines *new)
{
    size_t head = 0, tail = 0;
    while (head < old->n && head < new->n &&str_eq(old->all[head], new->all[head]))
        head++;
    while (tail < old->n - head &&
           tail < new->n - head &&str_eq(old->all[old->n - tail - 1], new->all[new->n - tail - 1]))
        tail++;
    const size_t n = old->n - head - tail, m = new->n - head - tail;
    if (n > 0 && m > 0 && patch_compare(old, new, (long)head, (long)n, (long)head, (long)m))
        return;
    for (size_t i = 0; i < n; i++)
        old->changed[head + i] = true;
    for (size_t i = 0; i < m; i++)
        new->changed[head + i] = true;
}

/* ---- hunks ---- */

static void patch_append_line(struct buf *b, char sign, struct str line)
{
    buf_append_char(b, sign);
    buf_append_str(b, line);
    if (!str_ends(line, STR("\n")))
        buf_append_cstr(b, "\n\\ No newline at end of file\n");
}

static void patch_append_range(struct buf *b, char sign, size_t from, size_t n)
{
    buf_printf(b, "%c%zu", sign, n ? from + 1 : from); /* of no lines: the one before */
    if (n != 1)
        buf_printf(b, ",%zu", n);
}

/* Old lines [i, i_end) and new ones [j, j_end). */
static void patch_append_hunk(struct buf *b, const struct patch_lines *old, const struct patch_lines *new, size_t i,
                              size_t i_end, size_t j, size_t j_end)
{
    buf_append_cstr(b, "@@ ");
    patch_append_range(b, '-', i, i_end - i);
    buf_append_char(b, ' ');
    patch_append_range(b, '+', j, j_end - j);
    buf_append_cstr(b, " @@\n");
    while (i < i_end || j < j_end) {
        if (i < i_end && old->changed[i]) {
            patch_append_line(b, '-', old->all[i++]);
        } else if (j < j_end && new->changed[j]) {
            patch_append_line(b, '+', new->all[j++]);
        } else {
            patch_append_line(b, ' ', old->all[i++]);
            j++;
        }
    }
}

static void patch_append_hunks(struct buf *b, struct str from, struct str to)
{
    struct patch_lines old, new;
    size_t i = 0, j = 0;
    patch_lines_init(&old, from);
    patch_lines_init(&new, to);
    patch_mark(&old, &new);
    while (i < old.n || j < new.n) {
        if (!old.changed[i] && !new.changed[j]) { /* changed[n] is false */
            i++, j++;
            continue;
        }
        const size_t before = MIN((size_t)PATCH_CONTEXT, MIN(i, j));
        size_t i_end = i, j_end = j, same = 0;
        /* To where twice the context and more is the same, or to the end. */
        while ((i_end < old.n || j_end < new.n) && same <= 2 * PATCH_CONTEXT) {
            if (old.changed[i_end])
                i_end++, same = 0;
            else if (new.changed[j_end])
                j_end++, same = 0;
            else
                i_end++, j_end++, same++;
        }
        const size_t drop = same > PATCH_CONTEXT ? same - PATCH_CONTEXT : 0;
        patch_append_hunk(b, &old, &new, i - before, i_end - drop, j - before, j_end - drop);
        i = i_end;
        j = j_end;
    }
    patch_lines_fini(&old);
    patch_lines_fini(&new);
}

/* ---- binary ---- */

static bool patch_is_binary(struct str s)
{
    return s.n && memchr(s.p, '\0', MIN(s.n, (size_t)PATCH_PROBE));
}

/* Up to 52 bytes: a letter for their number, then five digits for each four. */
static void patch_append_base85(struct buf *b, struct str bytes)
{
    static const char digits[] =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
    buf_append_char(b, (char)(bytes.n <= 26 ? 'A' + (int)bytes.n - 1 : 'a' + (int)bytes.n - 27));
    for (size_t i = 0; i < bytes.n; i += 4) {
        uint32_t value = 0;
        char text[5];
        for (size_t k = 0; k < 4; k++)
            value = value << 8 | (i + k < bytes.n ? (unsigned char)bytes.p[i + k] : 0);
        for (size_t k = 5; k-- > 0; value /= 85)
            text[k] = digits[value % 85];
        buf_append(b, text, sizeof(text));
    }
    buf_append_char(b, '\n');
}

static void patch_append_literal(struct buf *b, struct str s)
{
    uLongf n = compressBound((uLong)s.n);
    AUTO_FREE char *packed = mem_alloc(n);
    if (compress2((Bytef *)packed, &n, (const Bytef *)(s.n ? s.p : ""), (uLong)s.n, Z_DEFAULT_COMPRESSION) != Z_OK)
        n = 0; /* can't be: there is room */
    buf_printf(b, "literal %zu\n", s.n);
    for (size_t at = 0; at < n; at += PATCH_LINE_BYTES)
        patch_append_base85(b, str_n(packed + at, MIN((size_t)PATCH_LINE_BYTES, n - at)));
    buf_append_char(b, '\n');
}

/* ---- one path ---- */

static bool patch_is_odd(unsigned char c)
{
    return c < ' ' || c == '"' || c == '\\' || c >= 0x7f;
}

/* As git quotes names; `blank`: a name with one in it gets a tab behind it, so that readers see where it ends. */
static void patch_append_name(struct buf *b, const char *prefix, struct str path, bool blank)
{
    bool odd = false;
    for (size_t i = 0; i < path.n; i++)
        odd |= patch_is_odd((unsigned char)path.p[i]);
    buf_printf(b, "%s%s", odd ? "\"" : "", prefix);
    for (size_t i = 0; i < path.n; i++) {
        const unsigned char c = (unsigned char)path.p[i];
        if (c == '"' || c == '\\')
            buf_printf(b, "\\%c", c);
        else if (patch_is_odd(c))
            buf_printf(b, "\\%03o", c);
        else
            buf_append_char(b, (char)c);
    }
    if (odd)
        buf_append_char(b, '"');
    else if (blank && str_find_char(path, ' ') >= 0)
        buf_append_char(b, '\t');
}

/* The name of the content in git: 40 digits, all zero where there is none. */
static void patch_digest(const struct patch_side *s, char ret_text[static 2 * SHA1_BYTES + 1])
{
    uint8_t digest[SHA1_BYTES] = {0};
    struct sha1 sha;
    char head[32];
    int n = snprintf(head, sizeof(head), "blob %zu", s->content.n);
    if (s->exists) {
        sha1_init(&sha);
        sha1_add(&sha, str_n(head, (size_t)n + 1)); /* with its NUL */
        sha1_add(&sha, s->content);
        sha1_end(&sha, digest);
    }
    str_hex(digest, SHA1_BYTES, ret_text);
}

static const char *patch_mode(const struct patch_side *s)
{
    return s->is_link ? "120000" : s->is_executable ? "100755" : "100644";
}

static void patch_append_file(struct buf *b, struct str path, const struct patch_side *old,
                              const struct patch_side *new)
{
    char from[2 * SHA1_BYTES + 1], to[2 * SHA1_BYTES + 1];
    const bool is_same = old->exists && new->exists &&str_eq(old->content, new->content);
    const bool keeps_mode = old->exists && new->exists &&strcmp(patch_mode(old), patch_mode(new)) == 0;
    if (is_same && keeps_mode)
        return;
    buf_append_cstr(b, "diff --git ");
    patch_append_name(b, "a/", path, false);
    buf_append_char(b, ' ');
    patch_append_name(b, "b/", path, false);
    if (!old->exists)
        buf_printf(b, "\nnew file mode %s\n", patch_mode(new));
    else if (!new->exists)
        buf_printf(b, "\ndeleted file mode %s\n", patch_mode(old));
    else if (!keeps_mode)
        buf_printf(b, "\nold mode %s\nnew mode %s\n", patch_mode(old), patch_mode(new));
    else
        buf_append_char(b, '\n');
    if (is_same)
        return;
    patch_digest(old, from);
    patch_digest(new, to);
    buf_printf(b, "index %s..%s", from, to);
    if (keeps_mode)
        buf_printf(b, " %s", patch_mode(new));
    buf_append_char(b, '\n');
    if (old->content.n == 0 && new->content.n == 0)
        return; /* an empty file came or went */
    if (patch_is_binary(old->content) || patch_is_binary(new->content)) {
        buf_append_cstr(b, "GIT binary patch\n");
        patch_append_literal(b, new->content);
        patch_append_literal(b, old->content);
        return;
    }
    buf_append_cstr(b, "--- ");
    if (old->exists)
        patch_append_name(b, "a/", path, true);
    else
        buf_append_cstr(b, "/dev/null");
    buf_append_cstr(b, "\n+++ ");
    if (new->exists)
        patch_append_name(b, "b/", path, true);
    else
        buf_append_cstr(b, "/dev/null");
    buf_append_char(b, '\n');
    patch_append_hunks(b, old->content, new->content);
}

void patch_append(struct buf *b, struct str path, const struct patch_side *old, const struct patch_side *new)
{
    static const struct patch_side none = {0};
    if (!old->exists && !new->exists)
        return;
    if (old->exists && new->exists && old->is_link != new->is_link) {
        patch_append_file(b, path, old, &none);
        patch_append_file(b, path, &none, new);
        return;
    }
    patch_append_file(b, path, old, new);
}
