/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/files/watch_dirs.h"
#include "base/dir.h"
#include "base/mem.h"

#include <sys/inotify.h>
#include <sys/stat.h>

enum { DIRS_MAX = 16384 };

#define MASK                                                                                                           \
    (IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_MODIFY | IN_DELETE | IN_DELETE_SELF | IN_ATTRIB | IN_MOVE_SELF |     \
     IN_ONLYDIR)

void watch_dirs_init(struct watch_dirs *w)
{
    *w = (struct watch_dirs){.fd = -1, .by_number = MAP_INIT};
    list_init(&w->todo);
}

void watch_dirs_open(struct watch_dirs *w, int fd, const char *root)
{
    w->fd = fd;
    w->root = mem_strdup(root);
}

static void stop_reading(struct watch_dirs *w)
{
    if (w->reading)
        (void)closedir(w->reading);
    w->reading = NULL;
}

static void dir_free(struct watch_dirs *w, struct watch_dir *d)
{
    if (w->todo.next == &d->todo)
        stop_reading(w);
    list_remove(&d->todo);
    MEM_FREE(d->path, d);
}

static bool watch_dirs_is_below(const char *path, const char *top)
{
    size_t n = strlen(top);
    return n == 0 || (strncmp(path, top, n) == 0 && (path[n] == 0 || path[n] == '/'));
}

bool watch_dirs_path(const struct watch_dirs *w, const char *dir, const char *name, char ret_path[static PATH_TEXT_MAX])
{
    const char *parts[] = {w->root, dir, name};
    size_t at = 0;
    ret_path[0] = 0;
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        size_t n = strlen(parts[i]);
        bool slash = n && at && ret_path[at - 1] != '/';
        if (at + slash + n >= PATH_TEXT_MAX)
            return false;
        if (slash)
            ret_path[at++] = '/';
        memcpy(ret_path + at, parts[i], n);
        at += n;
    }
    ret_path[at] = 0;
    return true;
}

int watch_dirs_add(struct watch_dirs *w, const char *parent, const char *name, bool is_new)
{
    char path[PATH_TEXT_MAX];
    if (!watch_dirs_path(w, parent, name, path))
        return 0;
    int number = inotify_add_watch(w->fd, path, MASK | (*name ? IN_DONT_FOLLOW : 0));
    if (number < 0)
        return errno == ENOSPC || errno == ENOMEM ? -ENOSPC : *name ? 0 : -errno;
    char *relative = *parent ? mem_printf("%s/%s", parent, name) : mem_strdup(name);
    struct watch_dir *d = map_get_u64(&w->by_number, (uint64_t)number + 1);
    if (d) { /* known under another name */
        mem_free(d->path);
        d->path = relative;
        return 0;
    }
    if (map_count(&w->by_number) >= DIRS_MAX) {
        mem_free(relative);
        return -ENOSPC;
    }
    d = mem_new(struct watch_dir);
    *d = (struct watch_dir){.number = number, .is_new = is_new, .path = relative};
    (void)map_put_u64(&w->by_number, (uint64_t)number + 1, d);
    list_init(&d->todo);
    list_append(&w->todo, &d->todo);
    return 0;
}

struct watch_dir *watch_dirs_find(struct watch_dirs *w, int number)
{
    return map_get_u64(&w->by_number, (uint64_t)number + 1);
}

void watch_dirs_drop(struct watch_dirs *w, struct watch_dir *d)
{
    (void)map_del_u64(&w->by_number, (uint64_t)d->number + 1);
    dir_free(w, d);
}

/* A map must not change while it is walked. */
static struct watch_dir **list_for_all(const struct watch_dirs *w)
{
    return mem_array(map_count(&w->by_number) + 1, sizeof(struct watch_dir *));
}

static void unwatch(struct watch_dirs *w, struct watch_dir **gone, size_t n)
{
    while (n--) {
        (void)inotify_rm_watch(w->fd, gone[n]->number);
        watch_dirs_drop(w, gone[n]);
    }
}

static void forget_tree(struct watch_dirs *w, const char *top)
{
    AUTO_FREE struct watch_dir **gone = list_for_all(w);
    size_t n = 0;
    MAP_FOREACH (struct watch_dir, d, &w->by_number)
        if (watch_dirs_is_below(d->path, top))
            gone[n++] = d;
    unwatch(w, gone, n);
}

/* False when nothing of it is known. A directory whose new path is too long for any request to name is forgotten. */
static bool rename_tree(struct watch_dirs *w, const char *from, const char *parent, const char *name)
{
    AUTO_FREE char *to = *parent ? mem_printf("%s/%s", parent, name) : mem_strdup(name);
    AUTO_FREE struct watch_dir **gone = list_for_all(w);
    size_t n = 0;
    bool is_known = false;
    MAP_FOREACH (struct watch_dir, d, &w->by_number) {
        if (!watch_dirs_is_below(d->path, from))
            continue;
        is_known = true;
        const char *rest = d->path + strlen(from);
        if (strlen(to) + strlen(rest) >= PATH_TEXT_MAX) {
            gone[n++] = d;
            continue;
        }
        char *path = mem_printf("%s%s", to, rest);
        mem_free(d->path);
        d->path = path;
    }
    unwatch(w, gone, n);
    return is_known;
}

void watch_dirs_settle(struct watch_dirs *w, const struct inotify_event *e)
{
    if (!w->moved_cookie || (e->mask & IN_MOVED_TO && e->cookie == w->moved_cookie))
        return;
    AUTO_FREE char *gone = TAKE_PTR(w->moved_from);
    w->moved_cookie = 0;
    forget_tree(w, gone);
}

bool watch_dirs_moved(struct watch_dirs *w, const struct watch_dir *d, const struct inotify_event *e, const char *name)
{
    if (e->mask & IN_MOVED_FROM) {
        mem_free(w->moved_from);
        w->moved_cookie = e->cookie;
        w->moved_from = *d->path ? mem_printf("%s/%s", d->path, name) : mem_strdup(name);
    } else if (e->mask & IN_MOVED_TO && w->moved_cookie) {
        AUTO_FREE char *from = TAKE_PTR(w->moved_from);
        w->moved_cookie = 0;
        return rename_tree(w, from, d->path, name);
    }
    return false;
}

/* ---- reading ---- */

static bool watch_dirs_is_directory(const struct watch_dirs *w, const struct watch_dir *d, const struct dirent *e)
{
    char path[PATH_TEXT_MAX];
    struct stat st;
    if (e->d_type != DT_UNKNOWN)
        return e->d_type == DT_DIR;
    return watch_dirs_path(w, d->path, e->d_name, path) && lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

struct watch_dir *watch_dirs_first(struct watch_dirs *w)
{
    return LIST_FIRST(struct watch_dir, &w->todo, todo);
}

const char *watch_dirs_read(struct watch_dirs *w, bool *ret_is_dir)
{
    struct watch_dir *d = watch_dirs_first(w);
    char path[PATH_TEXT_MAX];
    if (!w->reading && watch_dirs_path(w, d->path, "", path))
        w->reading = opendir(path);
    const struct dirent *e = dir_next(w->reading);
    if (e) {
        *ret_is_dir = watch_dirs_is_directory(w, d, e);
        return e->d_name;
    }
    stop_reading(w);
    list_remove(&d->todo);
    return NULL;
}

void watch_dirs_skip(struct watch_dirs *w)
{
    stop_reading(w);
    LIST_FOREACH (struct watch_dir, d, &w->todo, todo)
        list_remove(&d->todo);
}

void watch_dirs_fini(struct watch_dirs *w)
{
    MAP_FOREACH (struct watch_dir, d, &w->by_number)
        dir_free(w, d);
    map_fini(&w->by_number);
    MEM_FREE(w->root, w->moved_from);
}
