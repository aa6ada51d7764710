/* SPDX-License-Identifier: Apache-2.0 */
/* What --bind and its like ask for, as a root file system. All that is the machine's is borrowed first; then the
 * machine's root goes, and paths are those inside. */
#include "base/fd.h"
#include "base/mem.h"
#include "here/bwrap.h"
#include "here/devices.h"
#include "kernel/mount.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static bool bwrap_is_bind(const struct bwrap_op *op)
{
    return op->kind == BWRAP_BIND || op->kind == BWRAP_RO_BIND || op->kind == BWRAP_DEV_BIND;
}

static int bwrap_borrow(struct bwrap_op *op)
{
    struct mount_attr attr = {.attr_set = MOUNT_ATTR_NOSUID | (op->kind == BWRAP_DEV_BIND ? 0 : MOUNT_ATTR_NODEV) |
                                          (op->kind == BWRAP_RO_BIND ? MOUNT_ATTR_RDONLY : 0)};
    struct stat st;
    if (op->kind == BWRAP_PROC)
        return mount_new("proc", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, &op->fd);
    if (op->kind == BWRAP_DEV)
        return devices_open(op->nodes);
    if (!bwrap_is_bind(op))
        return 0;
    op->fd = open_tree(AT_FDCWD, op->from, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE);
    if (op->fd < 0)
        return errno == ENOENT && op->may_be_absent ? 0 : -errno;
    if (mount_setattr(op->fd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr)) < 0 || fstat(op->fd, &st) < 0)
        return -errno;
    op->is_directory = S_ISDIR(st.st_mode);
    return 0;
}

/* Attached there, it becomes the root, and nothing else is left. */
static int bwrap_become_root(int fd)
{
    int r = mount_attach(fd, AT_FDCWD, "/");
    return r ? r : mount_pivot(fd);
}

static int bwrap_make_directory(const char *path, mode_t mode)
{
    AUTO_FREE char *part = mem_strdup(path);
    for (char *c = part + 1;; c++) {
        const char end = *c;
        if (end != '/' && end != '\0')
            continue;
        *c = '\0';
        if (part[1] && mkdir(part, end ? 0755 : mode) < 0 && errno != EEXIST) {
            int why = errno;
            if (access(part, F_OK) < 0)
                return -why;
        }
        *c = end;
        if (!end)
            return 0;
    }
}

static int bwrap_make_parents(const char *path)
{
    AUTO_FREE char *parent = mem_strdup(path);
    *(strrchr(parent, '/') + (strrchr(parent, '/') == parent)) = '\0';
    return bwrap_make_directory(parent, 0755);
}

static int bwrap_make_file(const char *path, mode_t mode, int from)
{
    AUTO_BUF struct buf content = BUF_INIT(64 << 20);
    int r = bwrap_make_parents(path);
    AUTO_CLOSE int fd = r ? -1 : open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (from >= 0 ? O_TRUNC : 0), mode);
    if (r || fd < 0)
        return r ? r : -errno;
    r = from < 0 ? 0 : fd_read_all(from, &content);
    r = r < 0 || from < 0 ? r : fd_write_all(fd, buf_data(&content), buf_len(&content));
    return r < 0 ? r : from >= 0 && fchmod(fd, mode) < 0 ? -errno : 0;
}

/* A place that is there may be anything: it is covered. */
static int bwrap_place(const struct bwrap_op *op, bool is_directory)
{
    if (access(op->to, F_OK) == 0)
        return 0;
    return is_directory ? bwrap_make_directory(op->to, 0755) : bwrap_make_file(op->to, 0444, -1);
}

/* The last component may be a link, as mount(2) has it. */
static int bwrap_attach(const struct bwrap_op *op, int fd, bool is_directory)
{
    if (strcmp(op->to, "/") == 0)
        return bwrap_become_root(fd);
    int r = bwrap_place(op, is_directory);
    if (r < 0)
        return r;
    AUTO_CLOSE int to = open(op->to, O_PATH | O_CLOEXEC);
    if (to < 0)
        return -errno;
    return move_mount(fd, "", to, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0 ? -errno : 0;
}

static int bwrap_attach_new(const struct bwrap_op *op, const char *fs_type)
{
    AUTO_CLOSE int fd = -1;
    char mode[12];
    (void)snprintf(mode, sizeof(mode), "%o", op->perms < 0 ? 0755U : (unsigned)op->perms);
    const bool is_memory = strcmp(fs_type, "tmpfs") == 0;
    const char *const options[] = {"mode", mode, op->size ? "size" : NULL, op->size, NULL};
    int r = mount_new(fs_type, is_memory ? options : NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, &fd);
    return r ? r : bwrap_attach(op, fd, true);
}

#define BWRAP_SCRATCH "/.cove"

/* Files of a file system that is nowhere else; an unlinked one could not be mounted. */
static int bwrap_data(struct bwrap *b)
{
    AUTO_CLOSE int scratch = -1;
    int r = mount_new("tmpfs", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, &scratch);
    r = r ? r : mkdir(BWRAP_SCRATCH, 0700) < 0 ? -errno : mount_attach(scratch, AT_FDCWD, BWRAP_SCRATCH);
    for (size_t i = 0; r == 0 && i < b->n; i++) {
        struct bwrap_op *op = &b->ops[i];
        if (op->kind != BWRAP_BIND_DATA && op->kind != BWRAP_RO_BIND_DATA)
            continue;
        AUTO_FREE char *path = mem_printf(BWRAP_SCRATCH "/%zu", i);
        r = bwrap_make_file(path, op->perms < 0 ? 0600 : (mode_t)op->perms, op->fd);
        r = r ? r : mount_clone(AT_FDCWD, path, &op->fd);
        r = r ? r : mount_set(op->fd, op->kind == BWRAP_RO_BIND_DATA ? MOUNT_ATTR_RDONLY : 0, -1);
    }
    return r ? r : umount2(BWRAP_SCRATCH, MNT_DETACH) < 0 || rmdir(BWRAP_SCRATCH) < 0 ? -errno : 0;
}

static int bwrap_devices(struct bwrap_op *op)
{
    int r = bwrap_place(op, true);
    return r ? r : devices_mount(op->nodes, op->to);
}

static int bwrap_apply(struct bwrap_op *op)
{
    const struct mount_attr fixed = {.attr_set = MOUNT_ATTR_RDONLY};
    const mode_t perms = (mode_t)op->perms;
    int r;
    switch (op->kind) {
    case BWRAP_BIND:
    case BWRAP_RO_BIND:
    case BWRAP_DEV_BIND:
        return op->fd < 0 ? 0 : bwrap_attach(op, op->fd, op->is_directory);
    case BWRAP_PROC:
        return bwrap_attach(op, op->fd, true);
    case BWRAP_BIND_DATA:
    case BWRAP_RO_BIND_DATA:
        return bwrap_attach(op, op->fd, false);
    case BWRAP_DEV:
        return bwrap_devices(op);
    case BWRAP_TMPFS:
        return bwrap_attach_new(op, "tmpfs");
    case BWRAP_MQUEUE:
        return bwrap_attach_new(op, "mqueue");
    case BWRAP_REMOUNT_RO:
        return mount_setattr(AT_FDCWD, op->to, 0, (struct mount_attr *)(uintptr_t)&fixed, sizeof(fixed)) < 0 ? -errno
                                                                                                             : 0;
    case BWRAP_DIR:
        return bwrap_make_directory(op->to, op->perms < 0 ? 0755 : perms);
    case BWRAP_FILE:
        return bwrap_make_file(op->to, op->perms < 0 ? 0666 : perms, op->fd);
    case BWRAP_CHMOD:
        return chmod(op->to, perms) < 0 ? -errno : 0;
    case BWRAP_SYMLINK:
        r = bwrap_make_parents(op->to);
        return r ? r : symlink(op->from, op->to) < 0 ? -errno : 0;
    }
    return -EINVAL;
}

static void bwrap_enter(const struct bwrap *b, const char *cwd)
{
    const char *home = getenv("HOME");
    if (!b->cwd && chdir(cwd) < 0 && (!home || chdir(home) < 0))
        (void)!chdir("/");
}

int bwrap_build(struct bwrap *b, const char *cwd, const char **ret_what)
{
    int root = -1, r = 0;
    const mode_t mask = umask(0);
    for (size_t i = 0; r == 0 && i < b->n; i++) {
        *ret_what = b->ops[i].from ? b->ops[i].from : b->ops[i].to;
        r = bwrap_borrow(&b->ops[i]);
    }
    if (r == 0) {
        *ret_what = "a root file system";
        r = mount_new("tmpfs", (const char *const[]){"mode", "0755", NULL}, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
                      &root);
    }
    r = r ? r : bwrap_become_root(root);
    r = r ? r : bwrap_data(b);
    for (size_t i = 0; r == 0 && i < b->n; i++) {
        *ret_what = b->ops[i].to;
        r = bwrap_apply(&b->ops[i]);
    }
    (void)umask(mask);
    if (r == 0 && b->cwd) {
        *ret_what = b->cwd;
        r = chdir(b->cwd) < 0 ? -errno : 0;
    }
    bwrap_enter(b, cwd);
    return r;
}
