/* SPDX-License-Identifier: Apache-2.0 */
/* Records of a comparison, as coved writes them (wire/diff.h). */
#include "sandbox/life/layers.h"
#include "wire/diff.h"

static const char *change_name(char kind)
{
    return kind == 'A' ? "added" : kind == 'M' ? "modified" : kind == 'D' ? "deleted" : NULL;
}

static const char *change_type(char type)
{
    static const struct {
        char letter;
        const char *name;
    } types[] = {{'f', "file"},         {'d', "directory"}, {'l', "link"},  {'c', "character device"},
                 {'b', "block device"}, {'p', "fifo"},      {'s', "socket"}};
    for (size_t i = 0; i < ARRAY_SIZE(types); i++)
        if (types[i].letter == type)
            return types[i].name;
    return "unknown";
}

static_assert((int)LAYERS_PATH_MAX == (int)DIFF_PATH_MAX, "what coved writes is read");

int layers_change_next(struct str *in, struct layers_change *ret_change)
{
    struct diff_record r;
    if (in->n < sizeof(r))
        return 0;
    memcpy(&r, in->p, sizeof(r));
    if (!change_name(r.kind) || r.path_len > DIFF_PATH_MAX)
        return -EPROTO;
    if (in->n < sizeof(r) + r.path_len)
        return 0;
    *ret_change = (struct layers_change){.change = change_name(r.kind),
                                         .type = change_type(r.type),
                                         .mode = r.mode,
                                         .size = r.size,
                                         .path = str_n(in->p + sizeof(r), r.path_len)};
    *in = str_sub(*in, sizeof(r) + r.path_len);
    return 1;
}
