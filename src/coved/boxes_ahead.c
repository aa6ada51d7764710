/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "coved/boxes_internal.h"

#include <string.h>

enum { MAKING_MAX = 2, BLANKS_KEPT = 2, FAILED_AGAIN_MS = 500, OTHER_KEPT_USEC = 10 * 1000000, REST_USEC = 5000 };

/* Nobody's, or not yet: made, being made, dressed for the next one. */
static size_t ahead(struct boxes *b)
{
    size_t n = b->counts[BOX_MAKING] + b->counts[BOX_BLANK] + b->counts[BOX_WARM];
    LIST_FOREACH (struct entry, e, &b->lists[BOX_DRESSING], node) {
        n += !e->request;
    }
    return n;
}

static size_t matching(struct boxes *b)
{
    static const enum box_state states[] = {BOX_WARM, BOX_DRESSING};
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(states); i++)
        LIST_FOREACH (struct entry, e, &b->lists[states[i]], node) {
            n += !e->request && strcmp(e->outfit.layer, b->last.layer) == 0;
        }
    return n;
}

/* Warm for another layer, for so long that nobody seems to want it: who alternates between layers must not make us build in vain. */
static struct entry *find_other(struct boxes *b)
{
    usec_t now = clock_mono();
    LIST_FOREACH (struct entry, e, &b->lists[BOX_WARM], node) {
        if (strcmp(e->outfit.layer, b->last.layer) != 0 && now - e->warm_since > OTHER_KEPT_USEC)
            return e;
    }
    return NULL;
}

/* One step of work ahead of need; false when there is nothing to do. */
static bool work_ahead(struct boxes *b, struct err *err, int *ret_r)
{
    *ret_r = 0;
    size_t have = ahead(b), warm = matching(b),
           warm_wanted = b->ready_wanted - MIN(b->ready_wanted, (uint32_t)BLANKS_KEPT);
    if (b->last.layer[0] && b->counts[BOX_BLANK] && warm < warm_wanted && !b->n_waiting) {
        struct entry *e = LIST_FIRST(struct entry, &b->lists[BOX_BLANK], node);
        *ret_r = boxes_dress(e, &b->last, NULL, err);
        if (*ret_r < 0) {
            b->last.layer[0] = 0;
            if (e->state != BOX_BLANK)
                boxes_kill_body(e);
        }
        return true;
    }
    if (have < b->ready_wanted + b->n_waiting && b->counts[BOX_MAKING] < MAKING_MAX) {
        *ret_r = boxes_make_blank(b, err);
        return *ret_r <= 0;
    }
    struct entry *other = b->last.layer[0] && warm < warm_wanted && !b->counts[BOX_MAKING] ? find_other(b) : NULL;
    if (other) {
        boxes_kill_unused(other);
        return true;
    }
    return false;
}

usec_t boxes_tick(struct boxes *b, bool idle)
{
    usec_t now = clock_mono(), look_at = MIN(boxes_watch_freezing(b), boxes_keep_tick(b));
    bool more = false;
    if (b->clean_at && now >= b->clean_at)
        boxes_clean_again(b);
    if (b->ahead_at && now >= b->ahead_at)
        b->ahead_at = 0;
    bool pressing = b->n_waiting > b->counts[BOX_MAKING];
    /* Whoever just got a sandbox is about to use it: as long as there are enough boxes, leave the processors to them. */
    usec_t rest_until = ahead(b) * 2 >= b->ready_wanted ? b->last_create + REST_USEC : 0;
    if (!b->stopping && !b->ahead_at && now >= rest_until) {
        struct err err;
        int r = 0;
        more = !(idle || pressing) || work_ahead(b, &err, &r);
        if (r < 0) {
            boxes_refuse_waiting(b, &err);
            log_error("make a sandbox ahead of need: %s", err.msg);
            b->ahead_at = clock_mono() + FAILED_AGAIN_MS * USEC_PER_MS;
        }
    }
    if ((more && !b->ahead_at) || look_at == 0)
        return 0;
    usec_t next = look_at;
    if (b->clean_at)
        next = MIN(next, b->clean_at);
    if (b->ahead_at)
        next = MIN(next, b->ahead_at);
    if (rest_until > now && !b->stopping)
        next = MIN(next, rest_until);
    return next;
}
