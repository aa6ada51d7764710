/* SPDX-License-Identifier: Apache-2.0 */
/* Images: templates by another name. What is pulled is built, from that image and nothing else, unless it is there. */
#include "api/docker/handlers.h"
#include "api/kit/pull.h"
#include "base/mem.h"
#include "build/builder.h"
#include "sandbox/templates.h"

static struct template_registry *image_registry(const struct call *c)
{
    return core_templates(call_core(c));
}

/* The template; NULL: answered, there is none. */
static const struct template *image_find(struct call *c, struct str image)
{
    AUTO_FREE char *name = docker_template(arena_str(http_arena(c->req), image).p);
    const struct template *t;
    if (core_template_find(call_core(c), c->actor.who.view, str_of(name), &t, &c->err) == 0)
        return t;
    call_refuse(c, ERR_NOT_FOUND, "No such image: %.*s", (int)MIN(image.n, (size_t)200), image.p);
    return NULL;
}

/* ---- the list ---- */

struct image_list {
    struct str wanted; /* a template's name; p NULL: all */
    json_t *shown;
};

static void image_add(struct image_list *l, const struct template_info *info, const char *tag)
{
    const struct template *t = info->file ? info->file : info->build->made;
    bool is_default = !tag || strcmp(tag, "default") == 0;
    const char *name = info->name ? info->name : info->id;
    AUTO_FREE char *shown = mem_printf("%s:%s", name, is_default ? "latest" : tag);
    if (l->wanted.p && !str_eqc(l->wanted, is_default ? name : shown))
        return;
    (void)json_array_append_new(
        l->shown, json_pack("{s:s, s:s, s:[s], s:[], s:I, s:I, s:I, s:{}, s:i}", "Id", info->id, "ParentId", "",
                            "RepoTags", shown, "RepoDigests", "Created",
                            (json_int_t)((info->updated ? info->updated : t->built) / USEC_PER_SEC), "Size",
                            (json_int_t)t->size_bytes, "SharedSize", (json_int_t)-1, "Labels", "Containers", -1));
}

static bool image_list_one(void *ctx, const struct template_info *info)
{
    if (info->is_snapshot || (!info->file && !(info->build && info->build->made)))
        return true;
    for (size_t i = 0; i < info->n_tags; i++)
        image_add(ctx, info, info->tags[i].tag);
    if (!info->n_tags)
        image_add(ctx, info, NULL);
    return true;
}

/* {"reference": ["name"]}, or {"reference": {"name": true}}. */
static int image_read_filters(struct call *c, struct image_list *l, struct err *err)
{
    static const char *const known[] = {"reference", "dangling"};
    AUTO_JSON json_t *filters = NULL;
    struct str text = STR("");
    (void)call_query(c, "filters", &text);
    if (json_read_object(text, true, &filters, err) < 0 || json_only(filters, known, ARRAY_SIZE(known), err) < 0)
        return err_prefix(err, "filters");
    json_t *values = json_object_get(filters, "reference");
    const char *name = json_is_object(values) ? json_object_iter_key(json_object_iter(values))
                                              : json_string_value(json_array_get(values, 0));
    if (json_array_size(values) + json_object_size(values) > 1 || (name && strpbrk(name, "*?[")))
        return err_set(err, ERR_INVALID_ARGUMENT, "filters: reference is one name, without wildcards");
    AUTO_FREE char *wanted = name ? docker_template(name) : NULL;
    l->wanted = wanted ? arena_str(http_arena(c->req), str_of(wanted)) : STR_NULL;
    return 0;
}

void docker_images(struct call *c)
{
    struct image_list l = {0};
    if (!call_ok(c, image_read_filters(c, &l, &c->err)))
        return;
    l.shown = json_array();
    template_info_each(image_registry(c), c->actor.who.view, image_list_one, &l);
    call_value(c, 200, l.shown);
}

void docker_image(struct call *c)
{
    const struct template *t = image_find(c, c->args[0]);
    char built[CLOCK_TEXT_MAX];
    if (!t)
        return;
    clock_format(t->built, 6, built);
    call_value(c, 200,
               json_pack("{s:s, s:[s], s:[], s:s, s:s, s:I, s:{s:[], s:n, s:n, s:s, s:s, s:{}}}", "Id", t->id,
                         "RepoTags", c->args[0].p, "RepoDigests", "Created", built, "Os", "linux", "Size",
                         (json_int_t)t->size_bytes, "Config", "Env", "Cmd", "Entrypoint", "User",
                         t->user ? t->user : "", "WorkingDir", t->workdir ? t->workdir : "", "Labels"));
}

void docker_image_remove(struct call *c)
{
    const struct template *t = image_find(c, c->args[0]);
    if (!t)
        return;
    const char *id = arena_strdup(http_arena(c->req), t->id);
    if (!call_ok(c, core_template_remove(call_core(c), &c->actor, str_of(id), &c->err)))
        return;
    if (docker_of(c)->builder)
        builder_cancel_template(docker_of(c)->builder, id, "the template was removed");
    if (call_ok(c, core_templates_commit(call_core(c), &c->err)))
        call_value(c, 200, json_pack("[{s:s}, {s:s}]", "Untagged", c->args[0].p, "Deleted", id));
}

/* ---- pull ---- */

static void pull_say(struct call *c, json_t *line)
{
    AUTO_FREE char *text = json_dumps(line, JSON_COMPACT);
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    json_decref(line);
    buf_printf(&b, "%s\r\n", text ? text : "{}");
    (void)http_response_write(c->req, buf_str(&b));
}

static void pull_begin(struct call *c, const struct pull *p)
{
    (void)http_response_begin(c->req, 200, &HTTP_JSON, 1, -1);
    pull_say(c, json_pack("{s:s+, s:s}", "status", "Pulling ", p->spec.image, "id", p->name));
}

static void pull_end(struct call *c, const struct pull *p, const char *why)
{
    if (!p->build)
        pull_begin(c, p);
    if (why)
        pull_say(c, json_pack("{s:{s:s}, s:s}", "errorDetail", "message", why, "error", why));
    else
        pull_say(c, json_pack("{s:s+}", "status",
                              p->build ? "Status: Downloaded newer image for " : "Status: Image is up to date for ",
                              p->spec.image));
    call_end(c);
}

/* X-Registry-Auth: base64 for addresses, of JSON. */
static int pull_read_auth(struct call *c, struct build_spec *spec, struct err *err)
{
    struct arena *arena = http_arena(c->req);
    struct str text = arena_str(arena, http_header_get(c->req, "x-registry-auth")), user = STR(""), password = STR("");
    AUTO_BUF struct buf b = BUF_INIT(16 * 1024);
    AUTO_JSON json_t *auth = NULL;
    for (char *at = (char *)(uintptr_t)text.p; at && *at; at++)
        *at = (char)(*at == '-' ? '+' : *at == '_' ? '/' : *at);
    int r = buf_append_unbase64(&b, text) < 0 ? err_set(err, ERR_INVALID_ARGUMENT, "it is not base64")
                                              : json_read_object(buf_str(&b), true, &auth, err);
    if (r == 0)
        r = JSON_WANTS_OF(auth, arena, err, JSON_WANT_STR("username", &user), JSON_WANT_STR("password", &password));
    if (r == 0 && user.n) {
        spec->username = arena_str(arena, user).p;
        spec->password = arena_str(arena, password).p;
    }
    if (buf_len(&b))
        mem_wipe(buf_data(&b), buf_len(&b));
    return r < 0 ? err_prefix(err, "X-Registry-Auth") : 0;
}

void docker_image_pull(struct call *c)
{
    struct arena *arena = http_arena(c->req);
    struct pull *p = arena_alloc(arena, sizeof(*p));
    struct str from = STR(""), tag = STR(""), platform;
    (void)call_query(c, "fromImage", &from);
    (void)call_query(c, "tag", &tag);
    if (!from.n || (call_query(c, "platform", &platform) && platform.n)) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "write fromImage and tag: nothing is imported, for no other platform");
        return;
    }
    *p = (struct pull){.builder = docker_of(c)->builder, .begun = pull_begin, .done = pull_end};
    p->spec.image = !tag.n                            ? arena_str(arena, from).p
                    : str_starts(tag, STR("sha256:")) ? arena_printf(arena, "%.*s@%.*s", STR_ARG(from), STR_ARG(tag))
                                                      : arena_printf(arena, "%.*s:%.*s", STR_ARG(from), STR_ARG(tag));
    if (call_ok(c, pull_read_auth(c, &p->spec, &c->err)))
        pull_start(c, p);
}
