/* SPDX-License-Identifier: Apache-2.0 */
/* The table of sandboxes: finding, listing, references, and who wants to hear of an end. */
#include "sandbox/sandbox.h"
#include "base/mem.h"
#include "sandbox/code/code.h"
#include "sandbox/guard/guard_life.h"
#include "sandbox/life/checkpoint_life.h"
#include "sandbox/life/life.h"
#include "sandbox/network/network_life.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "sandbox/service.h"
#include "sandbox/tenant.h"

static void on_watch_job(struct loop_job *job)
{
    struct sandbox *sb = container_of(job, struct sandbox, watch_job);
    while (!list_empty(&sb->watches)) {
        struct sandbox_watch *w = LIST_FIRST(struct sandbox_watch, &sb->watches, node);
        list_remove(&w->node);
        w->fn(w, sb);
    }
    sandbox_unref(sb);
}

static struct sandbox *sandbox_alloc(struct core *core)
{
    struct sandbox *sb = mem_new(struct sandbox);
    sb->core = core;
    sb->refs = 1;
    list_init(&sb->node);
    list_init(&sb->watches);
    list_init(&sb->processes);
    list_init(&sb->services);
    list_init(&sb->stores);
    list_init(&sb->spare_node);
    list_init(&sb->pausers);
    list_init(&sb->starters);
    wake_init(sb);
    loop_job_init(&sb->watch_job, on_watch_job);
    return sb;
}

struct sandbox *sandbox_new(struct core *core, const char *id)
{
    struct sandbox *sb = sandbox_alloc(core);
    memcpy(sb->info.id, id, ID_SANDBOX_LEN);
    (void)map_put(&core->by_id, str_of(sb->info.id), sb);
    id_port_alias(sb->info.port_alias);
    (void)map_put(&core->by_port_alias, str_of(sb->info.port_alias), sb);
    return sb;
}

struct sandbox *sandbox_new_within(struct sandbox *of)
{
    struct sandbox *sb = sandbox_alloc(of->core);
    sb->within = sandbox_ref(of);
    sb->info = of->info;
    sb->info.metadata = NULL; /* changes */
    sb->info.n_metadata = 0;
    sb->user = of->user;
    return sb;
}

void sandbox_set_port_alias(struct sandbox *sb, const char *alias)
{
    (void)map_del(&sb->core->by_port_alias, str_of(sb->info.port_alias));
    memcpy(sb->info.port_alias, alias, ID_SANDBOX_LEN);
    (void)map_put(&sb->core->by_port_alias, str_of(sb->info.port_alias), sb);
}

void sandbox_untable(struct sandbox *sb)
{
    (void)map_del(&sb->core->by_id, str_of(sb->info.id));
    (void)map_del(&sb->core->by_port_alias, str_of(sb->info.port_alias));
}

struct sandbox *sandbox_ref(struct sandbox *sb)
{
    sb->refs++;
    return sb;
}

void sandbox_unref(struct sandbox *sb)
{
    assert(sb->refs);
    if (--sb->refs)
        return;
    assert(!sb->start && !sb->launch && list_empty(&sb->spare_node));
    assert(!sb->session && !sb->closing && list_empty(&sb->processes));
    struct loop *loop = sb->core->loop;
    assert(list_empty(&sb->stores) && list_empty(&sb->pausers) && list_empty(&sb->starters) && list_empty(&sb->wakes));
    loop_job_cancel(&sb->watch_job);
    loop_job_cancel(&sb->wake_job);
    loop_alarm_clear(loop, &sb->end_alarm);
    usage_stop(sb);
    loop_alarm_clear(loop, &sb->kill_alarm);
    loop_alarm_clear(loop, &sb->forget_alarm);
    charge_release(&sb->charge);
    network_free(sb);
    code_free(sb);
    stuck_free(sb);
    checkpoint_free(sb);
    rules_free(sb->rules);
    services_free(sb);
    arena_fini(&sb->arena);
    arena_fini(&sb->metadata);
    arena_fini(&sb->envs);
    mem_free(sb->samples);
    if (sb->within)
        sandbox_unref(sb->within);
    mem_free(sb);
}

void sandbox_count_creating(struct sandbox *sb, bool begins)
{
    if (!sb->info.hidden)
        sb->core->n_creating += begins ? 1 : (size_t)-1;
}

void sandbox_enlist(struct sandbox *sb)
{
    struct core *core = sb->core;
    if (sb->info.hidden)
        return;
    struct list *before = core->live.next; /* newest first: nearly always the first place is right */
    for (; before != &core->live; before = before->next) {
        const struct sandbox_info *other = &container_of(before, struct sandbox, node)->info;
        if (other->started < sb->info.started ||
            (other->started == sb->info.started && strcmp(other->id, sb->info.id) < 0))
            break;
    }
    list_append(before, &sb->node);
    core->n_live++;
    core->n_paused += sb->info.state == SANDBOX_PAUSED;
}

void sandbox_delist(struct sandbox *sb)
{
    charge_release(&sb->charge);
    if (list_empty(&sb->node))
        return;
    list_remove(&sb->node);
    sb->core->n_live--;
    sb->core->n_paused -= sb->info.state == SANDBOX_PAUSED;
}

const struct sandbox_info *sandbox_info(const struct sandbox *sb)
{
    return &sb->info;
}

const char *sandbox_tenant(const struct sandbox *sb)
{
    return sb->info.tenant == TENANT_DEFAULT ? NULL : tenant_name(sb->core, sb->info.tenant);
}

/* Nobody was told the name of one that is being made, or is hidden. */
static struct sandbox *known(struct sandbox *sb)
{
    return sb && (sb->info.state == SANDBOX_CREATING || sb->info.hidden) ? NULL : sb;
}

struct sandbox *sandbox_find(struct core *core, struct str id)
{
    if (id.n > ID_SANDBOX_LEN && id.p[ID_SANDBOX_LEN] == '-')
        id.n = ID_SANDBOX_LEN;
    if (id.n != ID_SANDBOX_LEN)
        return NULL;
    return known(map_get(&core->by_id, id));
}

bool sandbox_is_hidden(struct core *core, struct str id)
{
    const struct sandbox *sb = map_get(&core->by_id, id);
    if (sb || !id_is_sandbox(id))
        return sb && sb->info.hidden;
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct store_sandbox row;
    struct err err;
    return sandbox_rows_get(core->config.store, arena_str(&arena, id).p, &arena, &row, &err) == 0 &&
           strstr(row.extra, "\"hidden\":true") != NULL;
}

struct sandbox *sandbox_find_by_port_alias(struct core *core, struct str alias)
{
    return known(map_get(&core->by_port_alias, alias));
}

struct sandbox *sandbox_only(struct core *core, const struct principal *who)
{
    struct sandbox *only = NULL;
    LIST_FOREACH (struct sandbox, sb, &core->live, node) {
        if (!view_has(who->view, sb->info.tenant) || (who->sandbox && strcmp(who->sandbox, sb->info.id) != 0))
            continue;
        if (only)
            return NULL;
        only = sb;
    }
    return only;
}

int sandbox_violated(struct sandbox *sb, const struct actor *actor, const struct sandbox_violation *v, struct err *err)
{
    uint64_t seq;
    AUTO_EVENT_DATA struct event_data d =
        EVENT_DATA(DATA_STR("environment", v->environment), DATA_SOME("commit", v->commit), DATA_SOME("path", v->path),
                   DATA_STR("reason", v->reason));
    return action_permit(sb, actor, EVENT_ENV_VIOLATION, event_data_end(&d), &seq, err) < 0
               ? -1
               : keeper_commit(sb->core->keeper, err);
}

int sandbox_received(struct sandbox *sb, const struct actor *actor, const struct sandbox_receipt *r, uint64_t *ret_seq,
                     struct err *err)
{
    enum { DIGEST = 64, COMMIT = 40 };
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    AUTO_BUF struct buf all = BUF_INIT(SANDBOX_COMMITS_MAX * (COMMIT + 3) + 2);
    if (r->digest.n != DIGEST || !str_is_hex(r->digest))
        return err_set(err, ERR_INVALID_ARGUMENT, "digest: 64 hexadecimal digits are needed");
    if (r->n_commits == 0 || r->n_commits > SANDBOX_COMMITS_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "commits: from 1 to %d are needed", SANDBOX_COMMITS_MAX);
    for (size_t i = 0; i < r->n_commits; i++) {
        if (r->commits[i].n != COMMIT || !str_is_hex(r->commits[i]))
            return err_set(err, ERR_INVALID_ARGUMENT, "commits[%zu]: 40 hexadecimal digits are needed", i);
        buf_printf(&all, "%c\"%.*s\"", i ? ',' : '[', STR_ARG(r->commits[i]));
    }
    buf_append_char(&all, ']');
    EVENT_DATA_PUT(&d, DATA_STR("environment", r->environment), DATA_JSON("commits", buf_str(&all)),
                   DATA_STR("digest", r->digest));
    return action_permit(sb, actor, EVENT_ENV_RECEIVED, event_data_end(&d), ret_seq, err) < 0
               ? -1
               : keeper_commit(sb->core->keeper, err);
}

void sandbox_each(struct core *core, bool (*fn)(void *ctx, struct sandbox *sb), void *ctx)
{
    LIST_FOREACH (struct sandbox, sb, &core->live, node) {
        if (!fn(ctx, sb))
            return;
    }
}

size_t sandbox_count(const struct core *core)
{
    return core->n_live;
}

bool sandbox_relay_join(struct sandbox *sb)
{
    if (sb->n_relays == SANDBOX_RELAYS_MAX)
        return false;
    sb->n_relays++;
    return true;
}

void sandbox_relay_leave(struct sandbox *sb)
{
    assert(sb->n_relays);
    sb->n_relays--;
}

void sandbox_watch_end(struct sandbox *sb, struct sandbox_watch *w)
{
    list_append(&sb->watches, &w->node);
    if (sandbox_state_is_over(sb->info.state) && list_empty(&sb->watch_job.node))
        loop_later(sandbox_ref(sb)->core->loop, &sb->watch_job);
}

void sandbox_ignore(void *ctx UNUSED, struct sandbox *sb UNUSED, const struct err *err UNUSED)
{
}

void sandbox_unwatch(struct sandbox_watch *w)
{
    list_remove(&w->node);
}

struct pair *pairs_copy(struct arena *a, const struct pair *pairs, size_t n)
{
    struct pair *copy = n ? arena_alloc(a, n * sizeof(*copy)) : NULL;
    for (size_t i = 0; i < n; i++)
        copy[i] = (struct pair){arena_str(a, pairs[i].key), arena_str(a, pairs[i].value)};
    return copy;
}
