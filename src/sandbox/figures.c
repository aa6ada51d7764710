/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/figures.h"
#include "event/log.h"
#include "sandbox/network/network_life.h"
#include "sandbox/tenant.h"

enum { LABELS_MAX = 96 };

static void figures_put(struct metric_text *t, const char *name, const char *value, uint64_t n)
{
    char labels[LABELS_MAX];
    (void)snprintf(labels, sizeof(labels), "%s=\"%s\"", name, value);
    metric_put(t, labels, n);
}

static void figures_gauge(struct metric_text *t, const char *name, const char *help, uint64_t n)
{
    metric_family(t, name, METRIC_GAUGE, help);
    metric_put(t, "", n);
}

static void figures_counter(struct metric_text *t, const char *name, const char *help, uint64_t n)
{
    metric_family(t, name, METRIC_COUNTER, help);
    metric_put(t, "", n);
}

static void figures_of_sandboxes(const struct core *core, struct metric_text *t)
{
    uint64_t states[SANDBOX_FAILED + 1] = {0}, spares = 0;
    MAP_FOREACH (const struct sandbox, sb, &core->by_id) {
        spares += sb->is_spare && sb->info.state == SANDBOX_RUNNING;
        if (!sb->info.hidden)
            states[sb->info.state]++;
    }
    metric_family(t, "cove_sandboxes", METRIC_GAUGE, "Sandboxes by state; those that have ended are not among them.");
    for (enum sandbox_state i = 0; i < SANDBOX_ENDED; i++)
        figures_put(t, "state", sandbox_state_name(i), states[i]);
    figures_gauge(t, "cove_sandboxes_max", "So many sandboxes may run.", core->config.max_sandboxes);
    figures_gauge(t, "cove_spares", "Sandboxes that are ready and nobody's yet.", spares);
}

static void figures_of_starts(const struct figures *f, struct metric_text *t)
{
    static const char *const ways[START_WAYS] = {"create", "claim", "cold", "thaw", "restore", "wake"};
    static const char *const steps[] = {"forget",      "rewind",  "network", "box",     "agent", "volumes",
                                        "certificate", "command", "confirm", "running", "told"};
    static_assert(ARRAY_SIZE(steps) == START_STEPS, "each step has a name");
    char labels[LABELS_MAX];
    metric_family(t, "cove_start_seconds", METRIC_HISTOGRAM,
                  "How long sandboxes took to start, from a template, a spare, kept files or kept memory.");
    for (size_t i = 0; i < START_WAYS; i++) {
        (void)snprintf(labels, sizeof(labels), "way=\"%s\"", ways[i]);
        metric_put_histogram(t, labels, &f->starts[i]);
    }
    metric_family(t, "cove_start_step_seconds", METRIC_HISTOGRAM,
                  "The steps of these starts; some go on side by side.");
    for (size_t i = 0; i < START_STEPS; i++) {
        (void)snprintf(labels, sizeof(labels), "step=\"%s\"", steps[i]);
        metric_put_histogram(t, labels, &f->steps[i]);
    }
    metric_family(t, "cove_start_failures", METRIC_COUNTER, "Starts that failed.");
    for (size_t i = 0; i < START_WAYS; i++)
        figures_put(t, "way", ways[i], f->failed_starts[i]);
}

static void figures_of_events(const struct core *core, struct metric_text *t)
{
    const uint64_t *counts = event_counts(core->config.events);
    metric_family(t, "cove_events", METRIC_COUNTER, "Events recorded, by kind: docs/RECORD.md lists them.");
    for (enum event_kind i = EVENT_KIND_UNKNOWN + 1; i < EVENT_KIND_MAX; i++)
        figures_put(t, "kind", event_kind_name(i), counts[i]);
    figures_counter(t, "cove_unrecorded", "Events and rows that could not be written.", core->unrecorded);
}

static void figures_of_egress(const struct core *core, struct metric_text *t)
{
    static const char *const verdicts[FIGURES_VERDICTS] = {"allowed", "denied", "unresolved", "misuse"};
    const struct figures *f = &core->figures;
    metric_family(t, "cove_egress", METRIC_COUNTER, "Connections, lookups and requests of sandboxes, by verdict.");
    for (size_t i = 0; i < FIGURES_VERDICTS; i++)
        figures_put(t, "verdict", verdicts[i], f->egress[i]);
    metric_family(t, "cove_egress_bytes", METRIC_COUNTER, "Bytes over connections that have ended.");
    figures_put(t, "direction", "sent", f->egress_sent);
    figures_put(t, "direction", "received", f->egress_received);
}

static void figures_add_used(void *ctx, const struct tenant_info *info)
{
    uint64_t *sums = ctx;
    for (size_t i = 0; i < QUOTA_CHARGED; i++)
        sums[i] += info->quota->used[i];
}

static void figures_of_load(struct core *core, struct metric_text *t)
{
    uint64_t used[QUOTA_CHARGED] = {0};
    tenant_each(core, figures_add_used, used);
    metric_family(t, "cove_used", METRIC_GAUGE,
                  "What all tenants are charged for; connections are requests under way.");
    for (size_t i = 0; i < QUOTA_CHARGED; i++)
        figures_put(t, "what", quota_names[i], used[i]);
    metric_family(t, "cove_queue_depth", METRIC_GAUGE,
                  "What waits: for coved, for somebody's answer, to be created, to be stored, for a webhook's target.");
    figures_put(t, "queue", "supervisor", supervisor_pending(core->supervisor));
    figures_put(t, "queue", "approvals", core->n_holds);
    figures_put(t, "queue", "creates", core->n_creating);
    figures_put(t, "queue", "ends", core->n_ends);
    figures_put(t, "queue", "webhooks", webhooks_under_way(core->webhooks));
    metric_family(t, "cove_worker_up", METRIC_GAUGE, "1: the process beside cove-api is there.");
    figures_put(t, "worker", "coved", !supervisor_is_lost(core->supervisor));
    figures_put(t, "worker", "cove-egress", networks_are_up(core->networks));
    metric_family(t, "cove_worker_starts", METRIC_COUNTER, "So often there was a new one since cove-api began.");
    figures_put(t, "worker", "coved", core->figures.supervisor_came);
    figures_put(t, "worker", "cove-egress", core->figures.egress_came);
}

static void figures_of_process(const struct core *core, struct metric_text *t)
{
    uv_rusage_t usage = {0};
    size_t rss = 0;
    if (uv_getrusage(&usage) == 0) {
        metric_family(t, "process_cpu_seconds", METRIC_COUNTER, "CPU time of cove-api.");
        metric_put_usec(t, "",
                        (usec_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * USEC_PER_SEC +
                            (usec_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec));
    }
    if (uv_resident_set_memory(&rss) == 0)
        figures_gauge(t, "process_resident_memory_bytes", "Memory of cove-api.", rss);
    metric_family(t, "process_start_time_seconds", METRIC_GAUGE, "When cove-api began, in seconds since 1970.");
    metric_put_usec(t, "", core->opened_at);
}

void figures_append(struct core *core, struct metric_text *t)
{
    char labels[LABELS_MAX];
    metric_family(t, "cove_build_info", METRIC_GAUGE, "1, with the version.");
    (void)snprintf(labels, sizeof(labels), "version=\"%s\"", core->config.version);
    metric_put(t, labels, 1);
    figures_of_process(core, t);
    figures_of_sandboxes(core, t);
    figures_of_starts(&core->figures, t);
    figures_of_events(core, t);
    figures_of_egress(core, t);
    figures_of_load(core, t);
}
