/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/files/tree.h"
#include "base/dir.h"
#include "base/fd.h"

#include <fcntl.h>
#include <unistd.h>

/*
 * One open directory a level. What lies deeper than that is moved up into the top directory, which is looked at again
 * until it is empty.
 */
enum { TREE_REMOVE_DEPTH_MAX = 200, ROUNDS_MAX = 1000 };

struct removal {
    const char *path;
    int top;
    unsigned long moved;
    struct failure *f;
};

static int tree_remove_fail(struct removal *rm, int errnum)
{
    return failure_errno(rm->f, ERR_INTERNAL, errnum, "error removing file or directory: unlinkat %s", rm->path);
}

static int empty_directory(struct removal *rm, int fd, int depth);

/* Whatever it is; gone already is fine. */
static int tree_remove_remove_entry(struct removal *rm, int dir, const char *name, unsigned char type, int depth)
{
    if (type != DT_DIR && (unlinkat(dir, name, 0) == 0 || errno == ENOENT))
        return 0;
    if (type != DT_DIR && errno != EISDIR && errno != EPERM)
        return tree_remove_fail(rm, errno);
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return tree_remove_fail(rm, errno);
    if (depth >= TREE_REMOVE_DEPTH_MAX) {
        char up[48];
        (void)snprintf(up, sizeof(up), ".removed-%d-%lu", getpid(), rm->moved++);
        return renameat(dir, name, rm->top, up) < 0 && errno != ENOENT ? tree_remove_fail(rm, errno) : 0;
    }
    AUTO_CLOSE int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : tree_remove_fail(rm, errno);
    for (int round = 0; round < ROUNDS_MAX; round++) {
        if (empty_directory(rm, fd, depth + 1) < 0)
            return -1;
        if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
            return 0;
        if (errno != ENOTEMPTY && errno != EEXIST)
            break;
    }
    return tree_remove_fail(rm, errno);
}

static int empty_directory(struct removal *rm, int fd, int depth)
{
    AUTO(dir_close) DIR *d = dir_take(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    int r = 0;
    if (!d)
        return tree_remove_fail(rm, errno);
    rewinddir(d); /* the offset is shared with fd */
    for (const struct dirent *e; r == 0 && (e = dir_next(d));)
        r = tree_remove_remove_entry(rm, fd, e->d_name, e->d_type, depth);
    return r;
}

int tree_remove(const char *path, struct failure *f)
{
    struct removal rm = {.path = path, .f = f};
    if (unlink(path) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return tree_remove_fail(&rm, errno);
    if (rmdir(path) == 0 || errno == ENOENT)
        return 0;
    if (errno != ENOTEMPTY && errno != EEXIST)
        return tree_remove_fail(&rm, errno);
    AUTO_CLOSE int top = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (top < 0)
        return errno == ENOENT ? 0 : tree_remove_fail(&rm, errno);
    rm.top = top;
    for (int round = 0; round < ROUNDS_MAX; round++) {
        if (empty_directory(&rm, top, 0) < 0)
            return -1;
        if (rmdir(path) == 0 || errno == ENOENT)
            return 0;
        if (errno != ENOTEMPTY && errno != EEXIST)
            break;
    }
    return tree_remove_fail(&rm, errno);
}
