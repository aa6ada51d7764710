/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the next coved must know of this one's boxes, should it die: whose files they have, where no name in the pool says so yet.
 *
 *  1. A note is a link in asleep/ of the pool, named after the sandbox, that says "BOOT BOX LAYER": made and read in one call each, and never followed.
 *  2. There is one from the moment at which what a box has is all that there is of a sandbox that stands still (frozen; ended so that its files are kept; waking on
 *     kept files) until that is over, or a copy is kept under its name. So it is always newer than what is kept.
 *  3. It is written before whoever asked for the pause is answered.
 *  4. It is not synced, and neither are the files: after another boot it says nothing.
 */
#include "base/buf.h"
#include "base/fd.h"
#include "base/log.h"
#include "coved/boxes_internal.h"
#include "kernel/pool.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NOTE_MAX = NOTE_BOOT_MAX + TIER_NAME_MAX + SUP_DIGEST_MAX };

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

int boxes_notes_open(struct pool *pool, struct notes *ret_notes)
{
    struct notes n = {.fd = -1};
    int r = read_boot(n.boot);
    if (r == 0 && mkdirat(pool_fd(pool), "asleep", 0700) < 0 && errno != EEXIST)
        r = -errno;
    if (r == 0 && (n.fd = openat(pool_fd(pool), "asleep", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) < 0)
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
        log_warn("note that sandbox %s stands still (the death of coved would lose it): %s", id, strerror(-r));
}

void boxes_unnote(struct boxes *b, const char *id)
{
    if (unlinkat(b->notes.fd, id, 0) < 0 && errno != ENOENT)
        log_warn("forget that sandbox %s stood still: %s", id, strerror(errno));
}

/* ---- those of a coved that died ---- */

static int keep(struct pool *pool, const char *id, const char *box, const char *stands_on)
{
    struct pool_chain below = {.n = 0};
    int r = stands_on[0] ? pool_chain_read(pool, stands_on, &below) : 0;
    r = r ? r : pool_keep(pool, box, id, &below);
    if (r == -ENOSPC || r == -EDQUOT) { /* what it deleted last is still there */
        int ignored UNUSED = pool_sweep(pool);
        r = pool_keep(pool, box, id, &below);
    }
    /* It had done that already, or the files had not become the box's yet. */
    return r == -ENOENT && pool_kept_chain(pool, id, &below) == 0 ? 0 : r;
}

/* Whether there is something of it again, or still. */
static bool rescue(struct pool *pool, const struct notes *notes, const char *id)
{
    char text[NOTE_MAX], box[TIER_NAME_MAX], layer[SUP_DIGEST_MAX];
    struct str rest, boot, name;
    ssize_t n = readlinkat(notes->fd, id, text, sizeof(text));
    if (n < 0 || !id_is_sandbox(str_of(id)))
        return false;
    rest = str_n(text, (size_t)n);
    if (!str_split(&rest, ' ', &boot) || !str_split(&rest, ' ', &name) || name.n >= sizeof(box) ||
        rest.n >= sizeof(layer) || !str_eqc(boot, notes->boot))
        return false;
    (void)snprintf(box, sizeof(box), "%.*s", (int)name.n, name.p);
    (void)snprintf(layer, sizeof(layer), "%.*s", (int)rest.n, rest.p);
    int r = keep(pool, id, box, layer);
    if (r < 0)
        log_error("keep the files of sandbox %s, which stood still when an earlier coved died: %s", id, strerror(-r));
    return r == 0;
}

void boxes_rescue(struct pool *pool)
{
    struct notes notes;
    int r = boxes_notes_open(pool, &notes);
    DIR *dir = r < 0 ? NULL : fdopendir(notes.fd);
    size_t n = 0;
    if (!dir) {
        log_error("look which sandboxes stood still: %s", strerror(r < 0 ? -r : errno));
        (void)fd_close(notes.fd);
        return;
    }
    for (struct dirent *e; (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        n += rescue(pool, &notes, e->d_name);
        if (unlinkat(notes.fd, e->d_name, 0) < 0)
            log_warn("forget that sandbox %s stood still: %s", e->d_name, strerror(errno));
    }
    if (n)
        log_info("%zu sandboxes stood still when an earlier coved died: their files are kept", n);
    (void)closedir(dir);
}
