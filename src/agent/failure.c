/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/failure.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
    int errnum;
    const char *text;
} texts[] = {
    {EPERM, "operation not permitted"},
    {ENOENT, "no such file or directory"},
    {EIO, "input/output error"},
    {ENXIO, "no such device or address"},
    {E2BIG, "argument list too long"},
    {ENOEXEC, "exec format error"},
    {EAGAIN, "resource temporarily unavailable"},
    {ENOMEM, "cannot allocate memory"},
    {EACCES, "permission denied"},
    {EBUSY, "device or resource busy"},
    {EEXIST, "file exists"},
    {EXDEV, "invalid cross-device link"},
    {ENODEV, "no such device"},
    {ENOTDIR, "not a directory"},
    {EISDIR, "is a directory"},
    {EINVAL, "invalid argument"},
    {ENFILE, "too many open files in system"},
    {EMFILE, "too many open files"},
    {ETXTBSY, "text file busy"},
    {EFBIG, "file too large"},
    {ENOSPC, "no space left on device"},
    {EROFS, "read-only file system"},
    {EMLINK, "too many links"},
    {EPIPE, "broken pipe"},
    {ENAMETOOLONG, "file name too long"},
    {ENOSYS, "function not implemented"},
    {ENOTEMPTY, "directory not empty"},
    {ELOOP, "too many levels of symbolic links"},
    {EOPNOTSUPP, "operation not supported"},
    {ECONNREFUSED, "connection refused"},
    {ECONNRESET, "connection reset by peer"},
    {ETIMEDOUT, "connection timed out"},
    {ENETUNREACH, "network is unreachable"},
    {EHOSTUNREACH, "no route to host"},
    {EADDRNOTAVAIL, "cannot assign requested address"},
    {ESTALE, "stale file handle"},
    {EDQUOT, "disk quota exceeded"},
};

const char *errno_text(int errnum)
{
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        if (texts[i].errnum == errnum)
            return texts[i].text;
    return strerror(errnum);
}

int failure_set(struct failure *f, enum err_code code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    f->code = code;
    (void)vsnprintf(f->text, sizeof(f->text), fmt, ap);
    va_end(ap);
    return -1;
}

int failure_errno(struct failure *f, enum err_code code, int errnum, const char *fmt, ...)
{
    static const int exhausted[] = {ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM, EAGAIN};
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(f->text, sizeof(f->text), fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof(f->text))
        (void)snprintf(f->text + n, sizeof(f->text) - (size_t)n, ": %s", errno_text(errnum));
    f->code = code;
    for (size_t i = 0; i < ARRAY_SIZE(exhausted); i++)
        if (errnum == exhausted[i])
            f->code = ERR_RESOURCE_EXHAUSTED;
    return -1;
}
