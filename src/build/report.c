/* SPDX-License-Identifier: Apache-2.0 */
/* What the steps of builds added, for whoever asks afterwards, and for the log. */
#include "base/mem.h"
#include "build/internal.h"

struct row {
    char step[24];
    struct build_step_size size;
};

struct build_report {
    struct list node;
    char id[ID_UUID_LEN + 1];
    struct row *rows;
    size_t n;
};

static void report_free(struct builder *b, struct build_report *r)
{
    list_remove(&r->node);
    b->n_reports--;
    MEM_FREE(r->rows, r);
}

static struct build_report *report_find(struct builder *b, const char *id)
{
    LIST_FOREACH (struct build_report, r, &b->reports, node)
        if (strcmp(r->id, id) == 0)
            return r;
    return NULL;
}

void reports_forget(struct builder *b, const char *build_id)
{
    struct build_report *r = report_find(b, build_id);
    if (r)
        report_free(b, r);
}

void reports_free(struct builder *b)
{
    LIST_FOREACH (struct build_report, r, &b->reports, node)
        report_free(b, r);
}

static void report_add(struct build_job *j)
{
    struct builder *b = j->b;
    struct build_report *r = report_find(b, j->id);
    if (!r) {
        struct build_report *oldest = LIST_FIRST(struct build_report, &b->reports, node);
        if (oldest && b->n_reports >= REPORTS_MAX)
            report_free(b, oldest);
        r = mem_new(struct build_report);
        memcpy(r->id, j->id, sizeof(r->id));
        list_append(&b->reports, &r->node);
        b->n_reports++;
    }
    r->rows = mem_realloc(r->rows, (r->n + 1) * sizeof(*r->rows));
    struct row *row = &r->rows[r->n++];
    *row = (struct row){.size = j->stored};
    memcpy(row->step, j->step_text, sizeof(row->step));
    j->size_bytes += j->stored.bytes;
    j->is_size_known &= j->stored.is_known;
}

const char *size_text(struct arena *arena, const struct build_step_size *size)
{
    if (!size->is_known || size->bytes == 0)
        return "";
    return size->bytes < 1 << 20 ? arena_printf(arena, " (%.1f KiB)", (double)size->bytes / (1 << 10))
                                 : arena_printf(arena, " (%.1f MiB)", (double)size->bytes / (1 << 20));
}

void job_tell_done(struct build_job *j, const char *what)
{
    report_add(j);
    job_log(j, TEMPLATE_INFO, "[%s] %s in %.2f s%s", j->prefix, what,
            (double)(clock_mono() - j->step_started) / USEC_PER_SEC, size_text(&j->arena, &j->stored));
}

void job_tell_cached(struct build_job *j, const char *text)
{
    report_add(j);
    job_log(j, TEMPLATE_INFO, "CACHED [%s] %s%s", j->prefix, text, size_text(&j->arena, &j->stored));
}

void builder_each_step(struct builder *b, const char *build_id,
                       void (*fn)(void *ctx, const struct build_step_size *size), void *ctx)
{
    const struct build_report *r = report_find(b, build_id);
    for (size_t i = 0; r && i < r->n; i++) {
        struct build_step_size size = r->rows[i].size;
        size.step = r->rows[i].step;
        fn(ctx, &size);
    }
}
