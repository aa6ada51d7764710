/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a sandbox. */
#include "api/mcp/handlers.h"

enum { DEPTH_MAX = 16 };

/* ---- reading ---- */

static void bytes_closed(struct call *c)
{
    file_body_fini(&((struct file_bytes *)mcp_call_of(c)->own)->body);
}

static void bytes_read(struct file_body *body, const struct file_entry *entry UNUSED, const struct err *err)
{
    struct file_bytes *f = container_of(body, struct file_bytes, body);
    if (err && !(f->may_miss && err->code == ERR_NOT_FOUND))
        call_fail_err(body->call, err);
    else
        f->done(body->call, f);
}

void file_bytes_read(struct call *c, struct str path, uint64_t offset, size_t max, struct file_bytes *f)
{
    file_body_init(&f->body, c, max + 65536);
    f->body.done = bytes_read;
    mcp_call_of(c)->own = f;
    mcp_call_of(c)->cleanup = bytes_closed;
    file_body_begun(&f->body, file_read(c->sandbox, &c->actor, mcp_user(c, STR("")), mcp_path(c, path), offset, max + 1,
                                        FILE_BODY(&f->body, &file_body_text)));
}

struct mcp_reading {
    struct file_bytes f;
    int64_t offset, first, last;
};

static struct str take_lines(struct str all, int64_t first, int64_t last)
{
    const char *from = all.p, *end = all.p + all.n;
    for (int64_t line = 1; line < first && from < end; line++) {
        const char *next = memchr(from, '\n', (size_t)(end - from));
        from = next ? next + 1 : end;
    }
    const char *to = from;
    for (int64_t line = MAX(first, (int64_t)1); line <= last && to < end; line++) {
        const char *next = memchr(to, '\n', (size_t)(end - to));
        to = next ? next + 1 : end;
    }
    return str_n(from, (size_t)(to - from));
}

static void reading_done(struct call *c, struct file_bytes *f)
{
    const struct mcp_reading *r = container_of(f, struct mcp_reading, f);
    uint64_t offset = (uint64_t)r->offset;
    bool has_lines = r->first || r->last, is_long = buf_len(&f->body.b) > MCP_FILE_MAX;
    struct str bytes = buf_str(&f->body.b);
    if (has_lines && is_long) {
        call_refuse(c, ERR_OUT_OF_RANGE, "the file is too long to count lines: read it by offset");
        return;
    }
    if (has_lines) {
        bytes = take_lines(bytes, r->first, r->last ? r->last : INT64_MAX);
        offset = bytes.n ? (uint64_t)(bytes.p - buf_data(&f->body.b)) : 0;
    }
    bool is_cut = bytes.n > MCP_TEXT_MAX;
    struct str shown = is_cut ? mcp_cut(bytes, MCP_TEXT_MAX) : bytes;
    uint64_t next = offset + shown.n;
    json_t *content = json_pack("{s:I,s:I}", "size", (json_int_t)f->body.size, "offset", (json_int_t)offset);
    if (is_cut)
        (void)json_object_set_new(content, "next", json_integer((json_int_t)next));
    if (str_is_utf8(shown) && !str_has_nul(shown)) {
        (void)json_object_set_new(content, "content", call_text(shown));
        tool_result(c, content, shown.n ? shown : STR(""));
        return;
    }
    AUTO_BUF struct buf base64 = BUF_INIT(2 * MCP_TEXT_MAX);
    buf_append_base64(&base64, shown);
    (void)json_object_set_new(content, "base64", call_text(buf_str(&base64)));
    tool_result(c, content, STR_NULL);
}

void file_read_tool(struct call *c)
{
    struct mcp_reading *r = arena_alloc(http_arena(c->req), sizeof(*r));
    struct str path = STR("");
    *r = (struct mcp_reading){.f.done = reading_done};
    if (TOOL_WANTS(c, JSON_NEED_STR("path", &path), JSON_WANT_INT("offset", 0, INT64_MAX / 2, &r->offset),
                   JSON_WANT_INT("start_line", 1, INT32_MAX, &r->first),
                   JSON_WANT_INT("end_line", 1, INT32_MAX, &r->last)))
        file_bytes_read(c, path, (uint64_t)r->offset, r->first || r->last ? MCP_FILE_MAX : MCP_TEXT_MAX, &r->f);
}

/* ---- writing ---- */

struct mcp_writing {
    struct file_bytes f;
    struct str path, search, replace;
    struct buf bytes;
    struct file_body to;
    size_t replaced;
    int64_t which;
    bool all;
};

static struct mcp_writing *writing_of(struct call *c)
{
    return container_of((struct file_bytes *)mcp_call_of(c)->own, struct mcp_writing, f);
}

static void writing_closed(struct call *c)
{
    struct mcp_writing *w = writing_of(c);
    file_body_fini(&w->f.body);
    buf_fini(&w->bytes);
}

static void writing_done(struct file_body *body, const struct file_entry *entry, const struct err *err)
{
    struct call *c = body->call;
    size_t replaced = container_of(body, struct mcp_writing, to)->replaced;
    if (err) {
        call_fail_err(c, err);
        return;
    }
    json_t *content = json_pack("{s:o,s:I}", "path", call_text(entry->path), "size", (json_int_t)entry->size);
    if (replaced)
        (void)json_object_set_new(content, "replaced", json_integer((json_int_t)replaced));
    tool_result(c, content, STR_NULL);
}

static void writing_step(struct call *c)
{
    struct mcp_writing *w = writing_of(c);
    w->to = (struct file_body){.call = c, .done = writing_done, .bytes = buf_str(&w->bytes)};
    file_body_begun(&w->to, file_write(c->sandbox, &c->actor, mcp_user(c, STR("")), mcp_path(c, w->path), NULL, 0,
                                       FILE_BODY(&w->to, &file_body_bytes)));
}

static struct mcp_writing *writing_new(struct call *c)
{
    struct mcp_writing *w = arena_alloc(http_arena(c->req), sizeof(*w));
    *w = (struct mcp_writing){.which = 0};
    buf_init(&w->bytes, 8 * MCP_FILE_MAX);
    mcp_call_of(c)->own = &w->f;
    mcp_call_of(c)->cleanup = writing_closed;
    return w;
}

void file_write_tool(struct call *c)
{
    struct mcp_writing *w = writing_new(c);
    struct str content = STR_NULL;
    bool is_base64 = false;
    if (!TOOL_WANTS(c, JSON_NEED_STR("path", &w->path), JSON_WANT_STR("content", &content),
                    JSON_WANT_BOOL("base64", &is_base64)))
        return;
    if (!content.p)
        call_refuse(c, ERR_INVALID_ARGUMENT, "content is missing");
    else if ((is_base64 ? buf_append_unbase64(&w->bytes, content) : buf_append_str(&w->bytes, content)) < 0)
        call_refuse(c, ERR_INVALID_ARGUMENT, "the content is not base64");
    else
        writing_step(c);
}

static void edit_read(struct call *c, struct file_bytes *f)
{
    struct mcp_writing *w = container_of(f, struct mcp_writing, f);
    struct str rest = buf_str(&f->body.b);
    int64_t n = 0;
    if (rest.n > MCP_FILE_MAX) {
        call_refuse(c, ERR_OUT_OF_RANGE, "the file is larger than %d bytes: edit it with a command", MCP_FILE_MAX);
        return;
    }
    for (const char *at; rest.n && (at = memmem(rest.p, rest.n, w->search.p, w->search.n));) {
        bool is_wanted = w->all || !w->which || ++n == w->which;
        w->replaced += is_wanted;
        (void)buf_append_str(&w->bytes, str_n(rest.p, (size_t)(at - rest.p)));
        (void)buf_append_str(&w->bytes, is_wanted ? w->replace : w->search);
        rest = str_sub(rest, (size_t)(at - rest.p) + w->search.n);
    }
    (void)buf_append_str(&w->bytes, rest);
    if (!w->replaced)
        call_refuse(c, ERR_NOT_FOUND, "the text isn't in the file%s", w->which ? " that often" : "");
    else if (w->replaced > 1 && !w->all)
        call_refuse(c, ERR_FAILED_PRECONDITION,
                    "the text is in the file %zu times: say which, or more of what is around it", w->replaced);
    else if (buf_error(&w->bytes))
        call_refuse(c, ERR_OUT_OF_RANGE, "the file would become too large to edit here");
    else
        call_step(c, writing_step);
}

void file_edit_tool(struct call *c)
{
    struct mcp_writing *w = writing_new(c);
    struct str which = STR_NULL;
    uint64_t number = 0;
    if (!TOOL_WANTS(c, JSON_NEED_STR("path", &w->path), JSON_NEED_STR("search", &w->search),
                    JSON_WANT_STR("replace", &w->replace), JSON_WANT_STR("which", &which),
                    JSON_WANT_BOOL("all", &w->all)))
        return;
    if (which.n && (str_to_u64(which, &number) < 0 || !number || number > INT32_MAX)) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "which must be a number, starting from 1");
        return;
    }
    w->which = (int64_t)number;
    w->f.done = edit_read;
    file_bytes_read(c, w->path, 0, MCP_FILE_MAX, &w->f);
    mcp_call_of(c)->cleanup = writing_closed;
}

/* ---- the others ---- */

static void file_deleted(struct call *c, const struct file_entry *entry UNUSED)
{
    tool_result(c, json_pack("{s:b}", "deleted", 1), STR_NULL);
}

void file_delete_tool(struct call *c)
{
    struct str path = STR("");
    if (TOOL_WANTS(c, JSON_NEED_STR("path", &path)))
        call_ok(
            c, file_remove(c->sandbox, &c->actor, mcp_user(c, STR("")), mcp_path(c, path), CALL_FILE(c, file_deleted)));
}

struct mcp_listing {
    json_t *entries;
    int64_t cursor, seen;
};

static void listing_closed(struct call *c)
{
    json_decref(((struct mcp_listing *)mcp_call_of(c)->own)->entries);
}

static void listing_each(void *ctx, const struct file_entry *e)
{
    struct mcp_listing *l = mcp_call_of(ctx)->own;
    static const char *const types[] = {[WIRE_FILE_REGULAR] = "file", [WIRE_FILE_DIRECTORY] = "directory"};
    if (l->seen++ < l->cursor || json_array_size(l->entries) == MCP_ITEMS_MAX)
        return;
    (void)json_array_append_new(
        l->entries, json_pack("{s:o,s:s,s:I,s:o*}", "path", call_text(e->path), "type",
                              e->is_link                                         ? "link"
                              : e->type <= WIRE_FILE_DIRECTORY && types[e->type] ? types[e->type]
                                                                                 : "other",
                              "size", (json_int_t)e->size, "target", e->is_link ? call_text(e->target) : NULL));
}

static void listing_done(struct call *c, const struct file_entry *entry UNUSED)
{
    struct mcp_listing *l = mcp_call_of(c)->own;
    int64_t next = l->cursor + (int64_t)json_array_size(l->entries);
    json_t *content = json_pack("{s:O}", "entries", l->entries);
    if (next < l->seen)
        (void)json_object_set_new(content, "next", json_integer(next));
    tool_result(c, content, STR_NULL);
}

void file_list_tool(struct call *c)
{
    struct mcp_listing *l = arena_alloc(http_arena(c->req), sizeof(*l));
    struct str path = STR("");
    int64_t depth = 1;
    *l = (struct mcp_listing){.entries = NULL};
    if (!TOOL_WANTS(c, JSON_NEED_STR("path", &path), JSON_WANT_INT("depth", 1, DEPTH_MAX, &depth),
                    JSON_WANT_INT("cursor", 0, INT32_MAX, &l->cursor)))
        return;
    l->entries = json_array();
    mcp_call_of(c)->own = l;
    mcp_call_of(c)->cleanup = listing_closed;
    call_ok(c, file_list(c->sandbox, &c->actor, mcp_user(c, STR("")), mcp_path(c, path), (uint32_t)depth, listing_each,
                         CALL_FILE(c, listing_done)));
}
