/* SPDX-License-Identifier: Apache-2.0 */
/* Tags of templates. */
#include "api/e2b/templates/templates.h"
#include "sandbox/templates.h"
#include "template/name.h"

void templates_tags_add(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    const struct str *tags = NULL;
    struct str target = STR_NULL;
    struct template_name name;
    const char *build;
    size_t n = 0;
    struct err err;
    c->body_error = "Invalid request body: ";
    if (!CALL_WANTS(c, JSON_WANT_STR("target", &target), JSON_WANT_STRS("tags", &tags, &n)))
        return;
    if (n == 0) {
        call_fail(c, 400, "At least one tag is required");
        return;
    }
    if (template_name_parse(target, &name, &err) < 0) {
        call_fail(c, 400, "Invalid target template format: %s", err.msg);
        return;
    }
    if (!call_ok(c, core_template_tag(call_core(c), &c->actor, target, tags, n, &build, &c->err)))
        return;
    buf_printf(&b, "{\"buildID\":\"%s\",\"tags\":[", build);
    for (size_t i = 0; tags && i < n; i++) {
        char tag[TEMPLATE_NAME_MAX + 1];
        if (template_tag_parse(tags[i], tag, &err) < 0)
            continue;
        json_put_comma(&b);
        buf_append_json_string(&b, str_of(tag));
    }
    buf_append_cstr(&b, "]}");
    if (templates_committed(c))
        call_json(c, 201, buf_str(&b));
}

void templates_tags_remove(struct call *c)
{
    const struct str *tags = NULL;
    struct str name = STR_NULL;
    size_t n = 0;
    c->body_error = "Invalid request body: ";
    if (CALL_WANTS(c, JSON_WANT_STR("name", &name), JSON_WANT_STRS("tags", &tags, &n)) &&
        call_ok(c, core_template_untag(call_core(c), &c->actor, name, tags, n, &c->err)) && templates_committed(c))
        call_empty(c, 204);
}

static void templates_tags_append_tag(struct buf *b, const char *tag, const char *build, usec_t at)
{
    json_open(b, "tag", str_of(tag));
    json_put_text(b, "buildID", build);
    json_put_time(b, "createdAt", at, 3);
    buf_append_char(b, '}');
}

void templates_tags_list(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(REPLY_MAX);
    struct template_info info;
    if (!templates_find(c, c->args[0], &info))
        return;
    buf_append_char(&b, '[');
    if (info.file)
        templates_tags_append_tag(&b, TEMPLATE_TAG_DEFAULT, info.file->build_id, info.created);
    for (size_t i = 0; i < info.n_tags; i++)
        templates_tags_append_tag(&b, info.tags[i].tag, info.tags[i].build_id, info.tags[i].created);
    buf_append_char(&b, ']');
    call_json_buf(c, 200, &b);
}
