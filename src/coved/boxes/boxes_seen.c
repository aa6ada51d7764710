/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel saw the processes of sandboxes do: programs that they executed, their ends, files that they wrote.
 *
 *  1. It is read a little at a time, at most every LISTEN_USEC, and only while cove-api has room for it: a flood costs
 *     coved a bounded share of its time, and no memory. What the kernel had no room for meanwhile is counted by it.
 *     Programs are read at once when there were none for a while, then every PROCESSES_USEC, or as soon as a fourth of
 *     the kernel's room for them is taken.
 *  2. What a sandbox did is told before its end; a program that ended before it was told of, as one thing.
 *  3. Of whom files are missing nobody knows, so all are told; at most every FILES_LOST_USEC, since one sandbox can
 *     cause it at any time.
 *  4. Of files that a box writes in a flood only the number is told, and they are not looked at.
 *  5. Nothing here fails a sandbox: one that can't be watched is logged.
 */
#include "base/log.h"
#include "coved/boxes/boxes_internal.h"
#include "kernel/watch/filewatch.h"
#include "kernel/watch/procwatch.h"

#include <sys/epoll.h>
#include <sys/stat.h>

enum {
    LISTEN_USEC = 20 * USEC_PER_MS,
    PROCESSES_USEC = 2000 * USEC_PER_MS, /* what cove-api stores at once costs a fourth of what it stores one by one */
    PROCESSES_AT_A_TIME = 2000,
    FILES_LOST_USEC = 10000 * USEC_PER_MS,
    FILES_AT_A_TIME = 4, /* readings, of some 100 events each */
    LAST_TIMES = 16,     /* so often that when a sandbox has ended */
    IDS = 65536
};

static const char top[] = "boxes/";

static void seen_init(struct sup_seen *s, enum sup_seen_kind kind, const char *id)
{
    memset(s, 0, offsetof(struct sup_seen, text));
    s->head.type = SUP_SEEN;
    s->kind = kind;
    memcpy(s->id, id, strnlen(id, ID_SANDBOX_LEN));
}

/* Returns how much of it there was room for. */
static uint32_t seen_put(struct sup_seen *s, struct str text)
{
    size_t at = s->argv + s->program + s->path, n = MIN(text.n, sizeof(s->text) - at);
    memcpy(s->text + at, text.p, n);
    return (uint32_t)n;
}

static void seen_send(struct boxes *b)
{
    if (b->n_seen)
        b->events.seen(b->events.ctx, &b->seen.first, b->n_seen);
    b->n_seen = 0;
    memset(b->seen_execs, 0, sizeof(b->seen_execs));
}

/* With others, in one message: seen_send(). */
static void seen_tell(struct boxes *b, struct sup_seen *s)
{
    size_t n = sup_seen_size(s), text = s->argv + s->program + s->path;
    s->head.tag = (uint32_t)n;
    memset(s->text + text, 0, n - offsetof(struct sup_seen, text) - text);
    if (b->n_seen + n > sizeof(b->seen))
        seen_send(b);
    if (s->kind == SUP_SEEN_EXEC)
        b->seen_execs[s->host_pid % SEEN_EXECS] = (uint16_t)(b->n_seen / SUP_SEEN_ALIGN + 1);
    memcpy(b->seen.bytes + b->n_seen, s, n);
    b->n_seen += n;
}

/* Most programs end before they are told of: one record has both. False: that one is not in this message. */
static bool seen_tell_end(struct boxes *b, const struct procwatch_event *event)
{
    size_t at = b->seen_execs[(uint32_t)event->host_pid % SEEN_EXECS];
    struct sup_seen *last = at ? (struct sup_seen *)(b->seen.bytes + (at - 1) * SUP_SEEN_ALIGN) : NULL;
    if (!last || last->host_pid != (uint32_t)event->host_pid || last->has_ended || strcmp(last->id, event->tag) != 0)
        return false;
    last->has_ended = 1;
    last->status = event->status;
    last->lost += event->lost;
    return true;
}

static void on_process(void *ctx, const struct procwatch_event *event)
{
    struct boxes *b = ctx;
    struct sup_seen s;
    struct box_entry *e = map_get(&b->by_id, str_of(event->tag));
    if (!e || (event->is_exit && seen_tell_end(b, event)))
        return;
    uid_t first = b->host->first_uid + e->box.slot * (uid_t)IDS;
    seen_init(&s, event->is_exit ? SUP_SEEN_EXIT : SUP_SEEN_EXEC, event->tag);
    s.lost = event->lost;
    s.at = b->seen_epoch + event->at;
    s.host_pid = (uint32_t)event->host_pid;
    s.pid = (uint32_t)event->pid;
    s.parent = (uint32_t)event->parent;
    s.uid = event->uid - first < IDS ? event->uid - first : UINT32_MAX;
    s.status = event->status;
    s.argv_bytes = event->argv_bytes;
    s.argv = seen_put(&s, event->argv);
    s.program = seen_put(&s, event->program);
    s.path = seen_put(&s, str_of(event->directory));
    seen_tell(b, &s);
}

/* "boxes/ab/cove-1234/u/etc/hosts" -> the box and "/etc/hosts". NULL: none of somebody's, or not in its files. */
static struct box_entry *find_file(struct boxes *b, const char *path, struct str *ret_inside)
{
    struct str rest = str_of(path), part = STR_NULL;
    for (int i = 0; i < 3; i++)
        if (!str_split(&rest, '/', &part))
            return NULL;
    *ret_inside = str_sub(rest, 1);
    return str_starts(rest, STR("u/")) ? map_get(&b->by_name, part) : NULL;
}

static void seen_tell_lost(struct boxes *b, const char *id, uint32_t lost)
{
    struct sup_seen s;
    seen_init(&s, SUP_SEEN_LOST, id);
    s.lost = lost;
    seen_tell(b, &s);
}

void boxes_seen_files_lost(struct boxes *b)
{
    b->files_lost = b->files_lost_at && clock_mono() < b->files_lost_at + FILES_LOST_USEC;
    if (b->files_lost)
        return;
    b->files_lost_at = clock_mono();
    seen_tell_lost(b, "", 0);
    seen_send(b);
}

static void seen_tell_more(struct boxes *b)
{
    struct sup_seen s;
    if (!b->more_of)
        return;
    seen_init(&s, SUP_SEEN_MORE, b->more_of->id);
    s.lost = b->n_more;
    b->more_of = NULL;
    seen_tell(b, &s);
}

static bool seen_has_room(struct box_entry *e)
{
    const usec_t now = clock_mono();
    if (now - e->files_since >= SUP_SEEN_SECONDS * USEC_PER_SEC) {
        e->files_since = now;
        e->files_told = 0;
    }
    return e->files_told++ < SUP_SEEN_PER_SEC * SUP_SEEN_SECONDS;
}

static void seen_count(struct boxes *b, struct box_entry *e)
{
    if (b->more_of != e) {
        seen_tell_more(b);
        b->more_of = e;
        b->n_more = 0;
    }
    b->n_more++;
}

static void on_file(void *ctx, const struct filewatch_event *event)
{
    struct boxes *b = ctx;
    struct sup_seen s;
    struct str path, from;
    struct box_entry *e = event->path ? find_file(b, event->path, &path) : NULL;
    /* From elsewhere: the overlay file system copied it up, or put it in place. */
    bool is_moved = e && event->from && find_file(b, event->from, &from) == e;
    if (!event->path) {
        boxes_seen_files_lost(b);
    } else if (!e || (event->from && !is_moved)) {
        return;
    } else if (!seen_has_room(e)) {
        seen_count(b, e);
    } else {
        seen_init(&s, is_moved ? SUP_SEEN_MOVE : SUP_SEEN_WRITE, e->id);
        if (!filewatch_look(event, &s.bytes))
            return;
        s.host_pid = (uint32_t)event->host_pid;
        s.path = seen_put(&s, path);
        if (is_moved)
            s.program = seen_put(&s, from);
        seen_tell(b, &s);
    }
}

/* For how many there was something to tell; -EAGAIN: nobody has room for it. */
static int seen_read(struct boxes *b, struct sight *sight)
{
    int n = 0;
    if (!b->events.sees(b->events.ctx))
        return -EAGAIN;
    b->seen_epoch = clock_real() - clock_mono();
    if (sight == &b->processes)
        n = procwatch_read(b->procwatch, PROCESSES_AT_A_TIME, on_process, b);
    for (int i = 0;
         sight == &b->files && i < FILES_AT_A_TIME && (n = filewatch_read(b->filewatch, top, on_file, b)) > 0; i++)
        ;
    seen_tell_more(b);
    seen_send(b);
    if (n < 0) {
        log_error("what sandboxes do is no longer observed: %s", strerror(-n));
        loop_remove(b->loop, &sight->source);
        sight->again_at = 0;
    }
    return n;
}

static void boxes_seen_programs(struct boxes *b)
{
    int n = seen_read(b, &b->processes);
    if (n == 0) {
        procwatch_wake(b->procwatch, PROCWATCH_AT_ONCE);
        n = seen_read(b, &b->processes);
    }
    if (b->processes.source.fd < 0)
        return;
    bool is_late = n == -EAGAIN || n == PROCESSES_AT_A_TIME;
    if (n != 0)
        procwatch_wake(b->procwatch, is_late ? PROCWATCH_NEVER : PROCWATCH_WHEN_FULL);
    b->processes.again_at = n ? clock_mono() + (is_late ? LISTEN_USEC : PROCESSES_USEC) : 0;
}

static void on_processes(struct source *s, uint32_t events UNUSED)
{
    boxes_seen_programs(container_of(s, struct boxes, processes.source));
}

static void boxes_seen_on_files(struct source *s, uint32_t events UNUSED)
{
    struct boxes *b = container_of(s, struct boxes, files.source);
    (void)seen_read(b, &b->files);
    if (s->fd >= 0 && loop_change(b->loop, s, 0) == 0)
        b->files.again_at = clock_mono() + LISTEN_USEC;
}

usec_t boxes_seen_tick(struct boxes *b)
{
    usec_t now = clock_mono(), next = UINT64_MAX;
    if (b->processes.again_at && now >= b->processes.again_at)
        boxes_seen_programs(b);
    if (b->files.again_at && now >= b->files.again_at && loop_change(b->loop, &b->files.source, EPOLLIN) == 0)
        b->files.again_at = 0;
    if (b->files_lost && now >= b->files_lost_at + FILES_LOST_USEC && b->events.sees(b->events.ctx))
        boxes_seen_files_lost(b);
    next = b->processes.again_at ? b->processes.again_at : next;
    next = b->files_lost ? MIN(next, MAX(b->files_lost_at + FILES_LOST_USEC, now + LISTEN_USEC)) : next;
    return b->files.again_at ? MIN(next, b->files.again_at) : next;
}

void boxes_seen_begin(struct box_entry *e)
{
    struct boxes *b = e->owner;
    char path[32];
    struct stat st;
    if (b->filewatch)
        (void)map_put(&b->by_name, str_of(e->box.name), e);
    if (!b->procwatch || e->tier->network == NETNS_GATE)
        return;
    (void)snprintf(path, sizeof(path), "%d/ns/pid", e->box.pid);
    int r = fstatat(b->host->proc_fd, path, &st, 0) < 0 ? -errno : procwatch_add(b->procwatch, st.st_ino, e->id);
    if (r == 0)
        e->process_ns = st.st_ino;
    else
        log_error("watch the processes of sandbox %s: %s", e->id, strerror(-r));
}

void boxes_seen_again(struct box_entry *e)
{
    struct boxes *b = e->owner;
    boxes_seen_begin(e);
    if (e->process_ns || b->filewatch)
        seen_tell_lost(b, e->id, 0);
    seen_send(b);
}

void boxes_seen_end(struct box_entry *e)
{
    struct boxes *b = e->owner;
    for (int i = 0; b->processes.source.fd >= 0 && e->process_ns && i < LAST_TIMES && seen_read(b, &b->processes) > 0;
         i++)
        ;
    for (int i = 0; b->files.source.fd >= 0 && i < LAST_TIMES && seen_read(b, &b->files) > 0; i++)
        ;
    uint32_t lost = e->process_ns ? procwatch_drop(b->procwatch, e->process_ns) : 0;
    if (lost)
        seen_tell_lost(b, e->id, lost);
    if (b->files_lost)
        seen_tell_lost(b, e->id, 0);
    seen_send(b);
    if (b->filewatch)
        (void)map_del(&b->by_name, str_of(e->box.name));
    e->process_ns = 0;
}

int boxes_watch(struct boxes *b, struct procwatch *processes, struct filewatch *files)
{
    int r = 0;
    b->procwatch = processes;
    b->filewatch = files;
    if (processes)
        r = loop_add(b->loop, &b->processes.source, procwatch_fd(processes), EPOLLIN | EPOLLET, on_processes);
    if (files && r == 0)
        r = loop_add(b->loop, &b->files.source, filewatch_fd(files), EPOLLIN, boxes_seen_on_files);
    return r;
}

void boxes_seen_close(struct boxes *b)
{
    loop_remove(b->loop, &b->processes.source);
    loop_remove(b->loop, &b->files.source);
    procwatch_close(b->procwatch);
    filewatch_close(b->filewatch);
    map_fini(&b->by_name);
}
