/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is made ahead of need: `ready_wanted` boxes by coved's own judgement (blank ones, and warm ones for what was
 * asked for last), and beside these as many for each layer as it was told to have.
 */
#include "base/log.h"
#include "base/mem.h"
#include "coved/boxes/boxes_internal.h"
#include "tier/files.h"

#include <sys/sysinfo.h>

enum {
    MAKING_MAX = 2,
    BLANKS_KEPT = 2,
    FAILED_AGAIN_MS = 500, /* doubled with each failure in a row */
    FAILED_AGAIN_MOST_MS = 32000,
    AWAITING_PART = 64,        /* of the machine's memory */
    AWAITING_BYTES = 20 << 20, /* what a monitor has of its own while it waits */
    OTHER_KEPT_USEC = 10 * 1000000,
    REST_USEC = 5000,
    WANTS_MAX = 256,
    WANTED_MAX = 1024, /* in sum: of 4,096 slots */
};

/* As told: so many warm ones of this kind. */
struct want {
    struct outfit outfit;
    uint32_t count, have;
};

static void forget_want(struct boxes *b, struct want *w)
{
    b->n_wanted -= w->count;
    (void)map_del(&b->wants, str_of(w->outfit.layer));
    mem_free(w);
}

void boxes_forget_wants(struct boxes *b)
{
    size_t it = 0;
    for (struct want *w; (w = map_next(&b->wants, &it));)
        mem_free(w);
    map_fini(&b->wants);
    b->n_wanted = 0;
}

int boxes_want(struct boxes *b, const struct sup_warm *m, uint32_t default_pids, struct err *err)
{
    AUTO_PLAN struct files_plan plan = {.chain = NULL};
    const struct tier *tier = NULL;
    struct want *w = map_get(&b->wants, str_of(m->layer));
    uint32_t others = b->n_wanted - (w ? w->count : 0);
    if (m->count == 0) {
        if (w)
            forget_want(b, w);
        return 0;
    }
    if (m->count > WANTED_MAX - others || (!w && map_count(&b->wants) >= WANTS_MAX))
        return err_set(err, ERR_RESOURCE_EXHAUSTED,
                       "at most %d sandboxes of %d layers can be kept ready, and there "
                       "are %u",
                       WANTED_MAX, WANTS_MAX, others);
    if (tier_set_choose(b->set, m->tier, &tier, err) < 0 || files_plan(b->host, m->layer, NULL, &plan, err) < 0)
        return -1;
    if (!w) {
        w = mem_new(struct want);
        (void)snprintf(w->outfit.layer, sizeof(w->outfit.layer), "%s", m->layer);
        (void)map_put(&b->wants, str_of(w->outfit.layer), w);
    }
    w->count = m->count;
    w->outfit.tier = tier;
    w->outfit.limits = (struct tier_limits){
        .memory_bytes = m->memory_bytes, .cpu_milli = m->cpu_milli, .pids = m->pids ? m->pids : default_pids};
    w->outfit.disk_bytes = m->disk_bytes;
    b->n_wanted = others + w->count;
    return 0;
}

void boxes_drop_unused(struct boxes *b, const char *layer)
{
    static const enum box_state states[] = {BOX_WARM, BOX_DRESSING};
    struct want *w = map_get(&b->wants, str_of(layer));
    if (w)
        forget_want(b, w);
    if (strcmp(b->last.layer, layer) == 0)
        b->last.layer[0] = 0;
    for (size_t i = 0; i < ARRAY_SIZE(states); i++)
        LIST_FOREACH (struct box_entry, e, &b->lists[states[i]], node) {
            if (!e->request && !e->kept && (strcmp(e->outfit.layer, layer) == 0 || strcmp(e->stands_on, layer) == 0))
                boxes_kill_unused(e);
        }
}

static struct want *find_want(const struct boxes *b, const struct outfit *outfit)
{
    struct want *w = map_count(&b->wants) ? map_get(&b->wants, str_of(outfit->layer)) : NULL;
    return w && w->outfit.tier == outfit->tier && !outfit->memory && !outfit->awaits ? w : NULL;
}

/* Nobody's, and not on its way out. */
static bool is_ahead(const struct box_entry *e)
{
    return !e->request && !e->kept && !e->ended.cause;
}

struct ahead_stock {
    size_t last; /* warm or soon, for what was asked for last */
    size_t n;    /* of this tier: made, being made, dressed for the next one */
    size_t blank;
    size_t wanted;
};

/* How many may wait for the memory of a fork. */
static uint32_t awaiting_most(void)
{
    struct sysinfo machine;
    return sysinfo(&machine) < 0
               ? 0
               : (uint32_t)((uint64_t)machine.totalram * machine.mem_unit / AWAITING_PART / AWAITING_BYTES);
}

static uint32_t ready_wanted(const struct boxes *b, const struct tier *tier)
{
    /* Of containers, which cost little, some are always there; of another one only while it is being used. */
    if (tier != &tier_container && tier != b->last.tier)
        return 0;
    uint32_t n = MIN(b->ready_wanted, tier->ready);
    /* As many as were forked last. */
    return n && tier == b->last.tier && b->last.awaits ? MAX(n, MIN(b->n_forks, awaiting_most())) : n;
}

static struct ahead_stock take_stock(struct boxes *b, const struct tier *tier)
{
    static const enum box_state states[] = {BOX_WARM, BOX_DRESSING};
    static const enum box_state early[] = {BOX_MAKING, BOX_BLANK};
    struct ahead_stock s = {.wanted = ready_wanted(b, tier)};
    for (size_t i = 0; i < ARRAY_SIZE(early); i++)
        LIST_FOREACH (struct box_entry, e, &b->lists[early[i]], node) {
            s.blank += e->tier == tier;
        }
    s.n = s.blank;
    LIST_FOREACH (struct waiting, w, &b->waiting, node) {
        s.wanted += w->outfit.tier == tier;
    }
    size_t it = 0;
    for (struct want *w; (w = map_next(&b->wants, &it));)
        if (w->outfit.tier == tier) {
            s.wanted += w->count;
            w->have = 0;
        }
    for (size_t i = 0; i < ARRAY_SIZE(states); i++)
        LIST_FOREACH (struct box_entry, e, &b->lists[states[i]], node) {
            if (!is_ahead(e) || e->tier != tier)
                continue;
            s.n++;
            s.last += boxes_is_alike(&e->outfit, &b->last);
            struct want *w = find_want(b, &e->outfit);
            if (w)
                w->have++;
        }
    return s;
}

static struct want *find_short(struct boxes *b, const struct tier *tier)
{
    size_t it = 0;
    for (struct want *w; (w = map_next(&b->wants, &it));)
        if (w->outfit.tier == tier && w->have < w->count)
            return w;
    return NULL;
}

/*
 * Warm beyond what is wanted of its layer. at_once: also one that has not waited long; else who alternates between
 * layers would make us build in vain.
 */
static struct box_entry *find_other(struct boxes *b, const struct tier *tier, const struct ahead_stock *stock,
                                    size_t last_wanted, bool at_once)
{
    usec_t now = clock_mono();
    LIST_FOREACH (struct box_entry, e, &b->lists[BOX_WARM], node) {
        if (e->tier != tier)
            continue;
        const struct want *w = find_want(b, &e->outfit);
        bool last = boxes_is_alike(&e->outfit, &b->last);
        size_t wanted = MAX(w ? w->count : 0, last ? last_wanted : 0);
        size_t have = last ? stock->last : w ? w->have : SIZE_MAX;
        if (have > wanted && (at_once || now - e->warm_since > OTHER_KEPT_USEC))
            return e;
    }
    return NULL;
}

static int dress_ahead(struct boxes *b, struct outfit *outfit, struct err *err)
{
    struct box_entry *e = boxes_find_blank(b, outfit->tier);
    if (!e || boxes_dress(e, outfit, NULL, err) == 0) /* it may have died since it was looked for */
        return 0;
    if (e->state != BOX_BLANK)
        boxes_kill_unused(e);
    return -1;
}

/* Monitors that start cost those whose fork is under way. */
static bool somebody_is_dressed(struct boxes *b)
{
    LIST_FOREACH (struct box_entry, e, &b->lists[BOX_DRESSING], node) {
        if (e->request)
            return true;
    }
    return false;
}

/* One step of work ahead of need for a tier; false when there is nothing to do. */
static bool work_ahead(struct boxes *b, const struct tier *tier, struct err *err, int *ret_r)
{
    const struct ahead_stock stock = take_stock(b, tier);
    const uint32_t ready = ready_wanted(b, tier);
    const bool has_blank = boxes_find_blank(b, tier);
    const size_t blanks_wanted = MIN(ready / 2, (uint32_t)BLANKS_KEPT);
    size_t warm_wanted = b->last.tier == tier ? ready - blanks_wanted : 0;
    bool last_short = b->last.layer[0] && stock.last < warm_wanted;
    if (has_blank && last_short && !b->n_waiting && !(b->last.awaits && somebody_is_dressed(b))) {
        *ret_r = dress_ahead(b, &b->last, err);
        if (*ret_r < 0)
            b->last.layer[0] = 0;
        return true;
    }
    struct want *w = has_blank && !b->n_waiting ? find_short(b, tier) : NULL;
    if (w) {
        *ret_r = dress_ahead(b, &w->outfit, err);
        if (*ret_r < 0)
            forget_want(b, w);
        return true;
    }
    if (stock.n < stock.wanted && b->counts[BOX_MAKING] < MAKING_MAX) {
        *ret_r = boxes_make_blank(b, tier, err);
        return *ret_r <= 0;
    }
    bool too_many = stock.n > stock.wanted;
    struct box_entry *other = NULL;
    /* What is for nobody any more gives way to a blank, too, which is for all. */
    if ((last_short || too_many || stock.blank < MAX(blanks_wanted, 1U)) && !b->counts[BOX_MAKING])
        other = find_other(b, tier, &stock, warm_wanted, too_many);
    if (other) {
        boxes_kill_unused(other);
        return true;
    }
    return false;
}

/* What could not be done for one tier keeps nobody of another one waiting. */
static bool work_ahead_any(struct boxes *b, struct err *err, int *ret_r, const struct tier **ret_tier)
{
    *ret_r = 0;
    for (size_t i = 0; i < b->set->list.n; i++) {
        *ret_tier = b->set->tiers[i];
        if (!b->set->list.at[i].missing[0] && work_ahead(b, *ret_tier, err, ret_r))
            return true;
    }
    return false;
}

/* Whoever just got a sandbox is about to use it: as long as there are enough boxes, leave the processors to them. */
static usec_t rest_until(struct boxes *b)
{
    size_t n = b->counts[BOX_MAKING] + b->counts[BOX_BLANK] + b->counts[BOX_WARM];
    LIST_FOREACH (struct box_entry, e, &b->lists[BOX_DRESSING], node) {
        n += is_ahead(e);
    }
    return n * 2 >= b->ready_wanted ? b->last_create + REST_USEC : 0;
}

static usec_t pause_after(unsigned failures)
{
    usec_t ms = (usec_t)FAILED_AGAIN_MS << MIN(failures, 16U);
    return MIN(ms, (usec_t)FAILED_AGAIN_MOST_MS) * USEC_PER_MS;
}

void boxes_ahead_failed(struct boxes *b, const struct err *err)
{
    log_error("create a spare sandbox: %s", err->msg);
    const unsigned failures = b->n_failed++;
    b->ahead_at = clock_mono() + pause_after(b->n_waiting ? 0 : failures); /* somebody waits for one */
}

void boxes_ahead_is_needed(struct boxes *b)
{
    b->ahead_at = MIN(b->ahead_at, clock_mono() + pause_after(0));
}

usec_t boxes_tick(struct boxes *b, bool idle)
{
    usec_t now = clock_mono(), look_at = MIN(boxes_watch_freezing(b), boxes_keep_tick(b));
    look_at = MIN(look_at, MIN(boxes_memory_tick(b), boxes_seen_tick(b)));
    bool more = false;
    if (b->clean_at && now >= b->clean_at)
        boxes_clean_again(b);
    if (b->ahead_at && now >= b->ahead_at)
        b->ahead_at = 0;
    bool pressing = b->n_waiting > b->counts[BOX_MAKING];
    usec_t rest = rest_until(b);
    if (!b->stopping && !b->ahead_at && now >= rest) {
        struct err err;
        const struct tier *tier = NULL;
        int r = 0;
        more = !(idle || pressing) || work_ahead_any(b, &err, &r, &tier);
        if (r < 0) {
            boxes_refuse_waiting(b, tier, &err);
            boxes_ahead_failed(b, &err);
        }
    }
    if ((more && !b->ahead_at) || look_at == 0)
        return 0;
    usec_t next = look_at;
    if (b->clean_at)
        next = MIN(next, b->clean_at);
    if (b->ahead_at)
        next = MIN(next, b->ahead_at);
    if (rest > now && !b->stopping)
        next = MIN(next, rest);
    return next;
}
