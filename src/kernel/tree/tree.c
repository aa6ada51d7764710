/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/tree/tree.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/id.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * A tree may be deeper than descriptors or stack allow. Each directory is emptied of all that is not a directory; a
 * sub-directory found inside is first moved up beside the one being deleted ("flattened") once the depth passes a
 * bound, and gets its turn there.
 */
enum { TREE_DEPTH_MAX = 48, TOKEN_LEN = 12 };

struct tree_context {
    int top_fd; /* where moved-up directories go */
    dev_t dev;
    unsigned serial;
    char token[TOKEN_LEN + 1]; /* in their names: who made the tree must not have taken them */
};

static int remove_below(struct tree_context *c, int fd, int depth);

static int open_directory(int at, const char *name)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == EACCES && fchmodat(at, name, 0700, 0) == 0)
        fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int remove_directory(struct tree_context *c, int at, const char *name, int depth)
{
    if (depth >= TREE_DEPTH_MAX) {
        char up[64];
        (void)snprintf(up, sizeof(up), ".deep.%s.%u", c->token, c->serial++);
        if (renameat(at, name, c->top_fd, up) == 0)
            return 1; /* its parent can go; it is found again in the next round */
        return -errno;
    }
    AUTO_CLOSE int fd = open_directory(at, name);
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (st.st_dev != c->dev)
        return -EXDEV;
    int r = remove_below(c, fd, depth);
    if (r < 0)
        return r;
    return unlinkat(at, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : r;
}

static int remove_below(struct tree_context *c, int fd, int depth)
{
    AUTO(dir_close) DIR *dir = dir_take(fcntl(fd, F_DUPFD_CLOEXEC, 3));
    if (!dir)
        return -errno;
    rewinddir(dir); /* the offset is shared with fd, which an earlier round has read to its end */
    int r = 0, moved = 0;
    for (const struct dirent *e; r >= 0 && (e = dir_next(dir));) {
        if (e->d_type != DT_DIR && unlinkat(fd, e->d_name, 0) == 0)
            continue;
        r = e->d_type == DT_DIR || errno == EISDIR ? remove_directory(c, fd, e->d_name, depth + 1) : -errno;
        moved |= r > 0;
        r = r == -ENOENT ? 0 : r;
    }
    return r < 0 ? r : moved;
}

int tree_remove(int dirfd, const char *name)
{
    struct stat st;
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode))
        return unlinkat(dirfd, name, 0) < 0 ? -errno : 0;
    AUTO_CLOSE int top = open_directory(dirfd, name);
    if (top < 0)
        return top;
    struct tree_context c = {.top_fd = top, .dev = st.st_dev};
    id_token(c.token, TOKEN_LEN);
    int r;
    do
        r = remove_below(&c, top, 0);
    while (r > 0);
    if (r < 0)
        return r;
    return unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}
