/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of builds, and what they share. */
#include "build/builder.h"
#include "base/id.h"
#include "base/log.h"
#include "base/mem.h"
#include "build/internal.h"

enum { TICK_MS = 50 };

static void builder_job_free(struct build_job *j)
{
    list_remove(&j->node);
    charge_release(&j->charge);
    build_context_fini(&j->ctx);
    arena_wipe(&j->arena); /* passwords of registries */
    MEM_FREE(j->denied, j);
}

static void builder_begin(struct builder *b, struct build_job *j)
{
    list_remove(&j->node);
    list_append(&b->running, &j->node);
    b->n_waiting--;
    b->n_running++;
    j->began = clock_mono();
    j->deadline = j->began + b->config.timeout_ms * USEC_PER_MS;
    job_start(j);
}

static void builder_on_tick(uv_timer_t *timer)
{
    struct builder *b = timer->data;
    usec_t now = clock_mono();
    LIST_FOREACH (struct build_job, j, &b->running, node)
        job_tick(j, now);
    if (list_empty(&b->running))
        (void)uv_timer_stop(timer);
}

static size_t builder_count(const struct list *jobs, uint64_t tenant)
{
    size_t n = 0;
    for (const struct list *it = jobs->next; it != jobs; it = it->next)
        n += container_of(it, const struct build_job, node)->actor.who.tenant == tenant;
    return n;
}

/* A tenant of which none runs doesn't wait for other tenants' hours: there are as many places again for those. */
static struct build_job *builder_next(struct builder *b)
{
    unsigned most = b->config.concurrency;
    LIST_FOREACH (struct build_job, j, &b->waiting, node)
        if (b->n_running < most || (b->n_running < 2 * most && !builder_count(&b->running, j->actor.who.tenant)))
            return j;
    return NULL;
}

static void on_go(uv_idle_t *idle)
{
    struct builder *b = idle->data;
    (void)uv_idle_stop(idle);
    LIST_FOREACH (struct build_job, over, &b->ended, node)
        if (!over->held)
            builder_job_free(over);
    struct build_job *j;
    while (!b->closing && (j = builder_next(b)))
        builder_begin(b, j);
    if (b->n_running && !uv_is_active((uv_handle_t *)b->tick))
        (void)uv_timer_start(b->tick, builder_on_tick, TICK_MS, TICK_MS);
}

/* While it closes: the last job that something held lets go of it. */
static void builder_collect(struct builder *b)
{
    LIST_FOREACH (struct build_job, j, &b->ended, node)
        if (!j->held)
            builder_job_free(j);
    if (list_empty(&b->ended)) {
        reports_free(b);
        mem_free(b);
    }
}

void builder_wake(struct builder *b)
{
    if (b->closing)
        builder_collect(b);
    else
        (void)uv_idle_start(b->go, on_go);
}

void builder_job_ended(struct build_job *j)
{
    struct builder *b = j->b;
    list_remove(&j->node);
    list_append(&b->ended, &j->node);
    charge_release(&j->charge);
    b->n_running--;
    builder_wake(b);
}

static struct build_job *builder_find(struct builder *b, const char *id)
{
    LIST_FOREACH (struct build_job, j, &b->waiting, node)
        if (strcmp(j->id, id) == 0)
            return j;
    LIST_FOREACH (struct build_job, j, &b->running, node)
        if (strcmp(j->id, id) == 0)
            return j;
    return NULL;
}

static const char *copy_upload(struct arena *a, uint64_t tenant, const char *hash)
{
    char *name = hash ? arena_alloc(a, UPLOAD_HASH_LEN + 1) : NULL;
    if (name)
        upload_name(tenant, hash, name);
    return name;
}

static void copy_spec(struct arena *a, uint64_t tenant, const struct build_spec *from, struct build_spec *to)
{
    struct build_step *steps = arena_alloc(a, (from->n_steps + 1) * sizeof(*steps));
    for (size_t i = 0; i < from->n_steps; i++) {
        struct str *args = arena_alloc(a, (from->steps[i].n_args + 1) * sizeof(*args));
        for (size_t k = 0; k < from->steps[i].n_args; k++)
            args[k] = arena_str(a, from->steps[i].args[k]);
        steps[i] = from->steps[i];
        steps[i].args = args;
        steps[i].files_hash = copy_upload(a, tenant, from->steps[i].files_hash);
    }
    *to = *from;
    to->steps = steps;
    to->image = arena_strdup(a, from->image);
    to->template_ref = arena_strdup(a, from->template_ref);
    to->archive = copy_upload(a, tenant, from->archive);
    to->from = arena_strdup(a, from->from);
    to->username = arena_strdup(a, from->username);
    to->password = arena_strdup(a, from->password);
    to->network = arena_strdup(a, from->network);
    to->start_cmd = arena_strdup(a, from->start_cmd);
    to->ready_cmd = arena_strdup(a, from->ready_cmd);
    to->tier = arena_strdup(a, from->tier);
}

static size_t spec_bytes(const struct build_spec *spec)
{
    size_t n = spec->n_steps * sizeof(*spec->steps);
    for (size_t i = 0; i < spec->n_steps; i++)
        for (size_t k = 0; k < spec->steps[i].n_args; k++)
            n += sizeof(*spec->steps[i].args) + spec->steps[i].args[k].n;
    return n;
}

static int queue(struct builder *b, const struct actor *actor, const char *build_id, const struct build_spec *spec,
                 uint64_t cause, struct err *err)
{
    struct template_registry *r = core_templates(b->config.core);
    if (b->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service is stopping");
    size_t own = builder_count(&b->waiting, actor->who.tenant);
    if (!quota_is_share(JOBS_WAITING_MAX, b->n_waiting, own, 1))
        return err_set(err, ERR_RESOURCE_EXHAUSTED,
                       "you have reached the maximum number of concurrent template builds (%zu). Please wait for "
                       "existing builds to complete",
                       own);
    struct charge charge = {.core = b->config.core, .tenant = actor->who.tenant};
    if (charge_memory(&charge, spec_bytes(spec), err) < 0)
        return -1;
    if (template_build_begin(r, build_id, err) < 0) {
        charge_release(&charge);
        return -1;
    }
    const struct template_build *build = template_build_find(r, TENANT_ANY, str_of(build_id));
    struct build_job *j = mem_new(struct build_job);
    j->b = b;
    j->charge = charge;
    j->upload_fd = -1;
    j->cause = cause;
    (void)snprintf(j->id, sizeof(j->id), "%s", build->id);
    (void)snprintf(j->template_id, sizeof(j->template_id), "%s", build->template_id);
    (void)snprintf(j->actor_name, sizeof(j->actor_name), "build:%s", j->template_id);
    j->actor.name = j->actor_name;
    j->actor.who = (struct principal){.tenant = actor->who.tenant, .view = actor->who.view};
    j->cpu_milli = build->cpu_milli;
    j->memory_bytes = build->memory_bytes;
    j->process.job = j->start.job = j;
    copy_spec(&j->arena, j->actor.who.tenant, spec, &j->spec);
    list_append(&b->waiting, &j->node);
    b->n_waiting++;
    if (b->n_running >= b->config.concurrency)
        job_log(j, TEMPLATE_INFO, "Waiting: %zu builds are running, %zu are before this one", b->n_running,
                b->n_waiting - 1);
    if (core_templates_commit(b->config.core, err) < 0) {
        b->n_waiting--;
        builder_job_free(j);
        return -1;
    }
    builder_wake(b);
    return 0;
}

static const char *base_of(const struct build_spec *spec)
{
    return spec->image ? spec->image : spec->template_ref ? spec->template_ref : spec->from ? spec->from : "archive";
}

int builder_start(struct builder *b, const struct actor *actor, const char *build_id, const struct build_spec *spec,
                  struct err *err)
{
    struct core *core = b->config.core;
    const struct template_build *build = template_build_find(core_templates(core), actor->who.view, str_of(build_id));
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    uint64_t seq;
    if (build)
        event_data_str(&d, "template", str_of(build->template_id));
    EVENT_DATA_PUT(&d, DATA_STR("build", build_id), DATA_STR("from", base_of(spec)), DATA_U64("steps", spec->n_steps));
    if (action_on(core, SERVICE_LOG_ID, actor, EVENT_TEMPLATE_BUILD, event_data_end(&d), &seq, err) < 0)
        return -1;
    return action_end(core, actor, seq, EVENT_TEMPLATE_BUILD, queue(b, actor, build_id, spec, seq, err), err);
}

static void cancel(struct builder *b, struct build_job *j, const char *why)
{
    struct err err;
    if (j->began) { /* not from within whatever calls this */
        j->canceled = true;
        (void)snprintf(j->why, sizeof(j->why), "%s", why);
        return;
    }
    list_remove(&j->node);
    b->n_waiting--;
    if (template_build_fail(core_templates(b->config.core), j->id, "", why, &err) < 0 && err.code != ERR_NOT_FOUND)
        log_warn("build %s: %s", j->id, err.msg);
    job_record(j, why);
    core_templates_changed(b->config.core);
    builder_job_free(j);
}

int builder_cancel(struct builder *b, const struct actor *actor, const char *build_id, struct err *err)
{
    struct build_job *j = builder_find(b, build_id);
    uint64_t seq;
    if (!j)
        return err_set(err, ERR_FAILED_PRECONDITION, "build %s is not running", build_id);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("template", j->template_id), DATA_STR("build", build_id));
    if (action_on(b->config.core, SERVICE_LOG_ID, actor, EVENT_TEMPLATE_CANCEL, event_data_end(&d), &seq, err) < 0)
        return -1;
    cancel(b, j, "the build was cancelled");
    return 0;
}

void builder_cancel_template(struct builder *b, const char *template_id, const char *why)
{
    LIST_FOREACH (struct build_job, j, &b->waiting, node)
        if (strcmp(j->template_id, template_id) == 0)
            cancel(b, j, why);
    LIST_FOREACH (struct build_job, j, &b->running, node)
        if (strcmp(j->template_id, template_id) == 0)
            cancel(b, j, why);
}

struct uploads *builder_uploads(struct builder *b)
{
    return b->uploads;
}

int builder_upload(struct builder *b, const struct actor *actor, struct str hash, int64_t size, struct err *err)
{
    uint64_t seq;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("hash", hash));
    if (size >= 0)
        event_data_u64(&d, "bytes", (uint64_t)size);
    return action_on(b->config.core, SERVICE_LOG_ID, actor, EVENT_TEMPLATE_UPLOAD, event_data_end(&d), &seq, err);
}

int builder_forget_cache(struct builder *b, const struct actor *actor, struct err *err)
{
    uint64_t seq;
    if (action_on(b->config.core, SERVICE_LOG_ID, actor, EVENT_TEMPLATE_FORGET, STR("{}"), &seq, err) < 0)
        return -1;
    return cache_trim(b->cache, true, err);
}

/* The cache's layers, and those that builds stand on now or are about to. */
static void each_layer(struct layers_root *root, void (*fn)(void *ctx, const char *layer), void *ctx)
{
    struct builder *b = container_of(root, struct builder, root);
    cache_each_layer(b->cache, fn, ctx);
    LIST_FOREACH (struct build_job, j, &b->running, node) {
        if (j->layer[0])
            fn(ctx, j->layer);
        if (j->next[0])
            fn(ctx, j->next);
    }
}

static void free_handle(uv_handle_t *handle)
{
    mem_free(handle);
}

int builder_new(const struct builder_config *config, struct builder **ret_builder, struct err *err)
{
    struct builder *b = mem_new(struct builder);
    struct builder_config *c = &b->config;
    *c = *config;
    c->concurrency = c->concurrency ? c->concurrency : 2;
    c->step_timeout_ms = c->step_timeout_ms ? c->step_timeout_ms : 3600 * 1000;
    c->timeout_ms = c->timeout_ms ? c->timeout_ms : 7200 * 1000;
    c->ready_timeout_ms = c->ready_timeout_ms ? c->ready_timeout_ms : 600 * 1000;
    id_random_bytes(b->salt, sizeof(b->salt));
    list_init(&b->waiting);
    list_init(&b->running);
    list_init(&b->ended);
    list_init(&b->reports);
    if (uploads_new(c->data_dir, c->disk_reserve_bytes, &b->uploads, err) < 0 ||
        cache_new(c->core, &b->cache, err) < 0) {
        uploads_free(b->uploads);
        mem_free(b);
        return -1;
    }
    b->tick = mem_new(uv_timer_t);
    b->go = mem_new(uv_idle_t);
    (void)uv_timer_init(core_loop(c->core), b->tick);
    (void)uv_idle_init(core_loop(c->core), b->go);
    b->tick->data = b->go->data = b;
    b->root.each = each_layer;
    layers_root_add(c->core, &b->root);
    *ret_builder = b;
    return 0;
}

/* What runs is left as it is in the store: the next start finds that it was interrupted. */
static void abandon(struct build_job *j)
{
    j->over = true;
    process_stop(&j->process);
    process_stop(&j->start);
    copy_stop(j);
    image_stop(j);
    job_drop_sandbox(j);
}

void builder_free(struct builder *b)
{
    if (!b)
        return;
    b->closing = true;
    LIST_FOREACH (struct build_job, j, &b->waiting, node)
        builder_job_free(j);
    LIST_FOREACH (struct build_job, j, &b->running, node) {
        abandon(j);
        charge_release(&j->charge);
        list_remove(&j->node);
        list_append(&b->ended, &j->node);
    }
    layers_root_remove(&b->root);
    uv_close((uv_handle_t *)b->tick, free_handle);
    uv_close((uv_handle_t *)b->go, free_handle);
    cache_free(b->cache);
    uploads_free(b->uploads);
    builder_collect(b);
}
