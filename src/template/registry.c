/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/template_rows.h"
#include "template/internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

enum { FILE_MAX = 64 * 1024, TEMPLATES_MAX = 4096 };

#define OLD_USEC (10 * USEC_PER_SEC) /* no turn of a loop takes as long */

/* Who has looked up a file's template goes on with it until control returns to the loop, whatever is looked up then. */
struct old_files {
    struct list node;
    struct template **list;
    size_t n;
    usec_t read_again; /* monotonic */
};

static int by_id(const void *a, const void *b)
{
    return strcmp((*(struct template *const *)a)->id, (*(struct template *const *)b)->id);
}

static void free_old(struct template_registry *r, usec_t until)
{
    for (struct old_files *old; (old = LIST_FIRST(struct old_files, &r->old, node)) && old->read_again <= until;) {
        list_remove(&old->node);
        for (size_t i = 0; i < old->n; i++)
            template_free(old->list[i]);
        MEM_FREE(old->list, old);
    }
}

static void clear(struct template_registry *r)
{
    const usec_t now = clock_mono();
    if (now > OLD_USEC)
        free_old(r, now - OLD_USEC);
    if (!r->n)
        return;
    struct old_files *old = mem_new(struct old_files);
    old->list = TAKE_PTR(r->list);
    old->n = r->n;
    old->read_again = now;
    list_append(&r->old, &old->node);
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

static int registry_read_one(int dirfd, const char *name, struct template **ret_template, struct err *err)
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
    AUTO(dir_close) DIR *dir = dir_take(fd);
    r->is_partial = !dir;
    for (const struct dirent *e; r->n < TEMPLATES_MAX;) {
        errno = 0; /* a disk that fails has not no entries */
        if (!(e = dir_next(dir))) {
            r->is_partial |= errno != 0;
            break;
        }
        struct template *t = NULL;
        struct err err;
        if (e->d_name[0] == '.' || !str_ends(str_of(e->d_name), STR(".conf")))
            continue;
        if (registry_read_one(dirfd(dir), e->d_name, &t, &err) < 0 || !t) {
            r->is_partial |= err.errnum && err.errnum != ENOENT && err.errnum != ELOOP; /* else it is no template */
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
    if (r->n)
        qsort(r->list, r->n, sizeof(struct template *), by_id);
}

static void refresh_files(struct template_registry *r)
{
    struct stat st;
    if (stat(r->dir, &st) < 0) {
        r->is_partial = errno != ENOENT;
        if (r->is_partial)
            return;
        clear(r);
        r->read_at = (struct timespec){0};
        return;
    }
    if (!r->fresh && !r->is_partial && st.st_mtim.tv_sec == r->read_at.tv_sec &&
        st.st_mtim.tv_nsec == r->read_at.tv_nsec)
        return;
    int fd = open(r->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        r->is_partial = true;
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

/* ---- the store ---- */

static struct use *use_of(struct template_registry *r, const char *id)
{
    struct use *u = map_get(&r->uses, str_of(id));
    if (u)
        return u;
    u = mem_new(struct use);
    u->id = mem_strdup(id);
    list_init(&u->dirty);
    (void)map_put(&r->uses, str_of(id), u);
    return u;
}

static void load_use(void *ctx, const struct store_use *row)
{
    struct use *u = use_of(ctx, row->template_id);
    if (list_empty(&u->dirty)) {
        u->count = row->count;
        u->last = row->last_at;
    }
}

void registry_forget_use(struct template_registry *r, const char *id)
{
    struct use *u = map_del(&r->uses, str_of(id));
    if (!u)
        return;
    list_remove(&u->dirty);
    MEM_FREE(u->id, u);
}

/* Wanted tags are in memory alone: builds that go on keep them over a reload. */
struct wanted {
    char id[ID_UUID_LEN + 1];
    char (*tags)[TEMPLATE_NAME_MAX + 1];
    size_t n;
};

static size_t save_wanted(struct template_registry *r, struct wanted **ret_saved)
{
    struct wanted *saved = mem_array(map_count(&r->builds) + 1, sizeof(*saved));
    size_t n = 0;
    MAP_FOREACH (struct build, b, &r->builds) {
        if (!b->wanted || strlen(b->b.id) > ID_UUID_LEN)
            continue;
        memcpy(saved[n].id, b->b.id, strlen(b->b.id));
        saved[n].n = b->n_wanted;
        saved[n++].tags = TAKE_PTR(b->wanted);
    }
    *ret_saved = saved;
    return n;
}

static void reload(struct template_registry *r)
{
    struct wanted *saved;
    struct err err;
    size_t n = save_wanted(r, &saved);
    built_clear(r);
    if (built_load(r, &err) < 0 || template_rows_each_use(r->store, load_use, r, &err) < 0)
        log_error("templates: %s", err.msg);
    else
        r->stale = false;
    for (size_t i = 0; i < n; i++) {
        struct build *b = map_get(&r->builds, str_of(saved[i].id));
        if (b) {
            b->wanted = saved[i].tags;
            b->n_wanted = saved[i].n;
        } else {
            mem_free(saved[i].tags);
        }
    }
    mem_free(saved);
}

void registry_refresh(struct template_registry *r)
{
    refresh_files(r);
    if (r->stale)
        reload(r);
}

static int on_committing(void *ctx, struct err *err)
{
    struct template_registry *r = ctx;
    LIST_FOREACH (struct use, u, &r->dirty, dirty) {
        if (template_rows_put_use(
                r->store, &(struct store_use){.template_id = u->id, .count = u->count, .last_at = u->last}, err) < 0)
            return -1;
        list_remove(&u->dirty);
    }
    return 0;
}

static void registry_on_rolled_back(void *ctx)
{
    ((struct template_registry *)ctx)->stale = true;
}

static int fail_leftovers(struct template_registry *r, struct err *err)
{
    MAP_FOREACH (struct build, b, &r->builds) {
        if (b->b.status >= TEMPLATE_READY)
            continue;
        bool began = b->b.status == TEMPLATE_BUILDING;
        b->b.status = TEMPLATE_FAILED;
        b->b.finished = clock_real();
        b->b.reason = began ? "the service ended while this was being built; build it again"
                            : "the service was restarted before this build was begun; request it again";
        if (build_store(r, b, err) < 0)
            return -1;
    }
    return 0;
}

int template_registry_load(struct template_registry *r, struct store *store, struct err *err)
{
    r->store = store;
    r->hook = (struct store_hook){.committing = on_committing, .rolled_back = registry_on_rolled_back, .ctx = r};
    store_hook_add(store, &r->hook);
    if (built_load(r, err) < 0 || template_rows_each_use(store, load_use, r, err) < 0 || fail_leftovers(r, err) < 0)
        return err_prefix(err, "read the templates");
    return 0;
}

void template_spawned(struct template_registry *r, const char *id)
{
    if (!r->store)
        return;
    struct use *u = use_of(r, id);
    u->count++;
    u->last = clock_real();
    if (list_empty(&u->dirty))
        list_append(&r->dirty, &u->dirty);
}

void registry_use(const struct template_registry *r, const char *id, struct template_info *ret_info)
{
    const struct use *u = map_get(&r->uses, str_of(id));
    ret_info->n_spawns = u ? u->count : 0;
    ret_info->spawned = u ? u->last : 0;
}

struct template_registry *template_registry_new(const char *dir)
{
    struct template_registry *r = mem_new(struct template_registry);
    r->dir = mem_strdup(dir);
    list_init(&r->dirty);
    list_init(&r->old);
    return r;
}

void template_registry_free(struct template_registry *r)
{
    if (!r)
        return;
    if (r->store)
        store_hook_remove(&r->hook);
    built_clear(r);
    MAP_FOREACH (struct use, u, &r->uses) {
        MEM_FREE(u->id, u);
    }
    map_fini(&r->uses);
    clear(r);
    free_old(r, UINT64_MAX);
    MEM_FREE(r->shown, r->dir, r);
}

/* ---- finding ---- */

/* [namespace/]name[:tag] */
struct name {
    struct str space, name, tag;
};

static struct name registry_name_of(struct str s)
{
    struct name n = {.tag = STR(TEMPLATE_TAG_DEFAULT)};
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

static int not_a_name(struct str ref, struct err *err)
{
    return err_set(err, ERR_INVALID_ARGUMENT, "'%.*s' is not the name of a template", STR_ARG_MAX(ref, 64));
}

static const struct template *file_by_id(const struct template_registry *r, const struct name *want)
{
    for (size_t i = 0; i < r->n; i++)
        if (str_eq(want->name, str_of(r->list[i]->id)) && str_eq(want->tag, STR(TEMPLATE_TAG_DEFAULT)))
            return r->list[i];
    return NULL;
}

static const struct template *file_by_alias(struct template_registry *r, const struct name *want)
{
    for (size_t i = 0; i < r->n; i++) {
        for (size_t k = 0; k < r->list[i]->n_aliases; k++) {
            struct name have = registry_name_of(str_of(r->list[i]->aliases[k]));
            if (!same(want, &have))
                continue;
            memcpy(r->alias, have.name.p, have.name.n);
            r->alias[have.name.n] = 0;
            return r->list[i];
        }
    }
    return NULL;
}

const struct template *registry_file(struct template_registry *r, struct str ref)
{
    struct name want = registry_name_of(ref);
    const struct template *t = file_by_id(r, &want);
    return t ? t : file_by_alias(r, &want);
}

/* What was built. *ret_exists: there is one of that name, if not with that tag. */
static const struct template *find_built(struct template_registry *r, uint64_t view, struct str ref, bool *ret_exists)
{
    struct template_name name;
    struct err ignored;
    if (template_name_parse(ref, &name, &ignored) < 0)
        return NULL;
    struct template_entry *e = built_find(r, view, &name, false);
    struct tag *tag = e ? entry_tag(e, name.tag) : NULL;
    *ret_exists = e != NULL;
    if (!tag || tag->build->b.status != TEMPLATE_READY)
        return NULL;
    bool by_id = strcmp(name.name, e->id) == 0;
    memcpy(r->alias, by_id ? "" : e->name, by_id ? 1 : strlen(e->name) + 1);
    return &tag->build->t;
}

int template_resolve(struct template_registry *r, uint64_t view, struct str ref, const struct template **ret_template,
                     const char **ret_alias, struct err *err)
{
    struct name want = registry_name_of(ref);
    bool exists = false;
    if (!want.name.n || !want.tag.n || ref.n > 3 * (TEMPLATE_NAME_MAX + 1) || str_has_nul(ref) || !str_is_utf8(ref))
        return not_a_name(ref, err);
    registry_refresh(r);
    r->alias[0] = '\0';
    const struct template *t = file_by_id(r, &want);
    if (!t)
        t = find_built(r, view, ref, &exists);
    if (!t)
        t = file_by_alias(r, &want);
    if (!t)
        return err_set(err, ERR_NOT_FOUND,
                       exists ? "template '%.*s' has no finished build of that tag" : "template '%.*s' not found",
                       STR_ARG(ref));
    *ret_template = t;
    if (ret_alias)
        *ret_alias = r->alias[0] ? r->alias : NULL;
    return 0;
}

static int by_entry_id(const void *a, const void *b)
{
    return strcmp((*(struct template_entry *const *)a)->id, (*(struct template_entry *const *)b)->id);
}

size_t registry_entries(const struct template_registry *r, struct template_entry ***ret_entries)
{
    struct template_entry **all = mem_array(map_count(&r->by_id) + 1, sizeof(struct template_entry *));
    size_t n = 0;
    MAP_FOREACH (struct template_entry, e, &r->by_id)
        all[n++] = e;
    if (n)
        qsort(all, n, sizeof(struct template_entry *), by_entry_id);
    *ret_entries = all;
    return n;
}

void template_each(struct template_registry *r, uint64_t view, bool (*fn)(void *ctx, const struct template *t),
                   void *ctx)
{
    registry_refresh(r);
    for (size_t i = 0; i < r->n; i++)
        if (!fn(ctx, r->list[i]))
            return;
    AUTO_FREE struct template_entry **all = NULL;
    size_t n = registry_entries(r, &all);
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < all[i]->n_tags && entry_is_shown(all[i], view); k++)
            if (all[i]->tags[k].build->b.status == TEMPLATE_READY && !fn(ctx, &all[i]->tags[k].build->t))
                return;
}

int template_each_layer(struct template_registry *r, void (*fn)(void *ctx, const char *layer), void *ctx,
                        struct err *err)
{
    registry_refresh(r);
    if (r->is_partial || r->stale)
        return err_set(err, ERR_UNAVAILABLE,
                       "not all templates could be read, the log says why: which layers they need isn't known");
    for (size_t i = 0; i < r->n; i++)
        fn(ctx, r->list[i]->layer);
    MAP_FOREACH (const struct build, b, &r->builds)
        if (b->n_tags && b->t.layer)
            fn(ctx, b->t.layer);
    return 0;
}
