/* SPDX-License-Identifier: Apache-2.0 */
/* What a job tells: the lines of job.h. A client that does not read for 30 s, or hung up, cancels the job. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

struct report;
struct report *report_new(int fd); /* borrowed */
void report_free(struct report *r);
DEFINE_AUTO(struct report *, report_free)

bool report_canceled(struct report *r);

struct report_layer {
    const char *name; /* the digest */
    size_t index, layers;
    uint64_t bytes, of, unpacked, entries;
};

void report_resolve(struct report *r);
void report_pull(struct report *r, const struct report_layer *l); /* as often as one likes */
void report_unpacked(struct report *r, const struct report_layer *l);
void report_warning(struct report *r, const char *text);

struct report_result {
    const char *digest;
    struct str config; /* JSON */
    uint64_t bytes, entries;
};
int report_ok(struct report *r, const struct report_result *result) WARN_UNUSED; /* -1: nobody took it */
void report_error(struct report *r, const struct err *err);
