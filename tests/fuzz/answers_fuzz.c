/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of programs inside: each that is complete gets one whole answer. */
#include "agent/answers.h"
#include "base/buf.h"
#include "wire/frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_BUF struct buf list = BUF_INIT(4096), answer = BUF_INIT(1 << 20);
    struct answers table = {.n = 2};

    for (int i = 0; i < 2; i++) {
        wire_put_str(&list, i ? STR("/figures") : STR("/"));
        wire_put_str(&list, STR("text/plain"));
        wire_put_str(&list, i ? STR("$0 $1 $2 $3 $4 $5 $6 $7 $8 $9") : STR(""));
        wire_put_u8(&list, (uint8_t)i);
    }
    table.list = buf_str(&list);
    struct str request = str_n((const char *)data, MIN(size, (size_t)ANSWERS_REQUEST_MAX));
    bool complete = request.n == ANSWERS_REQUEST_MAX || (request.n && memmem(request.p, request.n, "\r\n\r\n", 4));
    int r = answers_to(&table, request, &answer);
    assert(r == complete && (r == 0) == (buf_len(&answer) == 0) && buf_error(&answer) == 0);
    if (r)
        assert(str_starts(buf_str(&answer), STR("HTTP/1.1 ")) &&
               memmem(buf_data(&answer), buf_len(&answer), "\r\n\r\n", 4));
    return 0;
}
