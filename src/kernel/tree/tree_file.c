/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/tree/tree_file.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/xattr.h>
#include <unistd.h>

enum {
    TREE_FILE_BLOCK = 1 << 20,
    ATTRIBUTES_MAX = 1 << 16 /* the kernel's own bound, of the names and of each value */
};

void tree_file_init(struct tree_file *t, bool share)
{
    *t = (struct tree_file){share, NULL, mem_alloc(ATTRIBUTES_MAX), mem_alloc(ATTRIBUTES_MAX)};
}

void tree_file_fini(struct tree_file *t)
{
    MEM_FREE(t->block, t->names, t->value);
}

/* What overlayfs, capabilities, ACLs and programs keep there. The rest is the file system's own. */
static bool is_ours(const char *name)
{
    static const char *const kept[] = {"user.", "security.", "trusted.overlay.", "system.posix_acl_"};
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        if (strncmp(name, kept[i], strlen(kept[i])) == 0)
            return true;
    return false;
}

/* An open file, or what has this name in an open directory: the thing itself, not where it leads. */
struct place {
    int fd;
    const char *name;
};

enum { PLACE_TEXT = NAME_MAX + 32 };

static void path_of(struct place p, char ret_path[static PLACE_TEXT])
{
    (void)snprintf(ret_path, PLACE_TEXT, "/proc/self/fd/%d/%s", p.fd, p.name);
}

static int copy_attributes(struct tree_file *t, struct place from, struct place to)
{
    char from_path[PLACE_TEXT], to_path[PLACE_TEXT];
    if (from.name) {
        path_of(from, from_path);
        path_of(to, to_path);
    }
    ssize_t n =
        from.name ? llistxattr(from_path, t->names, ATTRIBUTES_MAX) : flistxattr(from.fd, t->names, ATTRIBUTES_MAX);
    if (n < 0)
        return errno == EOPNOTSUPP ? 0 : -errno;
    for (const char *name = t->names; name < t->names + n; name += strlen(name) + 1) {
        if (!is_ours(name))
            continue;
        ssize_t size = from.name ? lgetxattr(from_path, name, t->value, ATTRIBUTES_MAX)
                                 : fgetxattr(from.fd, name, t->value, ATTRIBUTES_MAX);
        if (size < 0)
            return -errno;
        int r = from.name ? lsetxattr(to_path, name, t->value, (size_t)size, 0)
                          : fsetxattr(to.fd, name, t->value, (size_t)size, 0);
        /* A label of the host's security module is not always ours to give. */
        if (r < 0 && strncmp(name, "security.selinux", 16) != 0)
            return -errno;
    }
    return 0;
}

int tree_file_dress(struct tree_file *t, int from, int to)
{
    struct stat st;
    if (fstat(from, &st) < 0 || fchown(to, st.st_uid, st.st_gid) < 0)
        return -errno;
    int r = copy_attributes(t, (struct place){from, NULL}, (struct place){to, NULL});
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    if (r == 0 && (fchmod(to, st.st_mode & 07777) < 0 || futimens(to, times) < 0))
        r = -errno;
    return r;
}

/* From `at` to `end`, where bytes are. */
static int copy_run(struct tree_file *t, int from, int to, off_t at, off_t end)
{
    off_t out = at;
    while (at < end) {
        ssize_t n = copy_file_range(from, &at, to, &out, (size_t)MIN(end - at, (off_t)INT_MAX), 0);
        if (n > 0)
            continue;
        if (n == 0)
            return -ESTALE; /* it became shorter */
        if (errno != EXDEV && errno != EOPNOTSUPP && errno != EINVAL && errno != ENOSYS)
            return -errno;
        if (!t->block)
            t->block = mem_alloc(TREE_FILE_BLOCK);
        n = pread(from, t->block, (size_t)MIN(end - at, (off_t)TREE_FILE_BLOCK), at);
        if (n <= 0)
            return n < 0 ? -errno : -ESTALE;
        ssize_t written = pwrite(to, t->block, (size_t)n, out);
        if (written <= 0)
            return written < 0 ? -errno : -EIO;
        at += written;
        out += written;
    }
    return 0;
}

static int copy_bytes(struct tree_file *t, int from, int to, off_t size)
{
    if (size == 0 || (t->share && ioctl(to, FICLONE, from) == 0))
        return 0;
    if (t->share && errno != EXDEV && errno != EOPNOTSUPP && errno != EINVAL)
        return -errno;
    for (off_t at = 0; at < size;) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO)
            break;
        off_t hole = data < 0 ? -1 : lseek(from, data, SEEK_HOLE);
        if (data < 0 || hole < 0)
            return -errno;
        int r = copy_run(t, from, to, data, MIN(hole, size));
        if (r < 0)
            return r;
        at = hole;
    }
    return ftruncate(to, size) < 0 ? -errno : 0;
}

static int copy_regular(struct tree_file *t, int from_at, const char *name, const struct stat *st, int to_at)
{
    struct stat now;
    AUTO_CLOSE int from = openat(from_at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOATIME | O_CLOEXEC);
    if (from < 0 || fstat(from, &now) < 0)
        return -errno;
    if (now.st_ino != st->st_ino || now.st_dev != st->st_dev)
        return -ESTALE;
    AUTO_CLOSE int to = openat(to_at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    int r = to < 0 ? -errno : copy_bytes(t, from, to, now.st_size);
    return r ? r : tree_file_dress(t, from, to);
}

static int make_link(int from_at, const char *name, int to_at)
{
    char target[PATH_MAX];
    ssize_t n = readlinkat(from_at, name, target, sizeof(target) - 1);
    if (n < 0)
        return -errno;
    target[n] = 0;
    return symlinkat(target, to_at, name) < 0 ? -errno : 0;
}

int tree_file_copy(struct tree_file *t, int from_at, const char *name, const struct stat *st, int to_at)
{
    if (S_ISREG(st->st_mode))
        return copy_regular(t, from_at, name, st, to_at);
    int r = S_ISLNK(st->st_mode)                                                   ? make_link(from_at, name, to_at)
            : mknodat(to_at, name, (st->st_mode & S_IFMT) | 0600, st->st_rdev) < 0 ? -errno
                                                                                   : 0;
    if (r == 0 && fchownat(to_at, name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno;
    r = r ? r : copy_attributes(t, (struct place){from_at, name}, (struct place){to_at, name});
    if (r == 0 && !S_ISLNK(st->st_mode) && fchmodat(to_at, name, st->st_mode & 07777, 0) < 0)
        r = -errno;
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    if (r == 0 && utimensat(to_at, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno;
    return r;
}
