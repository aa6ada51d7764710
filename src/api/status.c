/* SPDX-License-Identifier: Apache-2.0 */
#include "api/status.h"

static const short statuses[ERR_CODE_MAX] = {
    [ERR_OK] = 200,
    [ERR_CANCELED] = 499,
    [ERR_UNKNOWN] = 500,
    [ERR_INVALID_ARGUMENT] = 400,
    [ERR_DEADLINE_EXCEEDED] = 504,
    [ERR_NOT_FOUND] = 404,
    [ERR_ALREADY_EXISTS] = 409,
    [ERR_PERMISSION_DENIED] = 403,
    [ERR_RESOURCE_EXHAUSTED] = 429,
    [ERR_FAILED_PRECONDITION] = 400,
    [ERR_ABORTED] = 409,
    [ERR_OUT_OF_RANGE] = 400,
    [ERR_UNIMPLEMENTED] = 501,
    [ERR_INTERNAL] = 500,
    [ERR_UNAVAILABLE] = 503,
    [ERR_DATA_LOSS] = 500,
    [ERR_UNAUTHENTICATED] = 401,
};

int api_status(enum err_code code)
{
    return (unsigned)code < ERR_CODE_MAX ? statuses[code] : 500;
}

void api_error_body(struct buf *b, int status, struct str message)
{
    buf_printf(b, "{\"code\":%d,\"message\":", status);
    buf_append_json_string(b, message);
    buf_append_char(b, '}');
}
