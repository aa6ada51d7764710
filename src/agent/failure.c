/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/failure.h"

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
    f->reason = ERR_NO_REASON;
    (void)vsnprintf(f->text, sizeof(f->text), fmt, ap);
    va_end(ap);
    return -1;
}

enum err_code failure_code(enum err_code code, int errnum)
{
    static const struct {
        int errnum;
        enum err_code code;
    } codes[] = {
        /* What was asked for can't be. */
        {EINVAL, ERR_INVALID_ARGUMENT},
        {ENAMETOOLONG, ERR_INVALID_ARGUMENT},
        {ENOTDIR, ERR_INVALID_ARGUMENT},
        {EISDIR, ERR_INVALID_ARGUMENT},
        /* It could be, if something else were so. */
        {ENOENT, ERR_NOT_FOUND},
        {EEXIST, ERR_ALREADY_EXISTS},
        {ELOOP, ERR_FAILED_PRECONDITION},
        {ENOTEMPTY, ERR_FAILED_PRECONDITION},
        {EBUSY, ERR_FAILED_PRECONDITION},
        {ETXTBSY, ERR_FAILED_PRECONDITION},
        {EXDEV, ERR_FAILED_PRECONDITION},
        {EROFS, ERR_FAILED_PRECONDITION},
        {ENXIO, ERR_FAILED_PRECONDITION},
        {ENODEV, ERR_FAILED_PRECONDITION},
        {EOPNOTSUPP, ERR_FAILED_PRECONDITION},
        {EPERM, ERR_PERMISSION_DENIED},
        {EACCES, ERR_PERMISSION_DENIED},
    };
    static const int exhausted[] = {ENOSPC, EDQUOT, EMFILE, ENFILE, ENOMEM, EAGAIN, EFBIG, EMLINK};
    for (size_t i = 0; i < ARRAY_SIZE(exhausted); i++)
        if (errnum == exhausted[i])
            return ERR_RESOURCE_EXHAUSTED;
    for (size_t i = 0; code == ERR_INTERNAL && i < ARRAY_SIZE(codes); i++)
        if (errnum == codes[i].errnum)
            return codes[i].code;
    return code;
}

int failure_errno(struct failure *f, enum err_code code, int errnum, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(f->text, sizeof(f->text), fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof(f->text))
        (void)snprintf(f->text + n, sizeof(f->text) - (size_t)n, ": %s", errno_text(errnum));
    f->code = failure_code(code, errnum);
    f->reason = err_reason_from_errno(errnum);
    return -1;
}
