/* SPDX-License-Identifier: Apache-2.0 */
/* One build, from its beginning to its end: the order of steps, its sandbox, its layers, its log. */
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "build/internal.h"
#include "sandbox/network/network.h"
#include "sandbox/tenant.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- log and end ---- */

static struct template_registry *registry(const struct build_job *j)
{
    return core_templates(j->b->config.core);
}

bool job_is_over(const struct build_job *j)
{
    return j->over;
}

static void log_text(struct build_job *j, enum template_level level, struct str text)
{
    struct err err;
    if (template_log_add(registry(j), j->id, level, j->step_text, text, &err) < 0 && err.code != ERR_NOT_FOUND)
        log_warn("build %s: its log: %s", j->id, err.msg);
    core_templates_changed(j->b->config.core);
}

void job_log(struct build_job *j, enum template_level level, const char *fmt, ...)
{
    AUTO_BUF struct buf b = BUF_INIT(3 * LINE_MAX_BYTES);
    va_list args;
    va_start(args, fmt);
    char *at = buf_reserve(&b, 2 * LINE_MAX_BYTES);
    int n = at ? vsnprintf(at, 2 * LINE_MAX_BYTES, fmt, args) : 0;
    va_end(args);
    if (n > 0)
        log_text(j, level, str_n(at, MIN((size_t)n, (size_t)2 * LINE_MAX_BYTES - 1)));
}

static void job_let_go(struct build_job *j)
{
    process_stop(&j->process);
    process_stop(&j->start);
    copy_stop(j);
    image_stop(j);
    job_drop_sandbox(j);
}

void job_record(const struct build_job *j, const char *reason)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("template", j->template_id), DATA_STR("build", j->id));
    if (reason && j->step_text[0])
        event_data_str(&d, "step", str_of(j->step_text));
    EVENT_DATA_PUT(&d, DATA_SOME("reason", str_of(reason)));
    if (j->began)
        event_data_u64(&d, "ms", (clock_mono() - j->began) / USEC_PER_MS);
    (void)action_note(j->b->config.core, tenant_log(j->b->config.core, j->actor.who.tenant), NULL, j->cause,
                      reason ? EVENT_TEMPLATE_FAILED : EVENT_TEMPLATE_BUILT, event_data_end(&d));
}

/* The last thing: its end is in the store, whoever waits is next. */
static void job_end(struct build_job *j)
{
    struct err err;
    j->over = true;
    job_let_go(j);
    if (core_templates_commit(j->b->config.core, &err) < 0)
        log_error("build %s: its end could not be stored: %s", j->id, err.msg);
    builder_job_ended(j);
}

void job_fail(struct build_job *j, const char *fmt, ...)
{
    char message[1024];
    struct err err;
    if (j->over)
        return;
    FORMAT_ARGS(message, fmt);
    size_t n = strlen(message);
    while (n && (!str_is_utf8(str_n(message, n)) || message[n - 1] == '\n'))
        message[--n] = '\0';
    log_text(j, TEMPLATE_ERROR, str_n(message, n));
    if (template_build_fail(registry(j), j->id, j->step_text, message, &err) < 0 && err.code != ERR_NOT_FOUND)
        log_error("build %s failed (%s), which could not be stored: %s", j->id, message, err.msg);
    job_record(j, message);
    job_end(j);
}

/* something that held it is over */
static void job_put(struct build_job *j)
{
    assert(j->held > 0);
    if (--j->held == 0 && j->over)
        builder_wake(j->b);
}

static const char **context_lines(struct build_job *j)
{
    const char **lines = arena_alloc(&j->arena, (j->ctx.n_envs + 1) * sizeof(*lines));
    for (size_t i = 0; i < j->ctx.n_envs; i++)
        lines[i] = arena_printf(&j->arena, "%s=%s", j->ctx.envs[i].name, j->ctx.envs[i].value);
    return lines;
}

void job_done(struct build_job *j)
{
    const char *start = j->spec.start_cmd ? j->spec.start_cmd : j->from_start;
    struct template_result result = {.layer = j->layer,
                                     .cpu_milli = j->from_cpu_milli,
                                     .memory_bytes = j->from_memory_bytes,
                                     .size_bytes = j->is_size_known ? j->size_bytes : 0,
                                     .start_cmd = start,
                                     .ready_cmd = j->spec.ready_cmd   ? j->spec.ready_cmd
                                                  : j->spec.start_cmd ? NULL
                                                                      : j->from_ready,
                                     .tier = j->tier,
                                     .has_memory = j->has_memory,
                                     .workdir = j->ctx.workdir,
                                     .user = j->ctx.user ? j->ctx.user : "root",
                                     .image = j->ctx.image,
                                     .envs = context_lines(j),
                                     .n_envs = j->ctx.n_envs};
    struct err err;
    struct build_step_size all = {.bytes = j->size_bytes, .is_known = j->is_size_known};
    job_log(j, TEMPLATE_INFO, "Template is ready: %zu of %zu steps from the cache, %.1f s%s", j->n_cached,
            j->spec.n_steps, (double)(clock_mono() - j->began) / USEC_PER_SEC, size_text(&j->arena, &all));
    if (template_build_done(registry(j), j->id, &result, &err) < 0) {
        job_fail(j, "%s", err.msg);
        return;
    }
    job_record(j, NULL);
    fault_point("build.job.done");
    job_end(j);
}

/* ---- the sandbox ---- */

static void job_on_sandbox_end(struct sandbox_watch *w, struct sandbox *sb)
{
    struct build_job *j = container_of(w, struct build_job, watch);
    const char *cause = sandbox_info(sb)->end_cause;
    j->watching = false;
    job_fail(j, "the build's sandbox ended (%s)%s", cause ? cause : "?",
             cause && strcmp(cause, "oom") == 0 ? ": it used more memory than memoryMB allows" : "");
}

void job_drop_sandbox(struct build_job *j)
{
    struct err err;
    if (!j->sb)
        return;
    if (j->watching)
        sandbox_unwatch(&j->watch);
    j->watching = false;
    network_watch_denied(j->sb, NULL, NULL);
    if (sandbox_kill(j->sb, &j->actor, sandbox_ignore, NULL, &err) < 0 && err.code != ERR_NOT_FOUND)
        log_warn("build %s: end its sandbox: %s", j->id, err.msg);
    sandbox_unref(TAKE_PTR(j->sb));
}

static void ready_to_run(struct build_job *j)
{
    void (*fn)(struct build_job *) = j->with_sandbox;
    j->with_sandbox = NULL;
    fn(j);
}

static void have_shell(void *ctx, const struct file_entry *entry, const struct err *err UNUSED)
{
    struct build_job *j = ctx;
    j->file = NULL;
    j->has_bash = entry != NULL;
    ready_to_run(j);
}

enum { DENIED_TOLD_MAX = 20, COMMAND_SHOWN = 160 };

/* What tries again and again is told once. */
static void job_on_denied(void *ctx, const char *target, const char *reason, const char *closed_address)
{
    struct build_job *j = ctx;
    AUTO_FREE char *text = mem_printf("[%s] the network policy denied %s: %s. To allow it: --allow %s%s%s "
                                      "of 'cove template build' or 'add', with all else that the build needs, or "
                                      "builds.allow in the configuration",
                                      j->prefix, target, reason, target, closed_address ? " --allow " : "",
                                      closed_address ? closed_address : "");
    if (job_is_over(j) || (j->denied && strcmp(j->denied, text) == 0) || ++j->n_denied > DENIED_TOLD_MAX)
        return;
    job_log(j, TEMPLATE_WARN, "%s", text);
    mem_free(j->denied);
    j->denied = TAKE_PTR(text);
}

static void created(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct build_job *j = ctx;
    bool over = j->over;
    struct err e;
    if (sb) {
        j->sb = sandbox_ref(sb);
        if (over)
            job_drop_sandbox(j);
    }
    job_put(j);
    if (over)
        return;
    if (err && (j->n_cached || j->phase != PHASE_BASE) && !j->ignore_cache && err->code == ERR_NOT_FOUND) {
        /* Layers that the cache knows of are not in the pool any more: as if they had never been. */
        j->ignore_cache = true;
        job_start(j);
    } else if (err) {
        job_fail(j, "make a sandbox for the build: %s", err->msg);
    } else {
        j->watch.fn = job_on_sandbox_end;
        sandbox_watch_end(j->sb, &j->watch);
        network_watch_denied(j->sb, job_on_denied, j);
        j->watching = true;
        if (file_stat(j->sb, &j->actor, STR("root"), STR("/bin/bash"), have_shell, j, &j->file, &e) < 0)
            job_fail(j, "look for a shell: %s", e.msg);
    }
}

void job_need_sandbox(struct build_job *j, void (*fn)(struct build_job *j))
{
    struct err err;
    j->with_sandbox = fn;
    if (j->sb) {
        ready_to_run(j);
        return;
    }
    uint64_t most = core_config(j->b->config.core)->max_timeout_ms;
    struct sandbox_spec spec = {.template_ref = str_of(j->template_ref),
                                .layer = j->layer,
                                .tier = str_of(j->spec.tier),
                                .hidden = true,
                                .timeout_ms = MIN(j->b->config.timeout_ms + 60000, most),
                                .cpu_milli = j->cpu_milli,
                                .memory_bytes = j->memory_bytes,
                                .disk_bytes = j->b->config.disk_bytes,
                                .allow_internet = true};
    json_t *own = j->spec.network ? json_loads(j->spec.network, 0, NULL) : NULL;
    const struct network_spec network = {.policy = own ? own : j->b->config.network, .allow_internet = true};
    if (network.policy)
        spec.network = &network;
    j->disk_bytes = 0;
    j->held++;
    if (sandbox_create(j->b->config.core, &j->actor, &spec, created, j, &err) < 0) {
        j->held--;
        job_fail(j, "make a sandbox for the build: %s", err.msg);
    }
    json_decref(own);
}

/* ---- layers ---- */

/* In the cache 0 is "not known"; what is known to be nothing is 1 there. */
void job_remember(struct build_job *j)
{
    AUTO_BUF struct buf b = BUF_INIT(8 << 20);
    uint64_t bytes = j->stored.is_known ? MAX(j->stored.bytes, (uint64_t)1) : 0;
    struct err err;
    build_context_format(&j->ctx, &b);
    char *text = buf_take(&b);
    if (text && cache_put(j->b->cache, j->key, j->layer, text, bytes, &err) < 0)
        log_warn("build %s: remember a step: %s", j->id, err.msg);
    mem_free(text);
}

bool job_recall(struct build_job *j)
{
    const struct store_cached *found = j->ignore_cache || j->ran ? NULL : cache_get(j->b->cache, j->key);
    if (!found || strlen(found->layer) >= sizeof(j->layer) || build_context_parse(&j->ctx, found->result) < 0)
        return false;
    memcpy(j->layer, found->layer, strlen(found->layer) + 1);
    j->stored = (struct build_step_size){
        .bytes = found->bytes == 1 ? 0 : found->bytes, .is_known = found->bytes != 0, .is_cached = true};
    return true;
}

/* The sandbox's files come whole into each of its layers, which share their bytes: what is new is what the step did. */
static void job_count(struct build_job *j, uint64_t bytes)
{
    uint64_t before = j->disk_bytes;
    j->stored = (struct build_step_size){.bytes = (bytes > before ? bytes - before : 0) + j->image_bytes,
                                         .is_known = bytes != 0};
    j->disk_bytes = bytes;
    j->image_bytes = 0;
}

static void job_stored(void *ctx, struct sandbox *sb UNUSED, uint64_t bytes, const struct err *err)
{
    struct build_job *j = ctx;
    bool over = j->over;
    job_put(j);
    if (over)
        return;
    if (err && j->with_memory && j->is_up) {
        j->with_memory = false;
        job_log(j, TEMPLATE_WARN, "[%s] every sandbox will run the start command: %s", j->prefix, err->msg);
        ready_to_run(j);
        return;
    }
    if (err) {
        job_fail(j, "store the files: %s", err->msg);
        return;
    }
    fault_point("build.step.stored");
    memcpy(j->layer, j->next, sizeof(j->next));
    job_count(j, bytes);
    job_remember(j);
    layers_settled(j->b->config.core,
                   j->layer); /* while the job runs it is the job's, then the cache's and the template's */
    fault_point("build.step.cached");
    ready_to_run(j);
}

void job_store(struct build_job *j, void (*fn)(struct build_job *j))
{
    struct err err;
    layer_name_new(j->next);
    j->with_sandbox = fn;
    j->held++;
    if (sandbox_store_layer(j->sb, &j->actor, j->next, j->with_memory && j->is_up, job_stored, j, &err) < 0) {
        j->held--;
        job_fail(j, "store the files: %s", err.msg);
    }
}

/* ---- steps ---- */

static void step_stored(struct build_job *j)
{
    job_tell_done(j, "done");
    job_next(j);
}

/* The step has changed the context alone. */
static void step_no_files(struct build_job *j)
{
    j->stored = (struct build_step_size){.is_known = true};
    job_remember(j);
    job_tell_done(j, "done");
}

/* The message of a command that did not do what it should. */
static const char *how(struct build_job *j, int code, const struct err *err)
{
    if (err && err->code == ERR_DEADLINE_EXCEEDED)
        return arena_printf(&j->arena, "it took longer than %llu s and was ended",
                            (unsigned long long)(j->b->config.step_timeout_ms / 1000));
    if (err)
        return arena_printf(&j->arena, "command failed: %s: %s", err_code_name(err->code), err->msg);
    if (code > 128)
        return arena_printf(&j->arena, "it was ended by signal %d", code - 128);
    return arena_printf(&j->arena, "exit status %d", code);
}

static const struct build_step *job_step_of(const struct build_job *j)
{
    return &j->spec.steps[j->step];
}

/* The beginning of a long command: why it failed stands behind it, and is to be read where a message is short. */
static const char *beginning(struct build_job *j, struct str command)
{
    size_t n = MIN(command.n, (size_t)COMMAND_SHOWN);
    while (n && !str_is_utf8(str_n(command.p, n)))
        n--;
    return arena_printf(&j->arena, "%.*s%s", (int)n, command.p, n < command.n ? "..." : "");
}

static void run_done(struct build_job *j, int code, const struct err *err)
{
    if (err || code)
        job_fail(j, "failed to run command '%s': %s", beginning(j, job_step_of(j)->args[0]), how(j, code, err));
    else
        job_store(j, step_stored);
}

static void run_step(struct build_job *j)
{
    const struct build_step *s = job_step_of(j);
    j->process.done = run_done;
    process_run(&j->process, j,
                &(struct build_command){.shell_text = s->args[0].p,
                                        .user = s->n_args > 1 && s->args[1].n ? s->args[1].p : NULL,
                                        .workdir = j->ctx.workdir,
                                        .with_context = true,
                                        .timeout_ms = j->b->config.step_timeout_ms});
}

static void helper_done(struct build_job *j, int code, const struct err *err)
{
    const struct build_step *s = job_step_of(j);
    const char *out = j->process.output, *is_same = strstr(out, "cove-same:"), *is_made = strstr(out, "cove-made:");
    const char *result = is_same ? is_same : is_made;
    if (err || code || !result) {
        job_fail(j, "failed to %s '%.256s': %s%s%.200s", s->type == BUILD_USER ? "create user" : "create workdir",
                 s->args[0].p, how(j, code, err), out[0] ? ": " : "", out);
        return;
    }
    if (s->type == BUILD_USER)
        build_context_set_user(&j->ctx, s->args[0].p);
    else
        build_context_set_workdir(&j->ctx, result + strlen("cove-same:"));
    if (!is_same) {
        job_store(j, step_stored);
        return;
    }
    step_no_files(j);
    job_next(j);
}

static void run_helper(struct build_job *j)
{
    const struct build_step *s = job_step_of(j);
    bool is_user = s->type == BUILD_USER;
    const char *user = j->ctx.user ? j->ctx.user : "root";
    const char *workdir = j->ctx.workdir ? j->ctx.workdir : "";
    const char *args[] = {s->args[0].p, is_user ? (j->has_bash ? "/bin/bash" : "/bin/sh") : user, workdir, NULL};
    j->process.done = helper_done;
    j->process.is_quiet = true;
    process_run(&j->process, j,
                &(struct build_command){.shell_text = is_user ? script_user : script_workdir,
                                        .args = args,
                                        .user = "root",
                                        .workdir = "/",
                                        .timeout_ms = j->b->config.step_timeout_ms});
}

static void copy_step(struct build_job *j)
{
    copy_start(j, job_step_of(j));
}

static int set_envs(struct build_job *j, const struct build_step *s, struct err *err)
{
    for (size_t i = 0; i + 1 < s->n_args; i += 2)
        if (build_context_set_expanded(&j->ctx, s->args[i], s->args[i + 1], err) < 0)
            return -1;
    return 0;
}

/* False: it takes time; job_next() follows. */
static bool do_step(struct build_job *j)
{
    const struct build_step *s = job_step_of(j);
    const char *text = build_step_text(s, &j->arena, 200);
    struct err err;
    build_key_add_step(j->key, s);
    if (!s->force && !j->spec.force && job_recall(j)) {
        job_tell_cached(j, text);
        j->n_cached++;
        return true;
    }
    /* Variables come out the same each time: what is behind them may be known all the same. */
    j->ran |= s->type != BUILD_ENV || s->force || j->spec.force;
    if (s->type == BUILD_ENV) {
        if (set_envs(j, s, &err) < 0) {
            job_fail(j, "%s", err.msg);
            return false;
        }
        job_log(j, TEMPLATE_INFO, "[%s] %s", j->prefix, text);
        step_no_files(j);
        return true;
    }
    j->process.is_quiet = false;
    j->process.prefix = j->prefix;
    j->process.level = TEMPLATE_INFO;
    job_log(j, TEMPLATE_INFO, "[%s] %s", j->prefix, text);
    job_need_sandbox(j, s->type == BUILD_RUN ? run_step : s->type == BUILD_COPY ? copy_step : run_helper);
    return false;
}

static void job_go_on(struct build_job *j)
{
    j->phase = PHASE_STEPS;
    for (; j->step < j->spec.n_steps; j->step++) {
        (void)snprintf(j->step_text, sizeof(j->step_text), "%zu", j->step + 1);
        (void)snprintf(j->prefix, sizeof(j->prefix), "builder %zu/%zu", j->step + 1, j->spec.n_steps);
        j->step_started = clock_mono();
        if (!do_step(j))
            return;
    }
    finalize_start(j);
}

void job_next(struct build_job *j)
{
    if (j->over)
        return;
    j->step++;
    job_go_on(j);
}

void job_steps(struct build_job *j)
{
    if (j->over)
        return;
    j->step = 0;
    job_go_on(j);
}

void job_start(struct build_job *j)
{
    build_context_fini(&j->ctx);
    j->phase = PHASE_BASE;
    j->is_up = false;
    j->n_cached = 0;
    j->size_bytes = j->image_bytes = 0;
    j->is_size_known = true;
    reports_forget(j->b, j->id);
    j->ran = false;
    j->key[0] = '\0';
    j->step_started = clock_mono();
    (void)snprintf(j->step_text, sizeof(j->step_text), "base");
    (void)snprintf(j->prefix, sizeof(j->prefix), "base");
    base_start(j);
}

void job_tick(struct build_job *j, usec_t now)
{
    if (j->canceled)
        job_fail(j, "%s", j->why);
    else if (now >= j->deadline)
        job_fail(j, "the build took longer than %llu s and was ended",
                 (unsigned long long)(j->b->config.timeout_ms / 1000));
    else if (j->phase == PHASE_FINALIZE)
        finalize_tick(j, now);
}
