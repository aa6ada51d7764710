/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/diff/diff.h"
#include "base/dir.h"
#include "base/fd.h"
#include "coved/diff/diff_same.h"
#include "coved/diff/diff_stack.h"
#include "kernel/caps.h"
#include "kernel/netns.h"
#include "wire/diff.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

/* ---- diff own ---- */

/*
 * Files that are in a sandbox because Cove puts them there whenever it makes one (tier/container.c): /etc/hostname,
 * /etc/hosts, /etc/resolv.conf. They are no change of the sandbox's as long as they are what Cove wrote: the same
 * bytes, root's, 0644.
 */
enum { TEXT_MAX = 512 };

/* As tier/container.c writes them; a name is at the end of the text, a line break behind it. */
static const struct own {
    const char *path, *text;
    bool has_name;
} own_files[] = {
    {"etc/hostname", "", true},
    {"etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 ", true},
    {"etc/resolv.conf", "nameserver " NETNS_DNS_ADDRESS "\noptions timeout:3 attempts:2\n", false},
};

/* "cove-", six of [a-z0-9], a hexadecimal number */
static bool is_box_name(struct str name)
{
    static const char first[] = "cove-";
    const size_t n = sizeof(first) - 1, random = 6;
    if (name.n <= n + random || name.n > n + random + 8 || memcmp(name.p, first, n) != 0)
        return false;
    return str_is_of(str_n(name.p + n, random), "a-z0-9") && str_is_hex(str_sub(name, n + random));
}

static bool is_text(const struct own *o, struct str text, const char *box)
{
    const size_t n = strlen(o->text);
    if (text.n < n || memcmp(text.p, o->text, n) != 0)
        return false;
    text = str_sub(text, n);
    if (!o->has_name)
        return text.n == 0;
    if (text.n == 0 || text.p[text.n - 1] != '\n')
        return false;
    text.n--;
    return box ? str_eqc(text, box) : is_box_name(text);
}

/*
 * path: relative to the root. box: what the living box is called whose files these are. NULL, for files that outlived
 * their box: any name that one could have had will do, so a change from one such name to another is not seen.
 */
static bool diff_is_own(struct str path, const struct found *f, const char *box)
{
    char text[TEXT_MAX];
    struct stat st;
    const struct own *o = own_files, *end = own_files + ARRAY_SIZE(own_files);
    while (o < end && !str_eqc(path, o->path))
        o++;
    if (o == end || !f->is_there || f->st.st_mode != (S_IFREG | 0644) || f->st.st_uid != 0 || f->st.st_gid != 0)
        return false;
    AUTO_CLOSE int fd = openat(f->dir_fd, f->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return false;
    ssize_t n = pread(fd, text, sizeof(text), 0);
    return n >= 0 && (size_t)n < sizeof(text) && is_text(o, str_n(text, (size_t)n), box);
}

/* Where the tier gvisor mounts the agent: runsc makes these two. What somebody puts in there is a change. */
static bool diff_is_mount_point(struct str path, const struct stat *st)
{
    return S_ISDIR(st->st_mode) && (str_eqc(path, "run/cove") || str_eqc(path, "run/cove/agent"));
}

enum { CHUNK = 4096 /* what a pipe that is ready takes without waiting */, READER_MS = 30000 };

struct diff_walk {
    const struct diff *d;
    struct effort effort;
    struct stack a, b;
    char path[DIFF_PATH_MAX + 1];
    size_t path_n, depth;
    bool is_cut; /* something lies too deep, or is called too long */
    char buffer[CHUNK];
    size_t n;
};

/* ---- what is told ---- */

static int diff_flush(struct diff_walk *w)
{
    size_t at = 0;
    while (at < w->n) {
        struct pollfd p = {.fd = w->d->out, .events = POLLOUT};
        int ready = poll(&p, 1, READER_MS);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return ready < 0 ? -errno : -ETIMEDOUT;
        ssize_t n = write(w->d->out, w->buffer + at, w->n - at);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return -errno;
        at += n > 0 ? (size_t)n : 0;
    }
    w->n = 0;
    return 0;
}

static int diff_put(struct diff_walk *w, const void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        size_t part = MIN(n - at, sizeof(w->buffer) - w->n);
        memcpy(w->buffer + w->n, (const char *)p + at, part);
        w->n += part;
        at += part;
        int r = w->n == sizeof(w->buffer) ? diff_flush(w) : 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static char type_of(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return 'f';
    case S_IFDIR:
        return 'd';
    case S_IFLNK:
        return 'l';
    case S_IFCHR:
        return 'c';
    case S_IFBLK:
        return 'b';
    case S_IFIFO:
        return 'p';
    default:
        return 's';
    }
}

static int diff_tell(struct diff_walk *w, char kind, const struct stat *st)
{
    struct diff_record record;
    memset(&record, 0, sizeof(record));
    record.kind = kind;
    record.type = type_of(st->st_mode);
    record.path_len = (uint16_t)w->path_n;
    record.mode = st->st_mode & 07777;
    record.size = S_ISREG(st->st_mode) || S_ISLNK(st->st_mode) ? (uint64_t)st->st_size : 0;
    int r = diff_put(w, &record, sizeof(record));
    return r ? r : diff_put(w, w->path, w->path_n);
}

/* ---- the walk ---- */

/* The number of the layer, counted so that layers which both have are called the same. */
static size_t common_from(const struct diff *d, bool is_b)
{
    return (is_b ? d->n_b : d->n_a) - d->n_common;
}

/* What of the two views is not their own is the same directories: then only their own ones can differ. */
static bool same_below(const struct diff_walk *w, const struct view *a, const struct view *b)
{
    size_t i = 0, j = 0, from_a = common_from(w->d, false), from_b = common_from(w->d, true);
    while (i < a->n && a->at[i].layer < from_a)
        i++;
    while (j < b->n && b->at[j].layer < from_b)
        j++;
    if (a->n - i != b->n - j)
        return false;
    for (; i < a->n; i++, j++) {
        struct stat x, y;
        if (fstat(a->at[i].fd, &x) < 0 || fstat(b->at[j].fd, &y) < 0 || x.st_dev != y.st_dev || x.st_ino != y.st_ino)
            return false;
    }
    return true;
}

static int walk_dir(struct diff_walk *w, const struct view *a, const struct view *b);

static int below(struct diff_walk *w, const struct found *a, const struct found *b)
{
    static const struct view none = {.n = 0};
    return walk_dir(w, S_ISDIR(a->st.st_mode) ? &a->view : &none, &b->view);
}

/*
 * b is the layer at the bottom of a's, which no sandbox has written: where Cove wrote over it, or beside, nobody
 * changed anything. Of any other b it is not known: what a sandbox deletes of Cove's leaves no trace where there is
 * nothing below.
 */
static bool is_before_cove(const struct diff_walk *w, const struct found *a)
{
    const struct diff *d = w->d;
    return d->n_b == 1 && d->n_common == 1 && a->is_there && a->layer < common_from(d, false) &&
           diff_is_own(str_n(w->path, w->path_n), a, d->a_box);
}

static int judge(struct diff_walk *w, const struct found *a, const struct found *b)
{
    if ((!a->is_there && !b->is_there) || is_before_cove(w, a))
        return 0;
    if (!b->is_there)
        return diff_tell(w, 'D', &a->st);
    if (diff_is_own(str_n(w->path, w->path_n), b, w->d->box))
        return 0;
    bool is_dir = S_ISDIR(b->st.st_mode);
    char kind = !a->is_there ? 'A' : (a->st.st_mode & S_IFMT) != (b->st.st_mode & S_IFMT) ? 'M' : 0;
    int same = kind ? 0 : diff_same(&w->effort, a, b);
    if (same < 0)
        return same;
    if (!kind && !same)
        kind = 'M';
    bool is_ours = kind == 'A' && diff_is_mount_point(str_n(w->path, w->path_n), &b->st);
    int r = kind && !is_ours ? diff_tell(w, kind, &b->st) : 0;
    return r < 0 || !is_dir ? r : below(w, a, b);
}

static int judge_name(struct diff_walk *w, const struct view *a, const struct view *b, const char *name)
{
    struct found x = {.is_there = false}, y = {.is_there = false};
    size_t n = strlen(name), before = w->path_n, slash = before ? 1 : 0;
    if (w->depth > DIFF_DEPTH_MAX || before + slash + n > DIFF_PATH_MAX) {
        w->is_cut = true;
        return 0;
    }
    if (slash)
        w->path[w->path_n++] = '/';
    memcpy(w->path + w->path_n, name, n);
    w->path_n += n;
    int r = view_find(&w->a, a, name, &x);
    r = r ? r : view_find(&w->b, b, name, &y);
    if (r == -ENAMETOOLONG) {
        w->is_cut = true;
        r = 0;
    } else {
        r = r ? r : judge(w, &x, &y);
    }
    view_close(&x.view);
    view_close(&y.view);
    w->path_n = before;
    return r;
}

struct lists {
    int fds[2 * DIFF_STACK_MAX];
    size_t n;
};

static void add_lists(struct lists *l, const struct view *v, size_t until)
{
    for (size_t i = 0; i < v->n && v->at[i].layer < until; i++)
        l->fds[l->n++] = v->at[i].fd;
}

/* 1: it is. */
static int is_in_earlier(struct effort *e, const struct lists *l, size_t i, const char *name)
{
    struct stat st;
    for (size_t j = 0; j < i; j++) {
        int r = effort_spend(e);
        if (r < 0)
            return r;
        if (fstatat(l->fds[j], name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            return 1;
    }
    return 0;
}

static int walk_list(struct diff_walk *w, const struct lists *l, size_t i, const struct view *a, const struct view *b)
{
    AUTO(dir_close) DIR *dir = dir_open(l->fds[i], ".");
    int r = 0;
    if (!dir)
        return errno == ENOENT ? 0 : -errno;
    for (const struct dirent *e; r == 0 && (e = dir_next(dir));) {
        r = effort_spend(&w->effort);
        int seen = r < 0 ? r : is_in_earlier(&w->effort, l, i, e->d_name);
        r = seen < 0 ? seen : seen ? 0 : judge_name(w, a, b, e->d_name);
    }
    return r;
}

static int walk_dir(struct diff_walk *w, const struct view *a, const struct view *b)
{
    struct lists l = {.n = 0};
    bool all = !same_below(w, a, b);
    int r = 0;
    add_lists(&l, b, all ? SIZE_MAX : common_from(w->d, true));
    add_lists(&l, a, all ? SIZE_MAX : common_from(w->d, false));
    w->depth++;
    for (size_t i = 0; r == 0 && i < l.n; i++)
        r = walk_list(w, &l, i, a, b);
    w->depth--;
    return r;
}

/* The root has no name to be found by. */
static int judge_root(struct diff_walk *w)
{
    struct found x = {.is_there = true, .view = {.n = 1}}, y = x;
    if (!w->a.root.n || !w->b.root.n)
        return 0;
    x.view.at[0] = w->a.root.at[0];
    y.view.at[0] = w->b.root.at[0];
    if (fstat(x.view.at[0].fd, &x.st) < 0 || fstat(y.view.at[0].fd, &y.st) < 0)
        return -errno;
    int same = diff_same(&w->effort, &x, &y);
    return same < 0 ? same : same ? 0 : diff_tell(w, 'M', &y.st);
}

int diff_write(const struct diff *d, uint64_t *ret_lookups)
{
    static struct diff_walk w;
    memset(&w, 0, sizeof(w));
    w.d = d;
    w.effort = (struct effort){.most = d->lookups_most, .out = d->out};
    w.a.lives = d->a_box;
    w.b.lives = d->box;
    int r = stack_open(&w.a, d->a, d->n_a, &w.effort);
    r = r ? r : stack_open(&w.b, d->b, d->n_b, &w.effort);
    r = r ? r : judge_root(&w);
    r = r ? r : walk_dir(&w, &w.a.root, &w.b.root);
    r = r ? r : diff_flush(&w);
    if (r == 0 && w.is_cut)
        r = -ENAMETOOLONG;
    stack_close(&w.a);
    stack_close(&w.b);
    *ret_lookups = w.effort.used;
    return r;
}

int diff_confine(uid_t uid)
{
    /* CAP_SYS_ADMIN: overlayfs's attributes are shown to nobody else. */
    const uint64_t keep = 1ULL << CAP_DAC_READ_SEARCH | 1ULL << CAP_SYS_ADMIN;
    const pid_t parent = getppid();
    if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0)
        return -errno;
    int r = caps_keep_only(keep, uid);
    /* The change of user has cleared it. An orphan would hold the pool, and no other coved could begin. */
    if (r == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        r = -errno;
    return r == 0 && getppid() != parent ? -ECANCELED : r;
}
