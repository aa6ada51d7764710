/* SPDX-License-Identifier: Apache-2.0 */
/* The data plane's small routes: is it alive, its figures, its variables. */
#include "api/e2b/envd.h"

#include <inttypes.h>

void envd_health(struct call *c)
{
    http_add_header(c->req, STR("cache-control"), STR("no-store"));
    call_empty(c, 204);
}

static void on_sample(void *ctx, const struct sandbox_sample *s, const struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(1024);
    struct call *c = ctx;

    if (c->req && err) {
        call_fail_err(c, err);
    } else if (c->req) {
        buf_printf(&b,
                   "{\"ts\":%" PRIu64 ",\"cpu_count\":%u,\"cpu_used_pct\":%.2f,\"mem_total_mib\":%" PRIu64
                   ",\"mem_used_mib\":%" PRIu64 ",\"mem_total\":%" PRIu64 ",\"mem_used\":%" PRIu64
                   ",\"mem_cache\":%" PRIu64 ",\"disk_used\":%" PRIu64 ",\"disk_total\":%" PRIu64 "}",
                   (uint64_t)(s->at / USEC_PER_SEC), s->cpu_count, s->cpu_used_pct, s->memory_total >> 20,
                   s->memory_used >> 20, s->memory_total, s->memory_used, s->memory_cache, s->disk_used, s->disk_total);
        http_add_header(c->req, STR("cache-control"), STR("no-store"));
        call_json(c, 200, buf_str(&b));
    }
    call_unref(c);
}

void envd_metrics(struct call *c)
{
    struct err err;

    call_ref(c);
    if (sandbox_sample_now(c->sandbox, on_sample, c, &err) < 0) {
        call_fail_err(c, &err);
        call_unref(c);
    }
}

static void append_env(struct buf *b, struct str name, struct str value)
{
    buf_append_char(b, buf_len(b) ? ',' : '{');
    buf_append_json_string(b, name);
    buf_append_char(b, ':');
    buf_append_json_string(b, value);
}

void envd_envs(struct call *c)
{
    const struct sandbox_info *info = sandbox_info(c->sandbox);
    AUTO_BUF struct buf b = BUF_INIT(4 * BODY_MAX);

    append_env(&b, STR("E2B_SANDBOX"), STR("true"));
    append_env(&b, STR("E2B_SANDBOX_ID"), str_of(info->id));
    append_env(&b, STR("E2B_TEMPLATE_ID"), str_of(info->template_id));
    for (size_t i = 0; i < info->n_envs; i++)
        if (!str_starts(info->envs[i].key, STR("E2B_SANDBOX")) && !str_eq(info->envs[i].key, STR("E2B_TEMPLATE_ID")))
            append_env(&b, info->envs[i].key, info->envs[i].value);
    buf_append_char(&b, '}');
    http_add_header(c->req, STR("cache-control"), STR("no-store"));
    call_json_buf(c, 200, &b);
}
