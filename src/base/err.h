/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An error that a person or a client will read. It lives on the caller's stack, is filled where the knowledge is, and
 * is prefixed on the way up: "create sandbox i3k...: mount overlay: no space left on device". Match on the code, never
 * on the text. The codes are those of the Connect protocol, so that a façade translates them by table.
 *
 * Functions that take a `struct err *err` return 0 or positive on success and -1 after filling *err. err may not be
 * NULL.
 */
#pragma once

#include "base/def.h"

/* In the order of their numbers. */
#define ERR_CODES(X)                                                                                                   \
    X(ERR_OK, "ok")                                                                                                    \
    X(ERR_CANCELED, "canceled")                                                                                        \
    X(ERR_UNKNOWN, "unknown")                                                                                          \
    X(ERR_INVALID_ARGUMENT, "invalid_argument")                                                                        \
    X(ERR_DEADLINE_EXCEEDED, "deadline_exceeded")                                                                      \
    X(ERR_NOT_FOUND, "not_found")                                                                                      \
    X(ERR_ALREADY_EXISTS, "already_exists")                                                                            \
    X(ERR_PERMISSION_DENIED, "permission_denied")                                                                      \
    X(ERR_RESOURCE_EXHAUSTED, "resource_exhausted")                                                                    \
    X(ERR_FAILED_PRECONDITION, "failed_precondition")                                                                  \
    X(ERR_ABORTED, "aborted")                                                                                          \
    X(ERR_OUT_OF_RANGE, "out_of_range")                                                                                \
    X(ERR_UNIMPLEMENTED, "unimplemented")                                                                              \
    X(ERR_INTERNAL, "internal")                                                                                        \
    X(ERR_UNAVAILABLE, "unavailable")                                                                                  \
    X(ERR_DATA_LOSS, "data_loss")                                                                                      \
    X(ERR_UNAUTHENTICATED, "unauthenticated")
#define ERR_CODE(code, name) code,
enum err_code { ERR_CODES(ERR_CODE) ERR_CODE_MAX };

/* What some callers must tell apart, of errors with the same code. */
enum err_reason {
    ERR_NO_REASON = 0,
    ERR_HELD,           /* ERR_PERMISSION_DENIED: the action waits for an answer (sandbox/hold.h) */
    ERR_NO_SPACE,       /* ERR_RESOURCE_EXHAUSTED, as the next five: ENOSPC */
    ERR_NO_QUOTA,       /* EDQUOT */
    ERR_POOL_FULL,      /* no room for another layer */
    ERR_SANDBOXES_FULL, /* as many run as may */
    ERR_SLOTS_FULL,     /* as many as coved can have */
    ERR_NEEDS_RESTART,  /* ERR_UNAVAILABLE: trying again doesn't help */
    ERR_MALFORMED,      /* ERR_INVALID_ARGUMENT: not of the form that it must have, whatever it says */
    ERR_KEY_GONE,       /* ERR_UNAUTHENTICATED: that of who asks; else a user in a sandbox */
    ERR_REASON_MAX,
};

struct err {
    enum err_code code;
    enum err_reason reason;
    int errnum; /* positive errno, or 0 when the cause was not a system call */
    char msg[244];
};

/* Fills *err and returns -1. The message says what failed and, where it can be said, what to do next. */
int err_set(struct err *err, enum err_code code, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* The same from a -errno (or errno) value: appends ": <strerror>", and chooses the code by err_code_from_errno(). */
int err_errno(struct err *err, int errnum, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Prefixes the message with "<context>: ", keeping the code. Returns -1. */
int err_prefix(struct err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* Says why, of an error that was set. Returns -1. */
static inline int err_because(struct err *err, enum err_reason reason)
{
    err->reason = reason;
    return -1;
}

enum err_code err_code_from_errno(int errnum);

enum err_reason err_reason_from_errno(int errnum);

/*
 * Code and reason as one number, for messages between processes. err_unpack() sets those two alone. False: there is no
 * such code, or no such reason that leaves its process (ERR_HELD doesn't).
 */
static inline uint16_t err_pack(enum err_code code, enum err_reason reason)
{
    return (uint16_t)((unsigned)code | (unsigned)reason << 8);
}
bool err_unpack(uint32_t packed, struct err *ret_err) WARN_UNUSED;

/* "not_found" and so on, as Connect spells them; never NULL. */
const char *err_code_name(enum err_code code);
