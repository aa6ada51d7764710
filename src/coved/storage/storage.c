/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/storage/storage.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/config.h"
#include "config/units.h"
#include "coved/storage/reserve.h"
#include "coved/workers/records.h"
#include "kernel/mount.h"
#include "kernel/pool/btrfs.h"
#include "kernel/pool/loopfile.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define FIRST_LEAST (2ULL << 30) /* the base template and some sandboxes */
#define FIRST_MOST (8ULL << 30)

enum { WAIT_MS = 30000 };

static bool storage_is_there(const char *state_dir, const char *path)
{
    AUTO_FREE char *full = mem_printf("%s/%s", state_dir, path);
    return access(full, F_OK) == 0 || errno != ENOENT;
}

/*
 * A layer, kept upper or volume. An earlier version's layers have no u/: they are none. What can't be read may be one:
 * another pool in its place would know of none of the sandboxes.
 */
static bool has_entries(const char *state_dir, const char *dir)
{
    AUTO_FREE char *path = mem_printf("%s/pool/%s", state_dir, dir);
    AUTO(dir_close) DIR *d = dir_open(AT_FDCWD, path);
    bool found = !d && errno != ENOENT;
    errno = 0;
    for (const struct dirent *e; !found && (e = dir_next(d)); errno = 0) {
        AUTO_FREE char *u = mem_printf("%s/%s/u", path, e->d_name);
        found = e->d_name[0] != '.' && (access(u, F_OK) == 0 || (errno != ENOENT && errno != ENOTDIR));
    }
    return found || errno != 0;
}

static bool has_pool(const char *state_dir)
{
    return has_entries(state_dir, "layers") || has_entries(state_dir, "kept") || has_entries(state_dir, "volumes");
}

static bool lies_on_btrfs(const char *state_dir)
{
    AUTO_FREE char *path = mem_printf("%s/pool", state_dir);
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 && btrfs_is(fd);
}

void storage_choose(const struct config *config, struct storage_choice *ret_choice)
{
    const char *dir = config->state_dir;
    bool file = storage_is_there(dir, "pool.btrfs"), plain = has_pool(dir), native = lies_on_btrfs(dir);
    struct storage_choice c = {.kind = POOL_BTRFS, .is_forced = config->pool_kind != CONFIG_POOL_AUTO};
    switch (config->pool_kind) {
    case CONFIG_POOL_COPY:
        c.kind = POOL_COPY;
        break;
    case CONFIG_POOL_REFLINK:
        c.kind = POOL_REFLINK;
        break;
    case CONFIG_POOL_BTRFS:
        c.in_file = file || !native;
        break;
    case CONFIG_POOL_AUTO:
        c.in_file = file || (!plain && !native);
        break;
    }
    c.is_new = c.in_file ? !file : !plain;
    if (c.in_file && plain)
        (void)snprintf(c.other, sizeof(c.other), "%.100s/pool", dir);
    else if (!c.in_file && file)
        (void)snprintf(c.other, sizeof(c.other), "%.100s/pool.btrfs", dir);
    *ret_choice = c;
}

/* Its first size; 0: the disk has too little. */
static uint64_t first_size(const struct storage *s, const struct statvfs *host)
{
    uint64_t there = (uint64_t)host->f_bavail * host->f_frsize;
    uint64_t room = there > s->reserve_bytes ? there - s->reserve_bytes : 0;
    uint64_t size = MIN(room, FIRST_MOST);
    size = s->most_bytes ? MIN(size, s->most_bytes) : size;
    return size < FIRST_LEAST ? 0 : size & ~(uint64_t)((1 << 20) - 1);
}

static int make_file(const struct storage *s, const char *path, struct err *err)
{
    struct statvfs host;
    char has[UNIT_TEXT_MAX];
    AUTO_FREE char *unfinished = mem_printf("%s.new", path);
    AUTO_CLOSE int fd = -1;
    if (fstatvfs(s->host_fd, &host) < 0)
        return err_errno(err, errno, "read the free space of the disk");
    uint64_t size = first_size(s, &host);
    if (size == 0) {
        unit_format_size((uint64_t)host.f_bavail * host.f_frsize, has);
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "the disk has %s free, too little for a file with a file system",
                       has);
    }
    (void)unlink(unfinished);
    int r = loopfile_open(unfinished, true, 0, &fd);
    r = r ? r : loopfile_grow(fd, -1, size);
    r = r ? r : btrfs_format(unfinished);
    if (r == 0 && (fsync(fd) < 0 || rename(unfinished, path) < 0 || fsync(s->host_fd) < 0))
        r = -errno;
    if (r < 0)
        (void)unlink(unfinished);
    if (r == -ENOENT)
        return err_set(err, ERR_FAILED_PRECONDITION, "mkfs.btrfs is not installed: apt-get install btrfs-progs");
    return r < 0 ? err_errno(err, r, "make a btrfs in %s", unfinished) : 0;
}

/* False: there is none. */
static bool take_file(struct storage *s, struct records *records, char ret_device[static LOOPFILE_NAME_MAX])
{
    size_t it = 0;
    struct record *left = records ? records_next(records, KEEPER_STORAGE, &it) : NULL;
    if (!left || left->n_fds != 2 || loopfile_name(left->fds[1], ret_device) < 0)
        return false;
    left->is_taken = true;
    s->file_fd = TAKE_FD(left->fds[0]);
    s->device_fd = TAKE_FD(left->fds[1]);
    return true;
}

static int attach_file(struct storage *s, const char *path, char ret_device[static LOOPFILE_NAME_MAX], struct err *err)
{
    int r = loopfile_open(path, false, WAIT_MS, &s->file_fd);
    if (r == -EWOULDBLOCK)
        return err_set(err, ERR_ALREADY_EXISTS, "%s is in use by another service, or by one that has not ended yet",
                       path);
    if (r < 0)
        return err_errno(err, r, "open %s", path);
    r = loopfile_attach(s->file_fd, &s->device_fd, ret_device);
    return r < 0 ? err_errno(err, r, "make a loop device of %s", path) : 0;
}

static int mount_file(struct storage *s, const char *path, struct records *records, struct err *err)
{
    char device[LOOPFILE_NAME_MAX];
    bool is_in_use = take_file(s, records, device);
    if (!is_in_use && attach_file(s, path, device, err) < 0)
        return -1;
    const int fds[] = {s->file_fd, s->device_fd};
    if (records)
        records_put(records, KEEPER_STORAGE, 0, 0, NULL, 0, fds, ARRAY_SIZE(fds));
    /* What is deleted at a limit can be written again after the next commit: every five seconds instead of thirty. */
    const char *const options[] = {"source", device, "discard", "async", "commit", "5", NULL};
    int r = mount_new("btrfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME, &s->mount);
    if (r == -EINVAL && is_in_use) /* so btrfs refuses one that met an error, while somebody has it mounted */
        return err_set(err, ERR_UNAVAILABLE,
                       "the file system in %s has become read-only, its disk was full or failed; make room, then end "
                       "the sandboxes that still use it: systemctl restart cove",
                       path);
    if (r < 0)
        return err_errno(err, r, "mount %s", path);
    AUTO_CLOSE int top = openat(s->mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0 || fchmod(top, 0700) < 0)
        return err_errno(err, errno, "open the file system in %s", path);
    /* It may have grown in the file, but not in the file system, when a process died in between. */
    r = btrfs_resize_max(top);
    r = r ? r : btrfs_quota_enable(top);
    return r < 0 && r != -EEXIST ? err_errno(err, r, "set up the file system in %s", path) : 0;
}

static int storage_open_file(struct storage *s, const struct config *config, struct records *records, bool is_new,
                             struct err *err)
{
    AUTO_FREE char *path = mem_printf("%s/pool.btrfs", config->state_dir);
    if (is_new && make_file(s, path, err) < 0)
        return -1;
    if (mount_file(s, path, records, err) == 0)
        return 0;
    if (is_new)
        (void)unlink(path);
    return -1;
}

static int open_directory(struct storage *s, const struct config *config, const struct storage_choice *c,
                          struct err *err)
{
    AUTO_FREE char *path = mem_printf("%s/pool", config->state_dir);
    struct pool *pool = NULL;
    int r = c->is_forced ? pool_open_as(path, c->kind, &pool) : pool_open(path, &pool);
    if (r == -EOPNOTSUPP)
        return err_set(err, ERR_FAILED_PRECONDITION, "%s can't be a pool of kind %s: its file system can't do that",
                       path, pool_kind_name(c->kind));
    r = r ? r : mount_clone(AT_FDCWD, path, &s->mount);
    if (r < 0) {
        if (pool)
            pool_close(pool);
        return err_errno(err, r, "open the storage pool %s", path);
    }
    s->kind = pool_features(pool)->kind;
    s->has_limits = pool_features(pool)->limits;
    pool_close(pool);
    return 0;
}

static void storage_say(const struct config *config, const struct storage *s, const struct storage_choice *c)
{
    log_info("storage pool: %s in %s/%s%s", pool_kind_name(s->kind), config->state_dir,
             s->file_fd >= 0 ? "pool.btrfs" : "pool", c->is_forced ? ", as configured" : "");
    if (c->other[0])
        log_warn("%s is not used: its content stays until pool.kind or COVE_POOL selects it", c->other);
    else if (s->kind != POOL_BTRFS && !c->is_forced && !c->is_new)
        log_info(
            "snapshots and forks copy files in this pool%s; COVE_POOL=btrfs begins a new, empty pool, which needn't "
            "copy",
            s->has_limits ? "" : ", and sandboxes have no disk limits");
}

int storage_open(const struct config *config, struct records *records, struct storage *ret_storage, struct err *err)
{
    struct storage s = STORAGE_NONE;
    struct storage_choice c;
    struct statvfs host;
    s.host_fd = open(config->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s.host_fd < 0 || fstatvfs(s.host_fd, &host) < 0) {
        storage_close(&s);
        return err_errno(err, errno, "open %s", config->state_dir);
    }
    s.reserve_bytes = reserve_bytes(&host, config->disk_reserve_bytes);
    s.most_bytes = config->pool_bytes;
    storage_choose(config, &c);
    int r = 0;
    if (c.in_file) {
        r = storage_open_file(&s, config, records, c.is_new, err);
        s.kind = POOL_BTRFS;
        if (r < 0 && c.is_new && !c.is_forced) {
            log_info("the storage pool has no btrfs of its own: %s", err->msg);
            s.file_fd = fd_close(s.file_fd);
            s.device_fd = fd_close(s.device_fd);
            s.mount = fd_close(s.mount);
            c.in_file = false;
        }
    }
    if (!c.in_file)
        r = open_directory(&s, config, &c, err);
    if (r < 0) {
        storage_close(&s);
        return err_prefix(err, "storage pool");
    }
    storage_say(config, &s, &c);
    *ret_storage = s;
    return 0;
}

void storage_close(struct storage *s)
{
    s->mount = fd_close(s->mount);
    s->device_fd = fd_close(s->device_fd);
    s->file_fd = fd_close(s->file_fd);
    s->host_fd = fd_close(s->host_fd);
}

int storage_pool(const struct storage *s, const char *dir, struct pool **ret_pool, struct err *err)
{
    struct pool *pool = NULL;
    int r = pool_open_as(dir, s->kind, &pool);
    if (r < 0)
        return err_errno(err, r, "open the storage pool");
    const struct pool_backing backing = {s->file_fd, s->device_fd, s->host_fd, s->reserve_bytes, s->most_bytes};
    if (s->file_fd >= 0)
        pool_set_backing(pool, &backing);
    *ret_pool = pool;
    return 0;
}
