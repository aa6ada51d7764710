/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/control/control.h"
#include "api/e2b/control/list_query.h"
#include "api/e2b/control/sandbox_json.h"
#include "base/mem.h"

#include <stdlib.h>

struct collection {
    const struct list_query *query;
    const struct sandbox_info **found;
    size_t n, max;
    size_t running; /* that match */
};

static bool control_list_count(void *ctx, struct sandbox *sb UNUSED)
{
    ++*(size_t *)ctx;
    return true;
}

static bool control_list_collect(void *ctx, struct sandbox *sb)
{
    const struct sandbox_info *info = sandbox_info(sb);
    struct collection *all = ctx;
    if (!list_query_matches(all->query, info))
        return true;
    all->running += sandbox_json_state(info->state)[0] == 'r';
    if (all->query->has_cursor && !cursor_is_before(&all->query->cursor, info->started, info->id))
        return true;
    all->found[all->n++] = info;
    return all->n < all->max;
}

/* Newest first, then by id: what cursor_is_before() assumes. */
static int control_list_compare(const void *a, const void *b)
{
    const struct sandbox_info *x = *(const struct sandbox_info *const *)a, *y = *(const struct sandbox_info *const *)b;
    if (x->started != y->started)
        return x->started > y->started ? -1 : 1;
    return strcmp(x->id, y->id);
}

static void control_list_answer(struct call *c, const struct list_query *q, bool paged)
{
    AUTO_BUF struct buf b = BUF_INIT(REPLY_MAX);
    struct collection all = {.query = q};
    char cursor[CURSOR_TEXT_MAX], total[24];
    size_t n;
    access_each_sandbox(c, control_list_count, &all.max); /* those that are paused too */
    all.found = mem_array(all.max + 1, sizeof(struct sandbox_info *));
    if (all.max)
        access_each_sandbox(c, control_list_collect, &all);
    qsort(all.found, all.n, sizeof(struct sandbox_info *), control_list_compare);

    n = paged ? MIN(all.n, (size_t)q->limit) : all.n;
    buf_append_char(&b, '[');
    for (size_t i = 0; i < n; i++)
        json_put_value(&b, sandbox_json_listed(all.found[q->ascending ? all.n - 1 - i : i]));
    buf_append_char(&b, ']');

    if (paged && q->running) {
        snprintf(total, sizeof(total), "%zu", all.running);
        http_add_header(c->req, STR("x-total-running"), str_of(total));
    }
    if (n < all.n) {
        const struct sandbox_info *last = all.found[q->ascending ? all.n - n : n - 1];
        struct cursor next = {.started = last->started, .ascending = q->ascending};
        snprintf(next.id, sizeof(next.id), "%s", last->id);
        cursor_format(&next, cursor);
        http_add_header(c->req, STR("x-next-token"), str_of(cursor));
    }
    mem_free(all.found);
    call_json_buf(c, 200, &b);
}

void control_list_v2(struct call *c)
{
    struct list_query q;
    if (call_ok(c, list_query_parse(http_query(c->req), http_arena(c->req), &q, &c->err)))
        control_list_answer(c, &q, true);
}

void control_list(struct call *c)
{
    struct list_query q;
    if (!call_ok(c, list_query_parse(http_query(c->req), http_arena(c->req), &q, &c->err)))
        return;
    q.running = true;
    q.paused = q.ascending = q.has_cursor = false;
    q.started_after = 0;
    q.template = STR_NULL;
    control_list_answer(c, &q, false);
}
