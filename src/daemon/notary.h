/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signs evidence (event/evidence.h) with the service's key, and once a day the heads of all logs, as
 * DATA/heads/YYYY-MM-DD.json: what is copied from there to another machine shows whether logs were rewritten later.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <uv.h>

struct notary;

/* Opens the key, or makes it, and signs today's heads if nobody did. store_path, data_dir: borrowed. */
int notary_start(uv_loop_t *loop, const char *store_path, const char *data_dir, struct notary **ret_notary,
                 struct err *err) WARN_UNUSED;
void notary_stop(struct notary *n); /* its handle is closed in a later turn; what is being signed ends before */
void notary_free(struct notary *n); /* behind the loop's end */

/* For any thread. what: the id of a log; "heads", or "heads/YYYY-MM-DD" of that day; "key", which is JSON and no
 * envelope. */
int notary_sign(void *notary, const char *what, struct buf *ret, struct err *err) WARN_UNUSED;
