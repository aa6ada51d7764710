/* SPDX-License-Identifier: Apache-2.0 */
#include "api/status.h"

void api_error_body(struct buf *b, int status, struct str message)
{
    buf_printf(b, "{\"code\":%d,\"message\":", status);
    buf_append_json_string(b, message);
    buf_append_char(b, '}');
}
