/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/file_metadata.h"

#include <ctype.h>

static const struct str header_prefix = STR("x-metadata-");

static int check_printable(struct str s, const char *what, struct str key, struct err *err)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c < 0x20 || c > 0x7e)
            return err_set(
                err, ERR_INVALID_ARGUMENT,
                "invalid metadata: metadata %s for key \"%.*s\" contains non-printable-ASCII byte 0x%02x at offset %zu",
                what, STR_ARG(key), c, i);
    }
    return 0;
}

int file_metadata_add(struct http_header header, struct arena *arena, struct pair *pairs, size_t *n, struct err *err)
{
    struct str key;
    char *lower;
    if (header.name.n <= header_prefix.n || !str_eq_nocase(str_n(header.name.p, header_prefix.n), header_prefix))
        return 0;
    key = str_sub(header.name, header_prefix.n);
    if (key.n > METADATA_KEY_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "invalid metadata: metadata key \"%.32s…\" exceeds %d bytes", key.p,
                       METADATA_KEY_MAX);
    lower = arena_strndup(arena, key.p, key.n);
    for (size_t i = 0; i < key.n; i++)
        lower[i] = (char)tolower((unsigned char)lower[i]);
    key.p = lower;
    for (size_t i = 0; i < *n; i++)
        if (str_eq(pairs[i].key, key))
            return 0;
    if (check_printable(key, "key", key, err) < 0 || check_printable(header.value, "value", key, err) < 0)
        return -1;
    pairs[(*n)++] = (struct pair){key, header.value};
    return 0;
}

int file_metadata_read(struct http_request *req, const struct pair **ret_pairs, size_t *ret_n, struct err *err)
{
    size_t count = http_header_count(req), n = 0, total = 0;
    struct pair *pairs = arena_alloc(http_arena(req), (count + 1) * sizeof(*pairs));
    for (size_t i = 0; i < count; i++)
        if (file_metadata_add(http_header_at(req, i), http_arena(req), pairs, &n, err) < 0)
            return -1;
    for (size_t i = 0; i < n; i++)
        total += strlen(E2B_ATTRIBUTES) + pairs[i].key.n + pairs[i].value.n;
    if (total > METADATA_TOTAL_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "invalid metadata: total metadata size %zu exceeds %d bytes", total,
                       METADATA_TOTAL_MAX);
    *ret_pairs = pairs;
    *ret_n = n;
    return 0;
}
