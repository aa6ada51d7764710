/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the next service must know of this one's boxes, should all its processes die: whose files they have, where no
 * name in the pool says so yet. (What a coved that alone was started again must know is in boxes_adopt.c.)
 *
 *  1. A note is a link in asleep/ of the pool, named after the sandbox, that says "BOOT BOX LAYER": made and read in
 *     one call each, and never followed.
 *  2. There is one from the moment at which what a box has is all that there is of a sandbox that stands still (frozen;
 *     ended so that its files are kept; waking on kept files) until that is over, or a copy is kept under its name. So
 *     it is always newer than what is kept.
 *  3. It is written before whoever asked for the pause is answered.
 *  4. It is not synced, and neither are the files: after another boot it says nothing.
 *  5. Where the pool is full, what those left behind who are lost anyway goes before anything is lost that could be
 *     kept.
 */
#include "base/buf.h"
#include "base/clock.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/log.h"
#include "coved/boxes/boxes_internal.h"
#include "tier/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    NOTE_MAX = NOTE_BOOT_MAX + TIER_NAME_MAX + SUP_DIGEST_MAX,
    ROOM_USEC =
        60000000, /* a full pool is waited for: subvolumes are emptied behind a commit, of which btrfs makes one in 30 s if not told otherwise */
    ROOM_AGAIN_USEC = 200000,
};

static int read_boot(char ret_boot[static NOTE_BOOT_MAX])
{
    AUTO_BUF struct buf text = BUF_INIT(NOTE_BOOT_MAX);
    struct str rest, line;
    int r = fd_read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", &text);
    if (r < 0)
        return r;
    rest = buf_str(&text);
    if (!str_split(&rest, '\n', &line) || line.n == 0 || line.n >= NOTE_BOOT_MAX)
        return -EBADMSG;
    memcpy(ret_boot, line.p, line.n);
    ret_boot[line.n] = 0;
    return 0;
}

int boxes_notes_open(const struct tier_host *host, struct notes *ret_notes)
{
    struct notes n = {.fd = -1};
    int r = read_boot(n.boot);
    if (r == 0 && mkdirat(pool_fd(host->pool), "asleep", 0700) < 0 && errno != EEXIST)
        r = -errno;
    if (r == 0 && (n.fd = openat(pool_fd(host->pool), "asleep", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
        r = -errno;
    *ret_notes = n;
    return r;
}

void boxes_note(struct boxes *b, const char *id, const char *box, const char *stands_on)
{
    char text[NOTE_MAX];
    (void)snprintf(text, sizeof(text), "%s %s %s", b->notes.boot, box, stands_on);
    int r = symlinkat(text, b->notes.fd, id) < 0 ? -errno : 0;
    if (r == -EEXIST)
        r = unlinkat(b->notes.fd, id, 0) < 0 || symlinkat(text, b->notes.fd, id) < 0 ? -errno : 0;
    if (r < 0)
        log_warn("record that sandbox %s is frozen (if coved died now, it would be lost): %s", id, strerror(-r));
}

void boxes_unnote(struct boxes *b, const char *id)
{
    if (unlinkat(b->notes.fd, id, 0) < 0 && errno != ENOENT)
        log_warn("remove the record that sandbox %s was frozen: %s", id, strerror(errno));
}

/* ---- those of a coved that died ---- */

struct noted {
    char box[TIER_NAME_MAX], stands_on[SUP_DIGEST_MAX];
};

/* 0: it says nothing, or nothing of this boot. 1: read. */
static int read_note(const struct notes *notes, const char *id, struct noted *ret_noted)
{
    char text[NOTE_MAX];
    struct str rest, boot, box;
    if (!id_is_sandbox(str_of(id)))
        return 0;
    ssize_t n = readlinkat(notes->fd, id, text, sizeof(text));
    if (n < 0)
        return errno == ENOENT || errno == EINVAL ? 0 : -errno;
    rest = str_n(text, (size_t)n);
    if (!str_split(&rest, ' ', &boot) || !str_split(&rest, ' ', &box) || box.n >= sizeof(ret_noted->box) ||
        rest.n >= sizeof(ret_noted->stands_on) || !str_eqc(boot, notes->boot))
        return 0;
    (void)snprintf(ret_noted->box, sizeof(ret_noted->box), "%.*s", STR_ARG(box));
    (void)snprintf(ret_noted->stands_on, sizeof(ret_noted->stands_on), "%.*s", STR_ARG(rest));
    return 1;
}

static int boxes_note_keep(const struct tier_host *host, const char *id, const struct noted *noted)
{
    char stands_on[POOL_LAYER_MAX];
    int r = files_keep(host, noted->box, id, noted->stands_on);
    /* It had done that already, or the files had not become the box's yet. */
    return r == -ENOENT && files_kept_below(host, id, stands_on) == 0 ? 0 : r;
}

struct rescue {
    const struct tier_host *host;
    bool (*spares)(void *ctx, const char *name);
    void *ctx;
    struct notes notes;
    bool is_last;   /* those for which there is no room are given up */
    size_t n, full; /* full: how many there was no room for */
    int failed;     /* a note that could not be read: whose the box is that it tells of, nobody knows */
};

typedef void (*each_fn)(void *ctx, int at, const char *name);

/* at: borrowed. */
static int boxes_note_each(int at, each_fn fn, void *ctx)
{
    AUTO(dir_close) DIR *dir = dir_open(at, ".");
    if (!dir)
        return -errno;
    for (;;) {
        errno = 0; /* a disk that fails has not no entries */
        const struct dirent *e = dir_next(dir);
        if (!e)
            return -errno;
        fn(ctx, at, e->d_name);
    }
}

static void rescue_one(void *ctx, int at, const char *id)
{
    struct rescue *s = ctx;
    struct noted noted;
    int says = read_note(&s->notes, id, &noted);
    if (says < 0) {
        s->failed = says;
        return;
    }
    if (says && s->spares && s->spares(s->ctx, noted.box))
        return;
    if (says) {
        int r = boxes_note_keep(s->host, id, &noted);
        s->n += r == 0;
        if (!s->is_last && (r == -ENOSPC || r == -EDQUOT)) {
            s->full++;
            return;
        }
        if (r < 0)
            log_error("keep the files of sandbox %s, which was frozen when an earlier coved died: %s", id,
                      strerror(-r));
    }
    if (unlinkat(at, id, 0) < 0)
        log_warn("remove the record that sandbox %s was frozen: %s", id, strerror(errno));
}

struct emptying {
    const struct rescue *rescue;
    struct map noted; /* boxes that somebody will have */
    size_t n;
    int failed; /* as of the rescue */
};

static void note_box(void *ctx, int at UNUSED, const char *id)
{
    struct emptying *m = ctx;
    struct noted noted;
    int r = read_note(&m->rescue->notes, id, &noted);
    if (r < 0)
        m->failed = r;
    if (r > 0)
        (void)map_put(&m->noted, str_of(noted.box), m);
}

static void drop_box(void *ctx, int at UNUSED, const char *box)
{
    struct emptying *m = ctx;
    const struct rescue *s = m->rescue;
    if (!map_get(&m->noted, str_of(box)) && !(s->spares && s->spares(s->ctx, box)))
        m->n += pool_box_drop(s->host->pool, box) == 0;
}

static void drop_boxes(void *ctx, int at, const char *shard)
{
    AUTO_CLOSE int fd = openat(at, shard, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int later UNUSED = fd < 0 ? 0 : boxes_note_each(fd, drop_box, ctx); /* what it can't see stays */
}

/* What nobody will have goes first: among it may be what has filled the pool. */
static int boxes_note_make_room(struct rescue *s)
{
    struct emptying m = {s, MAP_INIT, 0, 0};
    AUTO_CLOSE int boxes = openat(pool_fd(s->host->pool), "boxes", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int r = boxes_note_each(s->notes.fd, note_box, &m);
    r = r ? r : m.failed;
    int later UNUSED = r < 0 || boxes < 0 ? 0 : boxes_note_each(boxes, drop_boxes, &m);
    map_fini(&m.noted);
    if (r < 0)
        return r;
    int failed = pool_sweep(s->host->pool);
    log_warn("the storage pool is full: %zu sandboxes that were frozen when an earlier coved died wait for room; the "
             "files of %zu others are removed%s",
             s->full, m.n, failed < 0 ? ", but not all" : "");
    return 0;
}

static int boxes_note_rescue(struct rescue *s)
{
    int r = boxes_note_each(s->notes.fd, rescue_one, s);
    return r ? r : s->failed;
}

int boxes_rescue(const struct tier_host *host, bool (*spares)(void *ctx, const char *name), void *ctx, struct err *err)
{
    struct rescue s = {.host = host, .spares = spares, .ctx = ctx};
    int r = boxes_notes_open(host, &s.notes);
    if (r == -ENOSPC || r == -EDQUOT)
        return 0; /* there are none: to open what is there takes no room */
    r = r ? r : boxes_note_rescue(&s);
    if (r == 0 && s.full)
        r = boxes_note_make_room(&s);
    /* What is removed can be written again after the next commit. */
    for (usec_t until = clock_mono() + ROOM_USEC; r == 0 && s.full;) {
        s.full = 0;
        s.is_last = clock_mono() >= until;
        r = boxes_note_rescue(&s);
        if (s.full)
            (void)usleep(ROOM_AGAIN_USEC);
    }
    if (s.n)
        log_info("%zu sandboxes were frozen when an earlier coved died: their files are kept", s.n);
    (void)fd_close(s.notes.fd);
    return r < 0
               ? err_errno(err, r, "read in the storage pool which sandboxes were frozen (their files are left alone)")
               : 0;
}
