/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates: lists and look-ups. What E2B tells of a template and is not known here is told as what it is here: every template belongs to the
 * one owner of the installation (not public, made by nobody in particular), was built once as it stands, and uses are not counted.
 */
#include "api/e2b/control.h"
#include "api/e2b/create_spec.h"
#include "api/e2b/list_query.h"
#include "http/url.h"
#include "sandbox/templates.h"

#include <inttypes.h>

enum { BUILD_ID_MAX = 37 };

/* A build is known by what it made: the beginning of the layer's digest in the form of a UUID, version 8 ("custom", RFC 9562). */
static const char *build_id(const struct template *t, char text[static BUILD_ID_MAX])
{
    const char *hex = t->layer + strlen("sha256-");
    size_t n = 0;

    for (size_t i = 0; i < 32; i++) {
        if (i == 8 || i == 12 || i == 16 || i == 20)
            text[n++] = '-';
        text[n++] = i == 12 ? '8' : i == 16 ? "89ab"[hex[i] & 3] : hex[i];
    }
    text[n] = '\0';
    return text;
}

/* An alias as it is written, without its tag; and without its namespace when `bare`. */
static struct str name_of(const char *alias, bool bare)
{
    struct str name = str_of(alias);
    ssize_t colon = str_find_char(name, ':'), slash;

    if (colon >= 0)
        name.n = (size_t)colon;
    slash = str_find_char(name, '/');
    return bare && slash >= 0 ? str_sub(name, (size_t)slash + 1) : name;
}

static void append_names(struct buf *b, const char *field, const struct template *t, bool bare)
{
    size_t n = 0;

    buf_printf(b, ",\"%s\":[", field);
    for (size_t i = 0; i < t->n_aliases; i++) {
        struct str name = name_of(t->aliases[i], bare);
        bool is_new = true;

        for (size_t k = 0; k < i && is_new; k++)
            is_new = !str_eq(name, name_of(t->aliases[k], bare));
        if (!is_new)
            continue;
        if (n++)
            buf_append_char(b, ',');
        buf_append_json_string(b, name);
    }
    buf_append_char(b, ']');
}

/* What a template and its build have in common. */
static void append_common(struct buf *b, const struct core *core, const struct template *t)
{
    char id[BUILD_ID_MAX], built[CLOCK_TEXT_MAX];

    clock_format(t->built, 3, built);
    buf_printf(b,
               "\"buildID\":\"%s\",\"cpuCount\":%u,\"memoryMB\":%" PRIu64 ",\"diskSizeMB\":%" PRIu64
               ",\"envdVersion\":\"" ENVD_VERSION "\",\"createdAt\":\"%s\",\"updatedAt\":\"%s\"",
               build_id(t, id), (core_template_cpu_milli(core, t) + 999) / 1000,
               core_template_memory_bytes(core, t) >> 20, t->disk_bytes >> 20, built, built);
}

static void append_template(struct buf *b, const struct core *core, const struct template *t)
{
    buf_append_cstr(b, "{\"templateID\":");
    buf_append_json_string(b, str_of(t->id));
    append_names(b, "aliases", t, true);
    append_names(b, "names", t, false);
    buf_append_char(b, ',');
    append_common(b, core, t);
    buf_append_cstr(b, ",\"public\":false,\"createdBy\":null,\"lastSpawnedAt\":null,\"spawnCount\":0,\"buildCount\":1,"
                       "\"buildStatus\":\"ready\"}");
}

/* ---- lists ---- */

struct listing {
    const struct core *core;
    struct buf b;
    const char *after; /* an id; NULL: from the first */
    size_t limit, n;
    const char *last;
    bool more;
};

static bool list_one(void *ctx, const struct template *t)
{
    struct listing *l = ctx;

    if (l->after && strcmp(t->id, l->after) <= 0)
        return true;
    if (l->n == l->limit) {
        l->more = true;
        return false;
    }
    if (l->n++)
        buf_append_char(&l->b, ',');
    append_template(&l->b, l->core, t);
    l->last = t->id;
    return true;
}

static void answer_list(struct call *c, struct listing *l)
{
    l->core = c->e2b->core;
    buf_append_char(&l->b, '[');
    core_templates_each(c->e2b->core, list_one, l);
    buf_append_char(&l->b, ']');
    if (l->more)
        http_add_header(c->req, STR("x-next-token"), str_of(l->last));
    call_json_buf(c, 200, &l->b);
    buf_fini(&l->b);
}

void control_templates(struct call *c)
{
    struct listing l = {.b = BUF_INIT(REPLY_MAX), .limit = SIZE_MAX};

    answer_list(c, &l);
}

void control_templates_v2(struct call *c)
{
    struct listing l = {.b = BUF_INIT(REPLY_MAX), .limit = LIST_LIMIT_MAX};
    struct str query = http_query(c->req), value;
    uint64_t limit;
    int r = url_query_get(http_arena(c->req), query, "limit", &value);

    if (r != 0) {
        if (r < 0 || str_to_u64(value, &limit) < 0 || limit < 1 || limit > LIST_LIMIT_MAX) {
            call_fail(c, 400, "Invalid format for parameter limit: number must be between 1 and %d", LIST_LIMIT_MAX);
            return;
        }
        l.limit = (size_t)limit;
    }
    r = url_query_get(http_arena(c->req), query, "nextToken", &value);
    if (r < 0 || (r && value.n > TEMPLATE_NAME_MAX)) {
        call_fail(c, 400, "Invalid next token");
        return;
    }
    l.after = r && value.n ? arena_strndup(http_arena(c->req), value.p, value.n) : NULL;
    answer_list(c, &l);
}

/* ---- one ---- */

/* The one that args[0] names; NULL: answered. */
static const struct template *find(struct call *c)
{
    const struct template *t;
    struct str ref;
    struct err err;

    if (template_ref_read(c->args[0], http_arena(c->req), &ref, &err) == 0 &&
        core_template_find(c->e2b->core, ref, &t, &err) == 0)
        return t;
    call_fail_err(c, &err);
    return NULL;
}

void control_template(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(REPLY_MAX);
    const struct template *t = find(c);
    char built[CLOCK_TEXT_MAX];

    if (!t)
        return;
    clock_format(t->built, 3, built);
    buf_append_cstr(&b, "{\"templateID\":");
    buf_append_json_string(&b, str_of(t->id));
    append_names(&b, "aliases", t, true);
    append_names(&b, "names", t, false);
    buf_printf(&b,
               ",\"public\":false,\"createdAt\":\"%s\",\"updatedAt\":\"%s\",\"lastSpawnedAt\":null,\"spawnCount\":0,"
               "\"builds\":[{\"status\":\"ready\",\"finishedAt\":\"%s\",",
               built, built, built);
    append_common(&b, c->e2b->core, t);
    buf_append_cstr(&b, "}]}");
    call_json_buf(c, 200, &b);
}

void control_template_alias(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(1024);
    const struct template *t = find(c);

    if (!t)
        return;
    buf_append_cstr(&b, "{\"templateID\":");
    buf_append_json_string(&b, str_of(t->id));
    buf_append_cstr(&b, ",\"public\":false}");
    call_json_buf(c, 200, &b);
}
