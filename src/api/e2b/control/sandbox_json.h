/* SPDX-License-Identifier: Apache-2.0 */
/* A sandbox as the control plane shows it, in its three forms. */
#pragma once

#include "base/buf.h"
#include "sandbox/sandbox.h"

/* RFC 3339; 0 ("never") is the last second of the year 9999, because clients insist on a time. */
json_t *sandbox_json_time(usec_t real);

/* "running", "paused", or NULL for one that clients should no longer see (or not yet). */
const char *sandbox_json_state(enum sandbox_state state);

/* One that there is for clients: it has such a state, and is no helper of ours. sb may be NULL. */
bool sandbox_json_exists(const struct sandbox *sb);

/* The answer of create and connect. */
json_t *sandbox_json_access(const struct sandbox_info *info, const char *domain);

/* An element of the list, and the detail; network: the fields of the requests that set it, NULL for none. */
json_t *sandbox_json_listed(const struct sandbox_info *info);
json_t *sandbox_json_detail(const struct sandbox_info *info, const json_t *network, const char *domain,
                            bool with_token);

/* {"timestamp":…,"timestampUnix":…,…} */
void sandbox_json_sample(struct buf *b, const struct sandbox_sample *sample);
