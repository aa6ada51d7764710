/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/size_flag.h"
#include "config/units.h"

static bool is_bare(const char *text)
{
    return *text && !text[strspn(text, "0123456789.")];
}

int size_flag_parse(struct context *ctx, const char *flag, const char *text, uint64_t least, uint64_t *ret_bytes)
{
    uint64_t bytes;
    char smallest[UNIT_TEXT_MAX];
    int r = unit_parse_size(str_of(text), &bytes);
    unit_format_size(least, smallest);
    if (r < 0 || bytes > INT64_MAX)
        (void)context_usage(ctx, "--%s %s: write a size such as 512M or 2GiB", flag, text);
    else if (bytes > 0 && bytes < least && is_bare(text))
        (void)context_usage(ctx, "--%s %s: a number alone counts bytes, and the least is %s; write %s%s", flag, text,
                            smallest, text, bytes << 20 < least ? "G" : "M");
    else if (bytes < least)
        (void)context_usage(ctx, "--%s %s: the least is %s", flag, text, smallest);
    else {
        *ret_bytes = bytes;
        return 0;
    }
    return -1;
}
