/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/compare.h"
#include "base/fd.h"
#include "base/mem.h"
#include "coved/diff.h"
#include "coved/job.h"
#include "kernel/pool.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

enum { LIMIT_MS = 900 * 1000, POOL_SHARDS_MOST = 256 };

struct side {
    struct boxes_files files; /* of a sandbox: its own, and what it stands on; else all but `stands_on` is empty */
};

struct compare {
    const struct tier_host *host;
    struct side a, b;
    bool a_is_below; /* a: what b stands on */
    int fd;          /* owned */
    uint64_t asked;
    void (*done)(void *ctx, uint64_t asked, const struct err *err);
    void *ctx;
};

/* ---- the job ---- */

/* Names from top to bottom, and what they are called by; "" for a sandbox's own files. */
struct stack {
    size_t n;
    int fds[DIFF_STACK_MAX];
    char names[DIFF_STACK_MAX][SUP_DIGEST_MAX];
};

/* Which of the directories that boxes are spread over has it, is the pool's business. */
static int open_own(struct pool *pool, const struct boxes_files *f, int *ret_fd)
{
    char path[128];
    int fd = -1;
    if (f->kept[0]) {
        (void)snprintf(path, sizeof(path), "kept/%s/u", f->kept);
        fd = openat(pool_fd(pool), path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    for (unsigned i = 0; fd < 0 && f->box[0] && i < POOL_SHARDS_MOST; i++) {
        (void)snprintf(path, sizeof(path), "boxes/%02x/%s/u", i, f->box);
        fd = openat(pool_fd(pool), path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    if (fd < 0)
        return -ENOENT;
    *ret_fd = fd;
    return 0;
}

static int build(struct pool *pool, const struct side *side, struct stack *s)
{
    const struct boxes_files *f = &side->files;
    struct pool_chain chain = {.n = 0};
    int r = 0;
    if (f->box[0] || f->kept[0]) {
        r = open_own(pool, f, &s->fds[0]);
        s->n = r == 0;
    }
    r = r || !f->stands_on[0] ? r : pool_chain_read(pool, f->stands_on, &chain);
    static_assert(POOL_CHAIN_MAX + 1 <= DIFF_STACK_MAX, "a chain with a sandbox on it fits");
    r = r ? r : pool_chain_open(pool, &chain, s->fds + s->n);
    if (r < 0)
        return r;
    for (size_t i = 0; i < chain.n; i++)
        memcpy(s->names[s->n++], chain.names[i], sizeof(s->names[0]));
    return 0;
}

static void drop_first(struct stack *s)
{
    if (s->n == 0)
        return;
    s->n--;
    memmove(s->fds, s->fds + 1, s->n * sizeof(s->fds[0]));
    memmove(s->names, s->names + 1, s->n * sizeof(s->names[0]));
}

static int run(void *ctx)
{
    const struct compare *c = ctx;
    static struct stack a, b;
    int r = build(c->host->pool, c->a_is_below ? &c->b : &c->a, &a);
    r = r ? r : build(c->host->pool, &c->b, &b);
    if (r < 0)
        return r;
    if (c->a_is_below)
        drop_first(&a);
    struct diff d = {.n_a = a.n, .n_b = b.n, .out = c->fd};
    memcpy(d.a, a.fds, sizeof(d.a));
    memcpy(d.b, b.fds, sizeof(d.b));
    while (d.n_common < MIN(a.n, b.n) && b.names[b.n - 1 - d.n_common][0] &&
           strcmp(a.names[a.n - 1 - d.n_common], b.names[b.n - 1 - d.n_common]) == 0)
        d.n_common++;
    r = diff_confine(c->host->first_uid - 1);
    return r ? r : diff_write(&d);
}

/* ---- coved ---- */

static void done(void *ctx, int r)
{
    struct compare *c = ctx;
    struct err err;
    c->fd = fd_close(c->fd); /* the reader sees the end before the answer */
    if (r < 0)
        (void)err_errno(&err, r, "compare files");
    c->done(c->ctx, c->asked, r < 0 ? &err : NULL);
    mem_free(c);
}

static int find(struct boxes *boxes, const char *name, struct side *side, struct err *err)
{
    if (!id_is_sandbox(str_of(name))) {
        (void)snprintf(side->files.stands_on, sizeof(side->files.stands_on), "%s", name);
        return 0;
    }
    return boxes_files(boxes, name, &side->files, err);
}

int compare_start(struct jobs *jobs, struct boxes *boxes, const struct tier_host *host, const struct sup_diff *m,
                  int fd, uint64_t asked, void (*done_fn)(void *ctx, uint64_t asked, const struct err *err), void *ctx,
                  struct err *err)
{
    AUTO_CLOSE int out = fd;
    struct compare c = {.host = host, .a_is_below = !m->a[0], .asked = asked, .done = done_fn, .ctx = ctx};
    struct pool_chain chain;
    if ((m->a[0] && find(boxes, m->a, &c.a, err) < 0) || find(boxes, m->b, &c.b, err) < 0)
        return -1;
    const char *const layers[] = {c.a.files.stands_on, c.b.files.stands_on};
    for (size_t i = 0; i < ARRAY_SIZE(layers); i++) {
        int r = layers[i][0] ? pool_chain_read(host->pool, layers[i], &chain) : 0;
        if (r < 0)
            return err_errno(err, r, "layer %s", layers[i]);
    }
    if (jobs_left(jobs) >= 4 * JOBS_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "too many comparisons are under way");
    c.fd = TAKE_FD(out);
    struct compare *kept = mem_dup(&c, sizeof(c));
    const struct job_spec spec = {.name = "compare files",
                                  .run = run,
                                  .done = done,
                                  .ctx = kept,
                                  .is_background = true,
                                  .limit_ms = LIMIT_MS,
                                  .fds = &kept->fd,
                                  .n_fds = 1};
    (void)job_add(jobs, &spec);
    return 0;
}
