/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation. The walk holds one open directory on each side, whatever the depth; a stack on the heap
 * remembers for each directory above where reading goes on (the kernel's offset cookie) and which inodes it goes back
 * to.
 *
 *  1. Nothing of the source is followed: entries are opened with O_NOFOLLOW, and only when they are files or
 *     directories.
 *  2. The way back up is "..", and the inode there must be the remembered one.
 *  3. What has several names is linked into `.links` beside the copy under its inode number when it is first met, and
 *     from there to all further names.
 *  4. Owners first, then attributes, then modes, then times: each clears what comes after. A directory's times are set
 *     when it is left.
 */
#include "base/fd.h"
#include "base/mem.h"
#include "kernel/tree/tree.h"
#include "kernel/tree/tree_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TREE_CLONE_DEPTH_MAX = 1 << 20, FIRST_DEPTH = 64 };

/* A directory that the walk is inside of. */
struct level {
    dev_t dev;
    ino_t from_ino, to_ino;
    long at; /* where its reading goes on */
};

struct walk {
    struct level *levels;
    size_t depth, cap;
    DIR *from;
    int to;
    int links; /* -1: no file with several names was met yet */
    int top;   /* borrowed: where `.links` is made */
    uint64_t bytes;
    struct tree_file file;
};

static int tree_clone_push(struct walk *w, const struct stat *from, const struct stat *to)
{
    if (w->depth == TREE_CLONE_DEPTH_MAX)
        return -ENAMETOOLONG;
    if (w->depth == w->cap) {
        w->cap = w->cap ? w->cap * 2 : FIRST_DEPTH;
        w->levels = mem_realloc(w->levels, w->cap * sizeof(*w->levels));
    }
    w->levels[w->depth++] = (struct level){from->st_dev, from->st_ino, to->st_ino, 0};
    return 0;
}

static int open_below(int at, const char *name, int *ret_fd)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

/* The walk goes on in these two directories. Both descriptors are taken, also on failure. */
static int stand_in(struct walk *w, int from_fd, int to_fd)
{
    AUTO_CLOSE int from = from_fd;
    AUTO_CLOSE int to = to_fd;
    DIR *dir = fdopendir(from);
    if (!dir)
        return -errno;
    (void)TAKE_FD(from);
    if (w->from)
        (void)closedir(w->from);
    (void)fd_close(w->to);
    w->from = dir;
    w->to = TAKE_FD(to);
    return 0;
}

static uint64_t bytes_of(const struct stat *st)
{
    return (uint64_t)st->st_blocks * 512;
}

/* Makes the copy of a directory and goes into it. */
static int enter(struct walk *w, int from_at, const char *name, int to_at, const char *to_name)
{
    struct stat from_st = {0}, to_st;
    AUTO_CLOSE int from = -1, to = -1;
    int r = open_below(from_at, name, &from);
    if (r < 0)
        return r;
    if (mkdirat(to_at, to_name, 0700) < 0)
        return -errno;
    r = open_below(to_at, to_name, &to);
    if (r == 0 && (fstat(from, &from_st) < 0 || fstat(to, &to_st) < 0))
        r = -errno;
    if (r == 0 && w->depth && from_st.st_dev != w->levels[0].dev)
        r = -EXDEV;
    if (r == 0 && w->depth)
        w->levels[w->depth - 1].at = telldir(w->from);
    r = r ? r : tree_clone_push(w, &from_st, &to_st);
    if (r < 0)
        return r;
    w->bytes += bytes_of(&from_st);
    return stand_in(w, TAKE_FD(from), TAKE_FD(to));
}

/* All of the directory is there: its own properties, then one up. */
static int leave(struct walk *w)
{
    struct stat st, to_st;
    int r = tree_file_dress(&w->file, dirfd(w->from), w->to);
    if (r < 0 || --w->depth == 0)
        return r;
    AUTO_CLOSE int from = -1, to = -1;
    const struct level *up = &w->levels[w->depth - 1];
    r = open_below(dirfd(w->from), "..", &from);
    r = r ? r : open_below(w->to, "..", &to);
    if (r < 0)
        return r;
    if (fstat(from, &st) < 0 || fstat(to, &to_st) < 0)
        return -errno;
    if (st.st_dev != up->dev || st.st_ino != up->from_ino || to_st.st_ino != up->to_ino)
        return -ESTALE;
    r = stand_in(w, TAKE_FD(from), TAKE_FD(to));
    if (r == 0)
        seekdir(w->from, up->at);
    return r;
}

/* 1: it has its name now. */
static int link_again(struct walk *w, const char *name, const char *inode)
{
    if (w->links < 0) {
        if (mkdirat(w->top, ".links", 0700) < 0)
            return -errno;
        int r = open_below(w->top, ".links", &w->links);
        if (r < 0)
            return r;
    }
    if (linkat(w->links, inode, w->to, name, 0) == 0)
        return 1;
    if (errno == EMLINK)
        return unlinkat(w->links, inode, 0) < 0 ? -errno : 0; /* the next names are those of another copy */
    return errno == ENOENT ? 0 : -errno;
}

static int copy_one(struct walk *w, const char *name)
{
    struct stat st;
    char inode[24];
    if (fstatat(dirfd(w->from), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? -ESTALE : -errno;
    if (S_ISDIR(st.st_mode))
        return enter(w, dirfd(w->from), name, w->to, name);
    if (S_ISSOCK(st.st_mode) || S_ISBLK(st.st_mode) || (S_ISCHR(st.st_mode) && st.st_rdev != 0))
        return 0;
    bool several = st.st_nlink > 1 && !S_ISCHR(st.st_mode); /* whiteouts are alike without that */
    (void)snprintf(inode, sizeof(inode), "%llx", (unsigned long long)st.st_ino);
    int r = several ? link_again(w, name, inode) : 0;
    if (r != 0)
        return r < 0 ? r : 0;
    r = tree_file_copy(&w->file, dirfd(w->from), name, &st, w->to);
    w->bytes += bytes_of(&st);
    if (r == 0 && several && linkat(w->to, name, w->links, inode, 0) < 0)
        r = -errno;
    return r;
}

static int tree_clone_walk(struct walk *w)
{
    int r = 0;
    while (r == 0 && w->depth) {
        errno = 0;
        struct dirent *e = readdir(w->from);
        if (!e)
            r = errno ? -errno : leave(w);
        else if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            r = copy_one(w, e->d_name);
    }
    return r;
}

int tree_clone(int from, const char *name, int to, const char *to_name, bool share, uint64_t *ret_bytes)
{
    struct walk w = {.to = -1, .links = -1, .top = to};
    tree_file_init(&w.file, share);
    int r = enter(&w, from, name, to, to_name);
    r = r ? r : tree_clone_walk(&w);
    if (w.from)
        (void)closedir(w.from);
    (void)fd_close(w.to);
    if (w.links >= 0) {
        (void)fd_close(w.links);
        r = r ? r : tree_remove(to, ".links");
    }
    mem_free(w.levels);
    tree_file_fini(&w.file);
    if (r == 0 && ret_bytes)
        *ret_bytes = w.bytes;
    return r;
}

bool tree_can_share(int dirfd)
{
    AUTO_CLOSE int a = openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    AUTO_CLOSE int b = openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return a >= 0 && b >= 0 && fd_write_all(a, "shared", 6) == 0 && ioctl(b, FICLONE, a) == 0;
}
