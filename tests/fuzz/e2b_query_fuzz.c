/* SPDX-License-Identifier: Apache-2.0 */
/* Query strings and header values: the first byte chooses which parser gets the rest. */
#include "api/e2b/control/list_query.h"
#include "api/e2b/envd/accept_encoding.h"
#include "api/e2b/envd/download_head.h"
#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/files_query.h"
#include "api/kit/range.h"
#include "base/mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void list(struct str text, struct arena *arena)
{
    struct list_query q;
    struct err err;
    char again[CURSOR_TEXT_MAX];

    if (list_query_parse(text, arena, &q, &err) < 0)
        return;
    assert(q.limit >= 1 && q.limit <= LIST_LIMIT_MAX && q.n_metadata <= LIST_FILTERS_MAX);
    if (q.has_cursor)
        cursor_format(&q.cursor, again);
}

static void files(struct str text, struct arena *arena)
{
    struct files_query q;
    struct err err;

    if (files_query_parse(text, arena, &q, &err) == 0)
        assert(files_query_refused(&q, FILES_READ, STR("secret"), STR_NULL, 1700000000 * USEC_PER_SEC) ||
               files_query_signed_by(&q, FILES_READ, STR("secret")));
}

static void values(struct str text, struct arena *arena)
{
    AUTO_BUF struct buf b = BUF_INIT(65536);
    struct pair pairs[2];
    struct range ranges[RANGES_MAX];
    size_t n = 0, n_ranges = 0;
    usec_t date;
    struct err err;

    if (range_parse(text, 1000, ranges, &n_ranges) == RANGE_PART) {
        assert(n_ranges > 0 && n_ranges <= RANGES_MAX);
        for (size_t i = 0; i < n_ranges; i++)
            assert(ranges[i].length > 0 && ranges[i].offset < 1000 && ranges[i].length <= 1000 - ranges[i].offset);
    }
    if (accept_encoding_choose(text) == ACCEPT_IDENTITY)
        assert(accept_encoding_allows_identity(text) || memmem(text.p, text.n, "q", 1) ||
               memmem(text.p, text.n, "Q", 1));
    (void)!http_date_parse(text, &date);
    content_disposition_append(&b, content_type_by_bytes(text), text);
    for (size_t i = 0; i < buf_len(&b); i++)
        assert((unsigned char)buf_data(&b)[i] >= 0x20 && (unsigned char)buf_data(&b)[i] < 0x7f);
    (void)!file_metadata_add((struct http_header){text, text}, arena, pairs, &n, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct str text;

    if (size == 0)
        return 0;
    text = str_n(data + 1, size - 1);
    switch (data[0] % 3) {
    case 0:
        list(text, &arena);
        break;
    case 1:
        files(text, &arena);
        break;
    default:
        values(text, &arena);
        break;
    }
    return 0;
}
