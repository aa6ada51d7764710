/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "template/template.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 64 * 1024, TEMPLATES_MAX = 4096 };

struct template_registry {
    char *dir;
    struct timespec read_at; /* the directory's mtime when it was read */
    bool fresh;              /* read while it may still have changed within the clock's tick: read again */
    struct template **list;  /* by id */
    size_t n;
    char alias[TEMPLATE_NAME_MAX + 1]; /* what template_resolve() hands out */
};

static int by_id(const void *a, const void *b)
{
    return strcmp((*(struct template *const *)a)->id, (*(struct template *const *)b)->id);
}

static void clear(struct template_registry *r)
{
    for (size_t i = 0; i < r->n; i++)
        template_free(r->list[i]);
    mem_free(r->list);
    r->list = NULL;
    r->n = 0;
}

static int read_fd(int fd, struct template **ret_template, struct err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(FILE_MAX);
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(err, errno, "look at");
    if (!S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID_ARGUMENT, "not a regular file");
    int r = fd_read_all(fd, &text);
    if (r < 0)
        return err_errno(err, r, "read");
    return template_parse(buf_str(&text), ret_template, err);
}

static int read_one(int dirfd, const char *name, struct template **ret_template, struct err *err)
{
    int fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return err_errno(err, errno, "open");
    int r = read_fd(fd, ret_template, err);
    (void)fd_close(fd);
    return r;
}

static bool has_id(const struct template_registry *r, const char *id)
{
    for (size_t i = 0; i < r->n; i++)
        if (strcmp(r->list[i]->id, id) == 0)
            return true;
    return false;
}

static void read_dir(struct template_registry *r, int fd)
{
    DIR *dir = fdopendir(fd);
    if (!dir) {
        (void)fd_close(fd);
        return;
    }
    for (const struct dirent *e; (e = readdir(dir)) && r->n < TEMPLATES_MAX;) {
        struct template *t = NULL;
        struct err err;
        if (e->d_name[0] == '.' || !str_ends(str_of(e->d_name), STR(".conf")))
            continue;
        if (read_one(dirfd(dir), e->d_name, &t, &err) < 0 || !t) {
            log_warn("template %s/%s is left out: %s", r->dir, e->d_name, err.msg);
            continue;
        }
        if (has_id(r, t->id)) {
            log_warn("template %s/%s is left out: another file has the id %s", r->dir, e->d_name, t->id);
            template_free(t);
            continue;
        }
        r->list = mem_realloc(r->list, (r->n + 1) * sizeof(struct template *));
        r->list[r->n++] = t;
    }
    (void)closedir(dir);
    if (r->n)
        qsort(r->list, r->n, sizeof(struct template *), by_id);
}

static void refresh(struct template_registry *r)
{
    struct stat st;
    if (stat(r->dir, &st) < 0) {
        clear(r);
        r->read_at = (struct timespec){0};
        return;
    }
    if (!r->fresh && st.st_mtim.tv_sec == r->read_at.tv_sec && st.st_mtim.tv_nsec == r->read_at.tv_nsec)
        return;
    int fd = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        (void)fd_close(fd);
        return;
    }
    clear(r);
    r->read_at = st.st_mtim;
    /* A second change within the file system clock's tick leaves the mtime as it is. */
    r->fresh =
        clock_real() < (usec_t)st.st_mtim.tv_sec * USEC_PER_SEC + (usec_t)st.st_mtim.tv_nsec / 1000 + 20 * USEC_PER_MS;
    read_dir(r, fd);
}

struct template_registry *template_registry_new(const char *dir)
{
    struct template_registry *r = mem_new(struct template_registry);
    r->dir = mem_strdup(dir);
    return r;
}

void template_registry_free(struct template_registry *r)
{
    if (!r)
        return;
    clear(r);
    mem_free(r->dir);
    mem_free(r);
}

/* [namespace/]name[:tag] */
struct name {
    struct str space, name, tag;
};

static struct name name_of(struct str s)
{
    struct name n = {.tag = STR("default")};
    ssize_t slash = str_find_char(s, '/');
    if (slash >= 0) {
        n.space = str_n(s.p, (size_t)slash);
        s = str_sub(s, (size_t)slash + 1);
    }
    ssize_t colon = str_find_char(s, ':');
    if (colon >= 0) {
        n.tag = str_sub(s, (size_t)colon + 1);
        s.n = (size_t)colon;
    }
    n.name = s;
    return n;
}

/* A namespace that only one side names is no difference: there is one owner per installation. */
static bool same(const struct name *a, const struct name *b)
{
    return str_eq(a->name, b->name) && str_eq(a->tag, b->tag) &&
           (!a->space.n || !b->space.n || str_eq(a->space, b->space));
}

int template_resolve(struct template_registry *r, struct str ref, const struct template **ret_template,
                     const char **ret_alias, struct err *err)
{
    struct name want = name_of(ref);
    if (!want.name.n || !want.tag.n || ref.n > 3 * (TEMPLATE_NAME_MAX + 1) || str_has_nul(ref) || !str_is_utf8(ref))
        return err_set(err, ERR_INVALID_ARGUMENT, "'%.*s' is not the name of a template", (int)MIN(ref.n, (size_t)64),
                       ref.p ? ref.p : "");
    refresh(r);
    for (size_t i = 0; i < r->n; i++) {
        if (!str_eq(want.name, str_of(r->list[i]->id)) || !str_eq(want.tag, STR("default")))
            continue;
        *ret_template = r->list[i];
        if (ret_alias)
            *ret_alias = NULL;
        return 0;
    }
    for (size_t i = 0; i < r->n; i++) {
        for (size_t k = 0; k < r->list[i]->n_aliases; k++) {
            struct name have = name_of(str_of(r->list[i]->aliases[k]));
            if (!same(&want, &have))
                continue;
            *ret_template = r->list[i];
            memcpy(r->alias, have.name.p, have.name.n);
            r->alias[have.name.n] = 0;
            if (ret_alias)
                *ret_alias = r->alias;
            return 0;
        }
    }
    return err_set(err, ERR_NOT_FOUND, "template '%.*s' not found", STR_ARG(ref));
}

void template_each(struct template_registry *r, bool (*fn)(void *ctx, const struct template *t), void *ctx)
{
    refresh(r);
    for (size_t i = 0; i < r->n; i++)
        if (!fn(ctx, r->list[i]))
            return;
}
