/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/boxes/boxes.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "coved/boxes/boxes_internal.h"
#include "coved/workers/network.h"
#include "tier/files.h"

#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { WAITING_MAX = 1024 };

struct boxes *boxes_new(struct coved_loop *loop, const struct tier_set *set, const struct tier_host *host,
                        uint32_t ready, const struct boxes_events *events, struct coved_network *network,
                        struct jobs *jobs, struct records *records)
{
    struct boxes *b = mem_new(struct boxes);
    b->loop = loop;
    b->set = set;
    b->host = host;
    b->events = *events;
    b->network = network;
    b->ready_wanted = ready;
    b->jobs = jobs;
    b->records = records;
    b->by_id = b->kept = b->wants = b->by_name = MAP_INIT;
    b->processes.source.fd = b->files.source.fd = -1;
    list_init(&b->loose);
    list_init(&b->to_copy);
    list_init(&b->waiting);
    list_init(&b->freezing);
    for (size_t i = 0; i < BOX_STATES; i++)
        list_init(&b->lists[i]);
    int r = boxes_notes_open(host, &b->notes);
    if (r < 0)
        log_error("record which sandboxes are frozen: %s", strerror(-r));
    return b;
}

void boxes_free(struct boxes *b)
{
    assert(boxes_left(b) == 0);
    boxes_forget_wants(b);
    boxes_seen_close(b);
    boxes_keep_fini(b);
    (void)fd_close(b->notes.fd);
    map_fini(&b->by_id);
    map_fini(&b->making);
    mem_free(b);
}

void boxes_enter(struct box_entry *e, enum box_state state)
{
    struct boxes *b = e->owner;
    b->counts[e->state]--;
    list_remove(&e->node);
    e->state = state;
    b->counts[state]++;
    list_append(&b->lists[state], &e->node);
}

static int take_slot(struct boxes *b, uint32_t *ret_slot)
{
    for (uint32_t i = 0; i < SUP_SANDBOXES_MAX; i++) {
        uint32_t slot = (b->next_slot + i) % SUP_SANDBOXES_MAX;
        if (!b->slot_used[slot]) {
            b->next_slot = slot + 1;
            *ret_slot = slot;
            return 0;
        }
    }
    return -ENOSPC;
}

void boxes_refuse(struct boxes *b, struct waiting *w, const struct err *err)
{
    b->events.created(b->events.ctx, w->asked, -1, err);
    mem_free(w);
}

void boxes_wait_again(struct boxes *b, struct waiting *w)
{
    w->again = true;
    list_prepend(&b->waiting, &w->node);
    b->n_waiting++;
}

/* What the next one probably is: no fork's files, which nobody asks for again. */
static void boxes_expect(struct boxes *b, const struct waiting *w)
{
    if (w->request.once && !w->outfit.memory) {
        if (w->outfit.tier != b->last.tier)
            b->last = (struct outfit){.tier = w->outfit.tier};
        return;
    }
    b->last = w->outfit;
    if (w->request.once && w->outfit.memory) {
        b->n_forks = strcmp(b->forked, w->outfit.layer) == 0 ? b->n_forks + 1 : 1;
        memcpy(b->forked, w->outfit.layer, sizeof(b->forked));
        b->last.memory = false;
        b->last.awaits =
            w->outfit.tier->waits_for_memory && files_layer_below(b->host, w->outfit.layer, b->last.layer) == 0;
    }
    /* Programs are told whose they are when they go on: where that can't wait for an owner, only a blank is made. */
    if (w->outfit.memory && !b->last.awaits && (!w->outfit.tier->halts || !b->last.memory))
        b->last = (struct outfit){.tier = w->outfit.tier};
}

static int boxes_own(struct box_entry *e, uint64_t owner, struct err *err)
{
    int r = e->box.has_files ? pool_own(e->owner->host->pool, POOL_BOX, e->box.name, owner) : 0;
    return r < 0 ? err_errno(err, r, "count the sandbox's disk space") : 0;
}

/* The box becomes somebody's. Answers the request. */
static void start_in(struct box_entry *e, struct waiting *w)
{
    struct boxes *b = e->owner;
    struct err err;
    AUTO_CLOSE int session = -1;
    const struct tier_spec spec = {w->request.id, w->request.template_id, w->outfit.limits, w->outfit.disk_bytes};
    if (e->kept && e->kept->is_doomed)
        (void)err_set(&err, ERR_NOT_FOUND, "sandbox %s was killed", w->request.id);
    else if (map_get(&b->by_id, str_of(w->request.id)) || (!e->kept && map_get(&b->kept, str_of(w->request.id))))
        (void)err_set(&err, ERR_ALREADY_EXISTS, "sandbox %s exists", w->request.id);
    else if (boxes_own(e, w->request.owner, &err) == 0 && e->tier->start(b->host, &e->box, &spec, &session, &err) == 0)
        err.code = ERR_OK;
    if (err.code != ERR_OK) {
        boxes_kill_unused(e);
        if (e->warm_since && err.code != ERR_ALREADY_EXISTS && !w->again)
            boxes_wait_again(b, w);
        else
            boxes_refuse(b, w, &err);
        return;
    }
    memcpy(e->id, w->request.id, sizeof(e->id));
    e->may_return = e->kept != NULL;
    memcpy(e->template_id, w->request.template_id, sizeof(e->template_id));
    e->outfit = w->outfit;
    e->started = clock_real();
    (void)map_put(&b->by_id, str_of(e->id), e);
    b->n_failed = 0;
    boxes_enter(e, BOX_RUNNING);
    boxes_seen_begin(e);
    fault_point("coved.create.started");
    boxes_record(e);
    fault_point("coved.create.recorded");
    if (e->kept)
        boxes_kept_taken(TAKE_PTR(e->kept));
    else
        boxes_expect(b, w);
    network_open_box(b->network, e->id, &e->box.net);
    b->events.created(b->events.ctx, w->asked, TAKE_FD(session), NULL);
    mem_free(w);
}

int boxes_dress(struct box_entry *e, const struct outfit *outfit, struct kept *kept, struct err *err)
{
    struct boxes *b = e->owner;
    AUTO_PLAN struct files_plan plan = {.chain = NULL};
    if (files_plan(b->host, outfit->layer, kept ? kept->id : NULL, &plan, err) < 0)
        return -1;
    AUTO_CLOSE int memory_fd = -1;
    if (boxes_memory_take(b, outfit, kept, &memory_fd, err) < 0)
        return -1;
    const struct tier_dress how = {.files = &plan,
                                   .limits = outfit->limits,
                                   .disk_bytes = outfit->disk_bytes,
                                   .memory_fd = memory_fd,
                                   .awaits_memory = outfit->awaits,
                                   .is_ahead = !e->request};
    e->box.is_restored = memory_fd >= 0;
    if (!e->outfit.awaits) /* else it stays on what it stands on, with a copy of the layer above */
        (void)snprintf(e->stands_on, sizeof(e->stands_on), "%s", plan.stands_on);
    e->outfit = *outfit;
    boxes_enter(e, BOX_DRESSING);
    e->kept = kept;
    if (kept) {
        kept->busy++;
        kept->is_whole = false;
        boxes_note(b, kept->id, e->box.name, e->stands_on);
    }
    return e->tier->dress(b->host, &e->box, &how, err);
}

static bool has_size(const struct outfit *o, const struct outfit *like)
{
    return o->limits.memory_bytes == like->limits.memory_bytes && o->limits.cpu_milli == like->limits.cpu_milli &&
           o->disk_bytes == like->disk_bytes;
}

bool boxes_is_alike(const struct outfit *o, const struct outfit *like)
{
    return o->tier == like->tier && o->memory == like->memory && o->awaits == like->awaits &&
           (has_size(o, like) || !(like->tier->is_sized || like->memory)) && strcmp(o->layer, like->layer) == 0;
}

static struct box_entry *find_warm(struct boxes *b, const struct outfit *like)
{
    LIST_FOREACH (struct box_entry, e, &b->lists[BOX_WARM], node) {
        if (boxes_is_alike(&e->outfit, like) && !boxes_body_is_gone(e))
            return e;
    }
    return NULL;
}

/* One that waits for memory, and may have this. */
static struct box_entry *find_awaiting(struct boxes *b, const struct outfit *like)
{
    char below[SUP_DIGEST_MAX] = "";
    LIST_FOREACH (struct box_entry, e, &b->lists[BOX_WARM], node) {
        if (!e->outfit.awaits || e->tier != like->tier || !has_size(&e->outfit, like))
            continue;
        if (!below[0] && files_layer_below(b->host, like->layer, below) < 0)
            break;
        if (strcmp(e->outfit.layer, below) == 0 && !boxes_body_is_gone(e))
            return e;
    }
    return NULL;
}

struct box_entry *boxes_find_blank(struct boxes *b, const struct tier *tier)
{
    LIST_FOREACH (struct box_entry, e, &b->lists[BOX_BLANK], node) {
        if (e->tier == tier && !boxes_body_is_gone(e))
            return e;
    }
    return NULL;
}

/* 1: its files, into *ret_kept if it is to have kept ones; 0: somebody is at them; -1: they are not here. */
static int look_for_kept(struct boxes *b, const struct waiting *w, struct kept **ret_kept, struct err *err)
{
    if (!w->request.kept)
        return 1;
    struct kept *k = boxes_kept_find(b, w->request.id);
    if (!k)
        return err_set(err, ERR_NOT_FOUND, "no files of sandbox %s are kept", w->request.id);
    *ret_kept = k;
    return k->busy == 0;
}

/*
 * What can't be for any reason that we know of: it may be this box's, and who asked gets another one, once. Kept files
 * are in its place by then.
 */
static bool boxes_may_be_its_own(const struct box_entry *e, const struct waiting *w, const struct kept *kept,
                                 const struct err *err)
{
    const bool is_odd = err->code == ERR_PERMISSION_DENIED || err->code == ERR_INTERNAL;
    if (e->state == BOX_BLANK || kept || w->again || !is_odd)
        return false;
    log_warn("a box could not be made ready, another one takes its place: %s", err->msg);
    return true;
}

/* False: there is nothing for it yet. */
static bool serve_one(struct boxes *b, struct waiting *w)
{
    struct err err;
    struct kept *kept = NULL;
    int r = look_for_kept(b, w, &kept, &err);
    struct box_entry *e = r > 0 && !kept ? find_warm(b, &w->outfit) : NULL;
    bool warm = e != NULL;
    if (r > 0 && !e && w->request.once && w->outfit.memory && !w->again)
        e = find_awaiting(b, &w->outfit);
    if (r > 0 && !e)
        e = boxes_find_blank(b, w->outfit.tier);
    if (r >= 0 && !e)
        return false;
    list_remove(&w->node);
    b->n_waiting--;
    if (r < 0) {
        boxes_refuse(b, w, &err);
    } else if (warm) {
        start_in(e, w);
    } else {
        e->request = w;
        if (boxes_dress(e, &w->outfit, kept, &err) < 0) {
            e->request = NULL;
            if (e->warm_since || boxes_may_be_its_own(e, w, kept, &err))
                boxes_wait_again(b, w);
            else
                boxes_refuse(b, w, &err);
            if (e->state != BOX_BLANK)
                boxes_kill_unused(e);
        }
    }
    return true;
}

void boxes_serve(struct boxes *b)
{
    for (bool again = true; again;) {
        const struct tier *stuck[TIER_LIST_MAX]; /* there is nothing for who comes first */
        size_t n_stuck = 0;
        again = false;
        LIST_FOREACH (struct waiting, w, &b->waiting, node) {
            bool is_stuck = false;
            for (size_t i = 0; i < n_stuck; i++)
                is_stuck |= stuck[i] == w->outfit.tier;
            if (is_stuck && !w->request.kept)
                continue;
            if (serve_one(b, w))
                again = true;
            else if (!w->request.kept)
                stuck[n_stuck++] = w->outfit.tier;
        }
    }
}

static void boxes_on_sock(struct source *s, uint32_t events UNUSED)
{
    struct box_entry *e = container_of(s, struct box_entry, sock);
    struct boxes *b = e->owner;
    char message[TIER_MESSAGE_MAX];
    ssize_t n = recv(e->box.sock, message, sizeof(message) - 1, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n > 0 && e->state == BOX_MAKING && message[0] == TIER_READY) {
        if (e->tier->born)
            e->tier->born(&e->box);
        boxes_enter(e, BOX_BLANK);
        boxes_serve(b);
        return;
    }
    const bool runs = n > 0 && e->state == BOX_DRESSING && message[0] == TIER_RUNS;
    /*
     * From the last 'X' on the socket is the agent's: it has nothing to say to coved, and can't: descriptors in what
     * nobody reads would be closed by us, and
     * to close one can take as long as whoever sent it likes.
     */
    if (!runs || !e->outfit.awaits) {
        loop_remove(b->loop, &e->sock);
        (void)shutdown(e->box.sock, SHUT_RD);
    }
    if (runs) {
        if (e->request) {
            start_in(e, TAKE_PTR(e->request));
        } else {
            boxes_enter(e, BOX_WARM);
            b->n_failed = 0;
            e->warm_since = clock_mono();
            boxes_serve(b);
        }
        return;
    }
    if (n > 1 + (ssize_t)sizeof(e->reason_errno) && message[0] == TIER_FAILED) {
        message[n] = 0;
        memcpy(&e->reason_errno, message + 1, sizeof(e->reason_errno));
        (void)snprintf(e->reason, sizeof(e->reason), "%s", message + 1 + sizeof(e->reason_errno));
    }
    boxes_kill_body(e); /* its end comes through the pidfd */
}

struct box_entry *boxes_entry_new(struct boxes *b, const struct tier *tier, uint32_t slot, enum box_state state)
{
    struct box_entry *e = mem_new(struct box_entry);
    e->owner = b;
    e->tier = tier;
    e->state = state;
    e->box.slot = slot;
    e->box.net = NETNS_NONE;
    e->sock.fd = e->pidfd.fd = -1;
    e->box.pidfd = e->box.sock = e->box.userns_fd = e->box.carried_fd = -1;
    e->ended.head.type = SUP_ENDED;
    list_init(&e->tasks);
    list_init(&e->freezing);
    list_init(&e->to_copy);
    list_init(&e->mounted);
    list_init(&e->node);
    b->slot_used[slot] = true;
    list_append(&b->lists[state], &e->node);
    b->counts[state]++;
    return e;
}

int boxes_make_blank(struct boxes *b, const struct tier *tier, struct err *err)
{
    uint32_t slot = 0;
    struct netns net = NETNS_NONE;
    int taken = network_take(b->network, tier->network, &net);
    if (taken == -EAGAIN)
        return 1;
    if (taken < 0)
        return err_errno(err, taken, "make a network namespace");
    int r = take_slot(b, &slot);
    if (r < 0) {
        netns_close(&net);
        (void)err_set(err, ERR_RESOURCE_EXHAUSTED, "all %d slots for sandboxes are taken", SUP_SANDBOXES_MAX);
        return err_because(err, ERR_SLOTS_FULL);
    }
    struct box_entry *e = boxes_entry_new(b, tier, slot, BOX_MAKING);
    e->box.net = net;
    r = tier->blank(b->host, &e->box, err);
    if (e->box.pid > 0) {
        int failed = loop_add(b->loop, &e->pidfd, e->box.pidfd, EPOLLIN, boxes_on_pidfd);
        if (failed == 0 && r == 0)
            failed = loop_add(b->loop, &e->sock, e->box.sock, EPOLLIN, boxes_on_sock);
        if (r == 0 && failed < 0)
            r = err_errno(err, failed, "watch a new process");
        if (r < 0)
            boxes_kill_body(e);
    } else {
        boxes_enter(e, BOX_CLEANING);
        boxes_clean(e);
    }
    return r;
}

void boxes_refuse_waiting(struct boxes *b, const struct tier *tier, const struct err *err)
{
    LIST_FOREACH (struct waiting, w, &b->waiting, node) {
        if (tier && w->outfit.tier != tier)
            continue;
        list_remove(&w->node);
        b->n_waiting--;
        boxes_refuse(b, w, err);
    }
}

/* The one that was asked for, by a coved that died before it could say so. Its first session is lost with that
 * answer. */
static bool create_again(struct boxes *b, uint64_t asked, const char *id)
{
    struct err err;
    int session = -1;
    if (!map_get(&b->by_id, str_of(id)))
        return false;
    int r = boxes_attach(b, id, &session, &err);
    b->events.created(b->events.ctx, asked, session, r < 0 ? &err : NULL);
    return true;
}

void boxes_create(struct boxes *b, uint64_t asked, const struct sup_create *request, uint32_t default_pids,
                  bool is_again)
{
    struct err err;
    int r = 0;
    const struct tier *tier = NULL;
    if (is_again && create_again(b, asked, request->id))
        return;
    if (b->stopping)
        r = err_set(&err, ERR_UNAVAILABLE, "the service is stopping");
    else if (map_get(&b->by_id, str_of(request->id)) || (!request->kept && map_get(&b->kept, str_of(request->id))))
        r = err_set(&err, ERR_ALREADY_EXISTS, "sandbox %s exists", request->id);
    else if (b->n_waiting >= WAITING_MAX)
        r = err_set(&err, ERR_RESOURCE_EXHAUSTED, "%d sandboxes are already being created", WAITING_MAX);
    else
        r = tier_set_choose(b->set, request->tier, &tier, &err);
    if (r < 0) {
        b->events.created(b->events.ctx, asked, -1, &err);
        return;
    }
    struct waiting *w = mem_new(struct waiting);
    w->request = *request;
    w->asked = asked;
    w->outfit.tier = tier;
    w->outfit.limits = (struct tier_limits){.memory_bytes = request->memory_bytes,
                                            .cpu_milli = request->cpu_milli,
                                            .pids = request->pids ? request->pids : default_pids};
    w->outfit.disk_bytes = request->disk_bytes;
    w->outfit.memory = request->memory;
    (void)snprintf(w->outfit.layer, sizeof(w->outfit.layer), "%s", request->layer);
    b->last_create = clock_mono();
    boxes_ahead_is_needed(b);
    list_append(&b->waiting, &w->node);
    b->n_waiting++;
    boxes_serve(b);
}

void boxes_forget(struct boxes *b)
{
    boxes_forget_wants(b);
    LIST_FOREACH (struct waiting, w, &b->waiting, node) {
        list_remove(&w->node);
        b->n_waiting--;
        mem_free(w);
    }
    LIST_FOREACH (struct box_entry, e, &b->lists[BOX_DRESSING], node) {
        mem_free(TAKE_PTR(e->request)); /* it will be a warm one */
        if (e->kept)
            boxes_kill_unused(e);
    }
}
