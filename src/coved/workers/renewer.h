/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Has the domain's certificate looked after for as long as coved runs: a process that is forked while the host's files
 * can be seen, sleeps, and now and then runs `cove domain renew`. When the domain's file is another one afterwards,
 * coved gets SIGUSR1.
 */
#pragma once

#include "base/err.h"

enum { RENEWER_EVERY_MS = 12 * 3600 * 1000 };

struct renewer_spec {
    const char *program, *file; /* the CLI; the domain's file. Absolute */
    int every_ms;
};

/* child_kill() ends it. */
int renewer_start(const struct renewer_spec *spec, pid_t *ret_pid, struct err *err) WARN_UNUSED;

/* Once, now, and for 20 s at most. -EIO: it failed, and said why on stderr. */
int renewer_run(const char *program) WARN_UNUSED;
