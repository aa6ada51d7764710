/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/diff/diff_stack.h"
#include "base/fd.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

enum { PATH_BYTES = DIFF_PATH_MAX + 1, NAME_BYTES = 256, ASK_EACH = 1024 };

int effort_spend(struct effort *e)
{
    struct pollfd p = {.fd = e->out};
    if (e->used == e->most)
        return -EDQUOT;
    if (++e->used % ASK_EACH == 0 && poll(&p, 1, 0) == 1 && p.revents & POLLERR)
        return -EPIPE;
    return 0;
}

static int open_dir(int at, const char *name, int *ret_fd)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

int stack_open(struct stack *s, const int *fds, size_t n, struct effort *effort)
{
    struct view *v = &s->root;
    int r = n > DIFF_STACK_MAX ? -E2BIG : 0;
    s->effort = effort;
    for (; r == 0 && v->n < n; v->n += r == 0) {
        v->at[v->n].layer = v->n;
        r = open_dir(fds[v->n], ".", &v->at[v->n].fd);
    }
    return r;
}

void view_close(struct view *v)
{
    for (size_t i = 0; i < v->n; i++)
        (void)fd_close(v->at[i].fd);
    v->n = 0;
}

void stack_close(struct stack *s)
{
    view_close(&s->root);
    for (size_t i = 0; i < DIFF_STACK_MAX; i++) {
        if (s->places[i].is_known)
            (void)fd_close(s->places[i].fd);
        s->places[i].is_known = false;
    }
}

/* ---- overlayfs's marks ---- */

static bool is_whiteout(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0);
}

static bool is_opaque(int fd)
{
    char value[2];
    return fgetxattr(fd, "trusted.overlay.opaque", value, sizeof(value)) == 1 && value[0] == 'y';
}

static void copy_name(char ret_name[static NAME_BYTES], struct str name)
{
    size_t n = MIN(name.n, (size_t)NAME_BYTES - 1);
    memcpy(ret_name, name.p, n);
    ret_name[n] = 0;
}

static bool diff_stack_is_name(struct str part)
{
    return part.n > 0 && part.n < NAME_BYTES && !str_eqc(part, ".") && !str_eqc(part, "..");
}

enum renamed { RENAMED_NOT, RENAMED_BESIDE /* a name in the same directory */, RENAMED_PATH, RENAMED_NOWHERE };

static enum renamed read_redirect(int fd, char ret_to[static PATH_BYTES])
{
    ssize_t n = fgetxattr(fd, "trusted.overlay.redirect", ret_to, PATH_BYTES - 1);
    if (n < 0)
        return errno == ERANGE ? RENAMED_NOWHERE : RENAMED_NOT;
    ret_to[n] = 0;
    struct str rest = str_n(ret_to, (size_t)n), part;
    if (str_has_nul(rest) || (ret_to[0] != '/' && !diff_stack_is_name(rest)))
        return RENAMED_NOWHERE;
    if (ret_to[0] != '/')
        return memchr(ret_to, '/', (size_t)n) ? RENAMED_NOWHERE : RENAMED_BESIDE;
    if (ret_to[n - 1] == '/')
        return RENAMED_NOWHERE;
    for (rest = str_sub(rest, 1); str_split(&rest, '/', &part);)
        if (!diff_stack_is_name(part))
            return RENAMED_NOWHERE;
    return RENAMED_PATH;
}

/* ---- one directory of one layer ---- */

enum step { STEP_NOTHING, STEP_HIDDEN, STEP_FILE, STEP_DIR };

/* ret_fd: of STEP_DIR alone. */
static int diff_stack_look(struct effort *e, int at, const char *name, struct stat *ret_st, int *ret_fd)
{
    int r = effort_spend(e);
    if (r < 0)
        return r;
    if (fstatat(at, name, ret_st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT || errno == ENAMETOOLONG ? STEP_NOTHING : -errno;
    if (is_whiteout(ret_st))
        return STEP_HIDDEN;
    if (!S_ISDIR(ret_st->st_mode))
        return STEP_FILE;
    r = open_dir(at, name, ret_fd);
    if (r == -ENOENT || r == -ENOTDIR || r == -ELOOP)
        return STEP_HIDDEN; /* it is something else by now */
    return r < 0 ? r : STEP_DIR;
}

enum below { BELOW_SAME, BELOW_BESIDE, BELOW_PATH, BELOW_NOTHING };

/* Adds what this layer has to what those above have, and says what it is called below. */
static int diff_stack_take(struct effort *e, int at, size_t layer, const char *name, struct found *f,
                           char ret_to[static PATH_BYTES])
{
    static const enum below below[] = {[RENAMED_NOT] = BELOW_SAME,
                                       [RENAMED_BESIDE] = BELOW_BESIDE,
                                       [RENAMED_PATH] = BELOW_PATH,
                                       [RENAMED_NOWHERE] = BELOW_NOTHING};
    struct stat st;
    int fd = -1;
    int step = diff_stack_look(e, at, name, &st, &fd);
    if (step < 0 || step == STEP_NOTHING)
        return step < 0 ? step : BELOW_SAME;
    if (step == STEP_HIDDEN || (step == STEP_FILE && f->is_there))
        return BELOW_NOTHING;
    if (!f->is_there) {
        f->is_there = true;
        f->st = st;
        f->layer = layer;
        f->dir_fd = at;
        copy_name(f->name, str_of(name));
    }
    if (step == STEP_FILE)
        return BELOW_NOTHING;
    f->view.at[f->view.n].fd = fd;
    f->view.at[f->view.n++].layer = layer;
    return is_opaque(fd) || f->view.n == DIFF_STACK_MAX ? BELOW_NOTHING : (int)below[read_redirect(fd, ret_to)];
}

/* ---- absolute paths ---- */

/* Instead of the part that ends `rest` bytes before the end of the path. False: it would be too long. */
static bool rename_part(char path[static PATH_BYTES], size_t rest, enum renamed how, const char *to)
{
    char now[PATH_BYTES];
    size_t end = strlen(path) - rest, before = 0;
    if (how == RENAMED_BESIDE)
        for (before = end; path[before - 1] != '/';)
            before--;
    int n = snprintf(now, sizeof(now), "%.*s%s%s", (int)before, path, to, path + end);
    if (n < 0 || (size_t)n >= sizeof(now))
        return false;
    memcpy(path, now, (size_t)n + 1);
    return true;
}

/* Walks p->path ("": the root) down this layer. */
static int find_place(struct stack *s, size_t layer, struct diff_place *p)
{
    char name[NAME_BYTES], to[PATH_BYTES];
    size_t rest = strlen(p->path);
    AUTO_CLOSE int at = -1;
    memcpy(p->below, p->path, rest + 1);
    int r = open_dir(s->root.at[layer].fd, ".", &at);
    while (r == 0 && rest > 0) {
        struct stat st;
        int next = -1;
        const char *part = p->below + strlen(p->below) - rest + 1;
        size_t n = strcspn(part, "/");
        copy_name(name, str_n(part, n));
        rest -= 1 + n;
        int step = diff_stack_look(s->effort, at, name, &st, &next);
        at = fd_close(at);
        if (step < 0)
            return step;
        if (step != STEP_DIR) {
            p->is_last |= step != STEP_NOTHING;
            break;
        }
        at = next;
        enum renamed how = is_opaque(at) ? RENAMED_NOWHERE : read_redirect(at, to);
        if (how == RENAMED_NOWHERE)
            p->is_last = true;
        else if (how != RENAMED_NOT && !rename_part(p->below, rest, how, to))
            return -ENAMETOOLONG;
    }
    if (r == 0)
        p->fd = TAKE_FD(at);
    return r;
}

static int place_of(struct stack *s, size_t layer, const char *path, struct diff_place **ret_place)
{
    struct diff_place *p = &s->places[layer];
    if (!p->is_known || strcmp(p->path, path) != 0) {
        if (p->is_known)
            (void)fd_close(p->fd);
        p->is_known = p->is_last = false;
        p->fd = -1;
        memcpy(p->path, path, strlen(path) + 1);
        int r = find_place(s, layer, p);
        if (r < 0)
            return r;
        p->is_known = true;
    }
    *ret_place = p;
    return 0;
}

/* In the layers from `layer` on. path: absolute, of names alone; overwritten. */
static int find_path(struct stack *s, size_t layer, char path[static PATH_BYTES], struct found *f)
{
    for (; layer < s->root.n; layer++) {
        char name[NAME_BYTES], to[PATH_BYTES];
        char *slash = strrchr(path, '/');
        struct diff_place *p;
        copy_name(name, str_of(slash + 1));
        *slash = 0;
        int r = place_of(s, layer, path, &p);
        if (r < 0)
            return r;
        int below = p->fd < 0 ? BELOW_SAME : diff_stack_take(s->effort, p->fd, layer, name, f, to);
        if (below < 0 || below == BELOW_NOTHING || p->is_last)
            return below < 0 ? below : 0;
        if (below == BELOW_PATH) {
            memcpy(path, to, strlen(to) + 1);
            continue;
        }
        char now[PATH_BYTES];
        int n = snprintf(now, sizeof(now), "%s/%s", p->below, below == BELOW_BESIDE ? to : name);
        if (n < 0 || (size_t)n >= sizeof(now))
            return -ENAMETOOLONG;
        memcpy(path, now, (size_t)n + 1);
    }
    return 0;
}

int view_find(struct stack *s, const struct view *v, const char *name, struct found *ret_found)
{
    char to[PATH_BYTES], called[NAME_BYTES];
    struct found f;
    int r = 0;
    memset(&f, 0, sizeof(f));
    for (size_t i = 0; i < v->n; i++) {
        r = diff_stack_take(s->effort, v->at[i].fd, v->at[i].layer, name, &f, to);
        if (r < 0 || r == BELOW_NOTHING)
            break;
        if (r == BELOW_PATH) {
            r = find_path(s, v->at[i].layer + 1, to, &f);
            break;
        }
        if (r == BELOW_BESIDE) {
            copy_name(called, str_of(to));
            name = called;
        }
    }
    if (r < 0) {
        view_close(&f.view);
        return r;
    }
    f.lives = s->lives && f.layer == 0;
    *ret_found = f;
    return 0;
}
