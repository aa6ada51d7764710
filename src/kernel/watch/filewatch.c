/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/watch/filewatch.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/fanotify.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READ_BYTES = 8192 };

struct filewatch {
    int fd, dir_fd;
    size_t prefix; /* of the pool's directory in paths as we see them, with a slash */
};

/* A directory as it was found, of one reading: files of one directory come together. */
struct filewatch_dir {
    const struct file_handle *handle;
    int fd; /* owned; -1: it is gone, or not below `top` */
    char path[PATH_MAX];
};

int filewatch_open(int dir_fd, struct filewatch **ret_watch)
{
    char link[32], path[PATH_MAX];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", dir_fd);
    ssize_t n = readlink(link, path, sizeof(path));
    AUTO_CLOSE int fd =
        n < 0 ? -1 : fanotify_init(FAN_CLASS_NOTIF | FAN_NONBLOCK | FAN_CLOEXEC | FAN_REPORT_DFID_NAME, O_RDONLY);
    if (fd < 0 || fanotify_mark(fd, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_CLOSE_WRITE | FAN_RENAME, dir_fd, NULL) < 0)
        return -errno;
    struct filewatch *w = mem_new(struct filewatch);
    *w = (struct filewatch){TAKE_FD(fd), dir_fd, n == 1 ? 1 : (size_t)n + 1};
    *ret_watch = w;
    return 0;
}

void filewatch_close(struct filewatch *w)
{
    if (!w)
        return;
    (void)fd_close(w->fd);
    mem_free(w);
}

int filewatch_fd(struct filewatch *w)
{
    return w->fd;
}

/* False: it is gone, or is not below `top`. */
static bool find_dir(struct filewatch *w, const char *top, const struct file_handle *handle, struct filewatch_dir *d)
{
    if (d->handle && d->handle->handle_bytes == handle->handle_bytes && d->handle->handle_type == handle->handle_type &&
        memcmp(d->handle->f_handle, handle->f_handle, handle->handle_bytes) == 0)
        return d->fd >= 0;
    char link[32];
    d->handle = handle;
    (void)fd_close(d->fd);
    d->fd = open_by_handle_at(w->dir_fd, (struct file_handle *)handle, O_PATH | O_CLOEXEC);
    if (d->fd < 0)
        return false;
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", d->fd);
    ssize_t n = readlink(link, d->path, sizeof(d->path) - 1);
    d->path[MAX(n, 0)] = 0;
    if (n < (ssize_t)w->prefix || strncmp(d->path + w->prefix, top, strlen(top)) != 0)
        d->fd = fd_close(d->fd);
    return d->fd >= 0;
}

/* "": it is gone, or is not below `top`. Returns the name in the directory. */
static const char *filewatch_path(struct filewatch *w, const char *top, const struct fanotify_event_info_fid *info,
                                  struct filewatch_dir *d, char *ret_path, size_t size)
{
    const struct file_handle *handle = (const void *)info->handle;
    const char *name = (const char *)handle->f_handle + handle->handle_bytes;
    ret_path[0] = 0;
    if (find_dir(w, top, handle, d))
        (void)snprintf(ret_path, size, "%s/%s", d->path + w->prefix, name);
    return name;
}

static void filewatch_tell(struct filewatch *w, const struct fanotify_event_metadata *m, const char *at,
                           const char *top, struct filewatch_dir *d,
                           void (*fn)(void *ctx, const struct filewatch_event *e), void *ctx)
{
    char path[2 * PATH_MAX] = "", from[2 * PATH_MAX] = "";
    struct filewatch_event e = {.host_pid = m->pid};
    const char *end = at + m->event_len - sizeof(*m), *name = "";
    if (m->mask & FAN_Q_OVERFLOW) {
        fn(ctx, &e);
        return;
    }
    for (const struct fanotify_event_info_fid *info = (const void *)at; at + sizeof(*info) <= end && info->hdr.len > 0;
         at += info->hdr.len, info = (const void *)at) {
        if (info->hdr.info_type == FAN_EVENT_INFO_TYPE_OLD_DFID_NAME)
            (void)filewatch_path(w, top, info, d, from, sizeof(from));
        else if (info->hdr.info_type == FAN_EVENT_INFO_TYPE_DFID_NAME ||
                 info->hdr.info_type == FAN_EVENT_INFO_TYPE_NEW_DFID_NAME)
            name = filewatch_path(w, top, info, d, path, sizeof(path));
    }
    if (!path[0] || (!(m->mask & FAN_CLOSE_WRITE) && !from[0]))
        return;
    e.path = path;
    e.from = from[0] ? from : NULL;
    e.dir_fd = d->fd;
    e.name = name;
    fn(ctx, &e);
}

bool filewatch_look(const struct filewatch_event *e, uint64_t *ret_bytes)
{
    struct stat st;
    if (fstatat(e->dir_fd, e->name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
        return false;
    *ret_bytes = (uint64_t)st.st_size;
    return true;
}

int filewatch_read(struct filewatch *w, const char *top, void (*fn)(void *ctx, const struct filewatch_event *e),
                   void *ctx)
{
    _Alignas(struct fanotify_event_metadata) char events[READ_BYTES];
    struct filewatch_dir d = {.fd = -1};
    int n_events = 0;
    ssize_t n = read(w->fd, events, sizeof(events));
    if (n < 0)
        return errno == EAGAIN ? 0 : -errno;
    for (ssize_t at = 0; at < n; n_events++) {
        struct fanotify_event_metadata m; /* in there it is not aligned */
        if (n - at < (ssize_t)sizeof(m))
            break;
        memcpy(&m, events + at, sizeof(m));
        if (m.event_len < sizeof(m) || m.event_len > n - at)
            break;
        filewatch_tell(w, &m, events + at + sizeof(m), top, &d, fn, ctx);
        at += m.event_len;
    }
    (void)fd_close(d.fd);
    return n_events;
}
