/* SPDX-License-Identifier: Apache-2.0 */
/* What OTLP says of events and figures. Internal to export.h. */
#pragma once

#include "event/log.h"
#include "sandbox/core.h"

enum export_signal { EXPORT_LOGS, EXPORT_TRACES, EXPORT_METRICS, EXPORT_SIGNALS };

struct export_batch {
    struct core *core;
    json_t *logs, *spans;
    size_t bytes; /* about */
};
void export_add(struct export_batch *b, const struct event *e); /* calls the log: e is not valid any more */

json_t *export_metrics(struct core *core); /* a scope's */
json_t *export_envelope(json_t *scope, const char *resources, const char *scopes,
                        const char *version); /* takes scope */
