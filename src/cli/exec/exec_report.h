/* SPDX-License-Identifier: Apache-2.0 */
/* What --json of run and exec says of a command: one object, with all that it wrote, whatever became of it. */
#pragma once

#include "cli/exec/exec.h"

enum { EXEC_CAPTURE_MAX = 64 << 20 }; /* of each stream; more is dropped, and said to be */

struct exec_report {
    const struct exec_result *result;
    /*
     * why there is no exit code, or what it comes from: exec_report_reason() or the caller's own; NULL: nothing to add
     */
    const char *reason;
    const struct buf *out, *err;
};

/* NULL, "interrupted": the person gave up waiting, "failed": the connection broke or the sandbox ended; stderr has the
 * error. */
const char *exec_report_reason(const struct exec_result *result, bool failed);

/* head: what comes first in the object, with a comma behind it, or "". */
void exec_report_print(const char *head, const struct exec_report *report);
