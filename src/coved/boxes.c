/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/boxes.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "kernel/cgroup.h"
#include "kernel/pool.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAITING_MAX = 1024, MAKING_MAX = 2, CLEAN_AGAIN_MS = 2, BLANK_AGAIN_MS = 500 };

enum box_state {
    BOX_MAKING,   /* its body sets itself up */
    BOX_BLANK,    /* ready, nobody's */
    BOX_STARTING, /* a request waits for it */
    BOX_RUNNING,
    BOX_CLEANING, /* reaped, not yet all gone */
};

struct entry {
    struct list node; /* in the list of its state */
    struct boxes *owner;
    struct box box;
    enum box_state state;
    struct source sock, pidfd;
    bool was_created;  /* reported as created: its end must be too */
    bool has_request;
    uint32_t tag;
    int session_fd;    /* held until the agent runs */
    usec_t started;    /* real time */
    uint64_t memory_limit;
    struct sup_ended ended;
    char reason[TIER_MESSAGE_MAX]; /* why the body failed */
};

struct waiting {
    struct list node;
    struct sup_create request;
    uint32_t pids;
};

struct boxes {
    struct loop *loop;
    const struct tier *tier;
    const struct tier_host *host;
    struct boxes_events events;
    uint32_t blanks_wanted;
    struct list making, blanks, live, cleaning, waiting;
    size_t n_making, n_blanks, n_live, n_cleaning, n_waiting;
    struct map by_id;
    bool slot_used[SUP_SANDBOXES_MAX];
    uint32_t next_slot;
    usec_t clean_at, blank_at; /* monotonic; 0: none */
    bool stopping;
};

struct boxes *boxes_new(struct loop *loop, const struct tier *tier, const struct tier_host *host, uint32_t blanks,
                        const struct boxes_events *events)
{
    struct boxes *b = mem_new(struct boxes);
    b->loop = loop;
    b->tier = tier;
    b->host = host;
    b->events = *events;
    b->blanks_wanted = blanks;
    b->by_id = MAP_INIT;
    list_init(&b->making);
    list_init(&b->blanks);
    list_init(&b->live);
    list_init(&b->cleaning);
    list_init(&b->waiting);
    return b;
}

void boxes_free(struct boxes *b)
{
    assert(boxes_left(b) == 0);
    map_fini(&b->by_id);
    mem_free(b);
}

size_t boxes_running(const struct boxes *b)
{
    return b->n_live;
}

size_t boxes_left(const struct boxes *b)
{
    return b->n_making + b->n_blanks + b->n_live + b->n_cleaning;
}

static size_t *counter(struct boxes *b, enum box_state state, struct list **ret_list)
{
    switch (state) {
    case BOX_MAKING:
        *ret_list = &b->making;
        return &b->n_making;
    case BOX_BLANK:
        *ret_list = &b->blanks;
        return &b->n_blanks;
    case BOX_STARTING:
    case BOX_RUNNING:
        *ret_list = &b->live;
        return &b->n_live;
    case BOX_CLEANING:
        break;
    }
    *ret_list = &b->cleaning;
    return &b->n_cleaning;
}

static void enter(struct entry *e, enum box_state state)
{
    struct list *l;
    (*counter(e->owner, e->state, &l))--;
    list_remove(&e->node);
    e->state = state;
    (*counter(e->owner, state, &l))++;
    list_append(l, &e->node);
}

static int take_slot(struct boxes *b, uint32_t *ret_slot)
{
    for (uint32_t i = 0; i < SUP_SANDBOXES_MAX; i++) {
        uint32_t slot = (b->next_slot + i) % SUP_SANDBOXES_MAX;
        if (!b->slot_used[slot]) {
            b->slot_used[slot] = true;
            b->next_slot = slot + 1;
            *ret_slot = slot;
            return 0;
        }
    }
    return -ENOSPC;
}

static void answer(struct entry *e, const struct err *err)
{
    if (!e->has_request)
        return;
    e->has_request = false;
    e->was_created = !err;
    e->owner->events.created(e->owner->events.ctx, e->tag, err ? -1 : TAKE_FD(e->session_fd), err);
}

static void kill_body(struct entry *e)
{
    if (e->box.pidfd >= 0 && e->state != BOX_CLEANING)
        (void)pidfd_send_signal(e->box.pidfd, SIGKILL, NULL, 0);
}

static void forget(struct entry *e)
{
    struct boxes *b = e->owner;
    struct list *l;
    (*counter(b, e->state, &l))--;
    list_remove(&e->node);
    b->slot_used[e->box.slot] = false;
    e->session_fd = fd_close(e->session_fd);
    if (e->was_created)
        b->events.ended(b->events.ctx, &e->ended);
    mem_free(e);
}

/* Reaped: get rid of the rest, now or a little later (a group may be busy until the kernel has let its last task go). */
static void clean(struct entry *e)
{
    struct boxes *b = e->owner;
    int r = b->tier->clean(b->host, &e->box);
    if (r == -EBUSY) {
        if (!b->clean_at)
            b->clean_at = clock_mono() + CLEAN_AGAIN_MS * USEC_PER_MS;
        return;
    }
    if (r < 0)
        log_error("sandbox %s: clean up slot %u: %s", e->box.id, e->box.slot, strerror(-r));
    forget(e);
}

static void set_cause(struct entry *e, const siginfo_t *info)
{
    struct sup_ended *end = &e->ended;
    struct cgroup_usage usage = {0};
    if (cgroup_usage(e->owner->host->cgroups, e->box.group, &usage) == 0)
        end->oom_kills = usage.oom_kills;
    end->status = (uint32_t)info->si_status;
    if (end->cause)
        return;
    if (info->si_code == CLD_EXITED)
        end->cause = SUP_CAUSE_EXITED;
    else
        end->cause = info->si_status == SIGKILL && end->oom_kills ? SUP_CAUSE_OOM : SUP_CAUSE_SIGNALED;
}

static void on_pidfd(struct source *s, uint32_t events UNUSED)
{
    struct entry *e = container_of(s, struct entry, pidfd);
    struct boxes *b = e->owner;
    siginfo_t info = {0};
    if (waitid(P_PIDFD, (id_t)e->box.pidfd, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
        return;
    set_cause(e, &info);
    loop_remove(b->loop, &e->pidfd);
    loop_remove(b->loop, &e->sock);
    if (e->has_request) {
        struct err err;
        (void)err_set(&err, ERR_INTERNAL, "the sandbox's first process ended early%s%s", e->reason[0] ? ": " : "", e->reason);
        answer(e, &err);
    } else if (e->reason[0] && !b->stopping) {
        log_error("make a sandbox ahead of need: %s", e->reason);
        b->blank_at = clock_mono() + BLANK_AGAIN_MS * USEC_PER_MS;
    }
    if (map_get(&b->by_id, str_of(e->box.id)) == e)
        (void)map_del(&b->by_id, str_of(e->box.id));
    memcpy(e->ended.id, e->box.id, sizeof(e->ended.id));
    e->box.pid = 0;
    enter(e, BOX_CLEANING);
    clean(e);
}

static void start_next(struct boxes *b);

static void on_sock(struct source *s, uint32_t events UNUSED)
{
    struct entry *e = container_of(s, struct entry, sock);
    char message[TIER_MESSAGE_MAX];
    ssize_t n = recv(e->box.sock, message, sizeof(message) - 1, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n > 0 && e->state == BOX_MAKING && message[0] == TIER_READY) {
        enter(e, BOX_BLANK);
        start_next(e->owner);
        return;
    }
    if (n > 0 && e->state == BOX_STARTING && message[0] == TIER_RUNS) {
        /* From here on the socket is the agent's: it has nothing to say to coved, and is not listened to. */
        loop_remove(e->owner->loop, &e->sock);
        enter(e, BOX_RUNNING);
        answer(e, NULL);
        return;
    }
    if (n > 0 && message[0] == TIER_FAILED) {
        message[n] = 0;
        (void)snprintf(e->reason, sizeof(e->reason), "%s", message + 1);
    }
    loop_remove(e->owner->loop, &e->sock);
    kill_body(e); /* its end comes through the pidfd */
}

static int make_blank(struct boxes *b, struct err *err)
{
    struct entry *e = mem_new(struct entry);
    e->owner = b;
    e->state = BOX_MAKING;
    e->session_fd = e->sock.fd = e->pidfd.fd = -1;
    e->box.pidfd = e->box.sock = e->box.userns_fd = -1;
    e->ended.head.type = SUP_ENDED;
    int r = take_slot(b, &e->box.slot);
    if (r < 0) {
        mem_free(e);
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "all %d slots for sandboxes are taken", SUP_SANDBOXES_MAX);
    }
    list_init(&e->node);
    list_append(&b->making, &e->node);
    b->n_making++;
    r = b->tier->blank(b->host, &e->box, err);
    if (e->box.pid > 0) {
        int failed = loop_add(b->loop, &e->pidfd, e->box.pidfd, EPOLLIN, on_pidfd);
        if (failed == 0 && r == 0)
            failed = loop_add(b->loop, &e->sock, e->box.sock, EPOLLIN, on_sock);
        if (r == 0 && failed < 0)
            r = err_errno(err, failed, "watch a new process");
        if (r < 0)
            kill_body(e);
    } else {
        enter(e, BOX_CLEANING);
        clean(e);
    }
    return r;
}

static void start_in(struct entry *e, const struct waiting *w)
{
    struct boxes *b = e->owner;
    const struct sup_create *q = &w->request;
    struct err err;
    AUTO_CLOSE int layer = -1;
    e->tag = q->head.tag;
    e->has_request = true;
    e->started = clock_real();
    e->memory_limit = q->memory_bytes;
    int r = pool_layer_open(b->host->pool, q->layer, &layer);
    if (r < 0) {
        r = err_set(&err, ERR_NOT_FOUND, "layer %s is not in the storage pool", q->layer);
    } else {
        const struct tier_spec spec = {q->id, q->template_id, layer, q->memory_bytes, q->cpu_milli, w->pids};
        r = b->tier->start(b->host, &e->box, &spec, &err);
    }
    if (r == 0)
        r = tier_open_session(&e->box, &e->session_fd, &err);
    if (r < 0) {
        answer(e, &err);
        kill_body(e);
    }
    else
        (void)map_put(&b->by_id, str_of(e->box.id), e);
    enter(e, BOX_STARTING);
}

static void start_next(struct boxes *b)
{
    while (b->n_waiting && b->n_blanks) {
        struct waiting *w = LIST_FIRST(struct waiting, &b->waiting, node);
        list_remove(&w->node);
        b->n_waiting--;
        start_in(LIST_FIRST(struct entry, &b->blanks, node), w);
        mem_free(w);
    }
}

static void refuse_all(struct boxes *b, const struct err *err)
{
    LIST_FOREACH(struct waiting, w, &b->waiting, node)
    {
        list_remove(&w->node);
        b->n_waiting--;
        b->events.created(b->events.ctx, w->request.head.tag, -1, err);
        mem_free(w);
    }
}

void boxes_create(struct boxes *b, const struct sup_create *request, uint32_t default_pids)
{
    struct err err;
    int r = 0;
    if (b->stopping)
        r = err_set(&err, ERR_UNAVAILABLE, "the service is stopping");
    else if (map_get(&b->by_id, str_of(request->id)))
        r = err_set(&err, ERR_ALREADY_EXISTS, "sandbox %s exists", request->id);
    else if (b->n_waiting >= WAITING_MAX)
        r = err_set(&err, ERR_RESOURCE_EXHAUSTED, "%d sandboxes are being made already", WAITING_MAX);
    if (r < 0) {
        b->events.created(b->events.ctx, request->head.tag, -1, &err);
        return;
    }
    struct waiting *w = mem_new(struct waiting);
    w->request = *request;
    w->pids = request->pids ? request->pids : default_pids;
    list_append(&b->waiting, &w->node);
    b->n_waiting++;
    start_next(b);
}

static struct entry *find(struct boxes *b, const char *id, struct err *err)
{
    struct entry *e = map_get(&b->by_id, str_of(id));
    if (!e)
        (void)err_set(err, ERR_NOT_FOUND, "sandbox %s is not here", id);
    return e;
}

int boxes_kill(struct boxes *b, const char *id, struct err *err)
{
    struct entry *e = find(b, id, err);
    if (!e)
        return -1;
    if (!e->ended.cause)
        e->ended.cause = SUP_CAUSE_KILLED;
    kill_body(e);
    return 0;
}

int boxes_attach(struct boxes *b, const char *id, int *ret_session_fd, struct err *err)
{
    struct entry *e = find(b, id, err);
    if (!e)
        return -1;
    if (e->state != BOX_RUNNING)
        return err_set(err, ERR_FAILED_PRECONDITION, "sandbox %s is not running yet", id);
    return tier_open_session(&e->box, ret_session_fd, err);
}

int boxes_usage(struct boxes *b, const char *id, struct sup_used *ret_used, struct err *err)
{
    struct entry *e = find(b, id, err);
    if (!e)
        return -1;
    struct cgroup_usage u = {0};
    int r = cgroup_usage(b->host->cgroups, e->box.group, &u);
    if (r < 0)
        return err_errno(err, r, "read control group %s", e->box.group);
    ret_used->cpu_usec = u.cpu_usec;
    ret_used->memory_bytes = u.memory_bytes;
    ret_used->cache_bytes = u.cache_bytes;
    ret_used->memory_limit_bytes = e->memory_limit;
    ret_used->pids = u.pids;
    ret_used->oom_kills = u.oom_kills;
    return 0;
}

void boxes_each(struct boxes *b, void (*fn)(void *ctx, const char *id, usec_t started), void *ctx)
{
    LIST_FOREACH(struct entry, e, &b->live, node)
    {
        if (e->state == BOX_RUNNING)
            fn(ctx, e->box.id, e->started);
    }
}

static void tick_clean(struct boxes *b)
{
    b->clean_at = 0;
    LIST_FOREACH(struct entry, e, &b->cleaning, node)
    {
        clean(e);
    }
}

/* Blanks are wanted for those who wait and for those who will. */
static bool wants_blank(const struct boxes *b)
{
    return !b->stopping && b->n_making < MAKING_MAX && b->n_blanks + b->n_making < b->blanks_wanted + b->n_waiting;
}

usec_t boxes_tick(struct boxes *b, bool idle)
{
    usec_t now = clock_mono();
    if (b->clean_at && now >= b->clean_at)
        tick_clean(b);
    if (b->blank_at && now >= b->blank_at)
        b->blank_at = 0;
    bool pressing = b->n_waiting > b->n_making;
    if (wants_blank(b) && !b->blank_at && (idle || pressing)) {
        struct err err;
        if (make_blank(b, &err) < 0) {
            refuse_all(b, &err);
            log_error("make a sandbox ahead of need: %s", err.msg);
            b->blank_at = clock_mono() + BLANK_AGAIN_MS * USEC_PER_MS;
        }
    }
    if (wants_blank(b) && !b->blank_at)
        return 0;
    usec_t next = UINT64_MAX;
    if (b->clean_at)
        next = MIN(next, b->clean_at);
    if (b->blank_at)
        next = MIN(next, b->blank_at);
    return next;
}

void boxes_shutdown(struct boxes *b)
{
    struct list *lists[] = {&b->making, &b->blanks, &b->live};
    struct err err;
    b->stopping = true;
    (void)err_set(&err, ERR_UNAVAILABLE, "the service is stopping");
    refuse_all(b, &err);
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
        LIST_FOREACH(struct entry, e, lists[i], node)
        {
            if (!e->ended.cause)
                e->ended.cause = SUP_CAUSE_SHUTDOWN;
            kill_body(e);
        }
}
