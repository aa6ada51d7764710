/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/stage.h"
#include "base/buf.h"
#include "base/fd.h"
#include "kernel/mount.h"
#include "tier/inside.h"
#include "tier/process.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

struct node {
    const char *path;
    mode_t mode; /* with the type; S_IFDIR, S_IFCHR, S_IFREG or S_IFLNK */
    unsigned major, minor;
    const char *text; /* a link's target */
};

static const struct node stage_nodes[] = {
    {"proc", S_IFDIR | 0555, 0, 0, NULL},      {"pool", S_IFDIR | 0700, 0, 0, NULL},
    {"build", S_IFDIR | 0755, 0, 0, NULL},     {"build/proc", S_IFDIR | 0755, 0, 0, NULL},
    {"build/dev", S_IFDIR | 0755, 0, 0, NULL}, {"build/sys", S_IFDIR | 0755, 0, 0, NULL},
    {"build/tmp", S_IFDIR | 0755, 0, 0, NULL}, {"root", S_IFDIR | 0755, 0, 0, NULL},
    {"scratch", S_IFDIR | 0700, 0, 0, NULL},   {"trees", S_IFDIR | 0755, 0, 0, NULL},
};

static const struct node tree_nodes[] = {
    {"empty", S_IFDIR | 0555, 0, 0, NULL},
    {"null", S_IFCHR | 0666, 1, 3, NULL},

    {"dev", S_IFDIR | 0755, 0, 0, NULL},
    {"dev/null", S_IFCHR | 0666, 1, 3, NULL},
    {"dev/zero", S_IFCHR | 0666, 1, 5, NULL},
    {"dev/full", S_IFCHR | 0666, 1, 7, NULL},
    {"dev/random", S_IFCHR | 0666, 1, 8, NULL},
    {"dev/urandom", S_IFCHR | 0666, 1, 9, NULL},
    {"dev/tty", S_IFCHR | 0666, 5, 0, NULL},
    {"dev/pts", S_IFDIR | 0755, 0, 0, NULL},
    {"dev/shm", S_IFDIR | 01777, 0, 0, NULL},
    {"dev/mqueue", S_IFDIR | 01777, 0, 0, NULL},
    {"dev/ptmx", S_IFLNK, 0, 0, "pts/ptmx"},
    {"dev/fd", S_IFLNK, 0, 0, "/proc/self/fd"},
    {"dev/stdin", S_IFLNK, 0, 0, "/proc/self/fd/0"},
    {"dev/stdout", S_IFLNK, 0, 0, "/proc/self/fd/1"},
    {"dev/stderr", S_IFLNK, 0, 0, "/proc/self/fd/2"},

    {"proc", S_IFDIR | 0755, 0, 0, NULL},
    {"proc/boot_id", S_IFREG | 0444, 0, 0, NULL},
    {"proc/cpuinfo", S_IFREG | 0444, 0, 0, NULL},
    {"proc/loadavg", S_IFREG | 0444, 0, 0, NULL},
    {"proc/meminfo", S_IFREG | 0444, 0, 0, NULL},
    {"proc/stat", S_IFREG | 0444, 0, 0, NULL},

    {"sys", S_IFDIR | 0755, 0, 0, NULL},
    {"sys/block", S_IFDIR | 0755, 0, 0, NULL},
    {"sys/class", S_IFDIR | 0755, 0, 0, NULL},
    {"sys/class/net", S_IFDIR | 0755, 0, 0, NULL},
    {"sys/devices", S_IFDIR | 0755, 0, 0, NULL},
    {"sys/devices/system", S_IFDIR | 0755, 0, 0, NULL},
    {"sys/devices/system/cpu", S_IFDIR | 0755, 0, 0, NULL},
    {"sys/fs", S_IFDIR | 0755, 0, 0, NULL},
    {"sys/fs/cgroup", S_IFDIR | 0755, 0, 0, NULL},
    {"sys/kernel", S_IFDIR | 0755, 0, 0, NULL},
    {"sys/kernel/mm", S_IFDIR | 0755, 0, 0, NULL},
    {"sys/kernel/mm/transparent_hugepage", S_IFDIR | 0755, 0, 0, NULL},
    {"sys/module", S_IFDIR | 0755, 0, 0, NULL},
};

/* Files whose content is the machine's own; left out where the machine has none. */
static const char *const copied[STAGE_COPIED] = {
    "sys/devices/system/cpu/possible",
    "sys/devices/system/cpu/present",
    "sys/kernel/mm/transparent_hugepage/enabled",
    "sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
};

/* The caller's umask is 0. */
static int make_node(int at, const struct node *n)
{
    switch (n->mode & S_IFMT) {
    case S_IFDIR:
        return mkdirat(at, n->path, n->mode & 07777) < 0 ? -errno : 0;
    case S_IFCHR:
    case S_IFREG:
        return mknodat(at, n->path, n->mode, makedev(n->major, n->minor)) < 0 ? -errno : 0;
    default:
        return symlinkat(n->text, at, n->path) < 0 ? -errno : 0;
    }
}

/* Some may be there: of a tree that could not be finished before. */
static int make_nodes(int at, const struct node *nodes, size_t n)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < n; i++) {
        r = make_node(at, &nodes[i]);
        r = r == -EEXIST ? 0 : r;
    }
    return r;
}

/* While the host's files can still be seen. */
static void stage_read_copied(struct stage_file files[static STAGE_COPIED])
{
    for (size_t i = 0; i < STAGE_COPIED; i++) {
        AUTO_BUF struct buf b = BUF_INIT(sizeof(files[i].text));
        char path[128];
        (void)snprintf(path, sizeof(path), "/%s", copied[i]);
        files[i].n = fd_read_file(AT_FDCWD, path, &b) < 0 ? 0 : buf_len(&b);
        if (files[i].n)
            memcpy(files[i].text, buf_data(&b), files[i].n);
    }
}

static int make_tree(int root, uint32_t tree, const struct stage_file files[static STAGE_COPIED])
{
    char path[32];
    (void)snprintf(path, sizeof(path), "trees/%u", tree);
    if (mkdirat(root, path, 0755) < 0 && errno != EEXIST)
        return -errno;
    AUTO_CLOSE int at = openat(root, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (at < 0)
        return -errno;
    int r = make_nodes(at, tree_nodes, ARRAY_SIZE(tree_nodes));
    for (size_t i = 0; r == 0 && i < STAGE_COPIED; i++)
        if (files[i].n)
            r = fd_write_file(at, copied[i], str_n(files[i].text, files[i].n), 0444);
    return r;
}

int stage_tree_take(struct stage *s, uint32_t *ret_tree, int *ret_fd)
{
    uint32_t tree = 0;
    while (tree < s->n_trees && s->tree_used[tree])
        tree++;
    if (tree == STAGE_TREES_MAX)
        return -ENOSPC;
    if (tree == s->n_trees) {
        AUTO_CLOSE int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        mode_t mask = umask(0);
        int r = root < 0 ? -errno : make_tree(root, tree, s->copied);
        (void)umask(mask);
        if (r < 0)
            return r;
        s->n_trees++;
    }
    char path[32];
    (void)snprintf(path, sizeof(path), "/trees/%u", tree);
    int fd = fd_lasting(open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (fd < 0)
        return -errno;
    s->tree_used[tree] = true;
    *ret_tree = tree;
    *ret_fd = fd;
    return 0;
}

void stage_tree_put(struct stage *s, uint32_t tree)
{
    assert(tree < s->n_trees && s->tree_used[tree]);
    s->tree_used[tree] = false;
}

int stage_enter(int pool_mount, const char *scratch_on, struct stage *ret_stage, struct err *err)
{
    static const char *const tmpfs_options[] = {"mode", "0755", "size", "128m", NULL};
    AUTO_CLOSE int host_ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    AUTO_CLOSE int host_root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (host_ns < 0 || host_root < 0)
        return err_errno(err, errno, "open the host's mount namespace");
    struct inside_machine *machine = NULL;
    int r = inside_machine_new(&machine);
    if (r < 0)
        return err_errno(err, r, "read the machine's figures");
    r = mount_unshare();
    if (r < 0)
        return err_errno(err, r, "make a private mount namespace");

    AUTO_CLOSE int root_mount = -1, proc_mount = -1;
    struct stage stage = {.machine = machine, .n_trees = 1};
    stage_read_copied(stage.copied);
    r = mount_new("tmpfs", tmpfs_options, MOUNT_ATTR_NOEXEC, &root_mount);
    r = r ? r : mount_attach(root_mount, AT_FDCWD, scratch_on);
    mode_t mask = umask(0);
    r = r ? r : make_nodes(root_mount, stage_nodes, ARRAY_SIZE(stage_nodes));
    r = r ? r : make_tree(root_mount, 0, stage.copied);
    (void)umask(mask);
    if (r < 0)
        return err_errno(err, r, "build the stage on %s", scratch_on);
    r = process_stage(root_mount);
    if (r < 0)
        return err_errno(err, r, "show the host's directories (tiers.process)");
    r = mount_set(pool_mount, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSUID, -1);
    r = r ? r : mount_attach(pool_mount, root_mount, "pool");
    if (r < 0)
        return err_errno(err, r, "mount the storage pool");
    r = mount_new("proc", NULL, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSUID, &proc_mount);
    r = r ? r : mount_attach(proc_mount, root_mount, "proc");
    r = r ? r : mount_pivot(root_mount);
    if (r < 0)
        return err_errno(err, r, "enter the stage");
    stage.host_mount_ns = TAKE_FD(host_ns);
    stage.host_root = TAKE_FD(host_root);
    *ret_stage = stage;
    return 0;
}
