/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /files: body -> [gunzip] -> [multipart] -> files.
 *
 * Every stage takes all it is given but for the last, whose queue says when it is busy: then the body is paused, and
 * with it the client. Compressed bytes that were received but not yet inflated wait in `packed`, at most one piece of
 * the body.
 */
#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/envd_entry.h"
#include "api/e2b/envd/files_call.h"
#include "api/e2b/names.h"
#include "api/kit/upload_queue.h"
#include "http/gzip.h"
#include "http/multipart.h"

#include <ctype.h>

enum { METADATA_KEY_MAX = 246, METADATA_TOTAL_MAX = 4096 };
enum { PACKED_MAX = 512 * 1024, UPLOADED_MAX = 4 * 1024 * 1024, RATIO_MAX = 2000 };

struct upload_state {
    struct files_query query;
    struct multipart *multipart; /* owned; NULL: the body is the file */
    struct gunzip *gunzip;       /* owned; NULL: the body is as it is */
    struct buf packed;
    struct buf uploaded; /* the answer: entries of what was written */
    struct str *paths;   /* asked for so far */
    size_t n_paths, max_paths;
    bool in_file;        /* the current part is one that is kept */
    const char *refusal; /* told when what came before it is written; NULL: none */
    bool body_ended, all_fed;
};

static void envd_upload_cleanup(struct call *c)
{
    struct upload_state *u = c->state;
    multipart_free(u->multipart);
    gunzip_free(u->gunzip);
    buf_fini(&u->packed);
    buf_fini(&u->uploaded);
}

/* ---- metadata ---- */

static const struct str header_prefix = STR("x-metadata-");

static int check_printable(struct str s, const char *what, struct str key, struct err *err)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c < 0x20 || c > 0x7e)
            return err_set(
                err, ERR_INVALID_ARGUMENT,
                "invalid metadata: metadata %s for key \"%.*s\" contains non-printable-ASCII byte 0x%02x at offset %zu",
                what, STR_ARG(key), c, i);
    }
    return 0;
}

int file_metadata_add(struct http_header header, struct arena *arena, struct pair *pairs, size_t *n, struct err *err)
{
    struct str key;
    char *lower;
    if (header.name.n <= header_prefix.n || !str_eq_nocase(str_n(header.name.p, header_prefix.n), header_prefix))
        return 0;
    key = str_sub(header.name, header_prefix.n);
    if (key.n > METADATA_KEY_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "invalid metadata: metadata key \"%.32s…\" exceeds %d bytes", key.p,
                       METADATA_KEY_MAX);
    lower = arena_strndup(arena, key.p, key.n);
    for (size_t i = 0; i < key.n; i++)
        lower[i] = (char)tolower((unsigned char)lower[i]);
    key.p = lower;
    for (size_t i = 0; i < *n; i++)
        if (str_eq(pairs[i].key, key))
            return 0;
    if (check_printable(key, "key", key, err) < 0 || check_printable(header.value, "value", key, err) < 0)
        return -1;
    pairs[(*n)++] = (struct pair){key, header.value};
    return 0;
}

/* "X-Metadata-<key>: <value>". Keys are lower-cased, of several values the first counts. The vector lives in the
 * request's arena. */
static int file_metadata_read(struct http_request *req, const struct pair **ret_pairs, size_t *ret_n, struct err *err)
{
    size_t count = http_header_count(req), n = 0, total = 0;
    struct pair *pairs = arena_alloc(http_arena(req), (count + 1) * sizeof(*pairs));
    for (size_t i = 0; i < count; i++)
        if (file_metadata_add(http_header_at(req, i), http_arena(req), pairs, &n, err) < 0)
            return -1;
    for (size_t i = 0; i < n; i++)
        total += strlen(E2B_ATTRIBUTES) + pairs[i].key.n + pairs[i].value.n;
    if (total > METADATA_TOTAL_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "invalid metadata: total metadata size %zu exceeds %d bytes", total,
                       METADATA_TOTAL_MAX);
    *ret_pairs = pairs;
    *ret_n = n;
    return 0;
}

/* ---- files ---- */

/* Remembers the path; false when it was there already. */
static bool add_path(struct call *c, struct str path)
{
    struct upload_state *u = c->state;
    for (size_t i = 0; i < u->n_paths; i++)
        if (str_eq(u->paths[i], path))
            return false;
    if (u->n_paths == u->max_paths) {
        size_t max = u->max_paths ? 2 * u->max_paths : 8;
        struct str *more = arena_alloc(http_arena(c->req), max * sizeof(*more));
        if (u->n_paths)
            memcpy(more, u->paths, u->n_paths * sizeof(*more));
        u->paths = more;
        u->max_paths = max;
    }
    u->paths[u->n_paths++] = arena_str(http_arena(c->req), path);
    return true;
}

static bool begin_file(struct call *c, struct str path)
{
    struct upload_state *u = c->state;
    if (!add_path(c, path)) {
        u->refusal = arena_printf(
            http_arena(c->req),
            "you cannot upload multiple files to the same path '%.*s' in one upload request, only the first "
            "specified file was uploaded",
            STR_ARG(path));
        return false;
    }
    upload_queue_begin(c->uploads, path);
    return !c->answered;
}

static void envd_upload_on_written(struct call *c, const struct file_entry *entry)
{
    struct upload_state *u = c->state;
    buf_append_char(&u->uploaded, buf_len(&u->uploaded) ? ',' : '[');
    entry_append_uploaded(&u->uploaded, entry);
}

/* ---- multipart ---- */

static int on_part(const struct multipart_part *part, void *ctx)
{
    struct call *c = ctx;
    struct upload_state *u = c->state;
    struct str path = u->query.path.p ? u->query.path : part->filename;
    u->in_file = str_eq(part->name, STR("file"));
    if (!u->in_file)
        return 0;
    if (!path.p) {
        call_fail(c, 400,
                  "error getting multipart custom part file name: filename not found in Content-Disposition header");
        return -ECANCELED;
    }
    return begin_file(c, path) ? 0 : -ECANCELED;
}

static int on_part_data(struct str data, void *ctx)
{
    struct call *c = ctx;
    struct upload_state *u = c->state;
    if (u->in_file)
        upload_queue_data(c->uploads, data);
    return 0;
}

static int on_part_end(void *ctx)
{
    struct call *c = ctx;
    struct upload_state *u = c->state;
    if (u->in_file)
        upload_queue_end(c->uploads);
    u->in_file = false;
    return 0;
}

static const struct multipart_ops multipart_callbacks = {on_part, on_part_data, on_part_end};

/* Bytes of the body as the client meant them. */
static void feed(struct call *c, struct str data)
{
    struct upload_state *u = c->state;
    int r;
    if (!u->multipart) {
        upload_queue_data(c->uploads, data);
        return;
    }
    if (u->refusal)
        return;
    r = multipart_feed(u->multipart, data);
    if (u->refusal)
        u->in_file = false;
    else if (r == -E2BIG)
        call_fail(c, 400, "error reading form: too many parts");
    else if (r < 0)
        call_fail(c, 400, "error reading form: malformed multipart body");
}

static void feed_end(struct call *c)
{
    struct upload_state *u = c->state;
    u->all_fed = true;
    if (u->refusal)
        return;
    if (u->gunzip && gunzip_end(u->gunzip) < 0)
        call_fail(c, 400, "error decompressing request body: unexpected end of the gzip stream");
    else if (u->multipart && multipart_end(u->multipart) < 0)
        call_fail(c, 400, "error reading form: the closing boundary is missing");
    else if (!u->multipart)
        upload_queue_end(c->uploads);
}

/* ---- the body ---- */

static void inflate_some(struct call *c)
{
    struct upload_state *u = c->state;
    struct e2b *e2b = e2b_of(c);
    while (!c->answered && !upload_queue_is_busy(c->uploads)) {
        struct str in = buf_str(&u->packed);
        size_t before = in.n, n = 0;
        int r = gunzip_next(u->gunzip, &in, e2b->chunk, sizeof(e2b->chunk), &n);
        buf_consume(&u->packed, before - in.n);
        if (r < 0) {
            call_fail(c, 400, "error decompressing request body: not a valid gzip stream");
            return;
        }
        if (n)
            feed(c, str_n(e2b->chunk, n));
        if (r != GZIP_OUTPUT && buf_len(&u->packed) == 0)
            return;
    }
}

/* After each step: what can go on goes on, what has to wait waits, what is complete is answered. */
static void envd_upload_advance(struct call *c)
{
    struct upload_state *u = c->state;
    if (u->gunzip)
        inflate_some(c);
    if (!c->answered && u->body_ended && !u->all_fed && buf_len(&u->packed) == 0 &&
        !(u->gunzip && upload_queue_is_busy(c->uploads)))
        feed_end(c);
    if (c->answered)
        return;
    if (u->refusal && upload_queue_is_empty(c->uploads)) {
        call_fail(c, 400, "%s", u->refusal);
        return;
    }
    if (u->all_fed && upload_queue_is_empty(c->uploads)) {
        buf_append_cstr(&u->uploaded, buf_len(&u->uploaded) ? "]" : "[]");
        call_json_buf(c, 200, &u->uploaded);
        return;
    }
    if (u->body_ended)
        return;
    if (upload_queue_is_busy(c->uploads) || buf_len(&u->packed))
        http_pause_body(c->req);
    else
        http_resume_body(c->req);
}

static const struct upload_queue_ops queue_callbacks = {envd_upload_on_written, envd_upload_advance};

static void envd_upload_on_data(struct call *c, struct str data)
{
    struct upload_state *u = c->state;
    if (u->gunzip && buf_append_str(&u->packed, data) < 0)
        call_fail(c, 500, "the body came faster than it was asked for");
    else if (!u->gunzip)
        feed(c, data);
    if (!c->answered)
        envd_upload_advance(c);
}

static void on_body_end(struct call *c)
{
    ((struct upload_state *)c->state)->body_ended = true;
    envd_upload_advance(c);
}

static const struct call_body_ops body_callbacks = {envd_upload_on_data, on_body_end};

/* ---- the request ---- */

static bool is_type(struct str content_type, struct str wanted)
{
    struct str type = str_trim(str_before(content_type, ';'));
    return type.n >= wanted.n && str_eq_nocase(str_n(type.p, wanted.n), wanted);
}

/* False: answered. */
static bool open_encoding(struct call *c)
{
    struct str encoding = http_header_get(c->req, "content-encoding");
    struct upload_state *u = c->state;
    if (encoding.n == 0 || str_eq_nocase(encoding, STR("identity")))
        return true;
    if (!str_eq_nocase(encoding, STR("gzip")))
        return call_fail(c, 400,
                         "error decompressing request body: unsupported Content-Encoding: %.*s, supported: [gzip]",
                         STR_ARG(encoding));
    u->gunzip = gunzip_new(UINT64_MAX, RATIO_MAX);
    return true;
}

static bool open_content(struct call *c)
{
    struct str type = http_header_get(c->req, "content-type");
    struct upload_state *u = c->state;
    if (is_type(type, STR("application/octet-stream"))) {
        if (u->query.path.p)
            return begin_file(c, u->query.path);
        call_fail(c, 400, "path query parameter is required for raw body upload");
    } else if (!is_type(type, STR("multipart/"))) {
        call_fail(c, 400, "unsupported content type: %.*s, expected multipart/form-data or application/octet-stream",
                  STR_ARG(type));
    } else if (multipart_new(type, &multipart_callbacks, NULL, c, &u->multipart) < 0) {
        call_fail(c, 400, "error parsing multipart form: no valid boundary in Content-Type");
    } else {
        return true;
    }
    return false;
}

void envd_upload(struct call *c)
{
    const struct pair *metadata = NULL;
    struct files_query query;
    size_t n_metadata = 0;
    if (!files_begin(c, FILES_WRITE, &query))
        return;
    if (!call_ok(c, file_metadata_read(c->req, &metadata, &n_metadata, &c->err)))
        return;
    struct upload_state *u = call_state(c, sizeof(*u), envd_upload_cleanup);
    u->query = query;
    buf_init(&u->packed, PACKED_MAX);
    buf_init(&u->uploaded, UPLOADED_MAX);
    upload_queue_make(c, c->user, metadata, n_metadata, &queue_callbacks);
    if (open_encoding(c) && open_content(c))
        call_stream_body(c, &body_callbacks);
}
