/* SPDX-License-Identifier: Apache-2.0 */
/* LIST: the entries of a directory and of those below it, in order. The walk is a job. */
#include "agent/files/file.h"
#include "agent/job.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAMES_MAX = 256 * 1024 * 1024, FLUSH_AT = 32 * 1024 };

struct file_list_listing {
    struct job_stream js;
    char *path; /* owned */
    uint32_t depth;
};

/* A directory under way: its names, sorted, one after the other in `bytes`. */
struct file_list_level {
    struct file_list_level *up;
    struct buf bytes;
    const char **names;
    size_t n, next;
    size_t path_n; /* of the directory's path */
};

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void level_free(struct file_list_level *l)
{
    buf_fini(&l->bytes);
    MEM_FREE(l->names, l);
}

/* -errno; -ENOBUFS when there are too many. */
static int level_read(const char *path, struct file_list_level *l)
{
    int nofollow = l->up ? O_NOFOLLOW : 0;
    AUTO(dir_close) DIR *d = dir_take(open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC | nofollow));
    if (!d)
        return -errno;
    errno = 0;
    for (const struct dirent *e; (e = dir_next(d)); errno = 0) {
        (void)buf_append(&l->bytes, e->d_name, strlen(e->d_name) + 1);
        l->n++;
    }
    int r = -errno;
    if (r < 0 || buf_error(&l->bytes))
        return r < 0 ? r : buf_error(&l->bytes);
    l->names = mem_array(l->n + 1, sizeof(*l->names));
    const char *p = buf_data(&l->bytes);
    for (size_t i = 0; i < l->n; i++) {
        l->names[i] = p;
        p += strlen(p) + 1;
    }
    qsort(l->names, l->n, sizeof(*l->names), by_bytes);
    return 0;
}

static struct file_list_level *level_enter(struct file_list_level *up, const char *path, int *ret_error)
{
    struct file_list_level *l = mem_new(struct file_list_level);
    l->up = up;
    l->bytes = BUF_INIT(NAMES_MAX);
    l->path_n = strlen(path);
    *ret_error = level_read(path, l);
    if (*ret_error == 0)
        return l;
    level_free(l);
    return up;
}

static bool has_vanished(int r)
{
    return r == -ENOENT || r == -ENOTDIR || r == -ELOOP;
}

static int file_list_walk(struct file_list_listing *li, char path[static PATH_TEXT_MAX], struct buf *out,
                          struct failure *f)
{
    struct agent_names names;
    int r;
    uint32_t depth = 1;
    struct file_list_level *l = level_enter(NULL, path, &r);
    names_init(&names, li->js.stream.session->agent);
    if (r == 0 && li->depth == 0)
        li->depth = 1;
    while (r == 0 && l) {
        if (l->next == l->n) {
            struct file_list_level *up = l->up;
            level_free(l);
            l = up;
            depth--;
            continue;
        }
        const char *name = l->names[l->next++];
        size_t n = strlen(name), at = l->path_n;
        if (at + 1 + n >= PATH_TEXT_MAX)
            continue; /* no request could name it */
        if (path[at - 1] != '/')
            path[at++] = '/';
        memcpy(path + at, name, n + 1);
        int is_dir = entry_put(out, &names, path);
        job_flush(&li->js, out, FLUSH_AT);
        if (is_dir <= 0 || depth >= li->depth)
            continue;
        struct file_list_level *below = level_enter(l, path, &r);
        depth += below != l;
        l = below;
        r = has_vanished(r) ? 0 : r;
    }
    names_fini(&names);
    if (r < 0)
        (void)failure_errno(f, ERR_INTERNAL, r == -ENOBUFS ? E2BIG : -r, "error reading directory %s: open %s", path,
                            path);
    while (l) {
        struct file_list_level *up = l->up;
        level_free(l);
        l = up;
    }
    return r < 0 ? -1 : 0;
}

/* The shortest beginning of path that isn't there, or what a broken link there points to. */
static void first_missing(const char *path, char ret_missing[static PATH_TEXT_MAX])
{
    struct stat st;
    size_t n = strlen(path);
    for (size_t i = 1; i <= n; i++) {
        if (path[i] && path[i] != '/')
            continue;
        memcpy(ret_missing, path, i);
        ret_missing[i] = 0;
        if (stat(ret_missing, &st) == 0)
            continue;
        char target[PATH_TEXT_MAX];
        ssize_t r = readlink(ret_missing, target, sizeof(target) - 1);
        if (r > 0) {
            struct str dir = path_dir(str_of(ret_missing));
            char joined[PATH_TEXT_MAX];
            if (path_join(dir, str_n(target, (size_t)r), joined) == 0)
                memcpy(ret_missing, joined, strlen(joined) + 1);
        }
        return;
    }
}

static int file_list_run(struct job_stream *js, struct buf *out, struct failure *f)
{
    struct file_list_listing *li = container_of(js, struct file_list_listing, js);
    char resolved[PATH_MAX], base[PATH_TEXT_MAX];
    struct stat st, shown;
    if (!realpath(li->path, resolved)) {
        int why = errno;
        if (why == ENOENT) {
            first_missing(li->path, base);
            return failure_set(f, ERR_NOT_FOUND, "path not found: lstat %s: %s", base, errno_text(why));
        }
        if (why == ELOOP)
            return failure_set(f, ERR_FAILED_PRECONDITION, "cyclic symlink or chain >255 links at \"%s\"", li->path);
        return failure_errno(f, ERR_INTERNAL, why, "error resolving symlink");
    }
    if (stat(resolved, &st) < 0)
        return failure_errno(f, ERR_INTERNAL, errno, "error getting file info: stat %s", resolved);
    if (!S_ISDIR(st.st_mode))
        return failure_set(f, ERR_INVALID_ARGUMENT, "path is not a directory: %s", resolved);
    /* Shown is the path as it was asked for, cleaned; unless that leads elsewhere because of a ".." behind a link. */
    if (path_clean(str_of(li->path), base) < 0 || stat(base, &shown) < 0 || shown.st_dev != st.st_dev ||
        shown.st_ino != st.st_ino)
        memcpy(base, resolved, MIN(strlen(resolved) + 1, sizeof(base)));
    int r = file_list_walk(li, base, out, f);
    job_flush(js, out, 1);
    return r;
}

static void list_open(struct agent_stream *s, struct wire_reader *r)
{
    struct file_list_listing *li = container_of(s, struct file_list_listing, js.stream);
    AUTO_REQUEST struct file_request q;
    struct failure why;
    int got = file_request_get(s, r, &q, &why);
    li->depth = wire_get_u32(r);
    if (!wire_done(r)) {
        stream_malformed(s);
    } else if (got < 0) {
        file_refuse(s, &why);
    } else {
        li->path = mem_strdup(q.path);
        li->js.run = file_list_run;
        li->js.has_head = true;
        job_submit(&li->js);
    }
}

static void list_fini(struct agent_stream *s)
{
    mem_free(container_of(s, struct file_list_listing, js.stream)->path);
    job_stream_fini(s);
}

const struct verb verb_list = {
    .size = sizeof(struct file_list_listing),
    .open = list_open,
    .produce = job_stream_produce,
    .fini = list_fini,
};
