/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

#define ERR_NAME(code, name) [code] = name,
static const char *const names[ERR_CODE_MAX] = {ERR_CODES(ERR_NAME)};

const char *err_code_name(enum err_code code)
{
    return (unsigned)code < ERR_CODE_MAX ? names[code] : "unknown";
}

enum err_code err_code_from_errno(int errnum)
{
    switch (abs(errnum)) {
    case 0:
        return ERR_OK;
    case ENOENT:
    case ESRCH:
    case ENXIO:
        return ERR_NOT_FOUND;
    case EEXIST:
        return ERR_ALREADY_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS:
        return ERR_PERMISSION_DENIED;
    case EINVAL:
    case ENAMETOOLONG:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case EILSEQ:
        return ERR_INVALID_ARGUMENT;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EAGAIN:
    case ENOBUFS:
        return ERR_RESOURCE_EXHAUSTED;
    case ENOTEMPTY:
    case EBUSY:
        return ERR_FAILED_PRECONDITION;
    case ETIMEDOUT:
        return ERR_DEADLINE_EXCEEDED;
    case ECANCELED:
        return ERR_CANCELED;
    case ENOSYS:
    case EOPNOTSUPP:
        return ERR_UNIMPLEMENTED;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
    case ENOTCONN:
        return ERR_UNAVAILABLE;
    default:
        return ERR_INTERNAL;
    }
}

enum err_reason err_reason_from_errno(int errnum)
{
    return abs(errnum) == ENOSPC ? ERR_NO_SPACE : abs(errnum) == EDQUOT ? ERR_NO_QUOTA : ERR_NO_REASON;
}

bool err_unpack(uint32_t packed, struct err *ret_err)
{
    if ((packed & 0xff) >= ERR_CODE_MAX || packed >> 8 >= ERR_REASON_MAX || packed >> 8 == ERR_HELD)
        return false;
    ret_err->code = (enum err_code)(packed & 0xff);
    ret_err->reason = (enum err_reason)(packed >> 8);
    return true;
}

/* What does not fit ends behind a word, and is seen to be cut. */
static void err_cut(struct err *err, size_t needed)
{
    enum { WORD_MAX = 40 };
    size_t at = sizeof(err->msg) - 4;
    if (needed < sizeof(err->msg))
        return;
    for (size_t i = at; i > at - WORD_MAX; i--)
        if (err->msg[i] == ' ') {
            at = i;
            break;
        }
    while (at && ((unsigned char)err->msg[at] & 0xc0) == 0x80)
        at--;
    memcpy(err->msg + at, "...", 4);
}

PRINTF_LIKE(4, 0) static void vset(struct err *err, enum err_code code, int errnum, const char *fmt, va_list ap)
{
    err->code = code;
    err->reason = err_reason_from_errno(errnum);
    err->errnum = errnum;
    int n = vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
    err_cut(err, n > 0 ? (size_t)n : 0);
}

int err_set(struct err *err, enum err_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vset(err, code, 0, fmt, ap);
    va_end(ap);
    return -1;
}

int err_errno(struct err *err, int errnum, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vset(err, err_code_from_errno(errnum), abs(errnum), fmt, ap);
    va_end(ap);
    size_t n = strlen(err->msg);
    (void)snprintf(err->msg + n, sizeof(err->msg) - n, ": %s", strerror(abs(errnum)));
    return -1;
}

int err_prefix(struct err *err, const char *fmt, ...)
{
    char old[sizeof(err->msg)];
    memcpy(old, err->msg, sizeof(old));
    FORMAT_ARGS(err->msg, fmt);
    size_t n = strlen(err->msg);
    int more = snprintf(err->msg + n, sizeof(err->msg) - n, ": %s", old);
    err_cut(err, n + (more > 0 ? (size_t)more : 0));
    return -1;
}
