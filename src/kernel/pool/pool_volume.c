/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "kernel/pool/pool_internal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { USER = 1000 };

/* An empty volume, while coved's one thread waits: where settling is a sync of the whole file system, that would write
 * out what all others have. */
static int pool_volume_settle(struct pool *p, int entry, const char *name)
{
    static const char *const parts[] = {"limit", "u", "."};
    if (p->ops->clones_settled)
        return p->ops->settle(p, p->new_fd, name);
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        AUTO_CLOSE int fd = openat(entry, parts[i], O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fsync(fd) < 0)
            return -errno;
    }
    return 0;
}

static int pool_volume_fill(struct pool *p, const char *name, uint64_t limit_bytes, uint64_t owner)
{
    char text[24];
    AUTO_CLOSE int entry = -1;
    int r = pool_entry_open(p->new_fd, name, &entry);
    int n = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)limit_bytes);
    if (r == 0 && (mkdirat(entry, "u", 0755) < 0 || fchmodat(entry, "u", 0755, 0) < 0 ||
                   fchownat(entry, "u", USER, USER, AT_SYMLINK_NOFOLLOW) < 0))
        r = -errno;
    r = r ? r : fd_write_file(entry, "limit", str_n(text, (size_t)n), 0600);
    r = r ? r : pool_own_entry(p, entry, owner);
    if (r == 0 && p->features.limits && limit_bytes)
        r = p->ops->limit(p, entry, limit_bytes);
    return r ? r : pool_volume_settle(p, entry, name);
}

int pool_volume_make(struct pool *p, const char *volume, uint64_t limit_bytes, uint64_t owner)
{
    char name[POOL_ENTRY_MAX];
    if (!pool_is_name(volume))
        return -EINVAL;
    if (faccessat(p->volumes_fd, volume, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return -EEXIST;
    pool_unique(volume, name);
    int r = p->ops->make(p, p->new_fd, name, true);
    if (r < 0)
        return r;
    r = pool_step(p, "pool.made");
    r = r ? r : pool_volume_fill(p, name, limit_bytes, owner);
    r = r ? r : pool_put(p, p->new_fd, name, p->volumes_fd, volume, POOL_PUT_NEW);
    if (r < 0)
        pool_discard(p, p->new_fd, name);
    return r;
}

static int open_entry(struct pool *p, const char *volume, int *ret_fd)
{
    return pool_is_name(volume) ? pool_entry_open(p->volumes_fd, volume, ret_fd) : -EINVAL;
}

int pool_volume_open(struct pool *p, const char *volume, int *ret_fd)
{
    AUTO_CLOSE int entry = -1;
    int r = open_entry(p, volume, &entry);
    if (r < 0)
        return r;
    int fd = openat(entry, "u", O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

int pool_volume_drop(struct pool *p, const char *volume)
{
    return pool_is_name(volume) ? pool_to_trash(p, p->volumes_fd, volume) : -EINVAL;
}

int pool_volume_usage(struct pool *p, const char *volume, uint64_t *ret_bytes, uint64_t *ret_limit)
{
    AUTO_CLOSE int entry = -1;
    uint64_t bytes = 0, limit = 0;
    int r = open_entry(p, volume, &entry);
    r = r ? r : pool_note_u64(entry, "limit", &limit);
    if (r == 0 && p->features.limits)
        r = p->ops->usage(p, entry, &bytes);
    if (r < 0 && r != -ENODATA)
        return r;
    *ret_bytes = bytes;
    *ret_limit = limit;
    return 0;
}

int pool_volume_each(struct pool *p, void (*fn)(void *ctx, const char *volume), void *ctx)
{
    return pool_each_named(p->volumes_fd, pool_is_name, fn, ctx);
}
