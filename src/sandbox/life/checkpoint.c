/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation
 *
 *  1. One checkpoint of a sandbox is made at a time. What is due meanwhile is made once, after it.
 *  2. From when it is due until it is made nothing is sent to the agent: an action that begins meanwhile takes effect
 *     after it. So for who does one thing after the other, a checkpoint holds all that was done and nothing of what
 *     came next. After CHECKPOINT_HOLD_MS what was held goes on, however slow the disk is.
 *  3. coved makes none when nothing changed since the last one: asking costs a message.
 *  4. What is kept stands in the row of the sandbox, with the layer that it is to go back to. A worker that dies on the
 *     way back leaves that to the next one: a sandbox that is started on its files gets these first. Doing it twice
 *     does nothing more.
 *  5. When there is one too many, the one goes whose neighbours are closest to each other for its age; never the first,
 *     and never one of the last two.
 */
#include "base/mem.h"
#include "guard/rules.h"
#include "sandbox/guard/guard_life.h"
#include "sandbox/life/checkpoint_life.h"
#include "sandbox/life/layers.h"
#include "sandbox/life/sleep.h"
#include "sandbox/life/store.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"

enum { CHECKPOINT_HOLD_MS = 1000, NEWEST = 2 };

struct checkpoints {
    struct sandbox *sb;
    struct checkpoint all[CHECKPOINTS_MAX + 1]; /* room for the one too many */
    size_t n;
    uint64_t counted;  /* actions, of a mode by number */
    bool is_dirty;     /* something began that may change files */
    bool is_full;      /* and that was told */
    uint64_t seq, due; /* of the one that is being made; of the next. 0: none */
    char layer[LAYER_NAME_LEN + 1];
    struct loop_alarm hold;
    struct list waiting;    /* struct waiter */
    struct checkpoint back; /* what it goes back to; seq 0: nothing */
};

static void checkpoint_begin(struct sandbox *sb, uint64_t seq);

static struct checkpoints *checkpoints_of(struct sandbox *sb)
{
    if (!sb->checkpoints) {
        sb->checkpoints = mem_new(struct checkpoints);
        sb->checkpoints->sb = sb;
        list_init(&sb->checkpoints->waiting);
    }
    return sb->checkpoints;
}

int checkpoint_mode(const struct sandbox *sb)
{
    int mode = sb->info.checkpoint ? sb->info.checkpoint : guard_checkpoint_of(sb);
    mode = mode ? mode : sb->core->config.checkpoint;
    return sb->info.hidden || !mode ? CHECKPOINT_OFF : mode;
}

const struct checkpoint *checkpoint_list(const struct sandbox *sb, size_t *ret_n)
{
    *ret_n = sb->checkpoints ? sb->checkpoints->n : 0;
    return sb->checkpoints ? sb->checkpoints->all : NULL;
}

const struct checkpoint *checkpoint_find(const struct sandbox *sb, uint64_t seq)
{
    const struct checkpoints *c = sb->checkpoints;
    for (size_t i = c ? c->n : 0; i-- > 0;)
        if (c->all[i].seq <= seq)
            return &c->all[i];
    return NULL;
}

size_t checkpoint_count(const struct core *core, uint64_t tenant)
{
    size_t n = 0;
    MAP_FOREACH (const struct sandbox, sb, &core->by_id)
        if (sb->info.tenant == tenant && sb->checkpoints)
            n += sb->checkpoints->n;
    return n;
}

/* ---- fewer of them ---- */

/* coved keeps what something stands on; what this does not drop is garbage (layers.c). */
static void checkpoint_drop_layer(struct core *core, const char *layer)
{
    union sup_message m = {.layer_id = {.head = {.type = SUP_LAYER_DROP}}};
    struct err err;
    memcpy(m.layer_id.layer, layer, LAYER_NAME_LEN);
    if (!core->closing && !layers_is_fresh(core, layer))
        (void)!supervisor_call(core->supervisor, &m, NULL, NULL, &err);
}

static void checkpoint_remove(struct checkpoints *c, size_t i)
{
    checkpoint_drop_layer(c->sb->core, c->all[i].layer);
    memmove(&c->all[i], &c->all[i + 1], (--c->n - i) * sizeof(c->all[0]));
}

static void checkpoint_thin(struct checkpoints *c)
{
    usec_t now = clock_real();
    double least = 0;
    size_t which = 0;
    for (size_t i = 1; i + NEWEST < c->n; i++) {
        const struct checkpoint *one = &c->all[i];
        double gap = (double)(one[1].at - one[-1].at + 1) / (double)(now - MIN(one->at, now) + 1);
        if (!which || gap < least) {
            which = i;
            least = gap;
        }
    }
    if (which)
        checkpoint_remove(c, which);
}

void checkpoint_drop(struct sandbox *sb)
{
    while (sb->checkpoints && sb->checkpoints->n)
        checkpoint_remove(sb->checkpoints, sb->checkpoints->n - 1);
}

/* ---- making one ---- */

static void checkpoint_hold(struct checkpoints *c, bool holds)
{
    if (!holds)
        loop_alarm_clear(c->sb->core->loop, &c->hold);
    if (c->sb->session)
        session_hold(c->sb->session, holds);
}

static void checkpoint_on_alarm(struct loop_alarm *alarm)
{
    checkpoint_hold(container_of(alarm, struct checkpoints, hold), false);
}

static void checkpoint_add(struct checkpoints *c, const char *layer)
{
    struct checkpoint *one = &c->all[c->n++];
    *one = (struct checkpoint){.seq = c->seq, .at = clock_real()};
    memcpy(one->layer, layer, sizeof(one->layer));
    if (c->n > CHECKPOINTS_MAX)
        checkpoint_thin(c);
    rows_extra(c->sb);
    layers_settled(c->sb->core, layer);
}

static void checkpoint_on_stored(void *ctx, const struct sup_stored *stored, const struct err *err)
{
    struct sandbox *sb = ctx;
    struct checkpoints *c = sb->checkpoints;
    uint64_t due = c->due;
    checkpoint_hold(c, false);
    if (!err && !stored->is_unchanged && !sandbox_state_is_over(sb->info.state))
        checkpoint_add(c, c->layer);
    c->seq = c->due = 0;
    if (due && !sb->core->closing)
        checkpoint_begin(sb, due);
    if (!c->seq)
        waiters_tell(&c->waiting, sb, NULL);
    sandbox_unref(sb);
}

bool checkpoint_await(struct sandbox *sb, sandbox_fn fn, void *ctx)
{
    bool is_awaited = sb->checkpoints && sb->checkpoints->seq;
    if (is_awaited)
        waiters_add(&sb->checkpoints->waiting, fn, ctx);
    return is_awaited;
}

/* At the limit its own go. */
static int checkpoint_room(struct checkpoints *c, struct err *err)
{
    struct core *core = c->sb->core;
    uint64_t tenant = c->sb->info.tenant;
    if (quota_check_checkpoint(core, tenant, checkpoint_count(core, tenant), err) == 0)
        return 0;
    size_t n = c->n;
    checkpoint_thin(c);
    return c->n < n ? quota_check_checkpoint(core, tenant, checkpoint_count(core, tenant), err) : -1;
}

static void checkpoint_refused(struct checkpoints *c, uint64_t seq, const struct err *err)
{
    if (c->is_full)
        return;
    c->is_full = true;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("failed", err->msg));
    action_observe(c->sb, seq, EVENT_SANDBOX_CHECKPOINTED, EVENT_OBSERVED_HOST, event_data_end(&d));
}

static void checkpoint_begin(struct sandbox *sb, uint64_t seq)
{
    struct checkpoints *c = checkpoints_of(sb);
    struct err err;
    if (sb->info.state != SANDBOX_RUNNING || start_is_under_way(sb))
        return;
    if (c->seq) {
        c->due = seq;
        return;
    }
    if (checkpoint_room(c, &err) < 0) {
        checkpoint_refused(c, seq, &err);
        return;
    }
    const struct store_what what = {
        .kind = EVENT_SANDBOX_CHECKPOINTED, .seq = seq, .unlike = c->n ? c->all[c->n - 1].layer : NULL};
    layer_name_new(c->layer);
    if (store_files(sb, c->layer, &what, checkpoint_on_stored, sb, &err) < 0) {
        checkpoint_refused(c, seq, &err);
        return;
    }
    (void)sandbox_ref(sb);
    c->seq = seq;
    c->is_full = false;
    checkpoint_hold(c, true);
    loop_alarm_set(sb->core->loop, &c->hold, clock_mono() + CHECKPOINT_HOLD_MS * USEC_PER_MS, checkpoint_on_alarm);
}

static bool checkpoint_may_change(enum event_kind kind)
{
    return kind == EVENT_EXEC_START || kind == EVENT_EXEC_INPUT || kind == EVENT_CODE_RUN || kind == EVENT_FILE_WRITE ||
           kind == EVENT_FILE_MKDIR || kind == EVENT_FILE_MOVE || kind == EVENT_FILE_REMOVE ||
           kind == EVENT_FILE_UNPACK;
}

void checkpoint_action(struct sandbox *sb, enum event_kind kind, enum guard_risk risk, uint64_t seq)
{
    int mode = checkpoint_may_change(kind) ? checkpoint_mode(sb) : CHECKPOINT_OFF;
    if (mode == CHECKPOINT_RISK && risk >= RISK_MEDIUM)
        checkpoint_begin(sb, seq);
    if (mode < 0)
        return;
    struct checkpoints *c = checkpoints_of(sb);
    c->is_dirty = true;
    if (!c->n && !c->seq)
        checkpoint_begin(sb, seq);
}

void checkpoint_result(struct sandbox *sb, enum event_kind kind, uint64_t seq)
{
    struct checkpoints *c = sb->checkpoints;
    bool is_file = kind == EVENT_FILE_DONE;
    if (!c || (kind != EVENT_EXEC_EXIT && kind != EVENT_CODE_DONE && !(is_file && c->is_dirty)))
        return;
    int mode = checkpoint_mode(sb);
    c->is_dirty = c->is_dirty && !is_file;
    if (mode > 0 && ++c->counted % (uint64_t)mode == 0)
        checkpoint_begin(sb, seq);
}

/* ---- what is kept ---- */

void checkpoint_each(struct core *core, void (*fn)(void *ctx, const char *layer), void *ctx)
{
    MAP_FOREACH (const struct sandbox, sb, &core->by_id) {
        const struct checkpoints *c = sb->checkpoints;
        for (size_t i = 0; c && i < c->n; i++)
            fn(ctx, c->all[i].layer);
        if (c && c->back.seq)
            fn(ctx, c->back.layer);
    }
}

void checkpoint_free(struct sandbox *sb)
{
    if (sb->checkpoints)
        loop_alarm_clear(sb->core->loop, &sb->checkpoints->hold);
    mem_free(TAKE_PTR(sb->checkpoints));
}

static json_t *checkpoint_one(const struct checkpoint *one)
{
    return json_pack("[I,I,s]", (json_int_t)one->seq, (json_int_t)one->at, one->layer);
}

json_t *checkpoint_row(const struct sandbox *sb)
{
    const struct checkpoints *c = sb->checkpoints;
    if (!c || !(c->n || c->back.seq))
        return NULL;
    json_t *row = json_pack("{s:[]}", "all");
    for (size_t i = 0; i < c->n; i++)
        (void)json_array_append_new(json_object_get(row, "all"), checkpoint_one(&c->all[i]));
    if (c->back.seq)
        (void)json_object_set_new(row, "back", checkpoint_one(&c->back));
    return row;
}

static void checkpoint_read(const json_t *json, struct checkpoint *ret_one)
{
    const char *layer = json_string_value(json_array_get(json, 2));
    struct checkpoint one = {.seq = (uint64_t)json_integer_value(json_array_get(json, 0)),
                             .at = (usec_t)json_integer_value(json_array_get(json, 1))};
    if (!layer || strlen(layer) != LAYER_NAME_LEN || !layer_name_is(layer))
        return;
    memcpy(one.layer, layer, sizeof(one.layer));
    *ret_one = one;
}

void checkpoint_fill(struct sandbox *sb, const json_t *row)
{
    const json_t *all = json_object_get(row, "all");
    if (!row)
        return;
    struct checkpoints *c = checkpoints_of(sb);
    for (size_t i = 0; i < json_array_size(all) && c->n < CHECKPOINTS_MAX; i++) {
        checkpoint_read(json_array_get(all, i), &c->all[c->n]);
        c->n += c->all[c->n].seq != 0;
    }
    checkpoint_read(json_object_get(row, "back"), &c->back);
}

/* ---- and back ---- */

const char *rewind_layer(const struct sandbox *sb)
{
    return sb->checkpoints && sb->checkpoints->back.seq ? sb->checkpoints->back.layer : NULL;
}

void rewind_forget(struct sandbox *sb)
{
    if (!rewind_layer(sb))
        return;
    sb->checkpoints->back.seq = 0;
    rows_extra(sb);
}

void rewind_done(struct sandbox *sb)
{
    AUTO_EVENT_DATA struct event_data d =
        EVENT_DATA(DATA_U64("checkpoint", sb->checkpoints->back.seq), DATA_STR("layer", sb->checkpoints->back.layer));
    action_observe(sb, sb->pause_seq, EVENT_SANDBOX_REWOUND, EVENT_OBSERVED_HOST, event_data_end(&d));
    rewind_forget(sb);
}

struct rewinding {
    uint64_t seq;
    sandbox_fn done;
    void *ctx;
};

static void rewind_on_paused(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct rewinding r = *(struct rewinding *)ctx;
    mem_free(ctx);
    if (err) {
        r.done(r.ctx, NULL, err);
        return;
    }
    waiters_add(&sb->starters, r.done, r.ctx);
    resume_begin(sb, sb->info.timeout_ms, true, r.seq);
}

static int rewind_permitted(const struct sandbox *sb, uint64_t seq, struct err *err)
{
    if (store_permitted(sb, err) < 0)
        return -1;
    if (sb->info.state == SANDBOX_RUNNING && start_is_under_way(sb))
        return err_set(err, ERR_FAILED_PRECONDITION, "sandbox %s is still being started", sb->info.id);
    if (!checkpoint_find(sb, seq))
        return err_set(err, ERR_NOT_FOUND, "sandbox %s has no checkpoint at or before event %llu", sb->info.id,
                       (unsigned long long)seq);
    return sb->info.state == SANDBOX_PAUSED ? resume_limit(sb->core, err) : 0;
}

int sandbox_rewind(struct sandbox *sb, const struct actor *actor, uint64_t seq, sandbox_fn done, void *ctx,
                   struct err *err)
{
    uint64_t action;
    if (rewind_permitted(sb, seq, err) < 0)
        return -1;
    const struct checkpoint one = *checkpoint_find(sb, seq);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_U64("seq", seq), DATA_U64("checkpoint", one.seq));
    if (action_permit(sb, actor, EVENT_SANDBOX_REWIND, event_data_end(&d), &action, err) < 0)
        return -1;
    sb->checkpoints->back = one;
    rows_extra(sb);
    struct rewinding *r = mem_new(struct rewinding);
    *r = (struct rewinding){action, done, ctx};
    if (sb->info.state == SANDBOX_PAUSED) {
        rewind_on_paused(r, sb, NULL);
        return 0;
    }
    waiters_add(&sb->pausers, rewind_on_paused, r);
    pause_start(sb, SUP_PAUSE_FILES, action);
    return 0;
}
