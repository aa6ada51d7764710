/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metric.h"

/* Their upper ends, in microseconds: from a warm create to a build. */
static const usec_t bounds[METRIC_BUCKETS] = {250,    500,    1000,   2500,    5000,    10000,   25000,    50000,
                                              100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000, 30000000};

void metric_observe(struct metric_histogram *h, usec_t took)
{
    size_t i = 0;
    while (i < METRIC_BUCKETS && took > bounds[i])
        i++;
    h->counts[i]++;
    h->sum += took;
}

void metric_family(struct metric_text *t, const char *name, enum metric_type type, const char *help)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    const char *suffix = type == METRIC_COUNTER && !t->is_openmetrics ? "_total" : "";
    t->name = name;
    t->type = type;
    buf_printf(t->to, "# HELP %s%s %s\n# TYPE %s%s %s\n", name, suffix, help, name, suffix, types[type]);
}

static void metric_name(struct metric_text *t, const char *suffix, const char *labels)
{
    buf_printf(t->to, *labels ? "%s%s{%s} " : "%s%s ", t->name, suffix, labels);
}

static void metric_seconds(struct metric_text *t, usec_t value)
{
    buf_printf(t->to, "%llu.%06llu\n", (unsigned long long)(value / USEC_PER_SEC),
               (unsigned long long)(value % USEC_PER_SEC));
}

void metric_put(struct metric_text *t, const char *labels, uint64_t value)
{
    metric_name(t, t->type == METRIC_COUNTER ? "_total" : "", labels);
    buf_printf(t->to, "%llu\n", (unsigned long long)value);
}

void metric_put_usec(struct metric_text *t, const char *labels, usec_t value)
{
    metric_name(t, t->type == METRIC_COUNTER ? "_total" : "", labels);
    metric_seconds(t, value);
}

void metric_put_histogram(struct metric_text *t, const char *labels, const struct metric_histogram *h)
{
    uint64_t n = 0;
    for (size_t i = 0; i <= METRIC_BUCKETS; i++) {
        n += h->counts[i];
        buf_printf(t->to, "%s_bucket{%s%sle=\"", t->name, labels, *labels ? "," : "");
        if (i < METRIC_BUCKETS)
            buf_printf(t->to, "%g\"} %llu\n", (double)bounds[i] / (double)USEC_PER_SEC, (unsigned long long)n);
        else
            buf_printf(t->to, "+Inf\"} %llu\n", (unsigned long long)n);
    }
    metric_name(t, "_sum", labels);
    metric_seconds(t, h->sum);
    metric_name(t, "_count", labels);
    buf_printf(t->to, "%llu\n", (unsigned long long)n);
}

void metric_end(struct metric_text *t)
{
    if (t->is_openmetrics)
        buf_append_cstr(t->to, "# EOF\n");
}
