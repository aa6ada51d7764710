/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When memory is short: how much the machine has left is looked at once a second while there are sandboxes.
 *
 * Memory of paused sandboxes, for others.
 *  1. As long as there is enough nothing is taken, and a resume finds everything where it was. When less than an eighth
 *     of the machine's memory is to be had, the one that was paused first gives back what the kernel can put elsewhere,
 *     then the next: pages of files, and where there is swap the rest.
 *  2. A job does it, one at a time and in the background. Who is resumed, or ends, has the job killed, and waits for
 *     nothing.
 *  3. Each gives once between a pause and the resume: what it can't give the first time it can't the second.
 *
 * Memory that no control group counts (unread.h).
 *  4. When the machine loses memory all sandboxes are looked at, running or frozen, in one round: some at each turn of
 *     the loop, so that nobody waits for it.
 *  5. Whoever has more than UNREAD_MOST of a kind, most locks of files, or more netlink sockets than are read is ended,
 *     out of memory (SUP_CAUSE_OOM): the memory goes with its processes, and nothing else takes it back.
 *  6. So it is when what all sockets of the machine have one limit for runs short, counted or not: whoever has more
 *     than UNREAD_MOST in buffers, or many connections that no program has any more.
 */
#include "base/buf.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "coved/boxes/boxes_internal.h"
#include "coved/workers/job.h"

#include <sys/stat.h>

enum { LOOK_MS = 1000, LEAST_PARTS = 8, GIVING_MS = 60000, ROUND_USEC = 5000, NETWORKS_MAX = 64 };

struct giving {
    struct boxes *owner;
    struct box_entry *entry; /* NULL: it runs again, or has ended */
    struct job *job;
    uint64_t before;
    char id[ID_SANDBOX_LEN + 1];
};

/* "MemTotal:       24105000 kB" */
static uint64_t read_kib(struct str text, const char *key)
{
    struct str line;
    uint64_t kib = 0;
    while (str_split(&text, '\n', &line)) {
        if (!str_starts(line, str_of(key)))
            continue;
        struct str rest = str_trim(str_sub(line, strlen(key))), number;
        (void)str_split(&rest, ' ', &number);
        return str_to_u64(number, &kib) < 0 ? 0 : kib;
    }
    return 0;
}

static void boxes_memory_look(struct boxes *b, usec_t now)
{
    AUTO_BUF struct buf text = BUF_INIT(64 * 1024);
    b->memory_at = now + LOOK_MS * USEC_PER_MS;
    b->is_short = fault_error("coved.memory.short") < 0;
    if (fd_read_file(b->host->proc_fd, "meminfo", &text) < 0)
        return;
    uint64_t total = read_kib(buf_str(&text), "MemTotal:"), there = read_kib(buf_str(&text), "MemAvailable:");
    if (total && there < total / LEAST_PARTS)
        b->is_short = true;
    b->unread_pools = unread_pools(b->host->proc_fd);
    bool is_full = b->is_short || b->unread_pools.are_buffers_short || b->unread_pools.are_orphans_many;
    if (unread_is_due(&b->unread, is_full, there << 10, now) && !b->is_looking) {
        b->is_looking = true;
        b->unread_round++;
        unread_bounds_read(b->host->proc_fd, &b->unread_bounds);
        b->has_locker = unread_locks(b->host->proc_fd, b->locker);
    }
}

/* ---- what nobody reads ---- */

static void end_of_body(struct box_entry *e, const char *what)
{
    struct err err;
    (void)err_set(&err, ERR_ABORTED, "sandbox %s is ended because of its memory: it holds %s", e->id, what);
    e->ended.cause = SUP_CAUSE_OOM;
    boxes_tasks_abort(e, &err);
    boxes_kill_body(e);
}

static void end_for(struct box_entry *e, const char *what)
{
    log_warn("the machine is losing memory: sandbox %s holds %s that no control group counts, and is ended", e->id,
             what);
    end_of_body(e, what);
}

/* Of what the whole machine has one limit for. */
static void end_for_share(struct box_entry *e, const char *what)
{
    log_warn("the machine's limit for all sockets is near: sandbox %s holds %s, and is ended", e->id, what);
    end_of_body(e, what);
}

struct look_sum {
    size_t n_networks;
    uint64_t netlink;
    struct unread_connections nobodys;
};

/* In the network that the process is in; sum: with what was found before. True: it is ended for that. */
static bool look_at_network(struct box_entry *e, pid_t pid, struct look_sum *sum)
{
    int proc_fd = e->owner->host->proc_fd, r;
    char what[64];
    uint64_t bytes = 0;
    struct unread_connections nobodys = {0};
    const struct unread_may may = unread_may(proc_fd, pid, sum->n_networks, &e->owner->unread_bounds);
    r = may.netlink ? unread_bytes(proc_fd, pid, &bytes) : 0;
    if (r == -ENOBUFS) {
        end_for(e, "thousands of netlink sockets");
        return true;
    }
    sum->netlink += r == 0 ? bytes : 0;
    if (sum->netlink > UNREAD_MOST) {
        (void)snprintf(what, sizeof(what), "%llu MiB unread in netlink sockets",
                       (unsigned long long)sum->netlink >> 20);
        end_for(e, what);
        return true;
    }
    if (!may.tcp || unread_connections(proc_fd, pid, &nobodys) < 0)
        return false;
    sum->nobodys.bytes += nobodys.bytes;
    sum->nobodys.orphans += nobodys.orphans;
    const bool is_large = sum->nobodys.bytes > UNREAD_MOST;
    const bool are_many =
        e->owner->unread_pools.are_orphans_many && sum->nobodys.orphans > e->owner->unread_bounds.orphans;
    if (is_large)
        end_for(e, "more than 64 MiB in connections that no program has accepted");
    else if (are_many)
        end_for_share(e, "many connections that no program has any more");
    return is_large || are_many;
}

static bool look_at_buffers(struct box_entry *e)
{
    struct tier_usage usage = {0};
    char what[64];
    if (!e->owner->unread_pools.are_buffers_short ||
        e->tier->usage(e->owner->host, &e->box, clock_real() - MIN(clock_real(), e->started), &usage) < 0 ||
        usage.socket_bytes <= UNREAD_MOST)
        return false;
    (void)snprintf(what, sizeof(what), "%llu MiB in buffers of its sockets",
                   (unsigned long long)usage.socket_bytes >> 20);
    end_for_share(e, what);
    return true;
}

static ino_t look_network(const struct box_entry *e, pid_t pid)
{
    char path[32];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%d/ns/net", (int)pid);
    return fstatat(e->owner->host->proc_fd, path, &st, 0) < 0 ? 0 : st.st_ino;
}

/*
 * A process in each of the sandbox's networks: its own, and those of isolated sessions, whose first processes are
 * children of the sandbox's. More of these are not looked for than there can be sessions.
 */
static size_t look_networks(const struct box_entry *e, pid_t pids[static NETWORKS_MAX])
{
    AUTO_BUF struct buf text = BUF_INIT(UNREAD_TEXT_MAX);
    ino_t seen[NETWORKS_MAX] = {look_network(e, e->box.pid)};
    char path[48];
    uint64_t pid;
    size_t n = 1;
    struct str rest, word;
    pids[0] = e->box.pid;
    (void)snprintf(path, sizeof(path), "%d/task/%d/children", (int)e->box.pid, (int)e->box.pid);
    int ignored UNUSED = fd_read_file(e->owner->host->proc_fd, path, &text);
    for (rest = buf_str(&text); n < NETWORKS_MAX && str_split(&rest, ' ', &word);) {
        const ino_t one = str_to_u64(word, &pid) < 0 ? 0 : look_network(e, (pid_t)pid);
        bool is_new = one != 0;
        for (size_t i = 0; i < n; i++)
            is_new &= seen[i] != one;
        if (!is_new)
            continue;
        seen[n] = one;
        pids[n++] = (pid_t)pid;
    }
    return n;
}

/* True: it is ended for what its networks hold together. */
static bool look_at_networks(struct box_entry *e)
{
    pid_t pids[NETWORKS_MAX];
    const size_t n = look_networks(e, pids);
    struct look_sum sum = {.n_networks = n};
    for (size_t i = 0; i < n; i++)
        if (look_at_network(e, pids[i], &sum))
            return true;
    return false;
}

static void look_at(struct box_entry *e)
{
    char group[UNREAD_GROUP_MAX] = "";
    if (look_at_networks(e) || look_at_buffers(e) || !e->owner->has_locker)
        return;
    (e->owner->locker[0] == '/' ? unread_group : unread_device)(e->owner->host->proc_fd, e->box.pid, group);
    if (strcmp(group, e->owner->locker) == 0)
        end_for(e, "most of the machine's locks of files");
}

/* False: there are more. Whose end has begun needs none. */
static bool look_at_some(struct boxes *b, enum box_state state, usec_t until)
{
    LIST_FOREACH (struct box_entry, e, &b->lists[state], node) {
        if (e->unread_round == b->unread_round || e->ended.cause || boxes_is_stopping(e))
            continue;
        if (clock_mono() >= until)
            return false;
        e->unread_round = b->unread_round;
        look_at(e);
    }
    return true;
}

/* ---- what paused ones have ---- */

uint64_t boxes_memory_usage(struct box_entry *e)
{
    struct tier_usage usage = {0};
    int ignored UNUSED = e->tier->usage(e->owner->host, &e->box, clock_real() - MIN(clock_real(), e->started), &usage);
    return usage.memory_bytes;
}

static int boxes_memory_give(void *ctx)
{
    const struct giving *g = ctx;
    return g->entry->tier->reclaim(g->owner->host, &g->entry->box); /* without an entry it was killed before it began */
}

static void given(void *ctx, int r)
{
    struct giving *g = ctx;
    g->owner->n_giving--;
    g->owner->memory_at = 0;
    if (g->entry) {
        uint64_t now = boxes_memory_usage(g->entry);
        g->entry->giving = NULL;
        g->entry->has_given = true;
        if (r < 0)
            log_warn("reclaim memory from paused sandbox %s: %s", g->id, strerror(-r));
        else
            log_info("memory is short: paused sandbox %s has given back %llu of %llu MiB", g->id,
                     (unsigned long long)(g->before - MIN(now, g->before)) >> 20, (unsigned long long)g->before >> 20);
    }
    mem_free(g);
}

static void boxes_memory_begin(struct box_entry *e)
{
    struct boxes *b = e->owner;
    struct giving *g = mem_new(struct giving);
    g->owner = b;
    g->entry = e;
    memcpy(g->id, e->id, sizeof(g->id));
    g->before = boxes_memory_usage(e);
    const struct job_spec spec = {.name = "take memory",
                                  .run = boxes_memory_give,
                                  .done = given,
                                  .ctx = g,
                                  .is_background = true,
                                  .limit_ms = GIVING_MS};
    e->giving = g;
    b->n_giving++;
    g->job = job_add(b->jobs, &spec);
}

void boxes_memory_stays(struct box_entry *e)
{
    struct giving *g = TAKE_PTR(e->giving);
    if (!g)
        return;
    g->entry = NULL;
    job_kill(g->job);
}

static struct box_entry *next(struct boxes *b)
{
    LIST_FOREACH (struct box_entry, e, &b->lists[BOX_FROZEN], node) {
        if (!e->has_given && !e->n_tasks && tier_set_powers(b->set, e->tier)->reclaim)
            return e;
    }
    return NULL;
}

usec_t boxes_memory_tick(struct boxes *b)
{
    usec_t now = clock_mono();
    if (b->stopping || boxes_running(b) == 0)
        return UINT64_MAX;
    if (now >= b->memory_at) {
        boxes_memory_look(b, now);
        boxes_terminals_look(b);
    }
    if (b->is_looking)
        b->is_looking =
            !look_at_some(b, BOX_RUNNING, now + ROUND_USEC) || !look_at_some(b, BOX_FROZEN, now + ROUND_USEC);
    if (b->is_short && !b->n_giving) {
        struct box_entry *e = next(b);
        b->is_short = false; /* as far as this look goes */
        if (e)
            boxes_memory_begin(e);
    }
    return b->is_looking ? now : b->memory_at;
}
