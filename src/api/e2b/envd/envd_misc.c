/* SPDX-License-Identifier: Apache-2.0 */
/* The data plane's small routes: is it alive, its figures, its variables. */
#include "api/e2b/envd/envd.h"

#include <inttypes.h>

void envd_health(struct call *c)
{
    http_add_header(c->req, STR("cache-control"), STR("no-store"));
    call_empty(c, 204);
}

static void on_sample(void *ctx, const struct sandbox_sample *s, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(1024);
    struct call *c = call_back(ctx, err);
    if (!c)
        return;
    buf_printf(&b,
               "{\"ts\":%" PRIu64 ",\"cpu_count\":%u,\"cpu_used_pct\":%.2f,\"mem_total_mib\":%" PRIu64
               ",\"mem_used_mib\":%" PRIu64 ",\"mem_total\":%" PRIu64 ",\"mem_used\":%" PRIu64 ",\"mem_cache\":%" PRIu64
               ",\"disk_used\":%" PRIu64 ",\"disk_total\":%" PRIu64 "}",
               (uint64_t)(s->at / USEC_PER_SEC), s->cpu_count, s->cpu_used_pct, s->memory_total >> 20,
               s->memory_used >> 20, s->memory_total, s->memory_used, s->memory_cache, s->disk_used, s->disk_total);
    http_add_header(c->req, STR("cache-control"), STR("no-store"));
    call_json(c, 200, buf_str(&b));
}

void envd_metrics(struct call *c)
{
    call_held(c, sandbox_sample_now(c->sandbox, on_sample, call_hold(c), &c->err));
}

static void append_env(struct buf *b, struct str name, struct str value)
{
    buf_append_char(b, buf_len(b) ? ',' : '{');
    buf_append_json_string(b, name);
    buf_append_char(b, ':');
    buf_append_json_string(b, value);
}

static void append_envs(struct buf *b, const struct sandbox_info *info)
{
    append_env(b, STR("E2B_SANDBOX"), STR("true"));
    append_env(b, STR("E2B_SANDBOX_ID"), str_of(info->id));
    append_env(b, STR("E2B_TEMPLATE_ID"), str_of(info->template_id));
    for (size_t i = 0; i < info->n_envs; i++)
        if (!str_starts(info->envs[i].key, STR("E2B_SANDBOX")) && !str_eq(info->envs[i].key, STR("E2B_TEMPLATE_ID")))
            append_env(b, info->envs[i].key, info->envs[i].value);
    buf_append_char(b, '}');
}

void envd_envs(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(4 * BODY_MAX);
    append_envs(&b, sandbox_info(c->sandbox));
    http_add_header(c->req, STR("cache-control"), STR("no-store"));
    call_json_buf(c, 200, &b);
}

/* ---- the same for programs inside. They have the variables anyway, so it wants no token. ---- */

static size_t list_answers(const struct sandbox_info *info, struct arena *arena, struct core_answer **ret_all)
{
    static const struct str type = STR("application/json");
    AUTO_BUF struct buf b = BUF_INIT(BODY_MAX / 8);
    struct core_answer *all = arena_alloc(arena, 3 * sizeof(*all));
    size_t n = 0;
    all[n++] = (struct core_answer){.path = STR("/health"), .type = type};
    all[n++] = (struct core_answer){
        .path = STR("/metrics"),
        .type = type,
        .body = STR("{\"ts\":$0,\"cpu_count\":$1,\"cpu_used_pct\":$2,\"mem_total\":$3,\"mem_used\":$4,\"mem_cache\":$5,"
                    "\"disk_total\":$6,\"disk_used\":$7,\"mem_total_mib\":$8,\"mem_used_mib\":$9}"),
        .has_figures = true};
    append_envs(&b, info);
    if (buf_error(&b) == 0) /* else there are too many for one message */
        all[n++] = (struct core_answer){.path = STR("/envs"), .type = type, .body = arena_str(arena, buf_str(&b))};
    *ret_all = all;
    return n;
}

const struct core_answers e2b_answers = {ENVD_PORT, list_answers};
