/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine's disks. Each layer of the pool is an EROFS image, made when a machine first needs it and kept beside the
 * layers; what is the machine's own is a file in its box, FILES_DISK, with an ext4 of which the overlay's upper
 * directory is a part. Files in the pool are what files.h and the pool have for every tier: so a box with a disk is
 * kept, copied, made a layer of and dropped as any other.
 *
 *  1. A layer with a disk is the whole of what lies above the topmost layer without one: only that disk and the layers
 *     without one below count.
 *  2. An image is whole: it is made under another name, and renamed. Who wants one that another is making waits.
 *  3. Nothing here reads a file system of a sandbox's but mkfs.erofs, in a jail; no disk is ever mounted on the host.
 */
#include "base/child.h"
#include "base/fd.h"
#include "kernel/tree/tree_file.h"
#include "tier/files.h"
#include "tier/vm/body.h"
#include "tier/vm/jail.h"
#include "tier/vm/ram.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DISKS_PATH_TEXT = 256 };
#define DISK_DEFAULT_BYTES (16ULL << 30) /* sparse: as large as it may become */

#define IMAGES "/pool/" FILES_IMAGES

static bool disk_in(const char *dir)
{
    char path[DISKS_PATH_TEXT + 32];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%s/u/" FILES_DISK, dir);
    return lstat(path, &st) == 0 && S_ISREG(st.st_mode);
}

static bool layer_has_disk(const char *layer)
{
    char dir[DISKS_PATH_TEXT];
    (void)snprintf(dir, sizeof(dir), "/pool/layers/%s", layer);
    return disk_in(dir);
}

static int disk_image(const char *layer, char ret_path[static DISKS_PATH_TEXT])
{
    char making[DISKS_PATH_TEXT], from[DISKS_PATH_TEXT];
    struct jail jail = {.usr = VM_STAGE_USR};
    char *const argv[] = {(char[]){"/usr/bin/mkfs.erofs"}, (char[]){"--quiet"}, (char[]){"/out"}, (char[]){"/layer"},
                          NULL};
    (void)snprintf(ret_path, DISKS_PATH_TEXT, IMAGES "/%s", layer);
    if (access(ret_path, F_OK) == 0)
        return 0;
    (void)snprintf(making, sizeof(making), IMAGES "/.%s", layer);
    (void)snprintf(from, sizeof(from), "/pool/layers/%s/u", layer);
    AUTO_CLOSE int fd = open(making, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0 || flock(fd, LOCK_EX) < 0)
        return -errno;
    if (access(ret_path, F_OK) == 0) /* the one that we waited for; what is open here is it, or is gone */
        return 0;
    (void)unlink(making);
    AUTO_CLOSE int out = open(making, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (out < 0 || flock(out, LOCK_EX) < 0)
        return -errno;
    jail_add(&jail, making, "out", false);
    jail_add(&jail, from, "layer", true);
    int r = jail_run(&jail, argv);
    if (r == 0 && (fsync(out) < 0 || rename(making, ret_path) < 0))
        r = -errno;
    if (r < 0)
        (void)unlink(making);
    return r;
}

/* As large as the limit says. */
static int disk_begin(const char *path, uint64_t bytes, uid_t uid)
{
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return fd < 0 || ftruncate(fd, (off_t)(bytes ? bytes : DISK_DEFAULT_BYTES)) < 0 || fchown(fd, uid, uid) < 0 ? -errno
                                                                                                                : 0;
}

static int disk_make(const char *path, uint64_t bytes, uid_t uid)
{
    struct jail jail = {.usr = VM_STAGE_USR, .uid = uid};
    char *const *argv = CHILD_ARGV("/usr/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-m0", "-Jsize=16", "-O^metadata_csum",
                                   "-Elazy_itable_init=1,lazy_journal_init=1", "/own");
    int r = disk_begin(path, bytes, uid);
    jail_add(&jail, path, "own", false);
    return r ? r : jail_run(&jail, argv);
}

int vm_disk_copy(const char *from, const char *to)
{
    struct stat st;
    struct tree_file t;
    AUTO_CLOSE int from_fd = open(from, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    AUTO_CLOSE int to_fd = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (from_fd < 0 || to_fd < 0 || fstatat(from_fd, FILES_DISK, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    tree_file_init(&t, true);
    int r = tree_file_copy(&t, from_fd, FILES_DISK, &st, to_fd);
    if (r == -EOPNOTSUPP || r == -EXDEV || r == -EINVAL) { /* no reflinks here */
        (void)unlinkat(to_fd, FILES_DISK, 0);
        t.share = false;
        r = tree_file_copy(&t, from_fd, FILES_DISK, &st, to_fd);
    }
    tree_file_fini(&t);
    return r;
}

static void disk_path(const char *dir, char ret_path[static DISKS_PATH_TEXT])
{
    (void)snprintf(ret_path, DISKS_PATH_TEXT, "%s/u/" FILES_DISK, dir);
}

int vm_disk_fill(const struct vm_order *o)
{
    char path[DISKS_PATH_TEXT];
    struct stat st, own;
    (void)snprintf(path, sizeof(path), "/pool/layers/%s/u/" FILES_DISK, o->chain.n ? o->chain.names[0] : "");
    AUTO_CLOSE int from = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    disk_path(o->path, path);
    AUTO_CLOSE int to = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (from < 0 || to < 0 || fstat(from, &st) < 0 || fstat(to, &own) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size != own.st_size)
        return -EXDEV;
    return ram_clone(from, to);
}

bool vm_disks_are_new(const struct vm_order *o)
{
    return o->chain.n && !layer_has_disk(o->chain.names[0]) && !disk_in(o->path);
}

uint32_t vm_disks_layers(const struct vm_order *o)
{
    uint32_t n = 0;
    for (size_t i = 0; i < o->chain.n; i++)
        n += !layer_has_disk(o->chain.names[i]);
    return n;
}

static int disk_own(const struct vm_order *o, const char *like, uid_t uid, char ret_path[static DISKS_PATH_TEXT])
{
    char from[DISKS_PATH_TEXT], to[DISKS_PATH_TEXT];
    int r = 0;
    disk_path(o->path, ret_path);
    (void)snprintf(to, sizeof(to), "%s/u", o->path);
    (void)snprintf(from, sizeof(from), "/pool/layers/%s/u", o->chain.n ? o->chain.names[0] : "");
    if (o->awaits)
        r = unlink(ret_path) < 0 && errno != ENOENT ? -errno : disk_begin(ret_path, o->disk_bytes, uid);
    else if (!disk_in(o->path))
        r = like                                              ? vm_disk_copy(like, to)
            : o->chain.n && layer_has_disk(o->chain.names[0]) ? vm_disk_copy(from, to)
                                                              : disk_make(ret_path, o->disk_bytes, uid);
    if (r == 0 && (lchown(ret_path, uid, uid) < 0 || chmod(ret_path, 0600) < 0))
        r = -errno;
    return r;
}

int vm_disks(const struct vm_order *o, const char *like, uid_t uid, struct jail *jail, const char **ret_step)
{
    static char own[DISKS_PATH_TEXT], paths[VMM_LAYERS_MAX][DISKS_PATH_TEXT], names[VMM_LAYERS_MAX][8];
    size_t n = 0;
    *ret_step = "make the directory of images";
    if (mkdir(IMAGES, 0700) < 0 && errno != EEXIST)
        return -errno;
    *ret_step = "make an image of a layer";
    for (size_t i = 0; i < o->chain.n; i++) {
        if (layer_has_disk(o->chain.names[i]))
            continue;
        if (n == VMM_LAYERS_MAX)
            return -E2BIG;
        int r = disk_image(o->chain.names[i], paths[n]);
        if (r < 0)
            return r;
        (void)snprintf(names[n], sizeof(names[n]), "l%02zu", n % 100);
        jail_add(jail, paths[n], names[n], true);
        n++;
    }
    *ret_step = "make its own disk";
    int r = disk_own(o, like, uid, own);
    if (r == 0)
        jail_add(jail, own, "own", false);
    return r < 0 ? r : (int)n;
}
