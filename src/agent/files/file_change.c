/* SPDX-License-Identifier: Apache-2.0 */
/* CHANGE: a directory is made, owner and mode are set. */
#include "agent/files/file.h"

#include <sys/stat.h>
#include <unistd.h>

struct file_changing {
    uint8_t flags;
    uint32_t uid, gid, mode;
};

static int file_change_make(const char *path, const struct user *u, bool parents, struct failure *f)
{
    struct stat st;
    if (parents && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return 0;
    if (parents && file_make_parents(path, u, f) < 0)
        return -1;
    if (mkdir(path, 0755) == 0)
        return lchown(path, u->uid, u->gid) < 0
                   ? failure_errno(f, ERR_INTERNAL, errno, "failed to chown directory: chown %s", path)
                   : 0;
    if (errno == EEXIST)
        return parents ? failure_set(f, ERR_INVALID_ARGUMENT, "path is a file: %s", path)
                       : failure_set(f, ERR_ALREADY_EXISTS, "path exists already: %s", path);
    if (errno == ENOENT || errno == ENOTDIR)
        return failure_set(f, ERR_NOT_FOUND, "there is no directory to make %s in", path);
    return failure_errno(f, ERR_INTERNAL, errno, "error creating directory: mkdir %s", path);
}

static int file_change_apply(const char *path, const struct file_changing *c, struct failure *f)
{
    struct stat st;
    uid_t uid = c->flags & WIRE_CHANGE_UID ? c->uid : (uid_t)-1;
    gid_t gid = c->flags & WIRE_CHANGE_GID ? c->gid : (gid_t)-1;
    if (lstat(path, &st) < 0)
        return failure_errno(f, errno == ENOENT || errno == ENOTDIR ? ERR_NOT_FOUND : ERR_INTERNAL, errno,
                             "path does not exist: lstat %s", path);
    if ((c->flags & (WIRE_CHANGE_UID | WIRE_CHANGE_GID)) && lchown(path, uid, gid) < 0)
        return failure_errno(f, ERR_INTERNAL, errno, "error changing file ownership: chown %s", path);
    if ((c->flags & WIRE_CHANGE_MODE) && !S_ISLNK(st.st_mode) && chmod(path, (mode_t)c->mode & 07777) < 0)
        return failure_errno(f, ERR_INTERNAL, errno, "error changing mode: chmod %s", path);
    return 0;
}

static void change_open(struct agent_stream *s, struct wire_reader *r)
{
    AUTO_REQUEST struct file_request q;
    struct failure why;
    int got = file_request_get(s, r, &q, &why);
    struct file_changing c = {.flags = wire_get_u8(r)};
    c.uid = wire_get_u32(r);
    c.gid = wire_get_u32(r);
    c.mode = wire_get_u32(r);
    if (!wire_done(r))
        stream_malformed(s);
    else if (got < 0 ||
             ((c.flags & WIRE_CHANGE_MAKE) &&
              file_change_make(q.path, &q.user, c.flags & WIRE_CHANGE_PARENTS, &why) < 0) ||
             file_change_apply(q.path, &c, &why) < 0)
        file_refuse(s, &why);
    else
        file_end_with_entry(s, q.path);
}

const struct verb verb_change = {.size = sizeof(struct agent_stream), .open = change_open};
