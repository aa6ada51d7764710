/* SPDX-License-Identifier: Apache-2.0 */
/* Making a sandbox: from what was asked for to the object, its row and its first event; then its start begins
 * (start.c). */
#include "base/mem.h"
#include "guard/rules.h"
#include "sandbox/key.h"
#include "sandbox/life/checkpoint.h"
#include "sandbox/life/life.h"
#include "sandbox/life/sleep.h"
#include "sandbox/life/store.h"
#include "sandbox/network/network_life.h"
#include "sandbox/object.h"
#include "sandbox/owner.h"
#include "sandbox/record/record.h"
#include "sandbox/start/make.h"
#include "sandbox/start/spare.h"
#include "sandbox/templates.h"
#include "sandbox/volume/mounts.h"
#include "wire/tiers.h"

enum { PAIRS_MAX = 1024, PAIRS_BYTES_MAX = 128 * 1024 };

int pairs_check(const char *what, const struct pair *pairs, size_t n, bool are_variables, struct err *err)
{
    size_t bytes = 0;
    if (n > PAIRS_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: more than %d entries", what, PAIRS_MAX);
    for (size_t i = 0; i < n; i++) {
        struct str k = pairs[i].key, v = pairs[i].value;
        bytes += k.n + v.n;
        if (str_has_nul(k) || str_has_nul(v) || !str_is_utf8(k) || !str_is_utf8(v))
            return err_set(err, ERR_INVALID_ARGUMENT, "%s: entries must be UTF-8 without NUL", what);
        if (are_variables && (!k.n || str_find_char(k, '=') >= 0))
            return err_set(err, ERR_INVALID_ARGUMENT, "%s: '%.*s' can't be the name of a variable", what,
                           (int)MIN(k.n, (size_t)64), k.p);
    }
    if (bytes > PAIRS_BYTES_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: more than %d KiB", what, PAIRS_BYTES_MAX / 1024);
    return 0;
}

static int check_spec(struct core *core, const struct actor *actor, const struct sandbox_spec *spec, struct err *err)
{
    if (deadline_check(core, spec->timeout_ms, err) < 0)
        return -1;
    if (spec->pause_files_only && !spec->pause_on_timeout)
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "only a sandbox that pauses at its timeout can do so without its memory");
    if (spec->pause_files_only && spec->auto_resume)
        return err_set(err, ERR_INVALID_ARGUMENT, "a sandbox that traffic can resume must be paused with its memory");
    for (size_t i = 0; i < spec->n_metadata; i++) {
        int mode;
        if (str_eqc(spec->metadata[i].key, CHECKPOINT_LABEL) &&
            checkpoint_mode_parse(spec->metadata[i].value, &mode) < 0)
            return err_set(err, ERR_INVALID_ARGUMENT, "metadata: %s: write %s", CHECKPOINT_LABEL, CHECKPOINT_WORDS);
    }
    if (spec->layer && !layer_name_is(spec->layer))
        return err_set(err, ERR_INVALID_ARGUMENT, "'%.80s' is not the name of a layer", spec->layer);
    if (spec->private_traffic && !spec->secure)
        return err_set(err, ERR_INVALID_ARGUMENT, "only a secure sandbox can have ports that are not public");
    if (network_check_spec(core, spec, err) < 0)
        return -1;
    if (mounts_check(core, actor->who.view, spec->mounts, spec->n_mounts, err) < 0)
        return -1;
    if (pairs_check("metadata", spec->metadata, spec->n_metadata, false, err) < 0)
        return -1;
    return pairs_check("environment", spec->envs, spec->n_envs, true, err);
}

static void unmake(struct sandbox *sb)
{
    sandbox_untable(sb);
    sandbox_unref(sb);
}

void create_message(const struct sandbox *sb, union sup_message *ret_message)
{
    memset(ret_message, 0, sizeof(*ret_message));
    ret_message->create.head.type = SUP_CREATE;
    memcpy(ret_message->create.id, sb->info.id, ID_SANDBOX_LEN);
    assert(strlen(sb->layer) < sizeof(ret_message->create.layer) &&
           strlen(sb->info.template_id) < sizeof(ret_message->create.template_id));
    memcpy(ret_message->create.layer, sb->layer, strlen(sb->layer));
    memcpy(ret_message->create.template_id, sb->info.template_id, strlen(sb->info.template_id));
    (void)snprintf(ret_message->create.tier, sizeof(ret_message->create.tier), "%s", sb->info.tier);
    ret_message->create.memory_bytes = sb->info.memory_bytes;
    ret_message->create.cpu_milli = sb->info.cpu_milli;
    ret_message->create.disk_bytes = sb->info.disk_bytes;
    if (list_empty(&sb->spare_node)) /* else it is nobody's yet */
        ret_message->create.owner = owner_of(sb->core, sb->info.tenant);
    ret_message->create.memory = sb->goes_on;
    ret_message->create.once = sb->is_fork;
}

/*
 * The actions that a create is: the guard is asked about all of them before there is a sandbox; then they go on
 * record.
 */
struct create_asked {
    struct event_data create_data, network_data;
    struct str create, network; /* borrowed of these; no network: the default one */
};

static void create_asked_fini_auto_(struct create_asked *asked)
{
    event_data_fini(&asked->create_data);
    event_data_fini(&asked->network_data);
}

/* It is gone when this fails, as below. */
static int create_allow(struct sandbox *sb, const struct actor *actor, const char *fork_of, struct create_asked *asked,
                        struct err *err)
{
    *asked = (struct create_asked){.create_data = EVENT_DATA_INIT, .network_data = EVENT_DATA_INIT};
    make_describe(sb, &asked->create_data);
    EVENT_DATA_PUT(&asked->create_data, DATA_SOME("fork_of", fork_of));
    asked->create = event_data_end(&asked->create_data);
    asked->network = network_describe(sb, &asked->network_data);
    if (action_allow(sb->core, actor, EVENT_SANDBOX_CREATE, asked->create, err) == 0 &&
        (!asked->network.n || action_allow(sb->core, actor, EVENT_NET_POLICY, asked->network, err) == 0))
        return 0;
    unmake(sb);
    return -1;
}

/* *ret_seq: of the action that wants the policy. */
static int create_record_network(struct sandbox *sb, const struct actor *actor, struct str policy, uint64_t *ret_seq,
                                 struct err *err)
{
    *ret_seq = sb->create_seq;
    return policy.n ? action_record(sb->core, sb->info.id, actor, EVENT_NET_POLICY, policy, ret_seq, err) : 0;
}

static int create_allowed(struct sandbox *sb, const struct actor *actor, const struct create_asked *asked,
                          sandbox_fn done, void *ctx, struct err *err)
{
    if (rows_insert(sb, err) < 0) {
        unmake(sb);
        return err_prefix(err, "create sandbox");
    }
    uint64_t seq;
    sandbox_count_creating(sb, true);
    if (action_record(sb->core, sb->info.id, actor, EVENT_SANDBOX_CREATE, asked->create, &sb->create_seq, err) < 0 ||
        create_record_network(sb, actor, asked->network, &seq, err) < 0) {
        sandbox_failed(sb, err);
        return -1;
    }
    waiters_add(&sb->starters, done, ctx);
    sandbox_arm_end(sb);
    start_begin(sb, sb->goes_on ? START_RESTORE : START_CREATE, seq);
    return 0;
}

int create_begin(struct sandbox *sb, const struct actor *actor, const char *fork_of, sandbox_fn done, void *ctx,
                 struct err *err)
{
    AUTO(create_asked_fini) struct create_asked asked = {0};
    return create_allow(sb, actor, fork_of, &asked, err) < 0 ? -1 : create_allowed(sb, actor, &asked, done, ctx, err);
}

/* ---- a spare becomes somebody's: rule 3 of spare.c ---- */

static int claim_record(struct sandbox *sb, const struct actor *actor, struct str policy, uint64_t *ret_seq,
                        struct err *err)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    make_describe(sb, &d);
    event_data_bool(&d, "spare", true);
    if (rows_replace(sb, err) < 0 ||
        action_record(sb->core, sb->info.id, actor, EVENT_SANDBOX_CREATE, event_data_end(&d), &sb->create_seq, err) < 0)
        return -1;
    AUTO_EVENT_DATA struct event_data started = EVENT_DATA(DATA_U64("ms", 0));
    action_observe(sb, sb->create_seq, EVENT_SANDBOX_STARTED, EVENT_OBSERVED_HOST, event_data_end(&started));
    return create_record_network(sb, actor, policy, ret_seq, err);
}

static int claim_begin(struct sandbox *sb, const struct actor *actor, const struct template *t, const char *alias,
                       const struct sandbox_spec *spec, const struct create_asked *asked, sandbox_fn done, void *ctx,
                       struct err *err)
{
    struct sandbox_info *i = &sb->info;
    uint64_t seq;
    bool is_plain = !spec->network && spec->allow_internet && network_is_plain(sb);
    make_own(sb, t, alias, spec);
    i->started = clock_real();
    i->timeout_ms = spec->timeout_ms;
    i->end_at = spec->timeout_ms ? i->started + spec->timeout_ms * USEC_PER_MS : 0;
    sb->n_samples = 0;
    sb->stored = false;
    if (!is_plain)
        network_replace(sb, spec);
    if (claim_record(sb, actor, asked->network, &seq, err) < 0) {
        sandbox_end(sb, &(struct ending){.seq = sb->create_seq, .cause = "failed", .fails = true, .what = err->msg});
        return -1;
    }
    waiters_add(&sb->starters, done, ctx);
    sandbox_enlist(sb);
    sandbox_arm_end(sb);
    start_begin(sb, START_CLAIM, seq);
    return 0;
}

/* ---- what is asked for ---- */

/* owner: of what it had by an earlier change; the first is in the sandbox's own arena. */
static int sandbox_set_pairs(struct sandbox *sb, const struct actor *actor, const char *what, const struct pair *pairs,
                             size_t n, const struct pair **have, size_t *n_have, struct arena *owner, struct err *err)
{
    const struct pair *before = *have;
    size_t n_before = *n_have;
    uint64_t seq;
    if (sandbox_state_is_over(sb->info.state))
        return err_set(err, ERR_NOT_FOUND, "sandbox %s has ended", sb->info.id);
    if (pairs_check(what, pairs, n, owner == &sb->envs, err) < 0)
        return -1;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_U64(what, n));
    if (action_permit(sb, actor, EVENT_SANDBOX_METADATA, event_data_end(&d), &seq, err) < 0)
        return -1;
    struct arena arena = ARENA_INIT;
    *have = pairs_copy(&arena, pairs, n);
    *n_have = n;
    if (rows_replace(sb, err) < 0 || keeper_commit(sb->core->keeper, err) < 0) {
        *have = before;
        *n_have = n_before;
        arena_fini(&arena);
        return -1;
    }
    arena_fini(owner);
    *owner = arena;
    return 0;
}

int sandbox_set_metadata(struct sandbox *sb, const struct actor *actor, const struct pair *metadata, size_t n,
                         struct err *err)
{
    return sandbox_set_pairs(sb, actor, "metadata", metadata, n, &sb->info.metadata, &sb->info.n_metadata,
                             &sb->metadata, err);
}

int sandbox_set_envs(struct sandbox *sb, const struct actor *actor, const struct pair *envs, size_t n, struct err *err)
{
    return sandbox_set_pairs(sb, actor, "envs", envs, n, &sb->info.envs, &sb->info.n_envs, &sb->envs, err);
}

struct str sandbox_label(const struct sandbox *sb, struct str key)
{
    for (size_t i = 0; i < sb->info.n_metadata; i++)
        if (str_eq(sb->info.metadata[i].key, key))
            return sb->info.metadata[i].value;
    return STR_NULL;
}

int sandbox_set_label(struct sandbox *sb, const struct actor *actor, struct str key, struct str value, struct err *err)
{
    const struct sandbox_info *i = &sb->info;
    AUTO_FREE struct pair *all = mem_array(i->n_metadata + 1, sizeof(*all));
    size_t n = 0;
    for (size_t k = 0; k < i->n_metadata; k++)
        if (!str_eq(i->metadata[k].key, key))
            all[n++] = i->metadata[k];
    all[n++] = (struct pair){key, value};
    return sandbox_set_metadata(sb, actor, all, n, err);
}

int sandbox_create(struct core *core, const struct actor *actor, const struct sandbox_spec *spec, sandbox_fn done,
                   void *ctx, struct err *err)
{
    const struct template *t;
    const char *alias;
    if (core->closing)
        return err_set(err, ERR_UNAVAILABLE, "the service is stopping");
    if (check_spec(core, actor, spec, err) < 0 ||
        template_resolve(core->templates, actor->who.view, spec->template_ref, &t, &alias, err) < 0)
        return -1;
    const char *tier = core_tier(core, t, spec->tier, err);
    if (!tier || (spec->n_mounts && tier_list_mounts(core->config.engine.tiers, tier, err) < 0) ||
        (!spec->hidden && resume_limit(core, err) < 0))
        return -1;
    struct sandbox *sb = make_sandbox(core, t, alias, tier, spec);
    struct sandbox_info *i = &sb->info;
    i->tenant = actor->who.tenant;
    AUTO(create_asked_fini) struct create_asked asked = {0};
    if (create_allow(sb, actor, NULL, &asked, err) < 0)
        return -1;
    if (!spec->hidden &&
        charge_sandbox(&sb->charge, core, i->tenant, i->memory_bytes, i->cpu_milli, i->disk_bytes, err) < 0) {
        unmake(sb);
        return -1;
    }
    struct sandbox *spare = spec->is_cold && t->has_memory ? NULL : spare_take(core, t, tier, spec);
    if (spare) {
        spare->info.tenant = i->tenant;
        spare->charge = sb->charge;
        sb->charge = (struct charge){0};
        unmake(sb);
        owner_take(core, spare->info.tenant, spare->info.id);
    } else if (!spec->hidden && !spec->layer) {
        make_launch(sb, t);
    }
    int r = spare ? claim_begin(spare, actor, t, alias, spec, &asked, done, ctx, err)
                  : create_allowed(sb, actor, &asked, done, ctx, err);
    if (r == 0 && !spec->hidden)
        template_spawned(core->templates, t->id);
    return r;
}
