/* SPDX-License-Identifier: Apache-2.0 */
/* What the record of a sandbox says of the commands that were run in it: one receipt each. */
#pragma once

#include "cli/env/env.h"

/*
 * From the log's event `from` on (1: all), or with `tag` from the last command that is called so:
 * {"commands": [...], "reached": {...}, "refused": {...}, "explained": [...], "left_out"?, "seq", "hash"}. A command is
 * {"seq", "argv", "cwd", "at", "exit_code" or "signal" or "error", "duration_ms", "grade" (of how it ended), "actor",
 * "reached", "refused", "wrote"?}; left_out is how many came after RECEIPT_COMMANDS_MAX. What was reached and refused
 * while it ran are {"HOST:PORT" or, of a name that was not resolved, "HOST": {"count", "sent", "received"}}, at most
 * RECEIPT_HOSTS_MAX of each, and "others". wrote, where files are observed: {path: bytes or null} of those written
 * while it ran or in the half second after, at most RECEIPT_FILES_MAX. explained is why, as clients said of each
 * command and change since commits were received last, the last RECEIPT_EXPLAINED_MAX. seq and hash are those of the
 * last event.
 */
enum { RECEIPT_HOSTS_MAX = 256, RECEIPT_COMMANDS_MAX = 1000, RECEIPT_FILES_MAX = 256, RECEIPT_EXPLAINED_MAX = 12 };
int receipt_collect(struct context *ctx, const char *id, uint64_t from, const char *tag,
                    json_t **ret_receipt) WARN_UNUSED;

/* At the end of an agent's run, to stderr, or to stdout as JSON: what changed, was run, reached and refused, and how to
 * look at it. */
int receipt_tell(struct context *ctx, struct env *e, const char *tag, int status) WARN_UNUSED;
