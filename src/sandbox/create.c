/* SPDX-License-Identifier: Apache-2.0 */
/* Making a sandbox: from what was asked for to the object, its row and its first event; then coved's turn (life.c goes on). */
#include "base/mem.h"
#include "sandbox/internal.h"
#include "sandbox/templates.h"

enum { PAIRS_MAX = 1024, PAIRS_BYTES_MAX = 128 * 1024, TOKEN_LEN = 40 };

static int check_pairs(const char *what, const struct pair *pairs, size_t n, bool names, struct err *err)
{
    size_t bytes = 0;
    if (n > PAIRS_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: more than %d entries", what, PAIRS_MAX);
    for (size_t i = 0; i < n; i++) {
        struct str k = pairs[i].key, v = pairs[i].value;
        bytes += k.n + v.n;
        if (str_has_nul(k) || str_has_nul(v) || !str_is_utf8(k) || !str_is_utf8(v))
            return err_set(err, ERR_INVALID_ARGUMENT, "%s: entries must be UTF-8 without NUL", what);
        if (names && (!k.n || str_find_char(k, '=') >= 0))
            return err_set(err, ERR_INVALID_ARGUMENT, "%s: '%.*s' can't be the name of a variable", what,
                           (int)MIN(k.n, (size_t)64), k.p);
    }
    if (bytes > PAIRS_BYTES_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: more than %d KiB", what, PAIRS_BYTES_MAX / 1024);
    return 0;
}

static int check_spec(const struct core *core, const struct sandbox_spec *spec, struct err *err)
{
    if (spec->timeout_ms > core->config.max_timeout_ms)
        return err_set(err, ERR_INVALID_ARGUMENT, "the timeout is longer than %llu s",
                       (unsigned long long)(core->config.max_timeout_ms / 1000));
    if (spec->pause_files_only && !spec->pause_on_timeout)
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "only a sandbox that is paused when its time is up can be so without its memory");
    if (spec->pause_files_only && spec->auto_resume)
        return err_set(err, ERR_INVALID_ARGUMENT, "a sandbox that traffic resumes is paused with its memory");
    if (spec->private_traffic && !spec->secure)
        return err_set(err, ERR_INVALID_ARGUMENT, "only a secure sandbox can have ports that are not public");
    if (network_check_spec(core, spec, err) < 0)
        return -1;
    if (check_pairs("metadata", spec->metadata, spec->n_metadata, false, err) < 0)
        return -1;
    return check_pairs("environment", spec->envs, spec->n_envs, true, err);
}

/* The template's variables, then the request's on top. */
static void merge_envs(struct sandbox *sb, const struct template *t, const struct sandbox_spec *spec)
{
    struct pair *all = arena_alloc(&sb->arena, (t->n_envs + spec->n_envs + 1) * sizeof(*all));
    size_t n = 0;
    for (size_t i = 0; i < t->n_envs; i++) {
        struct str text = str_of(t->envs[i]);
        size_t eq = (size_t)str_find_char(text, '=');
        struct str name = str_n(text.p, eq);
        bool replaced = false;
        for (size_t k = 0; k < spec->n_envs; k++)
            replaced |= str_eq(spec->envs[k].key, name);
        if (!replaced)
            all[n++] = (struct pair){arena_str(&sb->arena, name), arena_str(&sb->arena, str_sub(text, eq + 1))};
    }
    for (size_t k = 0; k < spec->n_envs; k++)
        all[n++] = (struct pair){arena_str(&sb->arena, spec->envs[k].key), arena_str(&sb->arena, spec->envs[k].value)};
    sb->info.envs = all;
    sb->info.n_envs = n;
}

static struct sandbox *make(struct core *core, const struct template *t, const char *alias,
                            const struct sandbox_spec *spec)
{
    char id[ID_SANDBOX_LEN + 1];
    id_sandbox(id);
    struct sandbox *sb = sandbox_new(core, id);
    struct arena *a = &sb->arena;
    struct sandbox_info *i = &sb->info;
    i->state = SANDBOX_CREATING;
    i->template_id = arena_strndup(a, t->id, strlen(t->id));
    i->template_alias = alias ? arena_strndup(a, alias, strlen(alias)) : NULL;
    sb->layer = arena_strndup(a, t->layer, strlen(t->layer));
    i->started = clock_real();
    i->timeout_ms = spec->timeout_ms;
    i->end_at = spec->timeout_ms ? i->started + spec->timeout_ms * USEC_PER_MS : 0;
    i->cpu_milli = spec->cpu_milli ? spec->cpu_milli : core_template_cpu_milli(core, t);
    i->memory_bytes = spec->memory_bytes ? spec->memory_bytes : core_template_memory_bytes(core, t);
    i->disk_bytes = spec->disk_bytes ? spec->disk_bytes : t->disk_bytes;
    i->pause_on_timeout = spec->pause_on_timeout;
    i->pause_files_only = spec->pause_files_only;
    i->auto_resume = spec->auto_resume;
    i->secure = spec->secure;
    if (spec->secure) {
        char *token = arena_alloc(a, TOKEN_LEN + 1);
        id_token(token, TOKEN_LEN);
        i->access_token = token;
    }
    i->allow_internet = spec->allow_internet;
    if (spec->private_traffic) {
        char *token = arena_alloc(a, TOKEN_LEN + 1);
        id_token(token, TOKEN_LEN);
        i->traffic_token = token;
    }
    i->metadata = pairs_copy(a, spec->metadata, spec->n_metadata);
    i->n_metadata = spec->n_metadata;
    merge_envs(sb, t, spec);
    network_new(sb, spec);
    return sb;
}

static void describe(const struct sandbox *sb, struct event_data *d)
{
    const struct sandbox_info *i = &sb->info;
    event_data_str(d, "template", str_of(i->template_id));
    if (i->template_alias)
        event_data_str(d, "alias", str_of(i->template_alias));
    event_data_str(d, "layer", str_of(sb->layer));
    event_data_u64(d, "timeout_ms", i->timeout_ms);
    event_data_u64(d, "cpu_milli", i->cpu_milli);
    event_data_u64(d, "memory_bytes", i->memory_bytes);
    event_data_bool(d, "secure", i->secure);
    event_data_bool(d, "allow_internet", i->allow_internet);
    if (i->pause_on_timeout)
        event_data_bool(d, "pause_on_timeout", true);
    if (i->auto_resume)
        event_data_bool(d, "auto_resume", true);
    if (i->traffic_token)
        event_data_bool(d, "private_traffic", true);
    event_data_u64(d, "metadata", i->n_metadata);
    event_data_u64(d, "envs", i->n_envs);
}

static void unmake(struct sandbox *sb)
{
    (void)map_del(&sb->core->by_id, str_of(sb->info.id));
    sandbox_unref(sb);
}

void create_message(const struct sandbox *sb, union sup_message *m)
{
    memset(m, 0, sizeof(*m));
    m->create.head.type = SUP_CREATE;
    memcpy(m->create.id, sb->info.id, ID_SANDBOX_LEN);
    assert(strlen(sb->layer) < sizeof(m->create.layer) && strlen(sb->info.template_id) < sizeof(m->create.template_id));
    memcpy(m->create.layer, sb->layer, strlen(sb->layer));
    memcpy(m->create.template_id, sb->info.template_id, strlen(sb->info.template_id));
    m->create.memory_bytes = sb->info.memory_bytes;
    m->create.cpu_milli = sb->info.cpu_milli;
    m->create.disk_bytes = sb->info.disk_bytes;
}

static int ask_supervisor(struct sandbox *sb, struct err *err)
{
    union sup_message m;
    create_message(sb, &m);
    sandbox_ref(sb);
    if (supervisor_call(sb->core->supervisor, &m, sandbox_on_created, sb, err) < 0) {
        sandbox_unref(sb);
        return -1;
    }
    return 0;
}

int sandbox_create(struct core *core, const struct actor *actor, const struct sandbox_spec *spec, sandbox_fn done,
                   void *ctx, struct err *err)
{
    const struct template *t;
    const char *alias;
    if (core->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service stops");
    if (check_spec(core, spec, err) < 0 || template_resolve(core->templates, spec->template_ref, &t, &alias, err) < 0)
        return -1;
    if (resume_limit(core, err) < 0)
        return -1;
    struct sandbox *sb = make(core, t, alias, spec);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    describe(sb, &d);
    if (rows_insert(sb, err) < 0) {
        unmake(sb);
        return err_prefix(err, "create sandbox");
    }
    sb->create_done = done;
    sb->create_ctx = ctx;
    core->n_creating++;
    if (action_permit(sb, actor, EVENT_SANDBOX_CREATE, event_data_end(&d), &sb->create_seq, err) < 0 ||
        network_begin(sb, actor, err) < 0 || ask_supervisor(sb, err) < 0) {
        sb->create_done = NULL;
        sandbox_failed(sb, err);
        return -1;
    }
    sandbox_arm_end(sb);
    return 0;
}
