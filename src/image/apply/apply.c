/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/mem.h"
#include "image/apply/apply_internal.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

struct image_apply_stream {
    apply_read_fn read;
    void *ctx;
    bool ended;
    int error; /* -errno: what the other end or the link to it did, not the tar */
};

struct apply *apply_new(const struct apply_config *config)
{
    struct apply *a = mem_new(struct apply);
    a->config = *config;
    a->seen = MAP_INIT;
    return a;
}

void apply_free(struct apply *a)
{
    if (!a)
        return;
    place_forget(a);
    for (size_t i = 0; i < a->n_dirs; i++)
        mem_free(a->dirs[i].path);
    MEM_FREE(a->dirs, a);
}

uint64_t apply_bytes(const struct apply *a)
{
    return a->bytes;
}

uint64_t apply_entries(const struct apply *a)
{
    return a->entries;
}

/* ---- failures ---- */

static int apply_bad(struct err *err, const char *path, const char *why)
{
    return err_set(err, ERR_INVALID_ARGUMENT, "%.150s: %s", path, why);
}

static int too_many(struct apply *a, struct err *err)
{
    return err_set(err, ERR_OUT_OF_RANGE, "more than %llu entries: raise the limit for images, or use a smaller one",
                   (unsigned long long)a->config.max_entries);
}

static int too_large(struct apply *a, const char *path, struct err *err)
{
    return err_set(err, ERR_OUT_OF_RANGE, "%.100s: the image is larger than the %llu bytes that are allowed", path,
                   (unsigned long long)a->config.max_bytes);
}

/* What a system call said about a name of the stream. */
static int apply_refused(struct apply *a, const char *path, const char *what, int r, struct err *err)
{
    switch (-r) {
    case E2BIG:
        return too_many(a, err);
    case ENOTDIR:
        return apply_bad(err, path, "what should be a directory above it is none");
    case ELOOP:
        return apply_bad(err, path, "too many links, or directories too deep");
    case EXDEV:
        return apply_bad(err, path, "leads to another file system");
    case ENAMETOOLONG:
        return apply_bad(err, path, "its name is too long");
    case EMLINK:
        return apply_bad(err, path, "more hard links to one file than the file system can hold");
    case EFBIG:
        return too_large(a, path, err);
    default:
        return err_errno(err, r, "%.150s: %s", path, what);
    }
}

/* ---- entries ---- */

/* Makes room and tries again where something else is in the way. fn: 0 or -errno. */
static int make_at(struct apply *a, const struct apply_place *at,
                   int (*fn)(const struct apply_place *at, const void *arg), const void *arg)
{
    int r = fn(at, arg);
    if (r != -EEXIST)
        return r;
    r = place_clear(a, at);
    return r < 0 ? r : fn(at, arg);
}

static int make_file(const struct apply_place *at, const void *arg UNUSED)
{
    int fd = openat(at->dir, at->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : fd;
}

static int make_symlink(const struct apply_place *at, const void *arg)
{
    return symlinkat(arg, at->dir, at->name) < 0 ? -errno : 0;
}

static int make_fifo(const struct apply_place *at, const void *arg UNUSED)
{
    return mknodat(at->dir, at->name, S_IFIFO | 0600, 0) < 0 ? -errno : 0;
}

static int make_hard_link(const struct apply_place *at, const void *arg)
{
    const struct apply_place *to = arg;
    return linkat(to->dir, to->name, at->dir, at->name, 0) < 0 ? -errno : 0;
}

static int write_at(int fd, const char *p, size_t n, int64_t offset)
{
    while (n > 0) {
        ssize_t written = pwrite(fd, p, n, offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return written < 0 ? -errno : -EIO;
        p += written;
        offset += written;
        n -= (size_t)written;
    }
    return 0;
}

/* The archive's own failure: the tar's, unless the stream under it broke. */
static int stream_failed(struct archive *in, const struct image_apply_stream *s, const char *where, struct err *err)
{
    if (s->error)
        return err_errno(err, s->error, "the layer's bytes ended early");
    const char *why = archive_error_string(in);
    return err_set(err, ERR_INVALID_ARGUMENT, "%.100s: not a valid tar: %.100s", where, why ? why : "unknown");
}

/* Holes stay holes. */
static int put_data(struct apply *a, struct archive *in, const struct image_apply_stream *s, int fd, int64_t size,
                    const char *path, struct err *err)
{
    const void *block;
    size_t n;
    int64_t offset, end = 0;
    int r;
    while ((r = archive_read_data_block(in, &block, &n, &offset)) == ARCHIVE_OK || r == ARCHIVE_WARN) {
        if (n == 0)
            continue;
        if (offset < 0 || offset > size || (int64_t)n > size - offset)
            return apply_bad(err, path, "holds more than its size says");
        if (n > a->config.max_bytes - a->bytes)
            return too_large(a, path, err);
        a->bytes += n;
        int w = write_at(fd, block, n, offset);
        if (w < 0)
            return apply_refused(a, path, "write", w, err);
        end = MAX(end, offset + (int64_t)n);
    }
    if (r != ARCHIVE_EOF)
        return stream_failed(in, s, path, err);
    if (end < size && ftruncate(fd, size) < 0)
        return apply_refused(a, path, "write", -errno, err);
    return 0;
}

static int put_file(struct apply *a, struct archive *in, const struct image_apply_stream *s, struct archive_entry *e,
                    const struct apply_place *at, const char *path, struct err *err)
{
    int64_t size = archive_entry_size(e);
    if (size < 0)
        return apply_bad(err, path, "has a negative size");
    if ((uint64_t)size > a->config.max_bytes)
        return too_large(a, path, err);
    AUTO_CLOSE int fd = make_at(a, at, make_file, NULL);
    if (fd < 0)
        return apply_refused(a, path, "create", fd, err);
    if (put_data(a, in, s, fd, size, path, err) < 0 || meta_apply(a, fd, e, path, false, err) < 0)
        return -1;
    int r = meta_times(fd, e);
    return r < 0 ? apply_refused(a, path, "set its time", r, err) : 0;
}

static int put_directory(struct apply *a, struct archive_entry *e, const struct apply_place *at, const char *path,
                         struct err *err)
{
    bool had = false;
    if (at) {
        struct stat st;
        int r = mkdirat(at->dir, at->name, 0700) < 0 ? -errno : 0;
        if (r == -EEXIST && fstatat(at->dir, at->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            had = S_ISDIR(st.st_mode);
            r = had ? 0 : place_clear(a, at);
            if (r == 0 && !had && mkdirat(at->dir, at->name, 0700) < 0)
                r = -errno;
        }
        if (r < 0)
            return apply_refused(a, path, "create", r, err);
    }
    AUTO_CLOSE int fd = at ? openat(at->dir, at->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                           : openat(a->config.root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return apply_refused(a, path, "open", -errno, err);
    if (meta_apply(a, fd, e, path, had || !at, err) < 0)
        return -1;
    meta_later(a, path, e);
    return 0;
}

static int put_symlink(struct apply *a, struct archive_entry *e, const struct apply_place *at, const char *path,
                       struct err *err)
{
    const char *target = archive_entry_symlink(e);
    if (!target || !target[0] || strlen(target) >= PATH_TEXT_MAX)
        return apply_bad(err, path, "is a link to nothing, or to a name that is too long");
    int r = make_at(a, at, make_symlink, target);
    if (r < 0)
        return apply_refused(a, path, "create", r, err);
    if (meta_apply_link(at->dir, at->name, e, path, err) < 0)
        return -1;
    r = meta_times_at(at->dir, at->name, e);
    return r < 0 ? apply_refused(a, path, "set its time", r, err) : 0;
}

static int put_fifo(struct apply *a, struct archive_entry *e, const struct apply_place *at, const char *path,
                    struct err *err)
{
    int r = make_at(a, at, make_fifo, NULL);
    if (r < 0)
        return apply_refused(a, path, "create", r, err);
    if (meta_apply_link(at->dir, at->name, e, path, err) < 0)
        return -1;
    if (fchmodat(at->dir, at->name, archive_entry_perm(e) & 07777, 0) < 0)
        return apply_refused(a, path, "change its mode", -errno, err);
    r = meta_times_at(at->dir, at->name, e);
    return r < 0 ? apply_refused(a, path, "set its time", r, err) : 0;
}

static bool is_same_file(const struct apply_place *x, const struct apply_place *y)
{
    struct stat sx, sy;
    return fstatat(x->dir, x->name, &sx, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(y->dir, y->name, &sy, AT_SYMLINK_NOFOLLOW) == 0 && sx.st_dev == sy.st_dev && sx.st_ino == sy.st_ino;
}

static int put_hard_link(struct apply *a, const char *target, const struct apply_place *at, const char *path,
                         struct err *err)
{
    char clean[PATH_TEXT_MAX];
    struct apply_place to;
    if (!place_clean(target, clean) || !clean[0])
        return apply_bad(err, path, "is a hard link with a bad target");
    int r = place_find(a, 1, clean, false, &to);
    struct stat st;
    if (r == 0 && fstatat(to.dir, to.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        r = -errno;
    if (r == -ENOENT)
        return apply_bad(err, path, "is a hard link to a file that is not there");
    if (r == 0 && S_ISDIR(st.st_mode))
        return apply_bad(err, path, "is a hard link to a directory");
    if (r == 0 && !is_same_file(&to, at))
        r = make_at(a, at, make_hard_link, &to);
    return r < 0 ? apply_refused(a, path, "link", r, err) : 0;
}

/* True: it was one, and *ret_result says how it went. */
static bool whiteout(struct apply *a, const char *path, struct err *err, int *ret_result)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strncmp(name, ".wh.", 4) != 0)
        return false;
    const char *hidden = name + 4;
    bool opaque = strcmp(hidden, ".wh..opq") == 0;
    *ret_result = 0;
    if (!opaque && strncmp(hidden, ".wh.", 4) == 0) /* of aufs, for itself */
        return true;
    if (!hidden[0] || strcmp(hidden, ".") == 0 || strcmp(hidden, "..") == 0) {
        *ret_result = apply_bad(err, path, "is a whiteout of nothing");
        return true;
    }
    struct apply_place at;
    int r = a->lower ? place_find(a, 0, path, false, &at) : -ENOENT;
    if (r == 0)
        r = opaque ? place_hide_below(a, at.dir, 0) : place_hide(a, at.dir, at.ino, hidden, 0);
    if (r < 0 && r != -ENOENT && r != -ENOTDIR)
        *ret_result = apply_refused(a, path, "delete what it hides", r, err);
    return true;
}

static void leave_out(struct apply *a, const char *path)
{
    char text[256];
    (void)snprintf(text, sizeof(text), "%.200s: devices and sockets are left out", path);
    a->config.warn(a->config.ctx, text);
}

static int put_entry(struct apply *a, struct archive *in, const struct image_apply_stream *s, struct archive_entry *e,
                     struct err *err)
{
    char path[PATH_TEXT_MAX];
    const char *name = archive_entry_pathname(e), *target = archive_entry_hardlink(e);
    mode_t type = archive_entry_filetype(e);
    int result;
    struct apply_place at;
    if (!name || !place_clean(name, path))
        return apply_bad(err, name ? name : "an entry",
                         "its name is empty, too long, or has \"..\" or a whiteout in it");
    if (whiteout(a, path, err, &result))
        return result;
    if (!path[0])
        return type == AE_IFDIR && !target ? put_directory(a, e, NULL, "/", err)
                                           : apply_bad(err, "/", "is no directory");
    if (!target && (type == AE_IFBLK || type == AE_IFCHR || type == AE_IFSOCK)) {
        leave_out(a, path);
        return 0;
    }
    int r = place_find(a, 0, path, true, &at);
    if (r < 0)
        return apply_refused(a, path, "find its directory", r, err);
    place_saw(a, &at);
    if (target)
        return put_hard_link(a, target, &at, path, err);
    switch (type) {
    case AE_IFREG:
        return put_file(a, in, s, e, &at, path, err);
    case AE_IFDIR:
        return put_directory(a, e, &at, path, err);
    case AE_IFLNK:
        return put_symlink(a, e, &at, path, err);
    case AE_IFIFO:
        return put_fifo(a, e, &at, path, err);
    default:
        return apply_bad(err, path, "is of no known type");
    }
}

/* ---- streams ---- */

static ssize_t read_more(struct image_apply_stream *s, const void **ret_p)
{
    if (s->ended || s->error)
        return s->error;
    ssize_t n = s->read(s->ctx, ret_p);
    s->ended = n == 0;
    s->error = n < 0 ? (int)n : 0;
    return n;
}

static la_ssize_t read_stream(struct archive *in, void *ctx, const void **ret_p)
{
    ssize_t n = read_more(ctx, ret_p);
    if (n >= 0)
        return n;
    archive_set_error(in, (int)-n, "the stream ended early");
    return ARCHIVE_FATAL;
}

static struct archive *open_stream(struct image_apply_stream *s)
{
    struct archive *in = archive_read_new();
    if (in && archive_read_support_filter_none(in) == ARCHIVE_OK && archive_read_support_format_tar(in) == ARCHIVE_OK &&
        archive_read_support_format_empty(in) == ARCHIVE_OK &&
        archive_read_open(in, s, NULL, read_stream, NULL) == ARCHIVE_OK)
        return in;
    if (in && !s->error)
        return in; /* its error text says what is wrong with the bytes */
    (void)archive_read_free(in);
    return NULL;
}

/* What follows the end of the archive is nobody's, but must be taken. */
static int apply_drain(struct image_apply_stream *s)
{
    const void *p;
    ssize_t n;
    while ((n = read_more(s, &p)) > 0)
        ;
    return (int)n;
}

static int put_all(struct apply *a, struct archive *in, struct image_apply_stream *s, struct err *err)
{
    struct archive_entry *e;
    int r;
    while ((r = archive_read_next_header(in, &e)) == ARCHIVE_OK || r == ARCHIVE_WARN) {
        if (a->entries >= a->config.max_entries)
            return too_many(a, err);
        a->entries++;
        if (put_entry(a, in, s, e, err) < 0)
            return -1;
    }
    if (r != ARCHIVE_EOF)
        return stream_failed(in, s, "the layer", err);
    r = apply_drain(s);
    return r < 0 ? err_errno(err, r, "the layer's bytes ended early") : 0;
}

int apply_layer(struct apply *a, apply_read_fn read, void *ctx, struct err *err)
{
    struct image_apply_stream s = {.read = read, .ctx = ctx};
    struct archive *in = open_stream(&s);
    if (!in)
        return s.error ? err_errno(err, s.error, "the layer's bytes ended early")
                       : err_set(err, ERR_INTERNAL, "libarchive does not start");
    int r = put_all(a, in, &s, err);
    (void)archive_read_free(in);
    meta_settle(a);
    place_forget(a);
    a->lower = true;
    return r;
}
