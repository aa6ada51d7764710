/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/tree/overlay.h"
#include "base/fd.h"
#include "kernel/caps.h"
#include "kernel/mount.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_BYTES = 16 };

struct overlay_layers {
    struct overlay_parts parts; /* the lower ones, then the box */
    char names[OVERLAY_LAYERS_MAX + 1][PATH_BYTES];
    const char *step; /* under way */
};

void overlay_parts_close(struct overlay_parts *p)
{
    for (size_t i = 0; i < p->n; i++)
        (void)fd_close(p->fds[i]);
    p->n = 0;
}

static int add_layer(struct overlay_layers *l, const struct overlay *o, int dir_fd, uint64_t attrs)
{
    AUTO_CLOSE int fd = -1;
    l->step = "clone a layer's mount";
    int r = mount_clone(dir_fd, "", &fd);
    if (r < 0)
        return r;
    l->step = "map a layer's owners";
    r = mount_set(fd, attrs, o->userns_fd);
    if (r < 0)
        return r;
    char *name = l->names[l->parts.n];
    if (o->mode == OVERLAY_ATTACHED) {
        l->step = "attach a layer";
        (void)snprintf(name, PATH_BYTES, "%u", (unsigned)l->parts.n);
        if (mkdir(name, 0700) < 0 && errno != EEXIST)
            return -errno;
        r = mount_attach(fd, AT_FDCWD, name);
        if (r < 0)
            return r;
    } else {
        (void)snprintf(name, PATH_BYTES, "%d", fd);
    }
    l->parts.fds[l->parts.n++] = TAKE_FD(fd);
    return 0;
}

static int overlay_set(int fs, const char *key, const char *value)
{
    return fsconfig(fs, FSCONFIG_SET_STRING, key, value, 0) < 0 ? -errno : 0;
}

static int configure(int fs, const struct overlay_layers *l, bool is_alone)
{
    char path[PATH_BYTES + 8], lower[(PATH_BYTES + 1) * OVERLAY_LAYERS_MAX];
    size_t n = 0;
    for (size_t i = 0; i + 1 < l->parts.n; i++)
        n += (size_t)snprintf(lower + n, sizeof(lower) - n, "%s%s", i ? ":" : "", l->names[i]);
    int r = overlay_set(fs, "lowerdir", lower);
    (void)snprintf(path, sizeof(path), "%s/u", l->names[l->parts.n - 1]);
    r = r ? r : overlay_set(fs, "upperdir", path);
    (void)snprintf(path, sizeof(path), "%s/w", l->names[l->parts.n - 1]);
    r = r ? r : overlay_set(fs, "workdir", path);
    r = r ? r : overlay_set(fs, "redirect_dir", "on");
    if (r == 0 && is_alone)
        r = overlay_set(fs, "index", "on"); /* else it only warns of the other one */
    r = r ? r : overlay_set(fs, "source", "cove");
    /* Without it, the end of every sandbox would wait for a sync of the whole pool. */
    if (r == 0 && fsconfig(fs, FSCONFIG_SET_FLAG, "volatile", NULL, 0) < 0)
        r = -errno;
    return r;
}

static int overlay_make(struct overlay_layers *l, const struct overlay *o, int *ret_fd)
{
    l->step = "open overlayfs";
    AUTO_CLOSE int fs = fsopen("overlay", FSOPEN_CLOEXEC);
    if (fs < 0)
        return -errno;
    l->step = "name the layers";
    int r = configure(fs, l, o->is_alone);
    if (r < 0)
        return r;
    l->step = "make the overlay";
    (void)setfsgid(o->base);
    (void)setfsuid(o->base);
    r = caps_raise_effective(); /* changing fsuid from 0 dropped the file capabilities */
    if (r == 0 && fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        r = -errno;
    (void)setfsuid(0);
    (void)setfsgid(0);
    int again = caps_raise_effective();
    if (r < 0 || again < 0)
        return r < 0 ? r : again;
    l->step = "mount the overlay";
    int fd = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

/*
 * Where a write to the upper directory's file system has failed, overlayfs makes no volatile overlay until somebody was
 * told so, by a sync of all of it.
 */
static void overlay_hear_of_failure(const struct overlay *o)
{
    AUTO_CLOSE int fd = openat(o->box_fd, "u", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int told UNUSED = fd < 0 ? 0 : syncfs(fd);
}

/* In the directory where layers have names of a few bytes: the kernel takes 255 for the list of all. */
static int mount_here(const struct overlay *o, int *ret_fd, struct overlay_parts *ret_parts, const char **ret_step)
{
    struct overlay_layers l = {.parts.n = 0, .step = "count the layers"};
    int r = o->n_lower == 0 || o->n_lower > OVERLAY_LAYERS_MAX ? -EINVAL : 0;
    for (size_t i = 0; r == 0 && i < o->n_lower; i++)
        r = add_layer(&l, o, o->lower_fds[i], MOUNT_ATTR_RDONLY);
    if (r == 0)
        r = add_layer(&l, o, o->box_fd, 0);
    AUTO_CLOSE int fd = -1;
    bool is_tried = r == 0;
    if (is_tried)
        r = overlay_make(&l, o, &fd);
    if (is_tried && r == -EIO) {
        overlay_hear_of_failure(o);
        r = overlay_make(&l, o, &fd);
    }
    if (r < 0 && ret_step)
        *ret_step = l.step;
    /* The overlay holds copies of its layers' mounts, of its own. */
    if (o->mode == OVERLAY_ATTACHED)
        for (size_t i = 0; i < l.parts.n; i++)
            if (umount2(l.names[i], MNT_DETACH | UMOUNT_NOFOLLOW) < 0 && r == 0)
                r = -errno; /* each later call would cover it and leave another one */
    if (r == 0 && ret_parts && o->mode == OVERLAY_DETACHED) {
        *ret_parts = l.parts;
        l.parts.n = 0;
    }
    overlay_parts_close(&l.parts);
    if (r == 0)
        *ret_fd = TAKE_FD(fd);
    return r;
}

int overlay_mount(const struct overlay *o, int *ret_fd, struct overlay_parts *ret_parts, const char **ret_step)
{
    AUTO_CLOSE int back = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    AUTO_CLOSE int fd = -1;
    if (back < 0 || chdir(o->mode == OVERLAY_ATTACHED ? o->scratch : "/proc/self/fd") < 0)
        return -errno;
    int r = mount_here(o, &fd, ret_parts, ret_step);
    if (fchdir(back) < 0 && r == 0)
        r = -errno;
    if (r == 0)
        *ret_fd = TAKE_FD(fd);
    return r;
}
