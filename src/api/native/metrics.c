/* SPDX-License-Identifier: Apache-2.0 */
/* Where events, figures and traces are exported to; and what a monitor scrapes. Sums of all tenants, no names of
 * theirs; still nothing for other tenants' keys, which could watch each other by it. */
#include "api/native/handlers.h"
#include "sandbox/export.h"
#include "sandbox/figures.h"

enum { METRICS_MAX = 1 << 20 };

static void metrics_answer(struct call *c)
{
    static const char openmetrics[] = "application/openmetrics-text";
    const struct native *n = native_of(c);
    AUTO_BUF struct buf b = BUF_INIT(METRICS_MAX);
    struct str accept = http_header_get(c->req, "accept");
    struct metric_text t = {.to = &b,
                            .is_openmetrics = accept.p && memmem(accept.p, accept.n, openmetrics, strlen(openmetrics))};
    figures_append(call_core(c), &t);
    metric_family(&t, "cove_followers", METRIC_GAUGE, "Clients that follow events.");
    metric_put(&t, "", n->n_followers);
    metric_family(&t, "cove_pool_up", METRIC_GAUGE, "1: coved has answered what is in the storage pool.");
    metric_put(&t, "", !n->pool.failed);
    if (!n->pool.failed) {
        metric_family(&t, "cove_pool_bytes", METRIC_GAUGE, "The storage pool: all of it, and what is free.");
        metric_put(&t, "what=\"total\"", n->pool.figures.total_bytes);
        metric_put(&t, "what=\"free\"", n->pool.figures.free_bytes);
        metric_family(&t, "cove_pool_layers", METRIC_GAUGE, "Layers in the storage pool.");
        metric_put(&t, "", n->pool.figures.layers);
    }
    metric_end(&t);
    call_respond(c, 200,
                 t.is_openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                  : "text/plain; version=0.0.4; charset=utf-8",
                 buf_str(&b));
}

bool native_claims_metrics(const struct http_request *req)
{
    return str_eq(http_raw_path(req), STR("/metrics"));
}

void native_metrics(struct call *c)
{
    static const struct native_asker asker = {metrics_answer};
    if (c->actor.who.view != TENANT_ANY && c->actor.who.tenant != TENANT_DEFAULT)
        call_refuse(c, ERR_PERMISSION_DENIED, "only the default tenant can read the metrics of the whole service");
    else
        native_look_at_pool(c, &asker);
}

/* ---- to a collector ---- */

/* Values of headers are the collector's secrets: their names alone. */
void native_export_get(struct call *c)
{
    json_t *config = export_get(call_core(c)) ? json_deep_copy(export_get(call_core(c))) : json_object();
    json_t *headers = json_object_get(config, "headers");
    JSON_FOREACH_MEMBER (name, one, headers)
        (void)json_object_set_new(headers, name, json_string("..."));
    call_value(c, 200, config);
}

void native_export_set(struct call *c)
{
    if ((c->body && !CALL_WANTS(c, JSON_WANT_ANY("url"), JSON_WANT_ANY("headers"), JSON_WANT_ANY("signals"))) ||
        !call_ok(c, export_set(call_core(c), &c->actor, c->body, &c->err)))
        return;
    if (c->body)
        native_export_get(c);
    else
        call_empty(c, 204);
}
