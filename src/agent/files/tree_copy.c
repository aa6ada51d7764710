/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/files/tree.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { TREE_COPY_DEPTH_MAX = 200, CHUNK = 256 * 1024, XATTR_MAX = 64 * 1024 };

struct tree_copying {
    const char *from, *to; /* of the whole, for messages */
    struct failure *f;
};

static int tree_copy_fail(const struct tree_copying *c, int errnum, const char *name)
{
    return failure_errno(c->f, ERR_INTERNAL, errnum, "error renaming: copy %s %s: %s", c->from, c->to, name);
}

/* What a file system does not know, or does not let us set, is left out. */
static void copy_xattrs(int from, int to)
{
    AUTO_FREE char *list = mem_alloc(XATTR_MAX), *value = mem_alloc(XATTR_MAX);
    ssize_t n = flistxattr(from, list, XATTR_MAX);
    if (n <= 0 || list[n - 1])
        return;
    for (const char *name = list; name < list + n; name += strlen(name) + 1) {
        ssize_t got = fgetxattr(from, name, value, XATTR_MAX);
        if (got >= 0)
            (void)fsetxattr(to, name, value, (size_t)got, 0);
    }
}

static int copy_bytes(int from, int to)
{
    AUTO_FREE char *chunk = NULL;
    for (;;) {
        ssize_t n = copy_file_range(from, NULL, to, NULL, 1 << 30, 0);
        if (n == 0)
            break;
        if (n < 0 && errno != EINTR)
            break; /* not between these two; what read() says counts */
    }
    chunk = mem_alloc(CHUNK);
    for (;;) {
        ssize_t n = read(from, chunk, CHUNK);
        if (n < 0 && errno == EINTR)
            continue;
        int r = n < 0 ? -errno : fd_write_all(to, chunk, (size_t)n);
        if (r < 0 || n == 0)
            return r;
    }
}

/* Owner before mode: chown clears the set-id bits. */
static int copy_attributes(int from, int to, const struct stat *st)
{
    struct timespec times[2] = {st->st_atim, st->st_mtim};
    if (fchown(to, st->st_uid, st->st_gid) < 0 || fchmod(to, st->st_mode & 07777) < 0)
        return -errno;
    copy_xattrs(from, to);
    return futimens(to, times) < 0 ? -errno : 0;
}

static int copy_file(const struct tree_copying *c, int from_dir, const char *from, int to_dir, const char *to)
{
    struct stat st;
    AUTO_CLOSE int in = openat(from_dir, from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (in < 0 || fstat(in, &st) < 0)
        return tree_copy_fail(c, errno, from);
    AUTO_CLOSE int out = openat(to_dir, to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (out < 0)
        return tree_copy_fail(c, errno, from);
    int r = copy_bytes(in, out);
    if (r == 0)
        r = copy_attributes(in, out, &st);
    return r < 0 ? tree_copy_fail(c, -r, from) : 0;
}

static int copy_special(const struct tree_copying *c, int from_dir, const char *from, int to_dir, const char *to,
                        const struct stat *st)
{
    struct timespec times[2] = {st->st_atim, st->st_mtim};
    if (S_ISLNK(st->st_mode)) {
        char target[PATH_TEXT_MAX];
        ssize_t n = readlinkat(from_dir, from, target, sizeof(target) - 1);
        if (n < 0)
            return tree_copy_fail(c, errno, from);
        target[n] = 0;
        if (symlinkat(target, to_dir, to) < 0)
            return tree_copy_fail(c, errno, from);
    } else if (mknodat(to_dir, to, st->st_mode & (S_IFMT | 0777), st->st_rdev) < 0) {
        return tree_copy_fail(c, errno, from);
    }
    if (fchownat(to_dir, to, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0)
        return tree_copy_fail(c, errno, from);
    (void)utimensat(to_dir, to, times, AT_SYMLINK_NOFOLLOW);
    return 0;
}

static int copy_entry(const struct tree_copying *c, int from_dir, const char *from, int to_dir, const char *to,
                      int depth);

/* A directory that can't be read to its end is no copy: its source is removed afterwards. */
static int copy_entries(const struct tree_copying *c, DIR *d, const char *name, int in, int out, int depth)
{
    for (;;) {
        errno = 0;
        const struct dirent *e = dir_next(d);
        if (!e)
            return errno ? tree_copy_fail(c, errno, name) : 0;
        int r = copy_entry(c, in, e->d_name, out, e->d_name, depth);
        if (r < 0)
            return r;
    }
}

static int copy_directory(const struct tree_copying *c, int from_dir, const char *from, int to_dir, const char *to,
                          int depth)
{
    struct stat st;
    if (depth >= TREE_COPY_DEPTH_MAX)
        return tree_copy_fail(c, ENAMETOOLONG, from);
    AUTO_CLOSE int in = openat(from_dir, from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (in < 0 || fstat(in, &st) < 0 || mkdirat(to_dir, to, 0700) < 0)
        return tree_copy_fail(c, errno, from);
    AUTO_CLOSE int out = openat(to_dir, to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    AUTO(dir_close) DIR *d = dir_take(out < 0 ? -1 : fcntl(in, F_DUPFD_CLOEXEC, 0));
    if (!d)
        return tree_copy_fail(c, errno, from);
    int r = copy_entries(c, d, from, in, out, depth + 1);
    if (r < 0)
        return r;
    r = copy_attributes(in, out, &st);
    return r < 0 ? tree_copy_fail(c, -r, from) : 0;
}

static int copy_entry(const struct tree_copying *c, int from_dir, const char *from, int to_dir, const char *to,
                      int depth)
{
    struct stat st;
    if (fstatat(from_dir, from, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT && depth ? 0 : tree_copy_fail(c, errno, from);
    if (S_ISDIR(st.st_mode))
        return copy_directory(c, from_dir, from, to_dir, to, depth);
    if (S_ISREG(st.st_mode))
        return copy_file(c, from_dir, from, to_dir, to);
    return copy_special(c, from_dir, from, to_dir, to, &st);
}

int tree_copy(const char *from, const char *to, struct failure *f)
{
    struct tree_copying c = {.from = from, .to = to, .f = f};
    struct failure ignored;
    if (copy_entry(&c, AT_FDCWD, from, AT_FDCWD, to, 0) == 0)
        return 0;
    (void)tree_remove(to, &ignored);
    return -1;
}
