/* SPDX-License-Identifier: Apache-2.0 */
/* What a build begins with: a template that is here, or an image that is fetched and given what sandboxes need. */
#include "base/systemctl.h"
#include "build/internal.h"
#include "template/name.h"

#define BASE_TEMPLATE "base"
#define USER_DEFAULT "user"

static void from_template(struct build_job *j, const char *ref)
{
    const struct template *t;
    struct err err;
    if (template_resolve(core_templates(j->b->config.core), j->actor.who.view, str_of(ref), &t, NULL, &err) < 0) {
        job_fail(j, "%s", err.msg);
        return;
    }
    if (strlen(t->layer) >= sizeof(j->layer) || build_context_set_lines(&j->ctx, t->envs, t->n_envs, &err) < 0) {
        job_fail(j, "template '%s' can't be built on", ref);
        return;
    }
    memcpy(j->layer, t->layer, strlen(t->layer) + 1);
    build_context_set_workdir(&j->ctx, t->workdir);
    build_context_set_user(&j->ctx, t->user ? t->user : USER_DEFAULT);
    j->template_ref = arena_strdup(&j->arena, ref);
    j->from_start = arena_strdup(&j->arena, t->start_cmd);
    j->from_ready = arena_strdup(&j->arena, t->ready_cmd);
    j->from_cpu_milli = t->cpu_milli;
    j->from_memory_bytes = t->memory_bytes;
    j->size_bytes = t->size_bytes;
    j->is_size_known = t->size_bytes != 0;
    AUTO_BUF struct buf context = BUF_INIT(8 << 20);
    build_context_format(&j->ctx, &context);
    build_key_add(j->key, (struct str[]){STR("template"), str_of(j->layer), buf_str(&context)}, 3);
    job_log(j, TEMPLATE_INFO, "[base] FROM template %s [%.19s]", ref, j->layer);
    job_steps(j);
}

static struct str without_default(const char *ref)
{
    struct str s = str_of(ref), end = STR(":" TEMPLATE_TAG_DEFAULT);
    return str_ends(s, end) ? str_n(s.p, s.n - end.n) : s;
}

/*
 * Does FROM mean a template that is here? By id or by its name, as everywhere; but with a namespace only in exactly
 * these words: "someone/tool" is somebody's image when the template is called "tool".
 */
static bool is_template(struct build_job *j, const char *ref)
{
    struct template_registry *r = core_templates(j->b->config.core);
    const struct template *t;
    struct template_info info;
    struct err ignored;
    bool has_space = strchr(ref, '/') != NULL;
    if (template_resolve(r, j->actor.who.view, str_of(ref), &t, NULL, &ignored) < 0) {
        if (!has_space && template_info_find(r, j->actor.who.view, str_of(ref), &info, &ignored) == 0)
            job_log(j, TEMPLATE_WARN,
                    "[base] the template of that name has no finished build of that tag: FROM %.200s is taken as an "
                    "image",
                    ref);
        return false;
    }
    bool is_same = !has_space;
    for (size_t i = 0; i < t->n_aliases && !is_same; i++)
        is_same = str_eq(without_default(t->aliases[i]), without_default(ref));
    return is_same;
}

/* As people write it, and as it is meant: without "docker.io/" and "library/", with a tag. */
static struct str plain_image(struct build_job *j, const char *image)
{
    struct str s = str_of(image);
    if (str_starts(s, STR("docker.io/")))
        s = str_sub(s, strlen("docker.io/"));
    if (str_starts(s, STR("library/")))
        s = str_sub(s, strlen("library/"));
    bool has_tag = false;
    for (size_t i = s.n; i > 0 && s.p[i - 1] != '/' && !has_tag; i--)
        has_tag = s.p[i - 1] == ':' || s.p[i - 1] == '@';
    return str_of(arena_printf(&j->arena, has_tag ? "%.*s" : "%.*s:latest", STR_ARG(s)));
}

static const char *alias_of(struct build_job *j, const char *image)
{
    const struct builder_config *c = &j->b->config;
    struct str name = plain_image(j, image);
    for (size_t i = 0; i < c->n_aliases; i++)
        if (str_eq(name, plain_image(j, c->aliases[i].image)))
            return c->aliases[i].template_ref;
    return c->base_image && str_eqc(name, c->base_image) ? BASE_TEMPLATE : NULL;
}

/* ---- images ---- */

static void image_is_stored(struct build_job *j)
{
    job_tell_done(j, "done");
    job_steps(j);
}

static void account_done(struct build_job *j, int code, const struct err *err)
{
    if (err)
        job_fail(j, "the image can't run as a sandbox: %s", err->msg);
    else if (code)
        job_fail(j, "the image can't run as a sandbox: making the account 'user' ended with %d: %.200s", code,
                 j->process.output);
    else
        job_store(j, image_is_stored);
}

static void make_account(struct build_job *j)
{
    const char *args[] = {j->has_bash ? "/bin/bash" : "/bin/sh", script_systemctl, NULL};
    j->process.done = account_done;
    j->process.is_quiet = true;
    process_run(&j->process, j,
                &(struct build_command){
                    .shell_text = script_account, .args = args, .user = "root", .workdir = "/", .timeout_ms = 60000});
}

void base_have_image(struct build_job *j)
{
    build_context_set_user(&j->ctx, USER_DEFAULT);
    build_context_set_workdir(&j->ctx, "/home/user");
    j->ran = true;
    job_need_sandbox(j, make_account);
}

static void from_image(struct build_job *j)
{
    const char *name = j->spec.image ? j->spec.image : j->spec.archive;
    struct str parts[] = {j->spec.image ? STR("image") : STR("archive"), str_of(name), str_of(j->spec.username)};
    build_key_add(j->key, parts, ARRAY_SIZE(parts));
    /* What was fetched with a password is found again by whoever has it, while this process lives. */
    if (j->spec.password)
        build_key_add(j->key,
                      (struct str[]){STR("password"), str_n((const char *)j->b->salt, sizeof(j->b->salt)),
                                     str_of(j->spec.password)},
                      3);
    j->template_ref = BASE_TEMPLATE;
    if (!j->spec.force && job_recall(j)) {
        job_tell_cached(j, arena_printf(&j->arena, "FROM image %.200s", name));
        job_steps(j);
        return;
    }
    job_log(j, TEMPLATE_INFO, "[base] FROM image %.200s", name);
    image_start(j);
}

void base_start(struct build_job *j)
{
    const char *from = j->spec.from;
    j->from_cpu_milli = 0;
    j->from_memory_bytes = 0;
    /* What one tenant's steps left is not another's, however alike they are. */
    if (j->actor.who.tenant)
        build_key_add(j->key,
                      (struct str[]){STR("tenant"), str_n((const char *)&j->actor.who.tenant, sizeof(uint64_t))}, 2);
    if (from && is_template(j, from)) {
        job_log(j, TEMPLATE_INFO, "[base] %.200s is a template here; the image of that name is docker.io/%s%.200s",
                from, strchr(from, '/') ? "" : "library/", from);
        from_template(j, from);
        return;
    }
    if (from)
        j->spec.image = from;
    const char *alias = j->spec.image ? alias_of(j, j->spec.image) : NULL;
    if (alias)
        job_log(j, TEMPLATE_INFO, "[base] the template %s stands for the image %.200s here", alias, j->spec.image);
    if (j->spec.template_ref || alias)
        from_template(j, alias ? alias : j->spec.template_ref);
    else
        from_image(j);
}
