/* SPDX-License-Identifier: Apache-2.0 */
/*
 * WATCH: changes in a directory, or in the whole tree below it.
 *
 * Theory of operation
 *
 *  1. Each watch has an inotify descriptor of its own, and directories (agent/files/watch_dirs.h) that the kernel's
 *     events are about.
 *  2. Directories are taken up in small steps, so that a large tree does not hold the loop up; the head is sent after
 *     the first pass.
 *  3. A directory that appears later is watched, then read: what was in it already is reported as created. What was
 *     created between the two is known twice; `scanned` remembers those names until the kernel's queue has been empty,
 *     and the second report is left out. So that it is the second, no events are read before the directory was.
 *  4. A directory that was renamed before it could be watched is new.
 *  5. The queue holds kinds and names; an entry is made when the event is sent. While it is long, directories are not
 *     read, and the kernel's queue only when it is the host who gives no credit: then too many events end the watch.
 */
#include "agent/files/file.h"
#include "agent/files/watch_dirs.h"
#include "base/fd.h"

#include <linux/magic.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

enum {
    WATCHES_MAX = 64,
    QUEUED_MAX = 4096,
    QUEUED_LONG = 512,
    QUEUED_BYTES_LONG = 256 * 1024,
    QUEUED_BYTES_MAX = 1024 * 1024, /* what one read adds when the queue is nearly long fits */
    ENTRIES_PER_STEP = 512,
    DIRS_PER_STEP = 32,
    WATCH_READS_PER_TURN = 8,
};

struct watch_watch {
    struct agent_stream stream;
    struct loop_io io;
    struct loop_timer step;
    uint8_t flags;
    bool counted, overflowed;
    bool has_no_credit; /* for the next event */
    struct watch_dirs dirs;
    struct buf scanned; /* records: u32 number, str name */
    struct buf queue;   /* records: u8 kind, str name */
    size_t n_queued;
    struct agent_names names;
};

static struct agent_loop *watch_loop(struct watch_watch *w)
{
    return &w->stream.session->agent->loop;
}

/* The stream ends when the session has room for that; nothing is looked at until then. */
static void overflow(struct watch_watch *w)
{
    w->overflowed = true;
    (void)loop_set(watch_loop(w), &w->io, 0);
    stream_ready(&w->stream);
}

static void queue_event(struct watch_watch *w, uint8_t kind, const struct watch_dir *d, const char *name)
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

static bool is_long(const struct watch_watch *w)
{
    return w->n_queued >= QUEUED_LONG || buf_len(&w->queue) >= QUEUED_BYTES_LONG;
}

/* The queue has become shorter: what waited for that goes on when half of it is free. */
static void watch_go_on(struct watch_watch *w)
{
    if (w->overflowed || w->n_queued >= QUEUED_LONG / 2 || buf_len(&w->queue) >= QUEUED_BYTES_LONG / 2)
        return;
    (void)loop_set(watch_loop(w), &w->io, EPOLLIN);
    if (watch_dirs_first(&w->dirs) && list_empty(&w->step.node))
        loop_timer_set(watch_loop(w), &w->step, 0);
}

static int watch_fail(struct watch_watch *w, int errnum)
{
    if (errnum == ENOSPC)
        stream_failf(&w->stream, ERR_RESOURCE_EXHAUSTED, "error watching %s: too many directories", w->dirs.root);
    else
        stream_failf(&w->stream, failure_code(ERR_INTERNAL, errnum), "error watching %s: %s", w->dirs.root,
                     errno_text(errnum));
    return -1;
}

/* Reads some of the first directory that has to be read; how many entries, or -errno. */
static int read_some(struct watch_watch *w)
{
    const struct watch_dir *d = watch_dirs_first(&w->dirs);
    const char *name;
    bool is_dir;
    for (int n = 1; (name = watch_dirs_read(&w->dirs, &is_dir)); n++) {
        if (d->is_new) {
            queue_event(w, WIRE_WATCH_CREATE, d, name);
            wire_put_u32(&w->scanned, (uint32_t)d->number);
            wire_put_str(&w->scanned, str_of(name));
        }
        int r = is_dir ? watch_dirs_add(&w->dirs, d->path, name, d->is_new) : 0;
        if (r < 0)
            return r;
        if (n >= ENTRIES_PER_STEP || is_long(w))
            return n;
    }
    return 1;
}

/* -1: the stream is gone. */
static int scan(struct watch_watch *w)
{
    int entries = 0;
    for (int i = 0; i < DIRS_PER_STEP && entries < ENTRIES_PER_STEP && watch_dirs_first(&w->dirs) && !is_long(w); i++) {
        int r = read_some(w);
        if (r < 0)
            return watch_fail(w, -r);
        entries += r;
    }
    if (watch_dirs_first(&w->dirs)) {
        if (!is_long(w))
            loop_timer_set(watch_loop(w), &w->step, 0);
    } else if (!w->stream.replied) {
        int r = loop_set(watch_loop(w), &w->io, EPOLLIN);
        if (r < 0) {
            stream_failf(&w->stream, ERR_RESOURCE_EXHAUSTED, "error watching %s: %s", w->dirs.root, errno_text(-r));
            return -1;
        }
        stream_reply(&w->stream);
    } else if (!is_long(w) && !w->overflowed) {
        (void)loop_set(watch_loop(w), &w->io, EPOLLIN);
    }
    return 0;
}

static void step_due(struct loop_timer *t)
{
    (void)scan(container_of(t, struct watch_watch, step));
}

/* ---- events ---- */

static bool was_scanned(struct watch_watch *w, int wd, const char *name)
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

static void queue_kinds(struct watch_watch *w, const struct watch_dir *d, const struct inotify_event *e,
                        const char *name)
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
static int take_event(struct watch_watch *w, const struct inotify_event *e)
{
    const char *name = e->len ? e->name : "";
    bool recursive = w->flags & WIRE_WATCH_RECURSIVE;
    if (e->mask & IN_Q_OVERFLOW) {
        overflow(w);
        return 0;
    }
    if (recursive)
        watch_dirs_settle(&w->dirs, e);
    struct watch_dir *d = watch_dirs_find(&w->dirs, e->wd);
    if (!d)
        return 0;
    if (recursive && e->mask & IN_ISDIR && *name) {
        bool is_known = watch_dirs_moved(&w->dirs, d, e, name);
        if (e->mask & (IN_CREATE | IN_MOVED_TO) && !is_known) {
            queue_kinds(w, d, e, name);
            int r = watch_dirs_add(&w->dirs, d->path, name, true);
            return r < 0 ? watch_fail(w, -r) : scan(w);
        }
    }
    if (e->mask & IN_IGNORED) {
        watch_dirs_drop(&w->dirs, d);
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

static void watch_ready(struct loop_io *io, uint32_t events UNUSED)
{
    struct watch_watch *w = container_of(io, struct watch_watch, io);
    union {
        struct inotify_event align;
        char bytes[4096];
    } b;
    for (int i = 0; i < WATCH_READS_PER_TURN && !w->overflowed; i++) {
        if ((is_long(w) || watch_dirs_first(&w->dirs)) && !w->has_no_credit) {
            (void)loop_set(watch_loop(w), io, 0);
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

static int watch_check(const struct watch_watch *w, const char *path, struct failure *f)
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

static void watch_open(struct agent_stream *s, struct wire_reader *r)
{
    struct watch_watch *w = container_of(s, struct watch_watch, stream);
    struct agent *a = s->session->agent;
    AUTO_REQUEST struct file_request q;
    struct failure why;
    int got = file_request_get(s, r, &q, &why);
    w->flags = wire_get_u8(r);
    w->io = LOOP_IO(watch_ready);
    watch_dirs_init(&w->dirs);
    loop_timer_init(&w->step, step_due);
    buf_init(&w->queue, QUEUED_BYTES_MAX);
    buf_init(&w->scanned, QUEUED_BYTES_MAX);
    names_init(&w->names, a);
    if (!wire_done(r)) {
        stream_malformed(s);
        return;
    }
    if (got < 0 || watch_check(w, q.path, &why) < 0) {
        file_refuse(s, &why);
        return;
    }
    w->io.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (w->io.fd < 0) {
        stream_failf(s, ERR_RESOURCE_EXHAUSTED, "error watching %s: %s", q.path, errno_text(errno));
        return;
    }
    watch_dirs_open(&w->dirs, w->io.fd, q.path);
    w->counted = true;
    a->n_watches++;
    int e = watch_dirs_add(&w->dirs, "", "", false);
    if (e < 0) {
        (void)watch_fail(w, -e);
        return;
    }
    if (!(w->flags & WIRE_WATCH_RECURSIVE)) /* nothing to find below */
        watch_dirs_skip(&w->dirs);
    (void)scan(w);
}

static bool wants_entry(const struct watch_watch *w, uint8_t kind)
{
    return w->flags & WIRE_WATCH_ENTRY &&
           (kind == WIRE_WATCH_CREATE || kind == WIRE_WATCH_WRITE || kind == WIRE_WATCH_CHMOD);
}

static bool watch_produce(struct agent_stream *s)
{
    struct watch_watch *w = container_of(s, struct watch_watch, stream);
    AUTO_BUF struct buf b = BUF_INIT(ENTRY_MAX + PATH_TEXT_MAX + 16), entry = BUF_INIT(ENTRY_MAX);
    char name[PATH_TEXT_MAX], path[PATH_TEXT_MAX];
    if (w->overflowed) {
        stream_failf(s, ERR_RESOURCE_EXHAUSTED, "watch of %s ended: too many events are waiting to be taken",
                     w->dirs.root);
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
    bool has_entry = named && watch_dirs_path(&w->dirs, str_eqc(relative, ".") ? "" : name, "", path) &&
                     entry_put(&entry, &w->names, path) >= 0;
    wire_put_u8(&b, kind);
    wire_put_str(&b, relative);
    wire_put_u8(&b, has_entry);
    if (has_entry)
        (void)buf_append_str(&b, buf_str(&entry));
    w->has_no_credit = stream_room(s) < buf_len(&b);
    if (w->has_no_credit) {
        (void)loop_set(watch_loop(w), &w->io, EPOLLIN);
        return false;
    }
    stream_send_bytes(s, buf_data(&b), buf_len(&b));
    buf_consume(&w->queue, 5 + relative.n);
    w->n_queued--;
    watch_go_on(w);
    if (w->n_queued)
        return true;
    buf_fini(&w->queue);
    names_fini(&w->names);
    names_init(&w->names, s->session->agent);
    return false;
}

static void watch_fini(struct agent_stream *s)
{
    struct watch_watch *w = container_of(s, struct watch_watch, stream);
    loop_timer_clear(&w->step);
    watch_dirs_fini(&w->dirs);
    loop_close(watch_loop(w), &w->io);
    buf_fini(&w->queue);
    buf_fini(&w->scanned);
    names_fini(&w->names);
    s->session->agent->n_watches -= w->counted;
}

const struct verb verb_watch = {
    .size = sizeof(struct watch_watch),
    .open = watch_open,
    .produce = watch_produce,
    .fini = watch_fini,
};
