/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events, figures and traces for a collector of the operator's, over OTLP (HTTP, JSON).
 *
 *  1. logs: each event of all logs is one log record. traces: an action that came to its end is one trace, which is the
 *     client's when it sent a `traceparent`; below the action's span there is one for each hop that is in the record.
 *     metrics: what /metrics says, each minute.
 *  2. There is a cursor in the feed and nothing else, as webhooks have it: a collector that is away costs nothing, is
 *     tried again with growing pauses, and gets what it missed as far as it is still kept. A batch that it refuses
 *     EXPORT_TRIES times is given up, and recorded. A batch may come twice when the service dies just then.
 *  3. cove-egress carries it (wire/egress.h, "ask"): the collector is the operator's choice, so no policy judges it.
 */
#pragma once

#include "sandbox/core.h"

enum { EXPORT_TRIES = 12, EXPORT_HEADERS_MAX = 16, EXPORT_TEXT_MAX = 2000 };

/* {"url": "http://collector:4318", "headers": {NAME: VALUE}, "signals": ["logs", "traces", "metrics"]}; borrowed. NULL:
 * nothing is exported. */
const json_t *export_get(struct core *core);
/* json NULL: none any more. A new url gets what happens from now on; another change goes on where it was. */
int export_set(struct core *core, const struct actor *actor, const json_t *json, struct err *err) WARN_UNUSED;

/* ---- internal to src/sandbox ---- */

struct exporter *exporter_new(struct core *core);
int exporter_load(struct core *core, struct err *err) WARN_UNUSED;
void exporter_free(struct exporter *x);
