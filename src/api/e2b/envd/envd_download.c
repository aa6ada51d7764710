/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET and HEAD /files.
 *
 * The head of the answer waits until it is known what it must say: for most files that is when the file is open; when
 * the name does not tell the type, or the size says 0 (as that of procfs files does), it is when the first bytes or the
 * end come. For HEAD and for parts these are read for that alone. Several parts are read one after the other. Bytes are
 * acknowledged to the core while the client's queue has room, so a slow client holds one window of the file and no
 * more.
 */
#include "api/e2b/envd/accept_encoding.h"
#include "api/e2b/envd/download_head.h"
#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/files_call.h"
#include "api/kit/file_body.h"
#include "api/kit/range.h"
#include "base/id.h"
#include "http/gzip.h"

/* Compressing costs the loop twenty times what sending does: worth it for what is small, and for nobody near when it is
 * large. */
enum { DOWNLOAD_GZIP_LEVEL = 1, GZIP_SIZE_MAX = 8 * 1024 * 1024, HEADERS_MAX = 9, SNIFF = 512, BOUNDARY = 30 };

struct download {
    struct files_query query;
    struct gzip *gzip; /* owned; NULL: identity */
    struct str name;
    const struct content_type *type;
    enum accept_encoding coding;
    usec_t modified;
    uint64_t size, left; /* left: bytes that may still be sent, when the length is told */
    struct range parts[RANGES_MAX];
    size_t n_parts, part; /* n_parts 0: all of it. part: the next one */
    char boundary[BOUNDARY + 1];
    struct file_body sniffed; /* its first bytes */
    bool conditional, followed, length_known, head_sent;
    struct str target; /* of the link that it is, once followed */
};

static void envd_download_cleanup(struct call *c)
{
    struct download *d = c->state;
    gzip_free(d->gzip);
    file_body_fini(&d->sniffed);
}

static void envd_download_finish(struct call *c)
{
    file_call_cancel(TAKE_PTR(c->file));
    if (!c->answered)
        call_end(c);
}

/* ---- the head ---- */

/* What is told of the file whatever is sent of it. */
static void take_entry(struct call *c, const struct file_entry *entry)
{
    struct download *d = c->state;
    if (!d->name.p) {
        d->name = arena_str(http_arena(c->req), entry->name);
        d->type = content_type_by_name(d->name);
    }
    d->modified = entry->mtime_ns / 1000;
    d->size = entry->is_link ? 0 : entry->size; /* a link's own size says nothing */
}

static void send_head(struct call *c, struct str first)
{
    AUTO_BUF struct buf disposition = BUF_INIT(16384);
    struct download *d = c->state;
    struct http_header headers[HEADERS_MAX];
    char modified[HTTP_DATE_MAX], multipart[96];
    bool gzip;
    size_t n = 0;
    if (!d->type)
        d->type = content_type_by_bytes(first);
    gzip = d->coding == ACCEPT_GZIP && !d->conditional;
    if (accept_encoding_allows_identity(http_header_get(c->req, "accept-encoding")))
        gzip = gzip && !d->type->packed && d->size > 0 && d->size <= GZIP_SIZE_MAX;
    content_disposition_append(&disposition, d->type, d->name);
    http_date_format(d->modified, modified);

    snprintf(multipart, sizeof(multipart), "multipart/byteranges; boundary=%s", d->boundary);
    headers[n++] = HTTP_HEADER_STR("content-type", str_of(d->n_parts > 1 ? multipart : d->type->name));
    headers[n++] = HTTP_HEADER_STR("content-disposition", buf_str(&disposition));
    headers[n++] = HTTP_HEADER("vary", "Accept-Encoding");
    /* The file is the sandbox's, the origin may be ours: a page among them must not act as one of ours. */
    headers[n++] = HTTP_HEADER("content-security-policy", "sandbox");
    headers[n++] = HTTP_HEADER("x-content-type-options", "nosniff");
    if (!content_type_is_inert(d->type))
        headers[n++] = HTTP_HEADER("cross-origin-resource-policy", "same-origin");
    if (gzip) {
        headers[n++] = HTTP_HEADER("content-encoding", "gzip");
        if (http_method(c->req) != HTTP_METHOD_HEAD)
            d->gzip = gzip_new(DOWNLOAD_GZIP_LEVEL);
    } else {
        headers[n++] = HTTP_HEADER("accept-ranges", "bytes");
        headers[n++] = HTTP_HEADER_STR("last-modified", str_of(modified));
        if (d->n_parts == 1)
            headers[n++] = HTTP_HEADER_STR("content-range", range_content(http_arena(c->req), d->parts, d->size));
    }
    d->head_sent = true;
    http_response_begin(c->req, d->n_parts ? 206 : 200, headers, n,
                        gzip || !d->length_known || d->n_parts > 1 ? -1 : (int64_t)d->left);
}

/* ---- the body ---- */

static void send_gzip(struct call *c, struct str bytes, enum gzip_flush flush)
{
    struct download *d = c->state;
    size_t n;
    int r;
    do {
        r = gzip_next(d->gzip, &bytes, flush, e2b_of(c)->chunk, sizeof(e2b_of(c)->chunk), &n);
        if (r >= 0 && n)
            http_response_write(c->req, str_n(e2b_of(c)->chunk, n));
    } while (r == GZIP_OUTPUT);
}

static void send_bytes(struct call *c, struct str bytes)
{
    struct download *d = c->state;
    if (d->gzip)
        send_gzip(c, bytes, GZIP_NO_FLUSH);
    else if (bytes.n)
        http_response_write(c->req, bytes);
}

static void envd_download_on_open(void *ctx, const struct file_entry *entry)
{
    struct call *c = ctx;
    struct download *d = c->state;
    if (c->answered)
        return;
    if (!d->n_parts) {
        take_entry(c, entry);
        d->left = d->size;
    }
    d->length_known = d->size > 0;
    if (d->type && d->length_known && !d->head_sent)
        send_head(c, STR(""));
}

static void envd_download_on_data(void *ctx, struct str bytes)
{
    struct call *c = ctx;
    struct download *d = c->state;
    struct str wanted = bytes;
    if (c->answered)
        return;
    if (!d->head_sent)
        send_head(c, bytes);
    if (d->length_known && wanted.n > d->left) {
        /* It has grown meanwhile; the length that was told stands. */
        wanted.n = d->left;
        if (wanted.n == 0) {
            if (d->gzip)
                send_gzip(c, STR(""), GZIP_FINISH);
            envd_download_finish(c);
            return;
        }
    }
    send_bytes(c, wanted);
    d->left -= d->length_known ? wanted.n : 0;
    call_paced(c, bytes.n);
}

static void read_part(struct call *c);

static void envd_download_on_end(void *ctx, const struct err *err)
{
    struct call *c = ctx;
    struct download *d = c->state;
    c->file = NULL;
    if (c->answered)
        return;
    if (err && !d->head_sent) {
        call_fail_err(c, err);
        return;
    }
    if (err || (d->n_parts && d->left)) {
        call_done(c);
        http_abort(c->req);
        return;
    }
    if (d->n_parts > 1) {
        c->unacked = 0;
        read_part(c);
        return;
    }
    if (!d->head_sent) {
        /* Nothing came: that is known to be the whole of it. */
        d->left = 0;
        d->length_known = true;
        send_head(c, STR(""));
    }
    if (d->gzip)
        send_gzip(c, STR(""), GZIP_FINISH);
    envd_download_finish(c);
}

static const struct file_read_ops envd_download_ops = {envd_download_on_open, envd_download_on_data,
                                                       envd_download_on_end};

/* All of it, or the part that was begun last. */
static void envd_download_read_file(struct call *c)
{
    struct download *d = c->state;
    const struct range *part = d->n_parts ? &d->parts[d->part - 1] : NULL;
    struct str path = d->query.path.p ? d->query.path : STR("");
    call_ok(c, file_read(c->sandbox, &c->actor, c->user, path, part ? part->offset : 0,
                         part ? part->length : UINT64_MAX, &envd_download_ops, c, &c->file, &c->err));
}

/* ---- parts: after each other, each by a read of its own ---- */

static void read_part(struct call *c)
{
    AUTO_BUF struct buf head = BUF_INIT(512);
    struct download *d = c->state;
    if (d->part == d->n_parts) {
        buf_printf(&head, "\r\n--%s--\r\n", d->boundary);
        http_response_write(c->req, buf_str(&head));
        envd_download_finish(c);
        return;
    }
    if (d->n_parts > 1) {
        struct str range = range_content(http_arena(c->req), &d->parts[d->part], d->size);
        buf_printf(&head, "%s--%s\r\nContent-Range: %.*s\r\nContent-Type: %s\r\n\r\n", d->part ? "\r\n" : "",
                   d->boundary, STR_ARG(range), d->type->name);
        if (!d->head_sent)
            send_head(c, STR(""));
        http_response_write(c->req, buf_str(&head));
    }
    d->left = d->parts[d->part].length;
    d->part++;
    call_step(c, envd_download_read_file);
}

/* The type is known. */
static void envd_download_answer(struct call *c)
{
    struct download *d = c->state;
    if (http_method(c->req) != HTTP_METHOD_HEAD && d->n_parts) {
        read_part(c);
    } else if (http_method(c->req) != HTTP_METHOD_HEAD) {
        call_step(c, envd_download_read_file);
    } else {
        d->left = d->n_parts ? d->parts[0].length : d->size;
        d->length_known = true;
        send_head(c, STR(""));
        envd_download_finish(c);
    }
}

static void on_sniffed(struct file_body *f, const struct file_entry *entry UNUSED, const struct err *err)
{
    struct call *c = f->call;
    if (c->answered)
        return;
    if (err) {
        call_fail_err(c, err);
        return;
    }
    ((struct download *)c->state)->type = content_type_by_bytes(buf_str(&f->b));
    envd_download_answer(c);
}

static void sniff(struct call *c)
{
    struct download *d = c->state;
    file_body_init(&d->sniffed, c, SNIFF);
    d->sniffed.done = on_sniffed;
    file_body_begun(&d->sniffed, file_read(c->sandbox, &c->actor, c->user, d->query.path.p ? d->query.path : STR(""), 0,
                                           SNIFF, FILE_BODY(&d->sniffed, &file_body_text)));
}

/* ---- requests that need to know the file first: ranges, conditions, HEAD ---- */

static bool is_not_modified(struct call *c)
{
    struct download *d = c->state;
    usec_t since;
    return http_date_parse(http_header_get(c->req, "if-modified-since"), &since) == 0 &&
           d->modified / USEC_PER_SEC <= since / USEC_PER_SEC;
}

/* If-Range with a date that is not the file's means: then send me all of it. */
static bool range_applies(struct call *c)
{
    struct str condition = http_header_get(c->req, "if-range");
    struct download *d = c->state;
    usec_t date;
    return !condition.p ||
           (http_date_parse(condition, &date) == 0 && date / USEC_PER_SEC == d->modified / USEC_PER_SEC);
}

static void answer_unsatisfiable(struct call *c)
{
    const struct download *d = c->state;
    http_add_header(c->req, STR("content-range"), range_content(http_arena(c->req), NULL, d->size));
    call_respond(c, 416, "text/plain; charset=utf-8", STR("invalid range: failed to overlap\n"));
}

static void stat_file(struct call *c);

static void on_stat(struct call *c, const struct file_entry *entry)
{
    struct download *d = c->state;
    take_entry(c, entry);
    if (entry->is_link && entry->type != WIRE_FILE_UNKNOWN && !d->followed) {
        d->followed = true;
        d->target = arena_str(http_arena(c->req), entry->target);
        call_step(c, stat_file);
        return;
    }
    if (entry->type == WIRE_FILE_DIRECTORY) {
        call_fail(c, 400, "path '%.*s' is a directory", STR_ARG(entry->path));
        return;
    }
    if (entry->type != WIRE_FILE_REGULAR) {
        call_fail(c, 400, "path '%.*s' is not a regular file", STR_ARG(entry->path));
        return;
    }
    if (is_not_modified(c)) {
        call_empty(c, 304);
        return;
    }
    if (range_applies(c)) {
        switch (range_parse(http_header_get(c->req, "range"), d->size, d->parts, &d->n_parts)) {
        case RANGE_UNSATISFIABLE:
            answer_unsatisfiable(c);
            return;
        case RANGE_PART:
            id_token(d->boundary, BOUNDARY);
            break;
        case RANGE_WHOLE:
            break;
        }
    }
    if (!d->type && (d->n_parts || http_method(c->req) == HTTP_METHOD_HEAD))
        call_step(c, sniff);
    else
        envd_download_answer(c);
}

static void stat_file(struct call *c)
{
    struct download *d = c->state;
    struct str path = d->followed ? d->target : d->query.path.p ? d->query.path : STR("");
    call_ok(c, file_stat(c->sandbox, &c->actor, c->user, path, CALL_FILE(c, on_stat)));
}

void envd_download(struct call *c)
{
    static const char *const conditions[] = {"range", "if-modified-since", "if-none-match", "if-range"};
    struct str accept = http_header_get(c->req, "accept-encoding");
    struct files_query query;
    if (!files_begin(c, FILES_READ, &query))
        return;
    struct download *d = call_state(c, sizeof(*d), envd_download_cleanup);
    d->query = query;
    d->coding = accept_encoding_choose(accept);
    for (size_t i = 0; i < ARRAY_SIZE(conditions); i++)
        d->conditional = d->conditional || http_header_get(c->req, conditions[i]).n;
    call_pace(c, NULL);

    if (d->coding == ACCEPT_NONE)
        call_fail(c, 406, "error parsing Accept-Encoding: no acceptable encoding found, supported: [gzip]");
    else if (d->conditional && !accept_encoding_allows_identity(accept))
        call_fail(c, 406, "identity encoding not acceptable for Range or conditional request");
    else if (!d->conditional && http_method(c->req) != HTTP_METHOD_HEAD)
        envd_download_read_file(c);
    else
        stat_file(c);
}
