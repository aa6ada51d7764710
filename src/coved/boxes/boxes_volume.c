/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Volumes in sandboxes.
 *
 *  1. A volume's files are mounted as they are on disk, seen through the sandbox's id map, nosuid and nodev.
 *  2. The path is the sandbox's, and hostile: it is walked by a child that has entered the sandbox's mount namespace, from the root there, over no link at all.
 *     The child opens directories and nothing else, so nothing in there can make it wait; it has a few seconds all the same.
 *  3. Below /proc, /sys and /dev nothing is mounted: what masks them must stay on top.
 *  4. A volume that is mounted, or is being mounted, is not dropped. A mount lasts as long as its sandbox runs.
 */
#include "base/fault.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "coved/boxes/boxes_internal.h"
#include "coved/workers/job.h"
#include "kernel/mount.h"
#include "kernel/namespace.h"
#include "kernel/pool/pool.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOUNT_MS = 10000 };

struct mounted {
    struct list node; /* of its entry */
    char volume[SUP_VOLUME_MAX];
};

/* A detached mount of the volume for this sandbox. The pool itself is mounted noexec. */
static int clone_volume(const struct task *t, int *ret_fd)
{
    const struct tier_host *host = t->owner->host;
    AUTO_CLOSE int dir = -1, users = -1, fd = -1;
    int r = pool_volume_open(host->pool, t->mount->volume, &dir);
    r = r ? r : namespace_open_user(host->proc_fd, t->mount->pid, &users);
    r = r ? r : mount_clone(dir, "", &fd);
    if (r < 0)
        return r;
    struct mount_attr attr = {
        .attr_set =
            MOUNT_ATTR_IDMAP | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (t->mount->read_only ? MOUNT_ATTR_RDONLY : 0U),
        .attr_clr = MOUNT_ATTR_NOEXEC,
        .userns_fd = (uint64_t)users,
    };
    if (mount_setattr(fd, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0)
        return -errno;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int run(void *ctx)
{
    const struct task *t = ctx;
    const struct open_how how = {
        .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    AUTO_CLOSE int volume = -1, root = -1, at = -1;
    int r = clone_volume(t, &volume);
    if (r < 0)
        return r;
    /* By the descriptor (Linux 5.8): should the process have been reaped, its number may be another's by now, and what was opened by it before. */
    if (setns(t->mount->pidfd, CLONE_NEWNS) < 0)
        return -errno;
    root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    at = root < 0 ? -1 : (int)syscall(SYS_openat2, root, t->mount->path, &how, sizeof(how));
    fault_point("coved.mount.open");
    if (at < 0 || move_mount(volume, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
        return -errno;
    return 0;
}

static int mount_error(const struct task *t, int r, struct err *err)
{
    switch (r) {
    case -ELOOP:
        return err_set(err, ERR_FAILED_PRECONDITION, "%s leads over a symbolic link: mount at the place it leads to",
                       t->mount->path);
    case -ENOENT:
        return err_set(err, ERR_NOT_FOUND, "volume %s, or the directory %s inside, is not there", t->mount->volume,
                       t->mount->path);
    case -ENOTDIR:
        return err_set(err, ERR_FAILED_PRECONDITION, "%s is not a directory", t->mount->path);
    default:
        return err_errno(err, r, "mount volume %s", t->mount->volume);
    }
}

static void done(void *ctx, int r)
{
    struct task *t = ctx;
    struct err err;
    t->job = NULL;
    if (r < 0 && t->entry) {
        list_remove(&t->mount->mounted->node);
        t->entry->n_mounted--;
        mem_free(t->mount->mounted);
        boxes_record(t->entry);
    }
    if (t->aborted)
        r = err_set(&err, ERR_ABORTED, "sandbox %s ended meanwhile", t->id);
    else if (r < 0)
        r = mount_error(t, r, &err);
    boxes_task_end(t, r < 0 ? &err : NULL);
}

struct mounted *boxes_mounted_add(struct entry *e, const char *volume)
{
    struct mounted *m = mem_new(struct mounted);
    (void)snprintf(m->volume, sizeof(m->volume), "%s", volume);
    list_init(&m->node);
    list_append(&e->mounted, &m->node);
    e->n_mounted++;
    return m;
}

size_t boxes_mounted_names(struct entry *e, char (*ret_names)[SUP_VOLUME_MAX])
{
    size_t n = 0;
    LIST_FOREACH (struct mounted, m, &e->mounted, node) {
        assert(n < MOUNTS_MAX);
        memcpy(ret_names[n++], m->volume, SUP_VOLUME_MAX);
    }
    return n;
}

void boxes_mount_begin(struct task *t)
{
    struct entry *e = t->entry;
    const struct job_spec spec = {.name = "mount a volume",
                                  .run = run,
                                  .done = done,
                                  .ctx = t,
                                  .limit_ms = MOUNT_MS,
                                  .is_brief = true,
                                  .fds = &t->mount->pidfd,
                                  .n_fds = 1};
    struct err err;
    int r = 0;
    if (e->state == BOX_FROZEN)
        r = err_set(&err, ERR_FAILED_PRECONDITION, "sandbox %s is paused", e->id);
    else if (e->n_mounted >= MOUNTS_MAX)
        r = err_set(&err, ERR_RESOURCE_EXHAUSTED, "sandbox %s has %d volumes already", e->id, MOUNTS_MAX);
    if (r < 0) {
        boxes_task_end(t, &err);
        return;
    }
    t->mount->mounted = boxes_mounted_add(e, t->mount->volume);
    boxes_record(e);
    t->mount->pid = e->box.pid;
    t->mount->pidfd = e->box.pidfd;
    t->job = job_add(t->owner->jobs, &spec);
}

void boxes_unmounted(struct entry *e)
{
    LIST_FOREACH (struct mounted, m, &e->mounted, node) {
        list_remove(&m->node);
        mem_free(m);
    }
    e->n_mounted = 0;
}

static bool is_below(const char *path, const char *top)
{
    size_t n = strlen(top);
    return strncmp(path, top, n) == 0 && (path[n] == 0 || path[n] == '/');
}

static int check_path(const char *path, struct err *err)
{
    static const char *const reserved[] = {"/proc", "/sys", "/dev"};
    char clean[PATH_TEXT_MAX];
    if (path[0] != '/' || path_clean(str_of(path), clean) < 0 || strcmp(path, clean) != 0 || strcmp(path, "/") == 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "a volume is mounted at an absolute, clean path below the root");
    for (size_t i = 0; i < ARRAY_SIZE(reserved); i++)
        if (is_below(path, reserved[i]))
            return err_set(err, ERR_INVALID_ARGUMENT, "nothing is mounted below %s", reserved[i]);
    return 0;
}

void boxes_mount(struct boxes *b, uint64_t asked, const struct sup_volume_mount *m)
{
    struct err err;
    if (check_path(m->path, &err) < 0) {
        b->events.done(b->events.ctx, asked, &err);
        return;
    }
    struct task task = {.kind = TASK_MOUNT, .asked = asked, .mount = mem_new(struct mount_order)};
    (void)snprintf(task.mount->volume, sizeof(task.mount->volume), "%s", m->volume);
    (void)snprintf(task.mount->path, sizeof(task.mount->path), "%s", m->path);
    task.mount->read_only = m->read_only;
    boxes_task_add(b, m->id, &task);
}

bool boxes_mounted(struct boxes *b, const char *volume, char ret_id[static ID_SANDBOX_LEN + 1])
{
    static const enum box_state states[] = {BOX_RUNNING, BOX_FROZEN};
    for (size_t i = 0; i < ARRAY_SIZE(states); i++)
        LIST_FOREACH (struct entry, e, &b->lists[states[i]], node) {
            LIST_FOREACH (struct mounted, m, &e->mounted, node) {
                if (strcmp(m->volume, volume) == 0) {
                    memcpy(ret_id, e->id, sizeof(e->id));
                    return true;
                }
            }
        }
    return false;
}
