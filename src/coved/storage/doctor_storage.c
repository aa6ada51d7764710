/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/storage/doctor_storage.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "config/config.h"
#include "config/units.h"
#include "coved/storage/storage.h"
#include "kernel/mount.h"
#include "kernel/pool/btrfs.h"
#include "kernel/pool/loopfile.h"
#include "kernel/tree/tree.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#define TRIAL_BYTES (512ULL << 20)
#define LAYER "layer-00000000000000doctor"

enum { CLONED_BYTES = 1 << 20, LIMIT_BYTES = 16 << 20 };

/* Shared with the child that tries. */
struct trial {
    const char *dir; /* the state directory, or where it will be */
    char path[512];  /* in it: what is tried, and gone afterwards */
    struct storage_choice choice;
    char step[48]; /* what it does just now */
    enum pool_kind kind;
    bool limits, is_xfs;
    usec_t box_usec, clone_usec;
    uint64_t written; /* of LIMIT_BYTES and more */
    int refused;      /* errno of the write that was one too many */
};

static void doing(struct trial *t, const char *step)
{
    (void)snprintf(t->step, sizeof(t->step), "%s", step);
}

/* A btrfs in a file that has no name any more. */
static int mount_trial(struct trial *t, int *ret_mount)
{
    char device[LOOPFILE_NAME_MAX];
    AUTO_CLOSE int file = -1, device_fd = -1;
    doing(t, "make a file");
    int r = loopfile_open(t->path, true, 0, &file);
    r = r ? r : loopfile_grow(file, -1, TRIAL_BYTES);
    if (r == 0) {
        doing(t, "run mkfs.btrfs (package btrfs-progs)");
        r = btrfs_format(t->path);
    }
    (void)unlink(t->path);
    if (r < 0)
        return r;
    doing(t, "make a loop device");
    r = loopfile_attach(file, &device_fd, device);
    if (r < 0)
        return r;
    doing(t, "mount btrfs from a loop device");
    const char *const options[] = {"source", device, NULL};
    return mount_new("btrfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME, ret_mount);
}

static int enable_quotas(struct trial *t, int mount)
{
    doing(t, "switch quotas on");
    AUTO_CLOSE int top = openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return top < 0 ? -errno : btrfs_quota_enable(top);
}

static uint64_t write_bytes(int at, const char *name, uint64_t most, int *ret_errno)
{
    static char block[1 << 16];
    AUTO_CLOSE int fd = openat(at, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    uint64_t done = 0;
    ssize_t n = fd < 0 ? -1 : 1;
    while (n > 0 && done < most) {
        n = write(fd, block, sizeof(block));
        done += n > 0 ? (uint64_t)n : 0;
    }
    *ret_errno = n < 0 ? errno : 0;
    return done;
}

static int use(struct trial *t, struct pool *pool)
{
    static const struct pool_chain none;
    struct statfs fs;
    int error = 0;
    AUTO_CLOSE int box = -1, upper = -1, limited = -1, limited_upper = -1;
    t->kind = pool_features(pool)->kind;
    t->limits = pool_features(pool)->limits;
    t->is_xfs = fstatfs(pool_fd(pool), &fs) == 0 && fs.f_type == XFS_SUPER_MAGIC;
    doing(t, "make a private directory");
    usec_t from = clock_mono();
    int r = pool_box_make(pool, &(struct pool_box){.name = "a"}, &box);
    t->box_usec = clock_mono() - from;
    if (r < 0)
        return r;
    upper = openat(box, "u", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)write_bytes(upper, "f", CLONED_BYTES, &error);
    doing(t, "clone a private directory");
    from = clock_mono();
    r = error ? -error : pool_layer_of_box(pool, "a", LAYER, &none);
    t->clone_usec = clock_mono() - from;
    if (r < 0 || !t->limits)
        return r;
    doing(t, "bound a private directory");
    r = pool_box_make(pool, &(struct pool_box){.name = "b", .limit_bytes = LIMIT_BYTES}, &limited);
    if (r < 0)
        return r;
    limited_upper = openat(limited, "u", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    t->written = write_bytes(limited_upper, "f", 2 * LIMIT_BYTES, &t->refused);
    return 0;
}

static int try_in_file(struct trial *t)
{
    AUTO_CLOSE int mount = -1;
    int r = mount_trial(t, &mount);
    r = r ? r : enable_quotas(t, mount);
    if (r < 0)
        return r;
    AUTO(pool_close) struct pool *pool = NULL;
    AUTO_FREE char *dir = mem_printf("/proc/self/fd/%d/pool", mount);
    r = pool_open_as(dir, POOL_BTRFS, &pool);
    return r ? r : use(t, pool);
}

static int try_in_directory(struct trial *t)
{
    AUTO(pool_close) struct pool *pool = NULL;
    doing(t, t->choice.kind == POOL_REFLINK ? "share bytes between files" : "make a directory");
    int r = t->choice.is_forced ? pool_open_as(t->path, t->choice.kind, &pool) : pool_open(t->path, &pool);
    r = r ? r : use(t, pool);
    if (pool) {
        int emptied UNUSED = pool_layer_drop(pool, LAYER);
        emptied = pool_reset(pool, NULL, NULL);
        emptied = pool_sweep(pool);
    }
    return r;
}

static int trial_child(const void *arg)
{
    struct trial *t = *(struct trial *const *)arg;
    return -(t->choice.in_file ? try_in_file(t) : try_in_directory(t));
}

/* 0, or -errno with t->step saying what failed. */
static int try(struct trial *t)
{
    int n = snprintf(t->path, sizeof(t->path), "%s/probe-pool.%d", t->dir, (int)getpid());
    if (n < 0 || (size_t)n >= sizeof(t->path))
        return -ENAMETOOLONG;
    int r = probe_in_child(trial_child, &t);
    int removed UNUSED = tree_remove(AT_FDCWD, t->path); /* also what one that took too long has left */
    return r > 255 ? -ECHILD : r > 0 ? -r : r;
}

static void say_kind(const struct trial *t, const char *why, struct probe_result *r)
{
    char has[UNIT_TEXT_MAX];
    struct statvfs fs;
    uint64_t there = statvfs(t->dir, &fs) == 0 ? (uint64_t)fs.f_bavail * fs.f_frsize : 0;
    unit_format_size(there, has);
    const char *where = t->choice.in_file ? "a file" : "a directory";
    const char *how = t->choice.is_forced ? ", as configured" : t->choice.is_new ? "" : ", as it is already";
    bool cheap = t->kind == POOL_BTRFS;
    probe_say(r, cheap ? PROBE_OK : PROBE_DEGRADED,
              "%s in %s of %s%s; %s free; a box in %llu us, a clone of 1 MiB in %llu.%llu ms%s%s%s",
              pool_kind_name(t->kind), where, t->dir, how, has, (unsigned long long)t->box_usec,
              (unsigned long long)t->clone_usec / 1000, (unsigned long long)t->clone_usec / 100 % 10,
              cheap                     ? ", as of any size"
              : t->kind == POOL_REFLINK ? ", more by files"
                                        : ", more by bytes and files",
              why[0] ? ". No btrfs: " : "", why);
}

static void say_limits(const struct trial *t, struct probe_result *r)
{
    bool held = t->refused && t->written > LIMIT_BYTES / 2 && t->written <= LIMIT_BYTES;
    if (!t->limits && t->kind == POOL_BTRFS)
        probe_say(r, PROBE_DEGRADED,
                  "none: quotas are off on this btrfs, which is not ours to change: btrfs quota enable --simple %s",
                  t->dir);
    else if (!t->limits && t->is_xfs)
        probe_say(
            r, PROBE_DEGRADED,
            "none: XFS has them when it is mounted with prjquota (on /: rootflags=prjquota), and all of %s is not in"
            " one project; so has btrfs (pool.kind)",
            t->dir);
    else if (!t->limits)
        probe_say(r, PROBE_DEGRADED,
                  "none: a pool of kind %s has them on XFS with prjquota alone; btrfs has them (pool.kind)",
                  pool_kind_name(t->kind));
    else if (!held)
        probe_say(r, PROBE_FAILED, "a limit of 16 MiB let %llu KiB through (%s)", (unsigned long long)t->written >> 10,
                  t->refused ? strerror(t->refused) : "no error");
    else
        probe_say(r, PROBE_OK, "of 16 MiB, %llu KiB could be written, then: %s", (unsigned long long)t->written >> 10,
                  strerror(t->refused));
}

void doctor_storage(const struct config *config, struct doctor_storage *ret_rows)
{
    char why[96] = "";
    struct trial *t = mmap(NULL, sizeof(*t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    *ret_rows = (struct doctor_storage){{PROBE_FAILED, ""}, {PROBE_FAILED, ""}};
    if (t == MAP_FAILED) {
        probe_say(&ret_rows->pool, PROBE_FAILED, "%s", strerror(errno));
        return;
    }
    t->dir = access(config->state_dir, F_OK) == 0 ? config->state_dir : "/var/tmp";
    storage_choose(config, &t->choice);
    int r = try(t);
    if (r < 0 && t->choice.in_file && t->choice.is_new && !t->choice.is_forced) {
        (void)snprintf(why, sizeof(why), "%s: %s", t->step, strerror(-r));
        t->choice.in_file = false;
        r = try(t);
    }
    if (r < 0) {
        probe_say(&ret_rows->pool, PROBE_FAILED, "can't %s in %s: %s", t->step, t->dir, strerror(-r));
        probe_say(&ret_rows->limits, PROBE_MISSING, "not tried");
    } else {
        say_kind(t, why, &ret_rows->pool);
        say_limits(t, &ret_rows->limits);
    }
    (void)munmap(t, sizeof(*t));
}
