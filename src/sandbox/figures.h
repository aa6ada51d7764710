/* SPDX-License-Identifier: Apache-2.0 */
/* What the service counts of itself, for /metrics: since this worker began. What is known anyway (states, queues,
 * quotas) is read when somebody asks. */
#pragma once

#include "base/metric.h"
#include "sandbox/core.h"

/* No names of sandboxes or tenants are among them. */
void figures_append(struct core *core, struct metric_text *t);

/* ---- internal to src/sandbox ---- */

#include "sandbox/start/start.h"

enum figures_verdict { FIGURES_ALLOWED, FIGURES_DENIED, FIGURES_UNRESOLVED, FIGURES_MISUSE, FIGURES_VERDICTS };

struct figures {
    struct metric_histogram starts[START_WAYS], steps[START_STEPS];
    uint64_t failed_starts[START_WAYS];
    uint64_t egress[FIGURES_VERDICTS]; /* connections; requests that were denied */
    uint64_t egress_sent, egress_received;
    uint64_t egress_came, supervisor_came; /* how often a new one came */
};
