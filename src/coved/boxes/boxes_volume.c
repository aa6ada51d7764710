/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Volumes in sandboxes.
 *
 *  1. A volume's files are mounted as they are on disk, seen through the sandbox's id map, nosuid and nodev.
 *  2. The path is the sandbox's, and hostile. The tier walks it, in a child that has a few seconds.
 *  3. Below /proc, /sys and /dev nothing is mounted: what masks them must stay on top.
 *  4. A directory of the host is one that the operator allows (volumes.host), or lies below one: it is reached over no
 *     link from there, in the host's mount namespace. So is a part of a volume, whose content is hostile, too. For a
 *     user of the service's group it must be that user's own, and only what is theirs is seen there as somebody's:
 *     nothing can be made in it that belongs to another one of this machine.
 *  5. A volume that is mounted, or is being mounted, is not dropped. A mount lasts as long as its sandbox runs.
 */
#include "base/mem.h"
#include "base/path.h"
#include "coved/boxes/boxes_internal.h"
#include "coved/workers/job.h"
#include "tier/process.h"
#include "tier/stage.h"

enum { MOUNT_MS = 10000 };

struct mounted {
    struct list node; /* of its entry */
    char volume[SUP_VOLUME_MAX];
};

static int boxes_volume_run(void *ctx)
{
    const struct task *t = ctx;
    return t->tier->mount ? t->tier->mount(t->owner->host, &t->mount->how) : -ENOSYS;
}

static int mount_error(const struct task *t, int r, struct err *err)
{
    if (!t->tier->mount)
        return err_set(err, ERR_UNIMPLEMENTED, "tier %s can't mount volumes or directories of the host", t->tier->name);
    if (!*t->mount->volume)
        return r == -EACCES ? err_set(err, ERR_PERMISSION_DENIED,
                                      "%s is not below a directory that volumes.host in the configuration allows",
                                      t->mount->source)
               : r == -EPERM && t->mount->how.uid != UINT32_MAX
                   ? err_set(err, ERR_PERMISSION_DENIED, "%s doesn't belong to uid %u", t->mount->source,
                             (unsigned)t->mount->how.uid)
               : r == -ESRCH ? err_set(err, ERR_FAILED_PRECONDITION,
                                       "uid %u has no account with a group of its own here, which a mount of %s needs",
                                       (unsigned)t->mount->how.uid, t->mount->source)
               : r == -EOPNOTSUPP
                   ? err_set(err, ERR_FAILED_PRECONDITION,
                             "%s is on a file system that can't be shown with a sandbox's owners (idmapped mounts)",
                             t->mount->source)
               : r == -ENOENT || r == -ENOTDIR
                   ? err_set(err, ERR_FAILED_PRECONDITION, "%s on the host, or %s inside, is not a directory",
                             t->mount->source, t->mount->path)
                   : err_errno(err, r, "mount the host's %s", t->mount->source);
    switch (r) {
    case -ELOOP:
        return err_set(err, ERR_FAILED_PRECONDITION, "%s contains a symbolic link: mount at the place it leads to",
                       t->mount->path);
    case -ENOENT:
        return err_set(err, *t->mount->source ? ERR_FAILED_PRECONDITION : ERR_NOT_FOUND,
                       "volume %s, '%s' in it, or the directory %s inside, is not there", t->mount->volume,
                       t->mount->source, t->mount->path);
    case -ENOTDIR:
        return err_set(err, ERR_FAILED_PRECONDITION, "%s is not a directory", t->mount->path);
    default:
        return err_errno(err, r, "mount volume %s", t->mount->volume);
    }
}

static void boxes_volume_done(void *ctx, int r)
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

struct mounted *boxes_mounted_add(struct box_entry *e, const char *volume)
{
    struct mounted *m = mem_new(struct mounted);
    (void)snprintf(m->volume, sizeof(m->volume), "%s", volume);
    list_init(&m->node);
    list_append(&e->mounted, &m->node);
    e->n_mounted++;
    return m;
}

size_t boxes_mounted_names(struct box_entry *e, char (*ret_names)[SUP_VOLUME_MAX])
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
    struct box_entry *e = t->entry;
    const struct job_spec spec = {.name = "mount a volume",
                                  .run = boxes_volume_run,
                                  .done = boxes_volume_done,
                                  .ctx = t,
                                  .limit_ms = MOUNT_MS,
                                  .place = JOB_BRIEF,
                                  .fds = t->mount->how.fds,
                                  .n_fds = TIER_MOUNT_FDS};
    struct err err;
    const char *shown = e->tier == &tier_process ? process_overlap(t->mount->path) : NULL;
    int r = 0;
    if (shown)
        r = err_set(&err, ERR_FAILED_PRECONDITION, "tier process can't mount volumes at %s: the host's %s is shown",
                    t->mount->path, shown);
    else if (e->state == BOX_FROZEN)
        r = err_set(&err, ERR_FAILED_PRECONDITION, "sandbox %s is paused", e->id);
    else if (e->n_mounted >= MOUNTS_MAX)
        r = err_set(&err, ERR_RESOURCE_EXHAUSTED, "sandbox %s already has %d volumes", e->id, MOUNTS_MAX);
    if (r < 0) {
        boxes_task_end(t, &err);
        return;
    }
    t->mount->mounted = boxes_mounted_add(e, t->mount->volume);
    boxes_record(e);
    t->mount->how.pid = e->box.pid;
    t->mount->how.fds[TIER_MOUNT_PIDFD] = e->box.pidfd;
    t->mount->how.fds[TIER_MOUNT_HOST_NS] = t->owner->host->stage->host_mount_ns;
    t->mount->how.fds[TIER_MOUNT_HOST_ROOT] = t->owner->host->stage->host_root;
    t->job = job_add(t->owner->jobs, &spec);
}

void boxes_unmounted(struct box_entry *e)
{
    LIST_FOREACH (struct mounted, m, &e->mounted, node) {
        list_remove(&m->node);
        mem_free(m);
    }
    e->n_mounted = 0;
}

static int check_path(const char *path, struct err *err)
{
    static const char *const reserved[] = {"/proc", "/sys", "/dev"};
    char clean[PATH_TEXT_MAX];
    if (path[0] != '/' || path_clean(str_of(path), clean) < 0 || strcmp(path, clean) != 0 || strcmp(path, "/") == 0)
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "a volume's mount point must be an absolute, clean path other than "
                       "/");
    for (size_t i = 0; i < ARRAY_SIZE(reserved); i++)
        if (path_is_below(str_of(path), str_of(reserved[i])))
            return err_set(err, ERR_INVALID_ARGUMENT, "volumes can't be mounted below %s", reserved[i]);
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
    (void)snprintf(task.mount->source, sizeof(task.mount->source), "%s", m->source);
    task.mount->how = (struct tier_mount){
        task.mount->volume, task.mount->source, task.mount->path, m->read_only, m->uid, 0, {-1, -1, -1}};
    boxes_task_add(b, m->id, &task);
}

bool boxes_mounted(struct boxes *b, const char *volume, char ret_id[static ID_SANDBOX_LEN + 1])
{
    static const enum box_state states[] = {BOX_RUNNING, BOX_FROZEN};
    for (size_t i = 0; i < ARRAY_SIZE(states); i++)
        LIST_FOREACH (struct box_entry, e, &b->lists[states[i]], node) {
            LIST_FOREACH (struct mounted, m, &e->mounted, node) {
                if (strcmp(m->volume, volume) == 0) {
                    memcpy(ret_id, e->id, sizeof(e->id));
                    return true;
                }
            }
        }
    return false;
}
