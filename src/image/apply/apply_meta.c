/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/mem.h"
#include "image/apply/apply_internal.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { APPLY_META_IDS = 65536 };

static PRINTF_LIKE(3, 4) void apply_warn_once(struct apply *a, unsigned bit, const char *fmt, ...)
{
    char text[256];
    if (a->warned & bit)
        return;
    a->warned |= bit;
    FORMAT_ARGS(text, fmt);
    a->config.warn(a->config.ctx, text);
}

static int check_owner(struct archive_entry *e, const char *path, uid_t *ret_uid, gid_t *ret_gid, struct err *err)
{
    int64_t uid = archive_entry_uid(e), gid = archive_entry_gid(e);
    if (uid < 0 || uid >= APPLY_META_IDS || gid < 0 || gid >= APPLY_META_IDS)
        return err_set(err, ERR_INVALID_ARGUMENT, "%.120s belongs to %lld:%lld: ids of a sandbox end at 65535", path,
                       (long long)uid, (long long)gid);
    *ret_uid = (uid_t)uid;
    *ret_gid = (gid_t)gid;
    return 0;
}

/* What the file had before it became this entry's. */
static int clear_xattrs(int fd)
{
    char names[8192];
    ssize_t n = flistxattr(fd, names, sizeof(names));
    if (n < 0)
        return errno == EOPNOTSUPP ? 0 : -errno;
    for (const char *p = names; p < names + n; p += strlen(p) + 1)
        if (strncmp(p, "user.", 5) == 0 || strcmp(p, "security.capability") == 0)
            if (fremovexattr(fd, p) < 0 && errno != ENODATA)
                return -errno;
    return 0;
}

static bool xattr_is_taken(struct apply *a, const char *name)
{
    if (strncmp(name, "user.overlay.", 13) == 0 || strncmp(name, "trusted.overlay.", 16) == 0) {
        apply_warn_once(a, WARN_OVERLAY, "attributes of overlayfs (%.40s) are left out", name);
        return false;
    }
    if (strncmp(name, "user.", 5) == 0 || strcmp(name, "security.capability") == 0)
        return true;
    apply_warn_once(a, WARN_XATTR, "extended attributes but user.* and security.capability (%.40s) are left out", name);
    return false;
}

static int set_xattrs(struct apply *a, int fd, struct archive_entry *e, const char *path, struct err *err)
{
    const char *name;
    const void *value;
    size_t n;
    (void)archive_entry_xattr_reset(e);
    while (archive_entry_xattr_next(e, &name, &value, &n) == ARCHIVE_OK) {
        if (!name || !xattr_is_taken(a, name))
            continue;
        if (strlen(name) > XATTR_NAME_MAX || n > XATTR_SIZE_MAX)
            return err_set(err, ERR_INVALID_ARGUMENT, "%.120s: an extended attribute is larger than Linux allows",
                           path);
        if (n > a->config.max_bytes - a->bytes)
            return err_set(err, ERR_OUT_OF_RANGE, "%.120s: the image is larger than the %llu bytes that are allowed",
                           path, (unsigned long long)a->config.max_bytes);
        a->bytes += n;
        if (fsetxattr(fd, name, value, n, 0) == 0)
            continue;
        if (errno == EOPNOTSUPP)
            apply_warn_once(a, WARN_NO_XATTRS, "the file system takes no extended attributes: they are left out");
        else if (errno == EINVAL || errno == ERANGE || errno == E2BIG)
            return err_set(err, ERR_INVALID_ARGUMENT, "%.120s: bad extended attribute %.60s", path, name);
        else
            return err_errno(err, errno, "%.120s: set extended attribute %.60s", path, name);
    }
    return 0;
}

int meta_apply(struct apply *a, int fd, struct archive_entry *e, const char *path, bool had, struct err *err)
{
    uid_t uid = 0;
    gid_t gid = 0;
    if (check_owner(e, path, &uid, &gid, err) < 0)
        return -1;
    if (fchown(fd, uid, gid) < 0) /* clears set-uid bits and capabilities: first */
        return err_errno(err, errno, "%.120s: change its owner", path);
    if (fchmod(fd, archive_entry_perm(e) & 07777) < 0)
        return err_errno(err, errno, "%.120s: change its mode", path);
    int r = had ? clear_xattrs(fd) : 0;
    if (r < 0)
        return err_errno(err, r, "%.120s: clear extended attributes", path);
    return archive_entry_xattr_count(e) > 0 ? set_xattrs(a, fd, e, path, err) : 0;
}

int meta_apply_link(int dir, const char *name, struct archive_entry *e, const char *path, struct err *err)
{
    uid_t uid = 0;
    gid_t gid = 0;
    if (check_owner(e, path, &uid, &gid, err) < 0)
        return -1;
    if (fchownat(dir, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
        return err_errno(err, errno, "%.120s: change its owner", path);
    return 0;
}

static struct timespec entry_mtime(struct archive_entry *e)
{
    return (struct timespec){.tv_sec = archive_entry_mtime(e), .tv_nsec = archive_entry_mtime_nsec(e)};
}

static struct timespec valid(struct timespec t)
{
    if (t.tv_nsec < 0 || t.tv_nsec > 999999999)
        t.tv_nsec = 0;
    return t;
}

int meta_times(int fd, struct archive_entry *e)
{
    if (!archive_entry_mtime_is_set(e))
        return 0;
    const struct timespec t = valid(entry_mtime(e)), both[2] = {t, t};
    return futimens(fd, both) < 0 ? -errno : 0;
}

int meta_times_at(int dir, const char *name, struct archive_entry *e)
{
    if (!archive_entry_mtime_is_set(e))
        return 0;
    const struct timespec t = valid(entry_mtime(e)), both[2] = {t, t};
    return utimensat(dir, name, both, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

void meta_later(struct apply *a, const char *path, struct archive_entry *e)
{
    size_t n = strlen(path) + 1 + sizeof(*a->dirs);
    if (!archive_entry_mtime_is_set(e))
        return;
    if (a->dirs_bytes + n > APPLY_DIRS_BYTES)
        meta_settle(a);
    if (a->n_dirs == a->cap_dirs) {
        a->cap_dirs = a->cap_dirs ? a->cap_dirs * 2 : 256;
        a->dirs = mem_realloc(a->dirs, a->cap_dirs * sizeof(*a->dirs));
    }
    a->dirs[a->n_dirs++] = (struct apply_dir){.path = mem_strdup(path), .mtime = valid(entry_mtime(e))};
    a->dirs_bytes += n;
}

void meta_settle(struct apply *a)
{
    for (size_t i = 0; i < a->n_dirs; i++) {
        AUTO_CLOSE int fd = -1;
        const struct timespec both[2] = {a->dirs[i].mtime, a->dirs[i].mtime};
        if (place_open_directory(a, a->dirs[i].path, &fd) == 0) /* else: replaced since */
            (void)futimens(fd, both);
        mem_free(a->dirs[i].path);
    }
    a->n_dirs = 0;
    a->dirs_bytes = 0;
}
