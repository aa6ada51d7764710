/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/diff_stack.h"
#include "base/fd.h"
#include "base/str.h"

#include <fcntl.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { REDIRECT_MAX = 4096, PARTS_MAX = 256 };

static int open_dir(int at, const char *name, int *ret_fd)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

int view_root(const int *fds, size_t n, struct view *ret_view)
{
    struct view v = {.n = 0};
    int r = n > DIFF_STACK_MAX ? -E2BIG : 0;
    for (; r == 0 && v.n < n; v.n += r == 0) {
        v.at[v.n].layer = v.n;
        r = open_dir(fds[v.n], ".", &v.at[v.n].fd);
    }
    if (r < 0)
        view_close(&v);
    else
        *ret_view = v;
    return r;
}

void view_close(struct view *v)
{
    for (size_t i = 0; i < v->n; i++)
        (void)fd_close(v->at[i].fd);
    v->n = 0;
}

static bool is_whiteout(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

static bool is_opaque(int fd)
{
    char value[2];
    return fgetxattr(fd, "trusted.overlay.opaque", value, sizeof(value)) == 1 && value[0] == 'y';
}

/* 1: below, it is called as ret_name says: a name beside it, or an absolute path. */
static int read_redirect(int fd, char ret_name[static REDIRECT_MAX])
{
    ssize_t n = fgetxattr(fd, "trusted.overlay.redirect", ret_name, REDIRECT_MAX - 1);
    if (n <= 0 || memchr(ret_name, 0, (size_t)n))
        return 0;
    ret_name[n] = 0;
    if (ret_name[0] == '/')
        return 1;
    return !strchr(ret_name, '/') && strcmp(ret_name, ".") != 0 && strcmp(ret_name, "..") != 0;
}

static int find_below(const struct view *root, const struct view *v, size_t layer, const char *name, struct found *f);

/* An absolute path in the layers from `layer` on. */
static int find_path(const struct view *root, size_t layer, const char *path, struct found *f)
{
    const struct view *at = root;
    struct found step = {.is_there = false};
    struct str rest = str_of(path), part;
    int r = 0;
    for (size_t n = 0; r == 0 && str_split(&rest, '/', &part);) {
        char name[256];
        if (part.n == 0)
            continue;
        if (part.n >= sizeof(name) || ++n > PARTS_MAX || str_eqc(part, ".") || str_eqc(part, ".."))
            r = -EINVAL;
        if (r < 0)
            break;
        memcpy(name, part.p, part.n);
        name[part.n] = 0;
        if (rest.n == 0) {
            r = find_below(root, at, layer, name, f);
            break;
        }
        struct found next = {.is_there = false};
        r = find_below(root, at, layer, name, &next);
        view_close(&step.view);
        step = next;
        at = &step.view;
    }
    view_close(&step.view);
    return r == -EINVAL ? 0 : r; /* it leads nowhere */
}

/* Adds to what was found already above. */
static int find_below(const struct view *root, const struct view *v, size_t layer, const char *name, struct found *f)
{
    char redirect[REDIRECT_MAX];
    for (size_t i = 0; i < v->n; i++) {
        struct stat st;
        int fd = -1;
        if (v->at[i].layer < layer)
            continue;
        if (fstatat(v->at[i].fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            if (errno == ENOENT || errno == ENAMETOOLONG)
                continue;
            return -errno;
        }
        bool is_dir = S_ISDIR(st.st_mode);
        if (is_whiteout(&st) || (!is_dir && f->is_there))
            return 0;
        int r = is_dir ? open_dir(v->at[i].fd, name, &fd) : 0;
        if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP)
            return 0; /* it is something else by now */
        if (r < 0)
            return r;
        if (!f->is_there) {
            f->is_there = true;
            f->st = st;
            f->layer = v->at[i].layer;
            f->dir_fd = v->at[i].fd;
            memcpy(f->name, name, MIN(strlen(name), sizeof(f->name) - 1));
        }
        if (!is_dir)
            return 0;
        f->view.at[f->view.n].fd = fd;
        f->view.at[f->view.n++].layer = v->at[i].layer;
        if (is_opaque(fd) || f->view.n == DIFF_STACK_MAX)
            return 0;
        if (read_redirect(fd, redirect)) {
            if (redirect[0] == '/')
                return find_path(root, v->at[i].layer + 1, redirect, f);
            name = redirect;
        }
    }
    return 0;
}

int view_find(const struct view *root, const struct view *v, const char *name, struct found *ret_found)
{
    struct found f;
    memset(&f, 0, sizeof(f));
    int r = find_below(root, v, 0, name, &f);
    if (r < 0)
        view_close(&f.view);
    else
        *ret_found = f;
    return r;
}
