/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of paused sandboxes, for others.
 *
 *  1. As long as there is enough nothing is taken, and a resume finds everything where it was. When less than an eighth of the machine's memory is to be had, the
 *     one that was paused first gives back what the kernel can put elsewhere, then the next: pages of files, and where there is swap the rest.
 *  2. A job does it, one at a time and in the background. Who is resumed, or ends, has the job killed, and waits for nothing.
 *  3. Each gives once between a pause and the resume: what it can't give the first time it can't the second.
 */
#include "base/buf.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "coved/boxes_internal.h"
#include "coved/job.h"
#include "kernel/cgroup.h"

#include <stdio.h>
#include <string.h>

enum { LOOK_MS = 1000, LEAST_PARTS = 8, GIVING_MS = 60000 };

struct giving {
    struct boxes *owner;
    struct entry *entry; /* NULL: it runs again, or has ended */
    struct job *job;
    uint64_t before;
    char id[ID_SANDBOX_LEN + 1];
    char group[TIER_GROUP_MAX];
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

static bool is_short(const struct boxes *b)
{
    AUTO_BUF struct buf text = BUF_INIT(64 * 1024);
    if (fault_error("coved.memory.short") < 0)
        return true;
    if (fd_read_file(b->host->proc_fd, "meminfo", &text) < 0)
        return false;
    uint64_t total = read_kib(buf_str(&text), "MemTotal:"), there = read_kib(buf_str(&text), "MemAvailable:");
    return total && there < total / LEAST_PARTS;
}

static uint64_t usage_of(const struct giving *g)
{
    struct cgroup_usage usage = {0};
    int ignored UNUSED = cgroup_usage(g->owner->host->cgroups, g->group, &usage);
    return usage.memory_bytes;
}

static int give(void *ctx)
{
    const struct giving *g = ctx;
    return cgroup_reclaim(g->owner->host->cgroups, g->group);
}

static void given(void *ctx, int r)
{
    struct giving *g = ctx;
    g->owner->n_giving--;
    if (g->entry) {
        uint64_t now = usage_of(g);
        g->entry->giving = NULL;
        g->entry->has_given = true;
        if (r < 0)
            log_warn("take memory from paused sandbox %s: %s", g->id, strerror(-r));
        else
            log_info("memory is short: paused sandbox %s has given back %llu of %llu MiB", g->id,
                     (unsigned long long)(g->before - MIN(now, g->before)) >> 20, (unsigned long long)g->before >> 20);
    }
    mem_free(g);
}

static void begin(struct entry *e)
{
    struct boxes *b = e->owner;
    struct giving *g = mem_new(struct giving);
    g->owner = b;
    g->entry = e;
    memcpy(g->id, e->id, sizeof(g->id));
    memcpy(g->group, e->box.group, sizeof(g->group));
    g->before = usage_of(g);
    const struct job_spec spec = {
        .name = "take memory", .run = give, .done = given, .ctx = g, .is_background = true, .limit_ms = GIVING_MS};
    e->giving = g;
    b->n_giving++;
    g->job = job_add(b->jobs, &spec);
}

void boxes_memory_stays(struct entry *e)
{
    struct giving *g = TAKE_PTR(e->giving);
    if (!g)
        return;
    g->entry = NULL;
    job_kill(g->job);
}

static struct entry *next(struct boxes *b)
{
    LIST_FOREACH (struct entry, e, &b->lists[BOX_FROZEN], node) {
        if (!e->has_given && !e->n_tasks && e->box.has_group)
            return e;
    }
    return NULL;
}

usec_t boxes_memory_tick(struct boxes *b)
{
    usec_t now = clock_mono();
    struct entry *e = b->stopping || b->n_giving ? NULL : next(b);
    if (!e || !cgroup_features(b->host->cgroups)->reclaim)
        return UINT64_MAX;
    if (now < b->memory_at)
        return b->memory_at;
    if (is_short(b))
        begin(e);
    else
        b->memory_at = now + LOOK_MS * USEC_PER_MS;
    return b->memory_at;
}
