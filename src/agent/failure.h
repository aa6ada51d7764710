/* SPDX-License-Identifier: Apache-2.0 */
/* Why a request was refused: what goes into its END frame. The text reaches the client verbatim and may hold a whole
 * path or two. */
#pragma once

#include "base/err.h"
#include "base/path.h"

struct failure {
    enum err_code code;
    enum err_reason reason;
    char text[2 * PATH_TEXT_MAX + 256];
};

/* Both fill *f and return -1. */
int failure_set(struct failure *f, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* A failed system call: "<context>: <text of errno>", with failure_code(). */
int failure_errno(struct failure *f, enum err_code code, int errnum, const char *fmt, ...) PRINTF_LIKE(4, 5);

/*
 * What a failed system call is to a client: running out of something is ERR_RESOURCE_EXHAUSTED whatever `code` says;
 * ERR_INTERNAL is replaced where errno says better.
 */
enum err_code failure_code(enum err_code code, int errnum);

/* The lower-case texts that clients know from other implementations; the same with every libc. */
const char *errno_text(int errnum);
