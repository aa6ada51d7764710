/* SPDX-License-Identifier: Apache-2.0 */
/* Tags of templates. */
#include "api/e2b/templates/templates.h"
#include "sandbox/templates.h"
#include "template/name.h"

void templates_tags_add(struct call *c)
{
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
    json_t *shown = json_array();
    AUTO_JSON json_t *answer = json_pack("{s:s,s:o}", "buildID", build, "tags", shown);
    for (size_t i = 0; tags && i < n; i++) {
        char tag[TEMPLATE_NAME_MAX + 1];
        if (template_tag_parse(tags[i], tag, &err) == 0)
            (void)json_array_append_new(shown, json_string(tag));
    }
    if (templates_committed(c))
        call_value(c, 201, json_incref(answer));
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

static void templates_tags_add_one(json_t *all, const char *tag, const char *build, usec_t at)
{
    (void)json_array_append_new(
        all, json_pack("{s:s,s:s?,s:o}", "tag", tag, "buildID", build, "createdAt", templates_time(at)));
}

void templates_tags_list(struct call *c)
{
    struct template_info info;
    if (!templates_find(c, c->args[0], &info))
        return;
    json_t *all = json_array();
    if (info.file)
        templates_tags_add_one(all, TEMPLATE_TAG_DEFAULT, info.file->build_id, info.created);
    for (size_t i = 0; i < info.n_tags; i++)
        templates_tags_add_one(all, info.tags[i].tag, info.tags[i].build_id, info.tags[i].created);
    call_value(c, 200, all);
}
