/* SPDX-License-Identifier: Apache-2.0 */
#include "here/plan.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "here/mounts.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <glob.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { OPS_MAX = 4096, SCAN_MAX = 200000, PLACE_MODE = 01555, PLACE_TRIES = 100, PLACE_TRY_US = 10000 };

struct plan_place {
    char *name;
    int at; /* the directory it is in */
    int fd; /* locked, shared; -1: a file that a command may have made */
};

/* What programs outside would obey. Those in a directory of their name only there. */
static const char *const protected_paths[] = {
    ".bashrc",    ".bash_profile", ".zshrc",  ".zprofile", ".profile",         ".gitconfig",     ".gitmodules",
    ".ripgreprc", ".mcp.json",     ".vscode", ".idea",     ".claude/commands", ".claude/agents",
};
static const char *const protected_git[] = {".git/hooks", ".git/config", ".git/config.worktree"};

struct plan_maker {
    struct plan *p;
    const struct settings *s;
    const char *cwd, *home;
    struct mounts mounts;
    enum plan_kind hides; /* of the path that is looked for elsewhere */
    size_t seen;          /* entries of directories */
    struct err *err;
};

bool plan_is_below(const char *path, const char *directory)
{
    size_t n = strlen(directory);
    return strcmp(directory, "/") == 0 || (strncmp(path, directory, n) == 0 && (path[n] == '/' || path[n] == '\0'));
}

int plan_open(const char *path, int *ret_fd)
{
    const struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
    *ret_fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
    return *ret_fd < 0 ? -errno : 0;
}

void plan_add(struct plan *p, const char *path, enum plan_kind kind, const char *content)
{
    struct stat st = {0};
    for (size_t i = 0; i < p->n; i++)
        if (p->ops[i].kind == kind && strcmp(p->ops[i].path, path) == 0)
            return;
    (void)lstat(path, &st);
    p->ops = mem_realloc(p->ops, (p->n + 1) * sizeof(*p->ops));
    p->ops[p->n++] = (struct plan_op){
        .path = mem_strdup(path),
        .kind = kind,
        .is_directory = S_ISDIR(st.st_mode),
        .is_link = kind >= PLAN_FIXED && S_ISLNK(st.st_mode), /* what gives is never followed */
        .content = mem_strdup(content),
        .fd = -1,
    };
}

static size_t plan_depth(const char *path)
{
    size_t n = 0;
    for (; *path; path++)
        n += *path == '/' && path[1];
    return n;
}

static int plan_compare(const void *a, const void *b)
{
    const struct plan_op *x = a, *y = b;
    size_t dx = plan_depth(x->path), dy = plan_depth(y->path);
    if (x->is_link != y->is_link) /* what they lead to is what is seen of it by then */
        return x->is_link ? 1 : -1;
    return dx != dy ? (dx < dy ? -1 : 1) : x->kind != y->kind ? (x->kind < y->kind ? -1 : 1) : strcmp(x->path, y->path);
}

void plan_sort(struct plan *p)
{
    if (p->n)
        qsort(p->ops, p->n, sizeof(*p->ops), plan_compare);
}

static bool plan_has(const struct plan *p, const char *path, enum plan_kind kind, bool or_above)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->ops[i].kind == kind &&
            (or_above ? plan_is_below(path, p->ops[i].path) : strcmp(path, p->ops[i].path) == 0))
            return true;
    return false;
}

static char *plan_absolute(const char *text, const char *cwd, const char *home)
{
    AUTO_FREE char *expanded =
        text[0] == '~' && (text[1] == '/' || !text[1]) ? mem_printf("%s%s", home, text + 1) : mem_strdup(text);
    size_t n = strlen(expanded);
    if (n > 3 && strcmp(expanded + n - 3, "/**") == 0)
        expanded[n - 3] = '\0';
    char clean[PATH_TEXT_MAX];
    return path_join(str_of(cwd), str_of(expanded), clean) < 0 ? NULL : mem_strdup(clean);
}

char *plan_resolve(const char *text, const char *cwd, const char *home)
{
    AUTO_FREE char *path = plan_absolute(text, cwd, home);
    char real[PATH_MAX];
    return path && realpath(path, real) ? mem_strdup(real) : NULL;
}

/* All directories from there to here. */
static void plan_pin(struct plan_maker *m, const char *root, const char *path)
{
    AUTO_FREE char *part = mem_strdup(path);
    for (size_t n = strlen(part); n > strlen(root); n = (size_t)(strrchr(part, '/') - part)) {
        part[n] = '\0';
        plan_add(m->p, part, PLAN_PIN, NULL);
    }
}

/* Else a command could move it away, together with what is above it, and the next box would not find it. */
static void plan_keep(struct plan_maker *m, const char *path)
{
    AUTO_FREE char *above = mem_strndup(path, (size_t)(strrchr(path, '/') - path));
    for (size_t i = m->p->n; i-- > 0;) {
        if (m->p->ops[i].kind != PLAN_WRITE || !plan_is_below(path, m->p->ops[i].path))
            continue;
        AUTO_FREE char *root = mem_strdup(m->p->ops[i].path);
        plan_pin(m, root, above);
    }
}

/* ---- the same, elsewhere ---- */

static int plan_found(void *ctx, const char *path)
{
    struct plan_maker *m = ctx;
    if (m->hides == PLAN_MASK && plan_has(m->p, path, PLAN_WRITE, false))
        return 0; /* who names it means it */
    plan_add(m->p, path, m->hides, NULL);
    plan_keep(m, path);
    return 0;
}

/* Whatever other names the mounts of this machine give it. */
static int plan_elsewhere(struct plan_maker *m, const char *path, enum plan_kind kind)
{
    m->hides = kind;
    return mounts_aliases(&m->mounts, path, plan_found, m);
}

/* ---- what is closed to us ---- */

/*
 * A directory that we can't look into (`how` of access()) the command can't either, unless it is the user's: then a
 * command that may write there opens it. What it has closed for the next box, it would find unprotected.
 */
static int plan_see(struct plan_maker *m, const char *directory, int how)
{
    struct stat st;
    if (access(directory, how) == 0 || errno != EACCES || stat(directory, &st) < 0 || st.st_uid != getuid())
        return 0;
    AUTO_FREE char *real = plan_resolve(directory, m->cwd, m->home);
    const bool is_open = how != (W_OK | X_OK) && access(directory, X_OK) == 0; /* to who knows a name */
    if (!S_ISDIR(st.st_mode) || !real || (!is_open && !plan_has(m->p, real, PLAN_WRITE, true)))
        return 0;
    return err_set(m->err, ERR_PERMISSION_DENIED,
                   "filesystem: %.150s is closed (mode %03o), and the command could open it: 'chmod u+rwx' does", real,
                   st.st_mode & 0777U);
}

static int plan_see_way(struct plan_maker *m, const char *path, int how)
{
    AUTO_FREE char *part = mem_strdup(path);
    int r = 0;
    for (char *c = part + 1; r == 0 && (c = strchr(c, '/')); *c++ = '/') {
        *c = '\0';
        r = plan_see(m, part, how);
    }
    return r;
}

/* ---- patterns, expanded once ---- */

static int plan_too_much(struct plan_maker *m, const char *where)
{
    return err_set(m->err, ERR_RESOURCE_EXHAUSTED, "%s: too much to look through", where);
}

/*
 * Of what may not be read or written, the place as well. A link there, which a command could replace, is closed itself;
 * one on the way can't be. What seems to have another content (PLAN_CONTENT) is added by who knows that.
 */
static int plan_close(struct plan_maker *m, const char *path, enum plan_kind kind)
{
    AUTO_FREE char *real = plan_resolve(path, m->cwd, m->home), *above = mem_strdup(path);
    if (!real)
        return plan_see_way(m, path, X_OK);
    if (plan_elsewhere(m, real, kind == PLAN_CONTENT ? PLAN_MASK : kind) < 0)
        return -1;
    if (kind != PLAN_CONTENT)
        plan_add(m->p, real, kind, NULL);
    plan_keep(m, real);
    if (strcmp(path, real) == 0 || !plan_has(m->p, path, PLAN_WRITE, true))
        return 0;
    *strrchr(above, '/') = '\0';
    AUTO_FREE char *real_above = plan_resolve(above, m->cwd, m->home);
    if (kind == PLAN_CONTENT || !real_above || strcmp(above, real_above) != 0)
        return err_set(m->err, ERR_PERMISSION_DENIED,
                       "\"%.80s\" leads over a link that could be replaced, to %.100s: name that", path, real);
    plan_add(m->p, path, kind, NULL);
    plan_keep(m, path);
    return 0;
}

static int plan_read(struct plan_maker *m, const char *directory, DIR **ret_dir)
{
    if (plan_see(m, directory, R_OK | X_OK) < 0)
        return -1;
    *ret_dir = dir_open(AT_FDCWD, directory);
    return *ret_dir || errno == EACCES || errno == ENOENT || errno == ENOTDIR
               ? 0
               : err_errno(m->err, errno, "look into %s", directory);
}

/* "**": all below that a match with * for ** finds. That may be more than was meant, so it is for what is denied. */
static int plan_walk(struct plan_maker *m, const char *directory, const char *pattern)
{
    AUTO(dir_close) DIR *d = NULL;
    int r = plan_read(m, directory, &d);
    for (const struct dirent *e; r == 0 && (e = dir_next(d));) {
        AUTO_FREE char *path = mem_printf("%s/%s", directory[1] ? directory : "", e->d_name);
        struct stat st;
        if (++m->seen > SCAN_MAX)
            r = plan_too_much(m, pattern);
        else if (fnmatch(pattern, path, 0) == 0)
            r = plan_close(m, path, PLAN_MASK);
        else if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode))
            r = plan_walk(m, path, pattern);
    }
    return r;
}

static int plan_expand_deep(struct plan_maker *m, const char *pattern)
{
    AUTO_FREE char *wide = mem_strdup(pattern);
    char *to = wide;
    for (const char *c = pattern; *c; c++) {
        if (strncmp(c, "**/", 3) == 0)
            c += 2, *to++ = '*';
        else
            *to++ = *c;
    }
    *to = '\0';
    AUTO_FREE char *base = mem_strdup(pattern);
    base[strcspn(base, "*?[")] = '\0';
    *(strrchr(base, '/') + (strrchr(base, '/') == base)) = '\0';
    return plan_walk(m, base, wide);
}

/* Where a pattern looks: what is before its first star. */
static char *plan_begin(const struct plan_maker *m, const char *path)
{
    AUTO_FREE char *begin = mem_strndup(path, strcspn(path, "*?["));
    *(strrchr(begin, '/') + 1) = '\0';
    return plan_resolve(begin, m->cwd, m->home);
}

/* Directories on the way of a pattern: glob() passes over what it can't look into. */
static int plan_see_matches(struct plan_maker *m, const char *pattern)
{
    AUTO_FREE char *part = mem_strdup(pattern);
    int r = 0;
    for (char *c = part + 1; r == 0 && (c = strchr(c, '/')); *c++ = '/') {
        glob_t found;
        *c = '\0';
        if (glob(part, GLOB_PERIOD, NULL, &found) != 0)
            return 0;
        for (size_t i = 0; r == 0 && i < found.gl_pathc; i++)
            r = plan_see(m, found.gl_pathv[i], R_OK | X_OK);
        globfree(&found);
    }
    return r;
}

/*
 * What is in the working directory, or found by a pattern, may be a link of a stranger's: with write permission, or
 * with permission to read what is denied, it leads nowhere else.
 */
static int plan_expand(struct plan_maker *m, const char *text, enum plan_kind kind)
{
    AUTO_FREE char *path = plan_absolute(text, m->cwd, m->home);
    const bool gives = kind == PLAN_WRITE || kind == PLAN_READ;
    glob_t found;
    if (!path)
        return err_set(m->err, ERR_INVALID_ARGUMENT, "filesystem: \"%.80s\" is no path", text);
    if (!strpbrk(path, "*?[")) {
        AUTO_FREE char *real = plan_resolve(text, m->cwd, m->home);
        if (real && gives && plan_is_below(path, m->cwd) && !plan_is_below(real, m->cwd))
            return err_set(m->err, ERR_PERMISSION_DENIED,
                           "filesystem: \"%.80s\" leads out of the working directory, to %.100s: name that", text,
                           real);
        if (!gives)
            return plan_close(m, path, kind);
        if (real)
            plan_add(m->p, real, kind, NULL);
        return 0;
    }
    if (strstr(path, "**"))
        return kind == PLAN_MASK
                   ? plan_expand_deep(m, path)
                   : err_set(m->err, ERR_INVALID_ARGUMENT, "filesystem: \"%.80s\": ** is for denyRead alone", text);
    AUTO_FREE char *begin = plan_begin(m, path);
    int r = gives ? 0 : plan_see_matches(m, path);
    if (r == 0 && begin && glob(path, GLOB_PERIOD, NULL, &found) == 0) {
        for (size_t i = 0; r == 0 && i < found.gl_pathc; i++) {
            AUTO_FREE char *real = plan_resolve(found.gl_pathv[i], m->cwd, m->home);
            const char *last = strrchr(found.gl_pathv[i], '/');
            if (!real || strcmp(last, "/.") == 0 || strcmp(last, "/..") == 0)
                continue;
            if (!gives)
                r = plan_close(m, found.gl_pathv[i], kind);
            else if (plan_is_below(real, begin))
                plan_add(m->p, real, kind, NULL);
        }
        globfree(&found);
    }
    return r;
}

/* ---- what may not be written ---- */

static void plan_add_place(struct plan *p, const char *name, int at, int fd)
{
    p->places = mem_realloc(p->places, (p->n_places + 1) * sizeof(*p->places));
    p->places[p->n_places++] = (struct plan_place){mem_strdup(name), at, fd};
}

/* Another box may just remove it, and a command may hold a lock of its own: that is waited for, but not for long. */
static int plan_place(int at, const char *name, int *ret_fd)
{
    for (unsigned i = 0;; i++) {
        AUTO_CLOSE int fd = -1;
        struct stat st;
        if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
            return -errno;
        fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && fchmod(fd, PLACE_MODE) == 0 && flock(fd, LOCK_SH | LOCK_NB) == 0 && fstat(fd, &st) == 0 &&
            st.st_nlink > 0) {
            *ret_fd = TAKE_FD(fd);
            return 0;
        }
        if (i == PLACE_TRIES)
            return -EBUSY;
        (void)usleep(PLACE_TRY_US);
    }
}

static int plan_put_down(struct plan_maker *m, const char *path)
{
    const char *name = strrchr(path, '/') + 1;
    AUTO_FREE char *above = mem_strndup(path, (size_t)(name - path));
    AUTO_CLOSE int at = -1, fd = -1;
    int r = plan_open(above, &at);
    r = r ? r : plan_place(at, name, &fd);
    if (r < 0)
        return r == -EACCES  ? plan_see_way(m, path, W_OK | X_OK)
               : r == -EROFS ? 0 /* nobody can make it */
                             : err_errno(m->err, r, "protect %s", path);
    plan_add_place(m->p, name, TAKE_FD(at), TAKE_FD(fd));
    plan_add(m->p, path, PLAN_FIXED, NULL);
    return 0;
}

/* `below` of a directory that may be written. */
static int plan_fix(struct plan_maker *m, const char *directory, const char *below)
{
    AUTO_FREE char *path = mem_printf("%s/%s", directory[1] ? directory : "", below);
    for (char *c = path + strlen(directory) + 1;; c++) {
        struct stat st;
        char end = *c;
        if (end != '/' && end != '\0')
            continue;
        *c = '\0';
        bool is_there = lstat(path, &st) == 0;
        if (!is_there && errno != ENOENT)
            return errno == EACCES ? plan_see_way(m, path, X_OK) : err_errno(m->err, errno, "protect %s", path);
        bool is_place = is_there && S_ISDIR(st.st_mode) && (st.st_mode & 07777) == PLACE_MODE;
        if (!is_there || is_place)
            return plan_put_down(m, path);
        bool is_on_the_way = end && S_ISDIR(st.st_mode);
        plan_add(m->p, path, is_on_the_way ? PLAN_PIN : PLAN_FIXED, NULL);
        if (!is_on_the_way)
            return 0;
        *c = end;
    }
}

/* Nothing can stand in its place: Git fails when it can't read it. What a command makes goes with its box. */
static int plan_forbid(struct plan_maker *m, const char *directory, const char *name)
{
    AUTO_FREE char *path = mem_printf("%s/%s", directory, name);
    struct stat st;
    int at;
    if (lstat(path, &st) == 0)
        return plan_fix(m, directory, name);
    int r = plan_open(directory, &at);
    if (r < 0)
        return err_errno(m->err, r, "protect %s", path);
    plan_add_place(m->p, name, at, -1);
    return 0;
}

static int plan_protect(struct plan_maker *m, const char *directory, bool absent_too)
{
    struct stat st;
    if (plan_see(m, directory, X_OK) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_SIZE(protected_paths); i++) {
        AUTO_FREE char *path = mem_printf("%s/%s", directory, protected_paths[i]);
        if ((absent_too || lstat(path, &st) == 0) && plan_fix(m, directory, protected_paths[i]) < 0)
            return -1;
    }
    AUTO_FREE char *git = mem_printf("%s/.git", directory);
    if (lstat(git, &st) < 0)
        return 0;
    if (!S_ISDIR(st.st_mode))
        return plan_fix(m, directory, ".git"); /* of a worktree: where its repository is */
    AUTO_FREE char *worktree = mem_printf("%s/config.worktree", git);
    const size_t n = m->s->git_config ? 1 : ARRAY_SIZE(protected_git) - (lstat(worktree, &st) < 0);
    for (size_t i = 0; i < n; i++)
        if (plan_fix(m, directory, protected_git[i]) < 0)
            return -1;
    return plan_forbid(m, git, "commondir");
}

/* root may be written; what is protected in directories below it must be fixed from there. */
static int plan_scan(struct plan_maker *m, const char *root, const char *directory, unsigned depth)
{
    AUTO(dir_close) DIR *d = NULL;
    int r = depth ? plan_read(m, directory, &d) : 0;
    for (const struct dirent *e; r == 0 && (e = dir_next(d));) {
        if (strcmp(e->d_name, "node_modules") == 0)
            continue;
        if (++m->seen > SCAN_MAX)
            return plan_too_much(m, root);
        AUTO_FREE char *path = mem_printf("%s/%s", directory[1] ? directory : "", e->d_name);
        struct stat st;
        if (e->d_type != DT_DIR && (e->d_type != DT_UNKNOWN || lstat(path, &st) < 0 || !S_ISDIR(st.st_mode)))
            continue;
        if (plan_has(m->p, path, PLAN_FIXED, false))
            continue;
        size_t before = m->p->n;
        r = plan_protect(m, path, false);
        if (m->p->n > before)
            plan_pin(m, root, path);
        r = r || strcmp(e->d_name, ".git") == 0 ? r : plan_scan(m, root, path, depth - 1);
    }
    return r;
}

static int plan_deny_write(struct plan_maker *m, const char *text)
{
    AUTO_FREE char *path = plan_absolute(text, m->cwd, m->home), *real = plan_resolve(text, m->cwd, m->home);
    if (!path || strpbrk(path, "*?["))
        return plan_expand(m, text, PLAN_FIXED);
    if (real && plan_elsewhere(m, real, PLAN_FIXED) < 0)
        return -1;
    if (real)
        plan_add(m->p, real, PLAN_FIXED, NULL);
    for (size_t i = m->p->n; i-- > 0;) {
        const struct plan_op *op = &m->p->ops[i];
        if (op->kind == PLAN_WRITE && strcmp(op->path, path) != 0 && plan_is_below(path, op->path)) {
            AUTO_FREE char *root = mem_strdup(op->path);
            if (plan_fix(m, root, path + strlen(root) + (root[1] != 0)) < 0)
                return -1;
        }
    }
    return 0;
}

static int plan_lists(struct plan_maker *m)
{
    static const char *const always[] = {"/tmp/claude", "~/.npm/_logs", "~/.claude/debug"};
    const struct settings *s = m->s;
    struct stat st;
    for (size_t i = 0; i < s->allow_write.n; i++)
        if (plan_expand(m, s->allow_write.items[i], PLAN_WRITE) < 0)
            return -1;
    for (size_t i = 0; i < ARRAY_SIZE(always); i++) {
        AUTO_FREE char *path = plan_absolute(always[i], m->cwd, m->home),
                       *real = plan_resolve(always[i], m->cwd, m->home);
        /* Everybody can make a link in /tmp. */
        if (path && real && lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && st.st_uid == getuid())
            plan_add(m->p, real, PLAN_WRITE, NULL);
    }
    for (size_t i = 0; i < s->deny_read.n; i++)
        if (plan_expand(m, s->deny_read.items[i], PLAN_MASK) < 0)
            return -1;
    for (size_t i = 0; i < s->allow_read.n; i++)
        if (plan_expand(m, s->allow_read.items[i], PLAN_READ) < 0)
            return -1;
    for (size_t i = 0; i < s->n_secrets; i++) {
        const struct settings_secret *secret = &s->secrets[i];
        AUTO_FREE char *path = secret->is_mask && secret->path ? plan_absolute(secret->path, m->cwd, m->home) : NULL;
        if (path ? plan_close(m, path, PLAN_CONTENT) < 0 : secret->path && plan_expand(m, secret->path, PLAN_MASK) < 0)
            return -1;
    }
    for (size_t i = 0; i < s->deny_write.n; i++)
        if (plan_deny_write(m, s->deny_write.items[i]) < 0)
            return -1;
    return 0;
}

static int plan_mandatory(struct plan_maker *m)
{
    size_t n = m->p->n;
    for (size_t i = 0; i < n; i++) {
        struct plan_op op = m->p->ops[i];
        AUTO_FREE char *root = mem_strdup(op.path);
        if (op.kind != PLAN_WRITE || !op.is_directory)
            continue;
        if (plan_protect(m, root, true) < 0 || plan_scan(m, root, root, m->s->search_depth) < 0)
            return -1;
        if (strcmp(root, m->cwd) != 0 && plan_is_below(m->cwd, root)) {
            if (plan_protect(m, m->cwd, true) < 0)
                return -1;
            plan_pin(m, root, m->cwd);
        }
    }
    return 0;
}

/* Denied wins: what may be written below what may not, and what may be read where it may be written, says nothing. */
static void plan_drop(struct plan *p)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->n; i++) {
        struct plan_op *op = &p->ops[i];
        bool is_moot = (op->kind == PLAN_WRITE && plan_has(p, op->path, PLAN_FIXED, true)) ||
                       (op->kind == PLAN_READ && plan_has(p, op->path, PLAN_WRITE, false)) ||
                       (op->kind == PLAN_PIN &&
                        (plan_has(p, op->path, PLAN_WRITE, false) || plan_has(p, op->path, PLAN_FIXED, true))) ||
                       (op->kind == PLAN_MASK && plan_has(p, op->path, PLAN_READ, false)) ||
                       (op->kind == PLAN_FIXED && !plan_has(p, op->path, PLAN_WRITE, true));
        op->fd = is_moot ? -2 : -1;
    }
    for (size_t i = 0; i < p->n; i++) {
        struct plan_op op = p->ops[i];
        if (op.fd == -2) {
            MEM_FREE(op.path, op.content);
        } else {
            p->all_writable |= op.kind == PLAN_WRITE && strcmp(op.path, "/") == 0;
            p->ops[kept++] = op;
        }
    }
    p->n = kept;
}

static int plan_collect(struct plan_maker *m)
{
    struct plan *p = m->p;
    if (m->s->files_disabled)
        plan_add(p, "/", PLAN_WRITE, NULL);
    else if (plan_lists(m) < 0 || plan_mandatory(m) < 0)
        return -1;
    m->hides = PLAN_MASK;
    if (mounts_procs(&m->mounts, plan_found, m) < 0)
        return -1;
    plan_drop(p);
    if (p->n > OPS_MAX)
        return err_set(m->err, ERR_RESOURCE_EXHAUSTED, "filesystem: %zu paths are too many", p->n);
    plan_sort(p);
    return 0;
}

int plan_make(const struct settings *s, const char *cwd, const char *home, struct plan *p, struct err *err)
{
    struct plan_maker m = {.p = p, .s = s, .cwd = cwd, .home = home, .err = err};
    int r = mounts_read(&m.mounts);
    r = r < 0 ? err_errno(err, r, "read what is mounted") : plan_collect(&m);
    mounts_fini(&m.mounts);
    return r;
}

/* A command may have closed the directory that it is in. */
static void plan_remove(const struct plan_place *place, int flags)
{
    char path[32];
    struct stat st;
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", place->at);
    if (unlinkat(place->at, place->name, flags) < 0 && errno == EACCES && fstat(place->at, &st) == 0 &&
        chmod(path, (st.st_mode & 07777) | 0700) == 0)
        (void)unlinkat(place->at, place->name, flags);
}

void plan_fini(struct plan *p)
{
    for (size_t i = 0; i < p->n; i++) {
        mem_free(p->ops[i].path);
        mem_free(p->ops[i].content);
    }
    mem_free(p->ops);
    for (size_t i = p->n_places; i-- > 0;) {
        if (p->places[i].fd < 0)
            plan_remove(&p->places[i], 0);
        else if (flock(p->places[i].fd, LOCK_EX | LOCK_NB) == 0)
            plan_remove(&p->places[i], AT_REMOVEDIR);
        (void)fd_close(p->places[i].fd);
        (void)fd_close(p->places[i].at);
        mem_free(p->places[i].name);
    }
    mem_free(p->places);
}
