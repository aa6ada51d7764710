/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sandboxes that outlive coved: what is recorded of each with the keeper (coved/workers/records.h), and how the next
 * coved goes on with it.
 *
 *  1. A box is recorded once it is somebody's and its limits are in force, before anybody is told. One that is not
 *     recorded is nobody's: its processes and files go.
 *  2. What is done to a box changes its record at the moment from which on it is to be finished, if coved dies, and not
 *     undone: see enum life.
 *  3. Whatever was under way otherwise is undone: a box that is not LIFE_FROZEN runs.
 *  4. What can be seen is not recorded: files that are kept, layers, and how a box has ended, which the keeper says.
 */
#include "base/fd.h"
#include "base/log.h"
#include "coved/boxes/boxes_internal.h"
#include "coved/workers/network.h"
#include "coved/workers/records.h"
#include "tier/memory.h"

#include <sys/epoll.h>
#include <sys/pidfd.h>

enum life {
    LIFE_RUNS,
    LIFE_FROZEN,
    LIFE_STOPS /* its files are to be kept */,
    LIFE_SAVES /* runs, or stands still by its tier's means */
};

enum { FORM = 1, ADOPT_NET_FDS = 3 };

/* A coved of a later version reads it: what is added comes at the end, and what is changed changes FORM. */
struct box_record {
    uint32_t form;
    uint32_t life; /* enum life */
    uint64_t started, memory_bytes, disk_bytes;
    uint32_t cpu_milli, pids, n_volumes;
    char id[ID_SANDBOX_LEN + 1];
    char template_id[CONTROL_TEMPLATE_MAX];
    char layer[SUP_DIGEST_MAX], stands_on[SUP_DIGEST_MAX];
    char name[TIER_NAME_MAX], group[TIER_GROUP_MAX];
    char volumes[MOUNTS_MAX][SUP_VOLUME_MAX];
    char tier[SUP_TIER_MAX]; /* since Cove 0.9; not there: the container tier */
    uint32_t may_return;     /* later than that */
};

void boxes_record(struct box_entry *e)
{
    const struct box *box = &e->box;
    const int fds[] = {box->sock, box->net.tcp, box->net.dns_udp, box->net.dns_tcp};
    struct box_record r;
    memset(&r, 0, sizeof(r));
    r.form = FORM;
    r.life = boxes_is_stopping(e)     ? LIFE_STOPS
             : e->state == BOX_FROZEN ? LIFE_FROZEN
             : e->is_saving           ? LIFE_SAVES
                                      : LIFE_RUNS;
    r.started = e->started;
    r.memory_bytes = box->limits.memory_bytes;
    r.cpu_milli = box->limits.cpu_milli;
    r.pids = box->limits.pids;
    r.disk_bytes = box->disk_bytes;
    memcpy(r.id, e->id, sizeof(r.id));
    memcpy(r.template_id, e->template_id, sizeof(r.template_id));
    memcpy(r.layer, e->outfit.layer, sizeof(r.layer));
    memcpy(r.stands_on, e->stands_on, sizeof(r.stands_on));
    memcpy(r.name, box->name, sizeof(r.name));
    memcpy(r.group, box->group, sizeof(r.group));
    r.n_volumes = (uint32_t)boxes_mounted_names(e, r.volumes);
    (void)snprintf(r.tier, sizeof(r.tier), "%s", e->tier->name);
    r.may_return = e->may_return;
    records_put(e->owner->records, KEEPER_BOX, box->slot, box->pid, &r, sizeof(r), fds,
                e->is_recorded     ? 0
                : box->net.tcp < 0 ? 1
                                   : ARRAY_SIZE(fds));
    if (!e->is_recorded && box->carried_fd >= 0)
        records_put(e->owner->records, KEEPER_TREE, box->slot, 0, NULL, 0, &box->carried_fd, 1);
    e->is_recorded = true;
}

void boxes_unrecord(struct box_entry *e)
{
    if (!e->is_recorded)
        return;
    records_drop(e->owner->records, KEEPER_BOX, e->box.slot);
    records_drop(e->owner->records, KEEPER_TREE, e->box.slot);
}

/* ---- the next coved ---- */

static bool read_record(const struct record *left, struct box_record *ret_record)
{
    if (left->size < offsetof(struct box_record, tier) || (left->n_fds != 1 && left->n_fds != 1 + ADOPT_NET_FDS) ||
        left->number >= SUP_SANDBOXES_MAX)
        return false;
    memset(ret_record, 0, sizeof(*ret_record));
    memcpy(ret_record, left->data, MIN((size_t)left->size, sizeof(*ret_record)));
    return ret_record->form == FORM && ret_record->n_volumes <= MOUNTS_MAX;
}

static struct record *next_left(struct records *records, size_t *it, struct box_record *ret_record)
{
    struct record *left;
    while ((left = records_next(records, KEEPER_BOX, it)) && !read_record(left, ret_record))
        ;
    return left;
}

bool boxes_left_group(struct records *records, const char *group)
{
    struct box_record r;
    for (size_t it = 0; next_left(records, &it, &r);)
        if (strcmp(r.group, group) == 0)
            return true;
    return false;
}

bool boxes_left_name(struct records *records, const char *name)
{
    struct box_record r;
    for (size_t it = 0; next_left(records, &it, &r);)
        if (strcmp(r.name, name) == 0)
            return true;
    return false;
}

/* What was made with a tier is ended by it, whether or not new ones may be made. */
static const struct tier *record_tier(const struct boxes *b, const struct box_record *r)
{
    for (size_t i = 0; i < b->set->list.n; i++)
        if (strncmp(b->set->tiers[i]->name, r->tier, sizeof(r->tier)) == 0)
            return b->set->tiers[i];
    return &tier_container;
}

static struct box_entry *restore(struct boxes *b, struct record *left, const struct box_record *r)
{
    const struct tier *tier = record_tier(b, r);
    struct box_entry *e = boxes_entry_new(b, tier, left->number, r->life == LIFE_FROZEN ? BOX_FROZEN : BOX_RUNNING);
    left->is_taken = e->is_recorded = true;
    e->box.pid = left->pid;
    e->box.sock = TAKE_FD(left->fds[0]);
    if (left->n_fds > 1) {
        e->box.net.tcp = TAKE_FD(left->fds[1]);
        e->box.net.dns_udp = TAKE_FD(left->fds[2]);
        e->box.net.dns_tcp = TAKE_FD(left->fds[3]);
    }
    e->box.has_group = e->box.has_files = true;
    int tree_fd = -1;
    struct record *tree;
    for (size_t it = 0; tree_fd < 0 && (tree = records_next(b->records, KEEPER_TREE, &it));)
        if (tree->number == left->number && tree->n_fds == 1) {
            tree_fd = TAKE_FD(tree->fds[0]);
            tree->is_taken = true;
        }
    memcpy(e->box.group, r->group, sizeof(e->box.group));
    memcpy(e->box.name, r->name, sizeof(e->box.name));
    e->box.limits = (struct tier_limits){.memory_bytes = r->memory_bytes, .cpu_milli = r->cpu_milli, .pids = r->pids};
    e->box.disk_bytes = r->disk_bytes;
    tier->adopt(b->host, &e->box, tree_fd);
    e->outfit.tier = tier;
    e->outfit.limits = e->box.limits;
    e->outfit.disk_bytes = r->disk_bytes;
    memcpy(e->outfit.layer, r->layer, sizeof(e->outfit.layer));
    memcpy(e->stands_on, r->stands_on, sizeof(e->stands_on));
    memcpy(e->id, r->id, sizeof(e->id));
    memcpy(e->template_id, r->template_id, sizeof(e->template_id));
    e->started = r->started;
    e->may_return = r->may_return != 0;
    for (uint32_t i = 0; i < r->n_volumes; i++)
        (void)boxes_mounted_add(e, r->volumes[i]);
    (void)map_put(&b->by_id, str_of(e->id), e);
    return e;
}

/* What is kept under its name is the copy of a frozen one; for others it is of no use any more. True: there is one. */
static bool take_copy(struct box_entry *e)
{
    struct kept *copy = map_get(&e->owner->kept, str_of(e->id));
    if (copy) {
        copy->busy++;
        boxes_kept_taken(copy);
    }
    return copy != NULL;
}

static void boxes_adopt_stop(struct box_entry *e)
{
    struct task *t = boxes_task_stop(e);
    t->tries = 1;
    t->memory = memory_is_good(e->owner->host, e->id);
}

/* As far as something was under way with it, that is finished or undone. */
static void boxes_adopt_settle(struct box_entry *e, enum life life)
{
    struct boxes *b = e->owner;
    bool has_copy = take_copy(e);
    e->is_held = true; /* as far as anybody knows */
    switch (life) {
    case LIFE_FROZEN:
        e->has_copy = has_copy;
        if (has_copy)
            break;
        boxes_note(b, e->id, e->box.name, e->stands_on);
        boxes_copy_later(e);
        break;
    case LIFE_STOPS:
        boxes_adopt_stop(e);
        break;
    case LIFE_SAVES:
    case LIFE_RUNS:
        e->has_copy = has_copy;
        boxes_copy_is_stale(e);
        boxes_yield_memory(e, false);
        boxes_thaw(e);
        if (life == LIFE_SAVES)
            boxes_save_over(e, -EINTR);
        break;
    }
    if (e->may_return)
        boxes_note(b, e->id, e->box.name, e->stands_on);
}

void boxes_adopt(struct boxes *b)
{
    struct record *left;
    struct box_record r;
    size_t n = 0;
    for (size_t it = 0; (left = next_left(b->records, &it, &r));) {
        struct box_entry *e = restore(b, left, &r);
        e->box.pidfd = e->box.pid ? fd_lasting(pidfd_open(e->box.pid, 0)) : -1;
        int failed = e->box.pidfd < 0 ? -ESRCH : loop_add(b->loop, &e->pidfd, e->box.pidfd, EPOLLIN, boxes_on_pidfd);
        n++;
        boxes_seen_again(e);
        network_open_box(b->network, e->id, &e->box.net);
        boxes_adopt_settle(e, (enum life)r.life);
        if (failed < 0)
            boxes_on_pidfd(&e->pidfd, 0); /* the keeper had nothing to hold on to */
    }
    boxes_memory_tidy(b);
    if (n)
        log_info("took over %zu running sandboxes of a coved that ended", n);
}
