/* SPDX-License-Identifier: Apache-2.0 */
/* Figures as text for Prometheus: OpenMetrics 1.0, or the text format 0.0.4 before it. Counters and gauges are read
 * where they are kept; histograms are kept in this. */
#pragma once

#include "base/buf.h"
#include "base/clock.h"

enum { METRIC_BUCKETS = 16 };
struct metric_histogram {
    uint64_t counts[METRIC_BUCKETS + 1]; /* of each bucket alone; the last: longer than all */
    usec_t sum;
};
void metric_observe(struct metric_histogram *h, usec_t took);

enum metric_type { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

struct metric_text {
    struct buf *to;
    bool is_openmetrics;
    const char *name; /* of the family at hand */
    enum metric_type type;
};

/* Begins a family. name: without "_total"; help: one line. Both are literals of ours. */
void metric_family(struct metric_text *t, const char *name, enum metric_type type, const char *help);
/* labels: 'state="running"', of names that need no escapes, or "". */
void metric_put(struct metric_text *t, const char *labels, uint64_t value);
void metric_put_usec(struct metric_text *t, const char *labels, usec_t value); /* in seconds */
void metric_put_histogram(struct metric_text *t, const char *labels, const struct metric_histogram *h);
void metric_end(struct metric_text *t);
