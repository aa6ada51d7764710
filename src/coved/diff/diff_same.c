/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/diff/diff_same.h"
#include "base/fd.h"
#include "coved/diff/diff_shared.h"

#include <fcntl.h>
#include <linux/limits.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { DIFF_SAME_BLOCK = 65536 };

static int diff_same_open(const struct found *f)
{
    struct stat st;
    int fd = openat(f->dir_fd, f->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)))
        fd = fd_close(fd);
    return fd;
}

/* The first byte from `at` on that is in no hole; `size` behind the last. */
static off_t next_data(int fd, off_t at, off_t size)
{
    off_t next = lseek(fd, at, SEEK_DATA);
    return next >= 0 ? MIN(next, size) : errno == ENXIO ? size : at;
}

/* 1: they are the same. Of holes, of which a file may have any number for nothing, none is read that both have; of the
 * rest not what they share. */
static int same_bytes(struct effort *e, struct diff_shared *shared, int fd_a, int fd_b, off_t size)
{
    static char block_a[DIFF_SAME_BLOCK], block_b[DIFF_SAME_BLOCK];
    bool is_first = true;
    for (off_t at = 0; at < size;) {
        off_t data_a = next_data(fd_a, at, size), data_b = next_data(fd_b, at, size);
        at = MIN(data_a, data_b);
        off_t next = at;
        /* Most that differ do so in the first block: nothing need be asked, or written out, for them. */
        int r = is_first ? 0 : diff_shared_skip(shared, e, at, &next);
        is_first = false;
        if (r == 0 && next > at) {
            at = next;
            continue;
        }
        r = r ? r : effort_spend(e);
        if (r < 0)
            return r;
        ssize_t n_a = pread(fd_a, block_a, sizeof(block_a), at);
        ssize_t n_b = pread(fd_b, block_b, sizeof(block_b), at);
        if (n_a != n_b || n_a < 0 || memcmp(block_a, block_b, (size_t)n_a) != 0 || (n_a == 0 && at < size))
            return 0;
        at += n_a;
    }
    return 1;
}

/* Its length; -1: it has none of that name. */
static int read_attribute(int fd, const char *name, char ret_value[static XATTR_SIZE_MAX])
{
    ssize_t n = fgetxattr(fd, name, ret_value, XATTR_SIZE_MAX);
    return n >= 0 ? (int)n : errno == ENODATA || errno == EOPNOTSUPP ? -1 : -errno - 1;
}

/* 1: they are the same. */
static int same_attributes(struct effort *e, int fd_a, int fd_b)
{
    static const char *const names[] = {"security.capability", "system.posix_acl_access", "system.posix_acl_default"};
    static char value_a[XATTR_SIZE_MAX], value_b[XATTR_SIZE_MAX];
    int r = effort_spend(e);
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(names); i++) {
        int n_a = read_attribute(fd_a, names[i], value_a), n_b = read_attribute(fd_b, names[i], value_b);
        if (n_a < -1 || n_b < -1)
            return MIN(n_a, n_b) + 1;
        if (n_a != n_b || (n_a > 0 && memcmp(value_a, value_b, (size_t)n_a) != 0))
            return 0;
    }
    return r < 0 ? r : 1;
}

/* 1: they are. */
static int same_file(struct effort *e, const struct found *a, const struct found *b)
{
    if (a->st.st_size != b->st.st_size)
        return 0;
    AUTO_CLOSE int fd_a = diff_same_open(a);
    AUTO_CLOSE int fd_b = diff_same_open(b);
    if (fd_a < 0 || fd_b < 0)
        return 0;
    int r = same_attributes(e, fd_a, fd_b);
    if (r != 1)
        return r;
    static struct diff_shared shared;
    diff_shared_init(&shared, fd_a, fd_b, a->st.st_size, a->lives, b->lives);
    return same_bytes(e, &shared, fd_a, fd_b, a->st.st_size);
}

static bool same_link(const struct found *a, const struct found *b)
{
    char to_a[DIFF_PATH_MAX], to_b[DIFF_PATH_MAX];
    ssize_t n_a = readlinkat(a->dir_fd, a->name, to_a, sizeof(to_a));
    ssize_t n_b = readlinkat(b->dir_fd, b->name, to_b, sizeof(to_b));
    return n_a >= 0 && n_a == n_b && memcmp(to_a, to_b, (size_t)n_a) == 0;
}

int diff_same(struct effort *e, const struct found *a, const struct found *b)
{
    const struct stat *x = &a->st, *y = &b->st;
    if (x->st_dev == y->st_dev && x->st_ino == y->st_ino)
        return 1;
    if (x->st_mode != y->st_mode || x->st_uid != y->st_uid || x->st_gid != y->st_gid)
        return 0;
    if (S_ISREG(x->st_mode))
        return same_file(e, a, b);
    if (S_ISDIR(x->st_mode))
        return same_attributes(e, a->view.at[0].fd, b->view.at[0].fd);
    if (S_ISLNK(x->st_mode))
        return same_link(a, b);
    return !(S_ISCHR(x->st_mode) || S_ISBLK(x->st_mode)) || x->st_rdev == y->st_rdev;
}
