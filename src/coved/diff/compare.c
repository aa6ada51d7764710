/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/diff/compare.h"
#include "base/log.h"
#include "base/mem.h"
#include "coved/diff/diff.h"
#include "coved/diff/diff_queue.h"
#include "coved/diff/pile.h"
#include "coved/foreign.h"
#include "kernel/pool/pool.h"
#include "wire/diff.h"

struct compare_side {
    struct boxes_files files; /* of a sandbox: its own, and what it stands on; else all but `stands_on` is empty */
};

struct compare {
    const struct tier_host *host;
    struct compare_side a, b;
    bool a_is_below; /* a: what b stands on */
    int fd;          /* owned */
    uint64_t asked;
    void (*done)(void *ctx, uint64_t asked, const struct err *err);
    void *ctx;
};

/* ---- the job ---- */

static void drop_first(struct pile *s)
{
    if (s->n == 0)
        return;
    s->n--;
    memmove(s->fds, s->fds + 1, s->n * sizeof(s->fds[0]));
    memmove(s->names, s->names + 1, s->n * sizeof(s->names[0]));
}

static int compare_run(void *ctx)
{
    const struct compare *c = ctx;
    static struct pile a, b;
    int r = pile_open(c->host->pool, c->a_is_below ? &c->b.files : &c->a.files, &a);
    r = r ? r : pile_open(c->host->pool, &c->b.files, &b);
    if (r < 0)
        return r;
    if (c->a_is_below)
        drop_first(&a);
    struct diff d = {.n_a = a.n, .n_b = b.n, .out = c->fd, .lookups_most = DIFF_LOOKUPS_MAX};
    d.a_box = c->a.files.box[0] ? c->a.files.box : NULL;
    d.box = c->b.files.box[0] ? c->b.files.box : NULL;
    memcpy(d.a, a.fds, sizeof(d.a));
    memcpy(d.b, b.fds, sizeof(d.b));
    while (d.n_common < MIN(a.n, b.n) && b.names[b.n - 1 - d.n_common][0] &&
           strcmp(a.names[a.n - 1 - d.n_common], b.names[b.n - 1 - d.n_common]) == 0)
        d.n_common++;
    uint64_t lookups = 0;
    r = diff_confine(c->host->first_uid - 1);
    r = r ? r : diff_write(&d, &lookups);
    /* What is removed reads as if there were nothing, up to the end. */
    if (r != -EDQUOT && r != -EPIPE) {
        int gone = c->a_is_below ? 0 : pile_check(c->host->pool, &c->a.files, &a);
        gone = gone ? gone : pile_check(c->host->pool, &c->b.files, &b);
        r = gone ? gone : r;
    }
    log_debug("compare files: %llu look-ups", (unsigned long long)lookups);
    return r;
}

/* ---- coved ---- */

static void compare_done(void *ctx, int r)
{
    struct compare *c = ctx;
    struct err err;
    c->fd = foreign_close(c->fd); /* the reader sees the end before the answer */
    if (r == -EDQUOT)
        (void)err_set(&err, ERR_RESOURCE_EXHAUSTED,
                      "the comparison stopped after %d look-ups: its result is incomplete", DIFF_LOOKUPS_MAX);
    else if (r == -ESTALE)
        (void)err_set(&err, ERR_ABORTED,
                      "a sandbox or snapshot was removed, paused or resumed during the comparison: its result may be "
                      "incomplete");
    else if (r == -ENAMETOOLONG)
        (void)err_set(&err, ERR_OUT_OF_RANGE,
                      "the comparison left out what lies deeper than %d directories or has a path of more than %d "
                      "bytes",
                      DIFF_DEPTH_MAX, DIFF_PATH_MAX);
    else if (r < 0)
        (void)err_errno(&err, r, "compare files");
    c->done(c->ctx, c->asked, r < 0 ? &err : NULL);
    mem_free(c);
}

static int compare_find(struct boxes *boxes, const char *name, struct compare_side *side, struct err *err)
{
    if (!id_is_sandbox(str_of(name))) {
        (void)snprintf(side->files.stands_on, sizeof(side->files.stands_on), "%s", name);
        return 0;
    }
    return boxes_files(boxes, name, &side->files, err);
}

/* What a stack consists of, topmost first, as `struct pile` has it; a sandbox's own files by its id. */
static int names_of(struct pool *pool, const struct compare_side *side, const char *id,
                    char ret_names[static DIFF_STACK_MAX][SUP_DIGEST_MAX], size_t *ret_n, struct err *err)
{
    struct pool_chain chain = {.n = 0};
    const char *layer = side->files.stands_on;
    int r = layer[0] ? pool_chain_read(pool, layer, &chain) : 0;
    if (r < 0)
        return err_errno(err, r, "layer %s", layer);
    size_t n = 0;
    if (side->files.box[0] || side->files.kept[0])
        (void)snprintf(ret_names[n++], SUP_DIGEST_MAX, "%s", id);
    for (size_t i = 0; i < chain.n; i++)
        (void)snprintf(ret_names[n++], SUP_DIGEST_MAX, "%s", chain.names[i]);
    *ret_n = n;
    return 0;
}

/* What is not below both. */
static int find_walked(struct pool *pool, const struct compare *c, const struct sup_diff *m, struct diff_order *o,
                       struct err *err)
{
    static_assert(POOL_CHAIN_MAX + 1 <= DIFF_STACK_MAX, "a chain with a sandbox on it fits");
    char a[DIFF_STACK_MAX][SUP_DIGEST_MAX], b[DIFF_STACK_MAX][SUP_DIGEST_MAX];
    size_t n_a = 0, n_b = 0;
    if (names_of(pool, &c->b, m->b, b, &n_b, err) < 0)
        return -1;
    if (c->a_is_below) {
        o->n_walked = MIN(n_b, (size_t)1);
        memcpy(o->walked, b, o->n_walked * sizeof(b[0]));
        return 0;
    }
    if (names_of(pool, &c->a, m->a, a, &n_a, err) < 0)
        return -1;
    for (; n_a > 0 && n_b > 0 && strcmp(a[n_a - 1], b[n_b - 1]) == 0; n_a--)
        n_b--;
    memcpy(o->walked, a, n_a * sizeof(a[0]));
    memcpy(o->walked + n_a, b, n_b * sizeof(b[0]));
    o->n_walked = n_a + n_b;
    return 0;
}

int compare_start(struct diff_queue *queue, struct boxes *boxes, const struct tier_host *host, const struct sup_diff *m,
                  int fd, uint64_t asked, void (*done_fn)(void *ctx, uint64_t asked, const struct err *err), void *ctx,
                  struct err *err)
{
    AUTO_FOREIGN int out = fd;
    struct compare c = {.host = host, .a_is_below = !m->a[0], .fd = fd, .asked = asked, .done = done_fn, .ctx = ctx};
    struct diff_order order = {.run = compare_run, .done = compare_done, .fd = fd};
    if ((m->a[0] && compare_find(boxes, m->a, &c.a, err) < 0) || compare_find(boxes, m->b, &c.b, err) < 0 ||
        find_walked(host->pool, &c, m, &order, err) < 0)
        return -1;
    order.ctx = mem_dup(&c, sizeof(c));
    if (diff_queue_add(queue, &order, err) < 0) {
        mem_free(order.ctx);
        return -1;
    }
    (void)TAKE_FD(out);
    return 0;
}
