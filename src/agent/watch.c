/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WATCH: changes in a directory, or in the whole tree below it.
 *
 * Theory of operation
 *
 *  1. Each watch has an inotify descriptor of its own, and for each directory a `struct dir` with its path relative to the root ("" is the
 *     root's). The map goes from the kernel's watch numbers to them.
 *  2. Directories are taken up in small steps, so that a large tree does not hold the loop up; the head is sent after the first pass.
 *  3. A directory that appears later is watched, then read: what was in it already is reported as created. What was created between the two
 *     is known twice; `scanned` remembers those names until the kernel's queue has been empty, and the second report is left out. So that it is
 *     the second, no events are read before the directory was.
 *  4. A directory that is renamed inside the tree keeps its watch, under its new name; one that was renamed before it could be watched is new.
 *     Moved out, its watches are removed.
 *  5. The queue holds kinds and names; an entry is made when the event is sent. While it is long, directories are not read, and the kernel's
 *     queue only when it is the host who gives no credit: then too many events end the watch.
 */
#include "agent/file.h"
#include "base/fd.h"
#include "base/mem.h"

#include <dirent.h>
#include <linux/magic.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
    WATCHES_MAX = 64,
    DIRS_MAX = 16384,
    QUEUED_MAX = 4096,
    QUEUED_LONG = 512,
    QUEUED_BYTES_LONG = 256 * 1024,
    QUEUED_BYTES_MAX = 1024 * 1024, /* what one read adds when the queue is nearly long fits */
    ENTRIES_PER_STEP = 512,
    DIRS_PER_STEP = 32,
    READS_PER_TURN = 8,
};

#define MASK                                                                                                           \
    (IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_MODIFY | IN_DELETE | IN_DELETE_SELF | IN_ATTRIB | IN_MOVE_SELF |     \
     IN_ONLYDIR)

struct dir {
    struct list todo; /* in watch->todo until it was read */
    int wd;
    bool is_new; /* what is found in it is reported */
    char *path;  /* owned, relative */
};

struct watch {
    struct stream stream;
    struct loop_io io;
    struct loop_timer step;
    char *root; /* owned */
    uint8_t flags;
    bool counted, overflowed;
    bool has_no_credit; /* for the next event */
    struct map dirs;    /* wd + 1 -> struct dir */
    struct list todo;
    DIR *reading;          /* the first of todo */
    struct buf scanned;    /* records: u32 wd, str name */
    uint32_t moved_cookie; /* of a directory that left its place, 0: none */
    char *moved_from;      /* owned */
    struct buf queue;      /* records: u8 kind, str name */
    size_t n_queued;
    struct names names;
};

static struct loop *loop_of(struct watch *w)
{
    return &w->stream.session->agent->loop;
}

/* The stream ends when the session has room for that; nothing is looked at until then. */
static void overflow(struct watch *w)
{
    w->overflowed = true;
    (void)loop_set(loop_of(w), &w->io, 0);
    stream_ready(&w->stream);
}

static void queue_event(struct watch *w, uint8_t kind, const struct dir *d, const char *name)
{
    struct str dir = str_of(d->path), base = str_of(name);
    if (w->overflowed || dir.n + 1 + base.n >= PATH_TEXT_MAX) /* so long, no request could name it */
        return;
    wire_put_u8(&w->queue, kind);
    wire_put_u32(&w->queue, (uint32_t)(dir.n + (dir.n && base.n) + base.n + (!dir.n && !base.n)));
    (void)buf_append_str(&w->queue, dir.n || base.n ? dir : STR("."));
    if (dir.n && base.n)
        (void)buf_append_char(&w->queue, '/');
    (void)buf_append_str(&w->queue, base);
    if (buf_error(&w->queue) || ++w->n_queued > QUEUED_MAX)
        overflow(w);
    else
        stream_ready(&w->stream);
}

static bool is_long(const struct watch *w)
{
    return w->n_queued >= QUEUED_LONG || buf_len(&w->queue) >= QUEUED_BYTES_LONG;
}

/* The queue has become shorter: what waited for that goes on when half of it is free. */
static void go_on(struct watch *w)
{
    if (w->overflowed || w->n_queued >= QUEUED_LONG / 2 || buf_len(&w->queue) >= QUEUED_BYTES_LONG / 2)
        return;
    (void)loop_set(loop_of(w), &w->io, EPOLLIN);
    if (!list_empty(&w->todo) && list_empty(&w->step.node))
        loop_timer_set(loop_of(w), &w->step, 0);
}

/* ---- directories ---- */

static void dir_free(struct watch *w, struct dir *d)
{
    if (w->reading && w->todo.next == &d->todo) {
        (void)closedir(w->reading);
        w->reading = NULL;
    }
    list_remove(&d->todo);
    mem_free(d->path);
    mem_free(d);
}

static bool is_below(const char *path, const char *top)
{
    size_t n = strlen(top);
    return n == 0 || (strncmp(path, top, n) == 0 && (path[n] == 0 || path[n] == '/'));
}

/* The full path of root/dir/name; false when it is too long to be one. */
static bool full_path(const struct watch *w, const char *dir, const char *name, char ret_path[static PATH_TEXT_MAX])
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

/* Watches a directory and notes that it has to be read. 0 also when it is gone, or no directory, unless it is the root; else -errno. */
static int dir_add(struct watch *w, const char *parent, const char *name, bool is_new)
{
    char path[PATH_TEXT_MAX];
    if (!full_path(w, parent, name, path))
        return 0;
    int wd = inotify_add_watch(w->io.fd, path, MASK | (*name ? IN_DONT_FOLLOW : 0));
    if (wd < 0)
        return errno == ENOSPC || errno == ENOMEM ? -ENOSPC : *name ? 0 : -errno;
    char *relative = *parent ? mem_printf("%s/%s", parent, name) : mem_strdup(name);
    struct dir *d = map_get_u64(&w->dirs, (uint64_t)wd + 1);
    if (d) { /* known under another name */
        mem_free(d->path);
        d->path = relative;
        return 0;
    }
    if (map_count(&w->dirs) >= DIRS_MAX) {
        mem_free(relative);
        return -ENOSPC;
    }
    d = mem_new(struct dir);
    *d = (struct dir){.wd = wd, .is_new = is_new, .path = relative};
    (void)map_put_u64(&w->dirs, (uint64_t)wd + 1, d);
    list_init(&d->todo);
    list_append(&w->todo, &d->todo);
    return 0;
}

static void forget_tree(struct watch *w, const char *top)
{
    AUTO_FREE struct dir **gone = mem_array(map_count(&w->dirs) + 1, sizeof(struct dir *));
    struct dir *d;
    size_t n = 0;
    for (size_t it = 0; (d = map_next(&w->dirs, &it));)
        if (is_below(d->path, top))
            gone[n++] = d;
    while (n--) {
        (void)inotify_rm_watch(w->io.fd, gone[n]->wd);
        (void)map_del_u64(&w->dirs, (uint64_t)gone[n]->wd + 1);
        dir_free(w, gone[n]);
    }
}

/* False when nothing of it is known. */
static bool rename_tree(struct watch *w, const char *from, const char *parent, const char *name)
{
    struct dir *d;
    bool is_known = false;
    AUTO_FREE char *to = *parent ? mem_printf("%s/%s", parent, name) : mem_strdup(name);
    for (size_t it = 0; (d = map_next(&w->dirs, &it));) {
        if (!is_below(d->path, from))
            continue;
        char *path = mem_printf("%s%s", to, d->path + strlen(from));
        mem_free(d->path);
        d->path = path;
        is_known = true;
    }
    return is_known;
}

static int fail(struct watch *w, int errnum)
{
    if (errnum == ENOSPC)
        stream_failf(&w->stream, ERR_RESOURCE_EXHAUSTED, "error watching %s: too many directories", w->root);
    else
        stream_failf(&w->stream, failure_code(ERR_INTERNAL, errnum), "error watching %s: %s", w->root,
                     errno_text(errnum));
    return -1;
}

static bool is_directory(const struct watch *w, const struct dir *d, const struct dirent *e)
{
    char path[PATH_TEXT_MAX];
    struct stat st;
    if (e->d_type != DT_UNKNOWN)
        return e->d_type == DT_DIR;
    return full_path(w, d->path, e->d_name, path) && lstat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Reads some of the first directory in todo; how many entries, or -errno. */
static int read_some(struct watch *w)
{
    struct dir *d = container_of(w->todo.next, struct dir, todo);
    char path[PATH_TEXT_MAX];
    if (!w->reading && full_path(w, d->path, "", path))
        w->reading = opendir(path);
    for (int n = 1; w->reading; n++) {
        const struct dirent *e = readdir(w->reading);
        if (!e)
            break;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (d->is_new) {
            queue_event(w, WIRE_WATCH_CREATE, d, e->d_name);
            wire_put_u32(&w->scanned, (uint32_t)d->wd);
            wire_put_str(&w->scanned, str_of(e->d_name));
        }
        int r = is_directory(w, d, e) ? dir_add(w, d->path, e->d_name, d->is_new) : 0;
        if (r < 0)
            return r;
        if (n >= ENTRIES_PER_STEP || is_long(w))
            return n;
    }
    if (w->reading)
        (void)closedir(w->reading);
    w->reading = NULL;
    list_remove(&d->todo);
    return 1;
}

/* -1: the stream is gone. */
static int scan(struct watch *w)
{
    int entries = 0;
    for (int i = 0; i < DIRS_PER_STEP && entries < ENTRIES_PER_STEP && !list_empty(&w->todo) && !is_long(w); i++) {
        int r = read_some(w);
        if (r < 0)
            return fail(w, -r);
        entries += r;
    }
    if (!list_empty(&w->todo)) {
        if (!is_long(w))
            loop_timer_set(loop_of(w), &w->step, 0);
    } else if (!w->stream.replied) {
        stream_reply(&w->stream);
        int r = loop_set(loop_of(w), &w->io, EPOLLIN);
        if (r < 0)
            return fail(w, -r);
    } else if (!is_long(w) && !w->overflowed) {
        (void)loop_set(loop_of(w), &w->io, EPOLLIN);
    }
    return 0;
}

static void step_due(struct loop_timer *t)
{
    (void)scan(container_of(t, struct watch, step));
}

/* ---- events ---- */

static bool was_scanned(struct watch *w, int wd, const char *name)
{
    struct wire_reader r = wire_reader_of(buf_str(&w->scanned));
    while (r.n && !r.bad) {
        uint32_t have = wire_get_u32(&r);
        struct str s = wire_get_str(&r);
        if ((int)have == wd && str_eqc(s, name))
            return true;
    }
    return false;
}

/* A directory that left its place, and this is not where it went: it is outside now (invariant 4). */
static void forget_moved(struct watch *w, const struct inotify_event *e)
{
    if (!w->moved_cookie || (e->mask & IN_MOVED_TO && e->cookie == w->moved_cookie))
        return;
    AUTO_FREE char *gone = TAKE_PTR(w->moved_from);
    w->moved_cookie = 0;
    forget_tree(w, gone);
}

/* True when the directory came from a place where it was watched. */
static bool follow_move(struct watch *w, const struct dir *d, const struct inotify_event *e, const char *name)
{
    if (e->mask & IN_MOVED_FROM) {
        w->moved_cookie = e->cookie;
        w->moved_from = *d->path ? mem_printf("%s/%s", d->path, name) : mem_strdup(name);
    } else if (e->mask & IN_MOVED_TO && w->moved_cookie) {
        AUTO_FREE char *from = TAKE_PTR(w->moved_from);
        w->moved_cookie = 0;
        return rename_tree(w, from, d->path, name);
    }
    return false;
}

static void queue_kinds(struct watch *w, const struct dir *d, const struct inotify_event *e, const char *name)
{
    static const struct {
        uint32_t mask;
        uint8_t kind;
    } kinds[] = {
        {IN_CREATE | IN_MOVED_TO, WIRE_WATCH_CREATE},
        {IN_MOVED_FROM, WIRE_WATCH_RENAME},
        {IN_ATTRIB, WIRE_WATCH_CHMOD},
        {IN_MODIFY, WIRE_WATCH_WRITE},
        {IN_DELETE, WIRE_WATCH_REMOVE},
    };
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        bool again = kinds[i].kind == WIRE_WATCH_CREATE && was_scanned(w, e->wd, name);
        if (e->mask & kinds[i].mask && !again)
            queue_event(w, kinds[i].kind, d, name);
    }
}

/* -1: the stream is gone. */
static int take_event(struct watch *w, const struct inotify_event *e)
{
    const char *name = e->len ? e->name : "";
    bool recursive = w->flags & WIRE_WATCH_RECURSIVE;
    if (e->mask & IN_Q_OVERFLOW) {
        overflow(w);
        return 0;
    }
    if (recursive)
        forget_moved(w, e);
    struct dir *d = map_get_u64(&w->dirs, (uint64_t)e->wd + 1);
    if (!d)
        return 0;
    if (recursive && e->mask & IN_ISDIR && *name) {
        bool is_known = follow_move(w, d, e, name);
        if (e->mask & (IN_CREATE | IN_MOVED_TO) && !is_known) {
            queue_kinds(w, d, e, name);
            int r = dir_add(w, d->path, name, true);
            return r < 0 ? fail(w, -r) : scan(w);
        }
    }
    if (e->mask & IN_IGNORED) {
        (void)map_del_u64(&w->dirs, (uint64_t)e->wd + 1);
        dir_free(w, d);
    } else if (*name) {
        queue_kinds(w, d, e, name);
    } else if (*d->path == 0) { /* the root itself; for those below it the parent says it too */
        if (e->mask & IN_MOVE_SELF)
            queue_event(w, WIRE_WATCH_RENAME, d, "");
        if (e->mask & IN_ATTRIB)
            queue_event(w, WIRE_WATCH_CHMOD, d, "");
    }
    return 0;
}

static void watch_ready(struct loop_io *io, uint32_t events)
{
    struct watch *w = container_of(io, struct watch, io);
    union {
        struct inotify_event align;
        char bytes[4096];
    } b;
    (void)events;
    for (int i = 0; i < READS_PER_TURN && !w->overflowed; i++) {
        if ((is_long(w) || !list_empty(&w->todo)) && !w->has_no_credit) {
            (void)loop_set(loop_of(w), io, 0);
            return;
        }
        ssize_t n = read(io->fd, b.bytes, sizeof(b.bytes));
        if (n <= 0) {
            buf_fini(&w->scanned);
            return;
        }
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *e = (const void *)(b.bytes + at);
            at += (ssize_t)(sizeof(*e) + e->len);
            if (take_event(w, e) < 0)
                return;
        }
    }
}

/* ---- the stream ---- */

static bool is_network(const struct statfs *fs)
{
    static const uint32_t magics[] = {NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, CIFS_SUPER_MAGIC, SMB2_SUPER_MAGIC,
                                      FUSE_SUPER_MAGIC};
    for (size_t i = 0; i < ARRAY_SIZE(magics); i++)
        if ((uint32_t)fs->f_type == magics[i])
            return true;
    return false;
}

static int check(const struct watch *w, const char *path, struct failure *f)
{
    struct stat st;
    struct statfs fs;
    if (w->stream.session->agent->n_watches >= WATCHES_MAX)
        return failure_set(f, ERR_RESOURCE_EXHAUSTED, "%d watches are open already", WATCHES_MAX);
    if (stat(path, &st) < 0 && errno == ENOENT)
        return failure_set(f, ERR_NOT_FOUND, "path %s not found: stat %s: %s", path, path, errno_text(errno));
    if (stat(path, &st) < 0)
        return failure_errno(f, ERR_INTERNAL, errno, "error statting path %s: stat %s", path, path);
    if (!S_ISDIR(st.st_mode))
        return failure_set(f, ERR_INVALID_ARGUMENT, "path %s not a directory", path);
    if (!(w->flags & WIRE_WATCH_NETWORK_FS) && statfs(path, &fs) == 0 && is_network(&fs))
        return failure_set(f, ERR_INVALID_ARGUMENT, "cannot watch path on network filesystem: %s", path);
    return 0;
}

static void watch_open(struct stream *s, struct wire_reader *r)
{
    struct watch *w = container_of(s, struct watch, stream);
    struct agent *a = s->session->agent;
    AUTO_REQUEST struct file_request q;
    struct failure why;
    int got = file_request_get(s, r, &q, &why);
    w->flags = wire_get_u8(r);
    w->io = LOOP_IO(watch_ready);
    list_init(&w->todo);
    loop_timer_init(&w->step, step_due);
    buf_init(&w->queue, QUEUED_BYTES_MAX);
    buf_init(&w->scanned, QUEUED_BYTES_MAX);
    names_init(&w->names, &a->config.users);
    if (!wire_done(r)) {
        stream_malformed(s);
        return;
    }
    if (got < 0 || check(w, q.path, &why) < 0) {
        file_refuse(s, &why);
        return;
    }
    w->root = mem_strdup(q.path);
    w->io.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (w->io.fd < 0) {
        stream_failf(s, ERR_RESOURCE_EXHAUSTED, "error watching %s: %s", q.path, errno_text(errno));
        return;
    }
    w->counted = true;
    a->n_watches++;
    int e = dir_add(w, "", "", false);
    if (e < 0) {
        (void)fail(w, -e);
        return;
    }
    if (!(w->flags & WIRE_WATCH_RECURSIVE)) /* nothing to find below */
        LIST_FOREACH (struct dir, d, &w->todo, todo)
            list_remove(&d->todo);
    (void)scan(w);
}

static void watch_credit(struct stream *s, uint32_t bytes, bool delivered)
{
    (void)bytes;
    (void)delivered;
    stream_ready(s);
}

static bool wants_entry(const struct watch *w, uint8_t kind)
{
    return w->flags & WIRE_WATCH_ENTRY &&
           (kind == WIRE_WATCH_CREATE || kind == WIRE_WATCH_WRITE || kind == WIRE_WATCH_CHMOD);
}

static bool watch_produce(struct stream *s)
{
    struct watch *w = container_of(s, struct watch, stream);
    AUTO_BUF struct buf b = BUF_INIT(ENTRY_MAX + PATH_TEXT_MAX + 16), entry = BUF_INIT(ENTRY_MAX);
    char name[PATH_TEXT_MAX], path[PATH_TEXT_MAX];
    if (w->overflowed) {
        stream_failf(s, ERR_RESOURCE_EXHAUSTED, "watch of %s ended: too many events are waiting to be taken", w->root);
        return false;
    }
    if (!w->n_queued || !s->replied)
        return false;
    struct wire_reader r = wire_reader_of(buf_str(&w->queue));
    uint8_t kind = wire_get_u8(&r);
    struct str relative = wire_get_str(&r);
    assert(!r.bad);
    bool named = wants_entry(w, kind) && relative.n < sizeof(name);
    if (named) {
        memcpy(name, relative.p, relative.n);
        name[relative.n] = 0;
    }
    bool has_entry =
        named && full_path(w, str_eqc(relative, ".") ? "" : name, "", path) && entry_put(&entry, &w->names, path) >= 0;
    wire_put_u8(&b, kind);
    wire_put_str(&b, relative);
    wire_put_u8(&b, has_entry);
    if (has_entry)
        (void)buf_append_str(&b, buf_str(&entry));
    w->has_no_credit = stream_room(s) < buf_len(&b);
    if (w->has_no_credit) {
        (void)loop_set(loop_of(w), &w->io, EPOLLIN);
        return false;
    }
    stream_send_bytes(s, buf_data(&b), buf_len(&b));
    buf_consume(&w->queue, 5 + relative.n);
    w->n_queued--;
    go_on(w);
    if (w->n_queued)
        return true;
    buf_fini(&w->queue);
    names_fini(&w->names);
    names_init(&w->names, &s->session->agent->config.users);
    return false;
}

static void watch_fini(struct stream *s)
{
    struct watch *w = container_of(s, struct watch, stream);
    struct dir *d;
    loop_timer_clear(&w->step);
    for (size_t it = 0; (d = map_next(&w->dirs, &it));)
        dir_free(w, d);
    map_fini(&w->dirs);
    loop_close(loop_of(w), &w->io);
    buf_fini(&w->queue);
    buf_fini(&w->scanned);
    names_fini(&w->names);
    mem_free(w->root);
    mem_free(w->moved_from);
    s->session->agent->n_watches -= w->counted;
}

const struct verb verb_watch = {
    .size = sizeof(struct watch),
    .open = watch_open,
    .credit = watch_credit,
    .produce = watch_produce,
    .fini = watch_fini,
};
