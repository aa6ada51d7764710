/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/exec/terminal.h"
#include "cli/service.h"
#include "cli/things.h"
#include "config/units.h"

static void stats_cpu(struct table *t, const json_t *one, const char *name)
{
    const json_t *sample = json_object_get(one, name);
    if (json_is_object(sample))
        table_addf(t, "%.1f%% of %lld", json_number_value(json_object_get(sample, "cpu_used_pct")),
                   (long long)json_integer_value(json_object_get(sample, "cpu_count")));
    else
        table_add(t, STR("-"));
}

static void stats_pair(struct table *t, const json_t *one, const char *used, const char *total)
{
    const json_t *sample = json_object_get(one, "sample");
    const json_t *has = json_object_get(sample, used), *most = json_object_get(sample, total);
    char a[UNIT_TEXT_MAX] = "-", b[UNIT_TEXT_MAX] = "-";
    if (json_is_integer(has))
        unit_format_size((uint64_t)json_integer_value(has), a);
    if (json_is_integer(most))
        unit_format_size((uint64_t)json_integer_value(most), b);
    if (json_is_integer(has) || json_is_integer(most))
        table_addf(t, "%s / %s", a, b);
    else
        table_add(t, STR("-"));
}

static void stats_memory(struct table *t, const json_t *one, const char *name)
{
    stats_pair(t, one, name, "memory_total");
}

static void stats_disk(struct table *t, const json_t *one, const char *name)
{
    stats_pair(t, one, name, "disk_total");
}

/* Adds the latest sample of this one; one that has just begun has none yet. */
static int stats_of(struct service *s, const char *id, json_t *all)
{
    AUTO_FREE char *target = service_target(id, "/metrics");
    AUTO_JSON json_t *answer = NULL;
    if (service_call(s, "GET", target, NULL, "reading figures", &answer) < 0)
        return -1;
    const json_t *samples = json_object_get(answer, "samples");
    const size_t n = json_array_size(samples);
    json_t *latest = n ? json_array_get(samples, n - 1) : NULL;
    return json_array_append_new(all, json_pack("{s:s,s:O?}", "sandbox", id, "sample", latest));
}

static double stats_used(const void *one)
{
    return json_number_value(json_object_get(json_object_get(*(json_t *const *)one, "sample"), "memory_used"));
}

/* The largest first. */
static int stats_compare(const void *a, const void *b)
{
    return (stats_used(a) < stats_used(b)) - (stats_used(a) > stats_used(b));
}

/* Of those that are named, or of all; one that ends meanwhile is left out of "all". */
static int stats_collect(struct context *ctx, struct service *s, json_t *all)
{
    AUTO_JSON json_t *sandboxes = NULL;
    for (int i = ctx->argi; i < ctx->argc; i++) {
        AUTO_FREE char *id = NULL;
        if (service_resolve(s, ctx->argv[i], &id) < 0 || stats_of(s, id, all) < 0)
            return -1;
    }
    if (context_operands(ctx) > 0)
        return 0;
    if (service_sandboxes(s, &sandboxes) < 0)
        return -1;
    JSON_FOREACH (one, sandboxes) {
        const char *id = json_string_value(json_object_get(one, "id"));
        if (id && stats_of(s, id, all) < 0 && ctx->err.code != ERR_NOT_FOUND)
            return -1;
    }
    return 0;
}

static int stats_run(struct context *ctx)
{
    static const struct things_column columns[] = {{"ID", "sandbox", NULL},
                                                   {"CPU", "sample", stats_cpu},
                                                   {"MEMORY", "memory_used", stats_memory},
                                                   {"DISK", "disk_used", stats_disk}};
    if (context_read(ctx, NULL) < 0)
        return context_exit(ctx);
    AUTO_JSON json_t *all = json_array();
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || stats_collect(ctx, s, all) < 0)
        return context_fail(ctx, STATUS_FAILED);
    things_sort(all, stats_compare);
    return things_table(ctx, all, columns, ARRAY_SIZE(columns));
}

const struct command cmd_stats = {
    .name = "stats",
    .summary = "show the CPU time, memory and disk that sandboxes use",
    .text = &text_stats,
    .operands = "id",
    .run = stats_run,
};
