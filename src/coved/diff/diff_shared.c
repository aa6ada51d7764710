/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/diff/diff_shared.h"

enum { TRIES = 4 /* one to see whether to settle, others while the file system grows older */ };

void diff_shared_init(struct diff_shared *s, int fd_a, int fd_b, off_t size, bool a_lives, bool b_lives)
{
    struct extents_disk a, b;
    s->fd_a = fd_a;
    s->fd_b = fd_b;
    s->size = (uint64_t)size;
    s->is_kept = !a_lives || !b_lives;
    s->is_settled = false;
    s->until = 0;
    s->n = s->i = 0;
    s->is_off = size < DIFF_SHARED_WORTH || extents_disk(fd_a, &a) < 0 || extents_disk(fd_b, &b) < 0 ||
                !extents_on_one(&a, &b) || (!s->is_kept && !a.has_age);
}

/* Sets what they share from `at` on, and how far that is known. -EAGAIN: a place may have been given to another between
 * the two questions. */
static int diff_shared_ask(struct diff_shared *s, uint64_t at, uint64_t until)
{
    static struct extents a, b;
    struct extents_disk before = {.age = 0}, after = before;
    int r = extents_disk(s->fd_a, &before);
    r = r ? r : extents_read(s->fd_a, at, until, &a);
    if (r < 0)
        return r;
    s->until = a.until;
    s->n = 0;
    if (a.n == 0)
        return 0;
    r = extents_read(s->fd_b, at, a.until, &b);
    r = r ? r : extents_disk(s->fd_a, &after);
    if (r < 0)
        return r;
    if (!s->is_kept && before.age != after.age)
        return -EAGAIN;
    s->until = b.until;
    s->n = extents_common(&a, &b, s->common);
    return 0;
}

static bool is_worth_it(const struct diff_shared *s)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < s->n; i++)
        bytes += s->common[i].n;
    return bytes >= DIFF_SHARED_WORTH;
}

static int diff_shared_settle(struct diff_shared *s)
{
    int r = extents_settle(s->fd_a);
    r = r ? r : extents_settle(s->fd_b);
    s->is_settled = r == 0;
    return r;
}

/* An error of the file system's is none here: then they are read. */
static int diff_shared_look(struct diff_shared *s, struct effort *e, uint64_t at)
{
    const uint64_t until = at + MIN(s->size - at, (uint64_t)DIFF_SHARED_WINDOW);
    int r = -EAGAIN;
    for (int i = 0; r == -EAGAIN && i < TRIES; i++) {
        int spent = effort_spend(e);
        if (spent < 0)
            return spent;
        r = diff_shared_ask(s, at, until);
        /* Until they are settled, the answer only says whether to. */
        if (r == 0 && !s->is_settled && is_worth_it(s)) {
            r = diff_shared_settle(s);
            r = r ? r : -EAGAIN;
        }
    }
    s->is_off = r < 0 && r != -EAGAIN;
    if (r < 0 || !is_worth_it(s)) {
        s->n = 0;
        s->until = until;
    }
    s->i = 0;
    return 0;
}

int diff_shared_skip(struct diff_shared *s, struct effort *e, off_t at, off_t *ret_at)
{
    const uint64_t from = (uint64_t)at;
    const bool is_enough_left = from < s->size && s->size - from >= DIFF_SHARED_WORTH;
    int r = !s->is_off && is_enough_left && from >= s->until ? diff_shared_look(s, e, from) : 0;
    if (r < 0)
        return r;
    while (s->i < s->n && s->common[s->i].at + s->common[s->i].n <= from)
        s->i++;
    const struct extent *x = &s->common[s->i];
    *ret_at = s->i < s->n && x->at <= from ? (off_t)(x->at + x->n) : at;
    return 0;
}
