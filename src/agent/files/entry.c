/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/files/entry.h"
#include "base/mem.h"
#include "wire/frame.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>

enum { LIST_MAX = 64 * 1024, VALUE_MAX = 4096 };

static enum wire_file_type type_of(mode_t mode)
{
    return S_ISREG(mode) ? WIRE_FILE_REGULAR : S_ISDIR(mode) ? WIRE_FILE_DIRECTORY : WIRE_FILE_UNKNOWN;
}

/* Times before 1970, and those that 64 bits of nanoseconds do not reach (the year 2554), are told as the nearest that
 * can be. */
static uint64_t time_ns(const struct timespec *t)
{
    const uint64_t last_s = UINT64_MAX / 1000000000;
    if (t->tv_sec < 0)
        return 0;
    if ((uint64_t)t->tv_sec >= last_s)
        return last_s * 1000000000;
    return (uint64_t)t->tv_sec * 1000000000 + (uint64_t)t->tv_nsec;
}

/* Names and values are the sandbox's: what doesn't fit, or is no text, is left out. */
static uint32_t put_pairs(struct buf *b, struct str prefix, const char *path, const char *list, size_t n)
{
    char value[VALUE_MAX];
    uint32_t count = 0;
    size_t total = 0;
    for (const char *name = list; name < list + n; name += strlen(name) + 1) {
        struct str key = str_of(name);
        if (!str_starts(key, prefix) || key.n == prefix.n)
            continue;
        ssize_t got = getxattr(path, name, value, sizeof(value));
        key = str_sub(key, prefix.n);
        struct str v = str_n(value, got < 0 ? 0 : (size_t)got);
        if (got < 0 || !str_is_utf8(key) || !str_is_utf8(v) || total + key.n + v.n > ENTRY_METADATA_MAX ||
            count >= 1024)
            continue;
        total += key.n + v.n;
        wire_put_str(b, key);
        wire_put_str(b, v);
        count++;
    }
    return count;
}

static void put_metadata(struct buf *b, struct str prefix, const char *path)
{
    char small[1024], *list = small;
    AUTO_FREE char *large = NULL;
    size_t at = buf_len(b);
    wire_put_u32(b, 0);
    ssize_t n = listxattr(path, small, sizeof(small));
    if (n < 0 && errno == ERANGE) {
        list = large = mem_alloc(LIST_MAX + 1);
        n = listxattr(path, large, LIST_MAX);
    }
    if (n <= 0)
        return;
    if (list[n - 1]) /* a file system's mistake */
        return;
    uint32_t count = put_pairs(b, prefix, path, list, (size_t)n);
    if (buf_error(b))
        return;
    for (size_t i = 0; i < 4; i++)
        buf_data(b)[at + i] = (char)(count >> (8 * i));
}

int entry_put(struct buf *b, struct agent_names *names, const char *path)
{
    struct stat own, target;
    char resolved[PATH_MAX];
    const char *shown_target = "";
    if (lstat(path, &own) < 0)
        return -errno;
    bool is_link = S_ISLNK(own.st_mode), broken = false;
    target = own;
    if (is_link) {
        broken = stat(path, &target) < 0;
        if (broken)
            target.st_mode = 0;
        shown_target = !broken && realpath(path, resolved) ? resolved : path;
    }
    wire_put_str(b, path_base(str_of(path)));
    wire_put_str(b, str_of(path));
    wire_put_u8(b, (uint8_t)type_of(target.st_mode));
    wire_put_u32(b, target.st_mode);
    wire_put_u32(b, own.st_mode);
    wire_put_u64(b, (uint64_t)own.st_size);
    wire_put_u32(b, own.st_uid);
    wire_put_u32(b, own.st_gid);
    wire_put_str(b, names_user(names, own.st_uid));
    wire_put_str(b, names_group(names, own.st_gid));
    wire_put_u64(b, time_ns(&own.st_mtim));
    wire_put_u8(b, is_link);
    wire_put_str(b, str_of(shown_target));
    if (broken)
        wire_put_u32(b, 0);
    else
        put_metadata(b, names->attributes, path);
    return S_ISDIR(own.st_mode);
}
