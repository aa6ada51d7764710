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
    if (json_get_str(c->body, "target", &target, &err) < 0 ||
        json_get_strs(c->body, "tags", http_arena(c->req), &tags, &n, &err) < 0) {
        call_fail(c, 400, "Invalid request body: %s", err.msg);
        return;
    }
    if (n == 0) {
        call_fail(c, 400, "At least one tag is required");
        return;
    }
    if (template_name_parse(target, &name, &err) < 0) {
        call_fail(c, 400, "Invalid target template format: %s", err.msg);
        return;
    }
    if (core_template_tag(call_core(c), &c->actor, target, tags, n, &build, &err) < 0) {
        call_fail_err(c, &err);
        return;
    }
    buf_printf(&b, "{\"buildID\":\"%s\",\"tags\":[", build);
    for (size_t i = 0; i < n; i++) {
        char tag[TEMPLATE_NAME_MAX + 1];
        if (template_tag_parse(tags[i], tag, &err) < 0)
            continue;
        if (i)
            buf_append_char(&b, ',');
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
    struct err err;
    if (json_get_str(c->body, "name", &name, &err) < 0 ||
        json_get_strs(c->body, "tags", http_arena(c->req), &tags, &n, &err) < 0) {
        call_fail(c, 400, "Invalid request body: %s", err.msg);
        return;
    }
    if (core_template_untag(call_core(c), &c->actor, name, tags, n, &err) < 0)
        call_fail_err(c, &err);
    else if (templates_committed(c))
        call_empty(c, 204);
}

void templates_tags_list(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(REPLY_MAX);
    struct template_info info;
    char at[CLOCK_TEXT_MAX];
    if (!templates_find(c, c->args[0], &info))
        return;
    buf_append_char(&b, '[');
    if (info.file) {
        clock_format(info.created, 3, at);
        buf_printf(&b, "{\"tag\":\"" TEMPLATE_TAG_DEFAULT "\",\"buildID\":\"%s\",\"createdAt\":\"%s\"}",
                   info.file->build_id, at);
    }
    for (size_t i = 0; i < info.n_tags; i++) {
        clock_format(info.tags[i].created, 3, at);
        buf_append_cstr(&b, i ? ",{\"tag\":" : "{\"tag\":");
        buf_append_json_string(&b, str_of(info.tags[i].tag));
        buf_printf(&b, ",\"buildID\":\"%s\",\"createdAt\":\"%s\"}", info.tags[i].build_id, at);
    }
    buf_append_char(&b, ']');
    call_json_buf(c, 200, &b);
}
