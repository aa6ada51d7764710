/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/files/archive.h"
#include "base/mem.h"
#include "cli/files/libarchive.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ARCHIVE_BLOCK = 64 * 1024 };

static int archive_has_failed(struct archive *a, const char *what, struct err *err)
{
    const char *why = la()->archive_error_string(a);
    return err_set(err, ERR_UNKNOWN, "%s: %s", what, why ? why : "unknown error");
}

/* ---- packing ---- */

static int pack_data(struct archive *disk, struct archive *out, struct archive_entry *entry, struct err *err)
{
    const void *block;
    size_t n;
    la_int64_t offset, done = 0;
    static const char zeros[ARCHIVE_BLOCK];
    int r;
    while ((r = la()->archive_read_data_block(disk, &block, &n, &offset)) == ARCHIVE_OK) {
        for (; done < offset; done += MIN(offset - done, ARCHIVE_BLOCK)) /* holes */
            if (la()->archive_write_data(out, zeros, (size_t)MIN(offset - done, ARCHIVE_BLOCK)) < 0)
                return archive_has_failed(out, "send", err);
        if (la()->archive_write_data(out, block, n) < 0)
            return archive_has_failed(out, "send", err);
        done = offset + (la_int64_t)n;
    }
    return r == ARCHIVE_EOF ? 0 : archive_has_failed(disk, la()->archive_entry_pathname(entry), err);
}

static int pack_entry(struct archive *disk, struct archive *out, struct archive_entry *entry, size_t skip,
                      struct err *err)
{
    const char *path = la()->archive_entry_pathname(entry);
    mode_t type = la()->archive_entry_filetype(entry);
    if (type != AE_IFREG && type != AE_IFDIR && type != AE_IFLNK)
        return 0;
    AUTO_FREE char *below = mem_printf(".%s", path + skip); /* "./a/b", and "." for the tree itself */
    la()->archive_entry_set_pathname(entry, below);
    la()->archive_entry_set_uid(entry, 0);
    la()->archive_entry_set_gid(entry, 0);
    la()->archive_entry_set_uname(entry, NULL);
    la()->archive_entry_set_gname(entry, NULL);
    la()->archive_entry_set_hardlink(entry, NULL);
    if (la()->archive_write_header(out, entry) < ARCHIVE_WARN)
        return archive_has_failed(out, "send", err);
    return type == AE_IFREG && la()->archive_entry_size(entry) > 0 ? pack_data(disk, out, entry, err) : 0;
}

int archive_pack(const char *dir, int fd, struct err *err)
{
    struct archive *disk = la()->archive_read_disk_new(), *out = la()->archive_write_new();
    struct archive_entry *entry = la()->archive_entry_new();
    size_t skip = strlen(dir);
    int r = -1, got;
    while (skip > 1 && dir[skip - 1] == '/')
        skip--;
    AUTO_FREE char *root = mem_strndup(dir, skip);
    if (strcmp(root, "/") == 0)
        skip = 0;

    if (la()->archive_write_set_format_pax_restricted(out) != ARCHIVE_OK ||
        la()->archive_write_set_bytes_per_block(out, ARCHIVE_BLOCK) != ARCHIVE_OK ||
        la()->archive_write_set_bytes_in_last_block(out, 1) != ARCHIVE_OK ||
        la()->archive_write_open_fd(out, fd) != ARCHIVE_OK) {
        r = archive_has_failed(out, "pack", err);
        goto out;
    }
    (void)la()->archive_read_disk_set_symlink_physical(disk);
    (void)la()->archive_read_disk_set_behavior(disk, ARCHIVE_READDISK_NO_XATTR | ARCHIVE_READDISK_NO_ACL |
                                                         ARCHIVE_READDISK_NO_FFLAGS);
    if (la()->archive_read_disk_open(disk, root) != ARCHIVE_OK) {
        r = archive_has_failed(disk, root, err);
        goto out;
    }
    while ((got = la()->archive_read_next_header2(disk, entry)) == ARCHIVE_OK) {
        (void)la()->archive_read_disk_descend(disk);
        if (pack_entry(disk, out, entry, skip, err) < 0)
            goto out;
        la()->archive_entry_clear(entry);
    }
    if (got != ARCHIVE_EOF)
        r = archive_has_failed(disk, root, err);
    else
        r = la()->archive_write_close(out) == ARCHIVE_OK ? 0 : archive_has_failed(out, "send", err);
out:
    la()->archive_entry_free(entry);
    (void)la()->archive_read_free(disk);
    (void)la()->archive_write_free(out);
    return r;
}

/* ---- unpacking ---- */

static int unpack_data(struct archive *in, struct archive *disk, const char *path, struct err *err)
{
    const void *block;
    size_t n;
    la_int64_t offset;
    int r;
    while ((r = la()->archive_read_data_block(in, &block, &n, &offset)) == ARCHIVE_OK)
        if (la()->archive_write_data_block(disk, block, n, offset) < 0)
            return archive_has_failed(disk, path, err);
    return r == ARCHIVE_EOF ? 0 : archive_has_failed(in, "the archive from the sandbox", err);
}

struct unpacking {
    struct archive *in, *disk;
    mode_t mask; /* permissions that nothing gets */
    bool is_new; /* the directory that all goes into */
};

static bool is_root(const char *path)
{
    return !path[strspn(path, "./")] && !strstr(path, "..");
}

/* A directory that was here before, or was made for what is in it. Names that climb are not ours to judge. */
static bool archive_is_there(const char *path)
{
    struct stat st;
    return !strstr(path, "..") && path[0] != '/' && lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int unpack_entry(const struct unpacking *u, struct archive_entry *entry, struct err *err)
{
    struct archive *in = u->in, *disk = u->disk;
    const char *path = la()->archive_entry_pathname(entry);
    mode_t type = la()->archive_entry_filetype(entry);
    if (!path || (!la()->archive_entry_hardlink(entry) && type != AE_IFREG && type != AE_IFDIR && type != AE_IFLNK))
        return 0;
    if (type == AE_IFDIR && archive_is_there(path) && !(u->is_new && is_root(path)))
        return 0;
    la()->archive_entry_set_perm(entry, la()->archive_entry_perm(entry) & 0777 & ~u->mask);
    if (la()->archive_write_header(disk, entry) < ARCHIVE_WARN)
        return archive_has_failed(disk, path, err);
    if (la()->archive_entry_size(entry) > 0 && unpack_data(in, disk, path, err) < 0)
        return -1;
    return la()->archive_write_finish_entry(disk) < ARCHIVE_WARN ? archive_has_failed(disk, path, err) : 0;
}

/* Who writes behind the end of an archive, as tar fills its last block, is not to find that nobody reads. */
static void drain(int fd)
{
    char rest[4096];
    ssize_t n;
    do
        n = read(fd, rest, sizeof(rest));
    while (n > 0 || (n < 0 && errno == EINTR));
}

int archive_unpack(int fd, const char *dir, bool is_new, struct err *err)
{
    if (chdir(dir) < 0)
        return err_errno(err, errno, "enter %s", dir);
    struct archive *in = la()->archive_read_new(), *disk = la()->archive_write_disk_new();
    struct archive_entry *entry = la()->archive_entry_new();
    struct unpacking u = {in, disk, umask(0), is_new};
    int r = -1, got;
    (void)umask(u.mask);
    (void)la()->archive_write_disk_set_options(
        disk, ARCHIVE_EXTRACT_PERM | ARCHIVE_EXTRACT_TIME | ARCHIVE_EXTRACT_UNLINK | ARCHIVE_EXTRACT_SECURE_SYMLINKS |
                  ARCHIVE_EXTRACT_SECURE_NODOTDOT | ARCHIVE_EXTRACT_SECURE_NOABSOLUTEPATHS);
    if (la()->archive_read_support_format_tar(in) != ARCHIVE_OK ||
        la()->archive_read_open_fd(in, fd, ARCHIVE_BLOCK) != ARCHIVE_OK) {
        r = la()->archive_errno(in) == EILSEQ /* its code for that */
                ? err_set(err, ERR_UNKNOWN, "tar's output in the sandbox is not an archive")
                : archive_has_failed(in, "the archive from the sandbox", err);
        goto out;
    }
    while ((got = la()->archive_read_next_header2(in, entry)) == ARCHIVE_OK || got == ARCHIVE_WARN)
        if (unpack_entry(&u, entry, err) < 0)
            goto out;
    if (got != ARCHIVE_EOF)
        r = archive_has_failed(in, "the archive from the sandbox", err);
    else
        r = la()->archive_write_close(disk) == ARCHIVE_OK ? 0 : archive_has_failed(disk, dir, err);
    if (r == 0)
        drain(fd);
out:
    la()->archive_entry_free(entry);
    (void)la()->archive_read_free(in);
    (void)la()->archive_write_free(disk);
    return r;
}
