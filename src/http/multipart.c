/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. The delimiter is CR LF "--" boundary; the body is read as if a CR LF stood in front of it, so
 * the first delimiter is like the others. Input is scanned for the delimiter with memmem(); only a proper prefix of it
 * at the end of the input is unsettled. Its length is `held`; the bytes themselves need not be kept, being equal to the
 * delimiter's. When the next input does not continue the match, the longest shorter prefix is tried (as in
 * Knuth-Morris-Pratt) and what is in front of that was data.
 *
 * Behind a delimiter stand "--" (the end; the rest is ignored) or blanks and CR LF (a part). A delimiter that something
 * else follows is an error, not data: no sender makes one, and guessing is how two readers of a message come to differ.
 */
#include "http/multipart.h"
#include "base/buf.h"
#include "base/mem.h"
#include "http/message.h"

enum {
    BOUNDARY_MAX = 70,
    DELIMITER_MAX = BOUNDARY_MAX + 4,
    HEADERS_MAX = 8 * 1024,
    PARTS_DEFAULT = 1000,
    PREAMBLE_MAX = 64 * 1024
};

enum state {
    IN_PREAMBLE,
    IN_DATA,
    AFTER_DELIMITER, /* "--", blanks, CR */
    AFTER_DASH,
    AFTER_PADDING, /* only blanks or CR LF now */
    AFTER_CR,
    IN_HEADERS,
    IN_EPILOGUE,
};

struct multipart {
    struct multipart_ops ops;
    struct multipart_limits limits;
    void *ctx;
    char delimiter[DELIMITER_MAX];
    size_t delimiter_n;
    size_t held; /* so many bytes of the delimiter were seen at the end of the input */
    enum state state;
    struct buf headers; /* of the part, with all CR LF */
    unsigned parts;
    uint64_t part_bytes, preamble_bytes;
    int error;
};

static bool is_boundary(struct str s)
{
    return s.n > 0 && s.n <= BOUNDARY_MAX && s.p[s.n - 1] != ' ' && str_is_of(s, "A-Za-z0-9'()+_,./:=? -");
}

int multipart_new(struct str content_type, const struct multipart_ops *ops, const struct multipart_limits *limits,
                  void *ctx, struct multipart **ret_parser)
{
    ssize_t semicolon = str_find_char(content_type, ';');
    if (semicolon < 0 || !str_eq_nocase(str_trim(str_n(content_type.p, (size_t)semicolon)), STR("multipart/form-data")))
        return -EINVAL;
    struct str params = str_sub(content_type, (size_t)semicolon), boundary = STR_NULL;
    for (struct str name, value; http_param_next(&params, &name, &value);) {
        if (!str_eq_nocase(name, STR("boundary")))
            continue;
        if (boundary.p)
            return -EINVAL;
        boundary = value;
    }
    if (params.n || !is_boundary(boundary))
        return -EINVAL;

    struct multipart *m = mem_new(struct multipart);
    m->ops = *ops;
    if (limits)
        m->limits = *limits;
    if (!m->limits.parts)
        m->limits.parts = PARTS_DEFAULT;
    m->ctx = ctx;
    memcpy(m->delimiter, "\r\n--", 4);
    memcpy(m->delimiter + 4, boundary.p, boundary.n);
    m->delimiter_n = boundary.n + 4;
    m->held = 2; /* the CR LF in front of the body */
    buf_init(&m->headers, HEADERS_MAX);
    *ret_parser = m;
    return 0;
}

void multipart_free(struct multipart *m)
{
    if (!m)
        return;
    buf_fini(&m->headers);
    mem_free(m);
}

static int emit(struct multipart *m, const char *p, size_t n)
{
    if (n == 0)
        return 0;
    if (m->state == IN_PREAMBLE) {
        m->preamble_bytes += n;
        return m->preamble_bytes > PREAMBLE_MAX ? -EPROTO : 0;
    }
    m->part_bytes += n;
    if (m->limits.part_bytes && m->part_bytes > m->limits.part_bytes)
        return -EFBIG;
    return m->ops.on_data ? m->ops.on_data(str_n(p, n), m->ctx) : 0;
}

static int delimiter_seen(struct multipart *m)
{
    bool in_part = m->state == IN_DATA;
    m->held = 0;
    m->state = AFTER_DELIMITER;
    return in_part && m->ops.on_part_end ? m->ops.on_part_end(m->ctx) : 0;
}

/* Is the delimiter's prefix of n bytes also a suffix of its prefix of `of` bytes? */
static bool is_border(const struct multipart *m, size_t of, size_t n)
{
    return memcmp(m->delimiter, m->delimiter + of - n, n) == 0;
}

/* Goes on with a match that began in earlier input. */
static int feed_held(struct multipart *m, struct str *in)
{
    while (m->held && in->n) {
        if (in->p[0] == m->delimiter[m->held]) {
            *in = str_sub(*in, 1);
            if (++m->held == m->delimiter_n)
                return delimiter_seen(m);
            continue;
        }
        size_t shorter = m->held - 1;
        while (shorter && !is_border(m, m->held, shorter))
            shorter--;
        size_t settled = m->held - shorter;
        m->held = shorter;
        /* The CR LF that was assumed in front of the body is no data, but can only be counted as a preamble's, which is
         * dropped. */
        int r = emit(m, m->delimiter, settled);
        if (r < 0)
            return r;
    }
    return 0;
}

static int feed_data(struct multipart *m, struct str *in)
{
    int r = feed_held(m, in);
    if (r < 0 || in->n == 0 || m->state == AFTER_DELIMITER)
        return r;
    const char *at = memmem(in->p, in->n, m->delimiter, m->delimiter_n);
    if (at) {
        size_t n = (size_t)(at - in->p);
        r = emit(m, in->p, n);
        *in = str_sub(*in, n + m->delimiter_n);
        return r < 0 ? r : delimiter_seen(m);
    }
    size_t keep = MIN(in->n, m->delimiter_n - 1);
    while (keep && memcmp(in->p + in->n - keep, m->delimiter, keep) != 0)
        keep--;
    r = emit(m, in->p, in->n - keep);
    m->held = keep;
    *in = str_sub(*in, in->n);
    return r;
}

/*
 * Undoes %22 %0D %0A and backslashes in front of '"' and '\', in place. A browser escapes the first three, others the
 * quotes.
 */
static struct str unescape(char *p, size_t n)
{
    size_t out = 0;
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        if (c == '\\' && i + 1 < n && (p[i + 1] == '"' || p[i + 1] == '\\')) {
            c = p[++i];
        } else if (c == '%' && n - i > 2) {
            const char *known = memcmp(p + i, "%22", 3) == 0   ? "\""
                                : memcmp(p + i, "%0D", 3) == 0 ? "\r"
                                : memcmp(p + i, "%0A", 3) == 0 ? "\n"
                                                               : NULL;
            if (known) {
                c = *known;
                i += 2;
            }
        }
        p[out++] = c;
    }
    return str_n(p, out);
}

static int parse_disposition(struct str value, struct multipart_part *part)
{
    ssize_t semicolon = str_find_char(value, ';');
    if (!str_eq_nocase(str_trim(semicolon < 0 ? value : str_n(value.p, (size_t)semicolon)), STR("form-data")))
        return -EPROTO;
    struct str params = semicolon < 0 ? STR_NULL : str_sub(value, (size_t)semicolon);
    for (struct str name, v; http_param_next(&params, &name, &v);) {
        struct str *to = str_eq_nocase(name, STR("name"))       ? &part->name
                         : str_eq_nocase(name, STR("filename")) ? &part->filename
                                                                : NULL;
        if (!to)
            continue;
        if (to->p)
            return -EPROTO;
        *to = unescape((char *)(uintptr_t)v.p, v.n); /* our own buffer */
    }
    return params.n ? -EPROTO : 0;
}

static int headers_complete(struct multipart *m)
{
    struct multipart_part part = {STR_NULL, STR_NULL, STR_NULL};
    struct str rest = buf_str(&m->headers);
    bool disposition = false;
    for (struct str line; str_split(&rest, '\n', &line);) {
        if (line.n && line.p[line.n - 1] == '\r')
            line.n--;
        else if (line.n)
            return -EPROTO;
        if (line.n == 0)
            continue;
        ssize_t colon = str_find_char(line, ':');
        if (colon < 0 || !http_is_token(str_n(line.p, (size_t)colon)))
            return -EPROTO;
        struct str name = str_n(line.p, (size_t)colon);
        struct str value = str_trim(str_sub(line, (size_t)colon + 1));
        if (!http_is_field_value(value))
            return -EPROTO;
        if (str_eq_nocase(name, STR("content-disposition"))) {
            if (disposition || parse_disposition(value, &part) < 0)
                return -EPROTO;
            disposition = true;
        } else if (str_eq_nocase(name, STR("content-type"))) {
            part.content_type = value;
        }
    }
    if (!disposition)
        return -EPROTO;
    if (!part.name.p)
        part.name = STR("");
    if (m->parts++ == m->limits.parts)
        return -E2BIG;
    m->part_bytes = 0;
    int r = m->ops.on_part ? m->ops.on_part(&part, m->ctx) : 0;
    buf_clear(&m->headers);
    m->state = IN_DATA;
    return r;
}

static int feed_headers(struct multipart *m, struct str *in)
{
    while (in->n) {
        const char *lf = memchr(in->p, '\n', in->n);
        size_t n = lf ? (size_t)(lf - in->p) + 1 : in->n;
        if (buf_append(&m->headers, in->p, n) < 0)
            return -EMSGSIZE;
        *in = str_sub(*in, n);
        struct str all = buf_str(&m->headers);
        if (lf && (str_eq(all, STR("\r\n")) || str_ends(all, STR("\r\n\r\n"))))
            return headers_complete(m);
        if (lf && !str_ends(all, STR("\r\n")))
            return -EPROTO;
    }
    return 0;
}

static int feed_after(struct multipart *m, struct str *in)
{
    char c = in->p[0];
    *in = str_sub(*in, 1);
    if (m->state == AFTER_DELIMITER && c == '-')
        m->state = AFTER_DASH;
    else if (m->state == AFTER_DASH && c == '-')
        m->state = IN_EPILOGUE;
    else if (m->state == AFTER_CR && c == '\n')
        m->state = IN_HEADERS;
    else if ((m->state == AFTER_DELIMITER || m->state == AFTER_PADDING) && (c == ' ' || c == '\t'))
        m->state = AFTER_PADDING;
    else if ((m->state == AFTER_DELIMITER || m->state == AFTER_PADDING) && c == '\r')
        m->state = AFTER_CR;
    else
        return -EPROTO;
    return 0;
}

int multipart_feed(struct multipart *m, struct str data)
{
    int r = m->error;
    while (r >= 0 && data.n) {
        switch (m->state) {
        case IN_PREAMBLE:
        case IN_DATA:
            r = feed_data(m, &data);
            break;
        case IN_HEADERS:
            r = feed_headers(m, &data);
            break;
        case IN_EPILOGUE:
            return 0;
        default:
            r = feed_after(m, &data);
            break;
        }
    }
    if (r < 0)
        m->error = r;
    return r < 0 ? r : 0;
}

int multipart_end(const struct multipart *m)
{
    return m->error ? m->error : m->state == IN_EPILOGUE ? 0 : -EPROTO;
}
