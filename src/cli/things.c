/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/things.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cli/print.h"
#include "config/units.h"

#include <stdlib.h>
#include <unistd.h>

const char *things_text(const json_t *one, const char *name)
{
    const char *text = json_string_value(json_object_get(one, name));
    return text ? text : "-";
}

static void things_time(struct table *t, const json_t *one, const char *name, bool is_past)
{
    usec_t at, now = clock_real();
    char shown[UNIT_TEXT_MAX] = "-";
    const char *text = json_string_value(json_object_get(one, name));
    if (text && clock_parse(str_of(text), &at) == 0) {
        const uint64_t s = (is_past ? now - MIN(at, now) : at - MIN(at, now)) / USEC_PER_SEC;
        unit_format_duration(s * 1000, shown);
        if (s == 0)
            memcpy(shown, "0s", sizeof("0s"));
    }
    table_add(t, str_of(shown));
}

void things_ago(struct table *t, const json_t *one, const char *name)
{
    things_time(t, one, name, true);
}

void things_until(struct table *t, const json_t *one, const char *name)
{
    things_time(t, one, name, false);
}

void things_number(struct table *t, const json_t *one, const char *name)
{
    table_addf(t, "%" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(one, name)));
}

void things_cpus(struct table *t, const json_t *one, const char *name)
{
    const json_t *n = json_object_get(one, name);
    if (n)
        table_addf(t, "%g", (double)json_integer_value(n) / 1000);
    else
        table_add(t, STR("-"));
}

void things_size(struct table *t, const json_t *one, const char *name)
{
    char text[UNIT_TEXT_MAX];
    json_int_t n = json_integer_value(json_object_get(one, name));
    unit_format_size((uint64_t)n, text);
    table_add(t, n ? str_of(text) : STR("-"));
}

int things_answer(const struct context *ctx, const json_t *answer, const char *name)
{
    if (ctx->json)
        print_json(answer);
    else
        print_line(things_text(answer, name));
    return STATUS_OK;
}

void things_sort(json_t *all, int (*compare)(const void *a, const void *b))
{
    const size_t n = json_array_size(all);
    AUTO_FREE json_t **each = mem_array(n + 1, sizeof(json_t *));
    for (size_t i = 0; i < n; i++)
        each[i] = json_incref(json_array_get(all, i));
    qsort(each, n, sizeof(json_t *), compare);
    for (size_t i = 0; i < n; i++)
        (void)json_array_set_new(all, i, each[i]);
}

int things_table(const struct context *ctx, const json_t *all, const struct things_column *columns, size_t n)
{
    struct table t;
    if (ctx->json)
        print_json(all);
    if (ctx->json || json_array_size(all) == 0)
        return STATUS_OK;
    table_init(&t, n);
    for (size_t k = 0; k < n; k++)
        table_add(&t, str_of(columns[k].head));
    JSON_FOREACH (one, all) {
        for (size_t k = 0; k < n; k++) {
            if (columns[k].add)
                columns[k].add(&t, one, columns[k].name);
            else
                table_add(&t, str_of(things_text(one, columns[k].name)));
        }
    }
    table_print(&t, stdout);
    table_fini(&t);
    return STATUS_OK;
}

int things_list(struct context *ctx, const struct things *what, const char *target, bool quiet)
{
    char doing[64];
    AUTO_JSON json_t *answer = NULL;
    (void)snprintf(doing, sizeof(doing), "listing %s", what->all);
    if (service_ask(ctx, "GET", target, NULL, doing, &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    json_t *all = json_object_get(answer, what->all);
    if (!ctx->json && quiet) {
        JSON_FOREACH (one, all)
            print_line(things_text(one, what->name));
        return STATUS_OK;
    }
    if (!ctx->json && !json_array_size(all) && isatty(STDOUT_FILENO))
        (void)fprintf(stderr, "there is no %s yet; %s\n", what->one, what->how_made);
    if (!ctx->json && what->warn)
        what->warn(all);
    return things_table(ctx, all, what->columns, what->n_columns);
}

int things_each(struct context *ctx, const char *done, int (*fn)(struct context *ctx, void *arg, const char *name),
                void *arg)
{
    int status = STATUS_OK;
    AUTO_JSON json_t *names = json_array(), *answer = json_pack("{s:O}", done, names);
    for (int i = ctx->argi; i < ctx->argc; i++) {
        *ctx->hint = '\0';
        if (fn(ctx, arg, ctx->argv[i]) < 0) {
            status = context_fail(ctx, STATUS_FAILED);
            continue;
        }
        (void)json_array_append_new(names, json_string(ctx->argv[i]));
        if (!ctx->json)
            (void)printf("%s\n", ctx->argv[i]);
    }
    if (ctx->json)
        print_json(answer);
    return status;
}

struct things_removal {
    struct service *service;
    const struct things *what;
};

static int things_remove_one(struct context *ctx, void *arg, const char *name)
{
    const struct things_removal *r = arg;
    AUTO_FREE char *target = service_path(ctx, r->what->remove, name, "");
    if (!target)
        return -1;
    if (service_call(r->service, "DELETE", target, NULL, "removing", NULL) == 0)
        return 0;
    if (ctx->err.code == ERR_NOT_FOUND) {
        context_hint(ctx, "'cove %s ls' lists those there are", r->what->one);
        return err_set(&ctx->err, ERR_NOT_FOUND, "there is no %s '%.100s'", r->what->one, name);
    }
    if (ctx->err.code == ERR_FAILED_PRECONDITION && !*ctx->hint)
        context_hint(ctx, "%s", r->what->how_free);
    return -1;
}

int things_remove(struct context *ctx, const struct things *what)
{
    AUTO(service_close) struct service *s = service_open(ctx);
    struct things_removal r = {s, what};
    return s ? things_each(ctx, "removed", things_remove_one, &r) : context_fail(ctx, STATUS_FAILED);
}
