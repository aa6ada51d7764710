/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/vm/jail.h"
#include "base/child.h"
#include "base/fd.h"
#include "kernel/caps.h"
#include "kernel/mount.h"

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

void jail_add(struct jail *j, const char *from, const char *name, bool read_only)
{
    assert(j->n < JAIL_FILES_MAX);
    j->files[j->n++] = (struct jail_file){.from = from, .name = name, .read_only = read_only};
}

static int jail_attach(int root, const struct jail_file *f)
{
    AUTO_CLOSE int fd = -1;
    struct stat st = {0};
    int r = mount_clone(AT_FDCWD, f->from, &fd);
    if (r == 0 && fstatat(fd, "", &st, AT_EMPTY_PATH) < 0)
        r = -errno;
    if (r == 0 && S_ISDIR(st.st_mode) && mkdirat(root, f->name, 0755) < 0)
        r = -errno;
    if (r == 0 && !S_ISDIR(st.st_mode))
        r = fd_write_file(root, f->name, STR(""), 0600);
    const uint64_t attrs =
        MOUNT_ATTR_NOSUID | (S_ISCHR(st.st_mode) ? 0U : MOUNT_ATTR_NODEV) | (f->read_only ? MOUNT_ATTR_RDONLY : 0U);
    r = r ? r : mount_set(fd, attrs, -1);
    return r ? r : mount_attach(fd, root, f->name);
}

static int jail_build(const struct jail *j)
{
    static const char *const options[] = {"mode", "0755", "size", "1m", NULL};
    static const char *const links[][2] = {{"usr/lib", "lib"}, {"usr/lib64", "lib64"}, {"usr/bin", "bin"}};
    const struct jail_file usr = {.from = j->usr, .name = "usr", .read_only = true};
    AUTO_CLOSE int root = -1;
    int r = mount_new("tmpfs", options, MOUNT_ATTR_NOSUID, &root);
    r = r ? r : mount_attach(root, AT_FDCWD, "/build/tmp");
    r = r ? r : jail_attach(root, &usr);
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(links); i++)
        r = symlinkat(links[i][0], root, links[i][1]) < 0 ? -errno : 0;
    for (size_t i = 0; r == 0 && i < j->n; i++)
        r = jail_attach(root, &j->files[i]);
    const struct jail_file device = {.from = j->device, .name = "dev/kvm"};
    if (r == 0 && j->device)
        r = mkdirat(root, "dev", 0755) < 0 ? -errno : jail_attach(root, &device);
    r = r ? r : mount_set(root, MOUNT_ATTR_NOSUID | MOUNT_ATTR_RDONLY, -1);
    return r ? r : mount_pivot(root);
}

int jail_enter(const struct jail *j)
{
    struct stat st = {.st_gid = 0};
    int r = j->device && stat(j->device, &st) < 0 ? -errno : mount_unshare();
    if (r == 0 && unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0)
        r = -errno;
    r = r ? r : jail_build(j);
    if (r == 0 && (setgroups(j->device ? 1 : 0, &st.st_gid) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0))
        r = -errno;
    if (r < 0)
        return r;
    if (j->uid == JAIL_KEEP_UID)
        return caps_bound_readers();
    return setresgid(j->uid, j->uid, j->uid) < 0 ? -errno : caps_keep_only(0, j->uid);
}

int jail_run(const struct jail *j, char *const argv[])
{
    char *const environment[] = {(char[]){"PATH=/usr/sbin:/usr/bin"}, NULL};
    pid_t pid = fork();
    if (pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || jail_enter(j) < 0)
            _exit(126);
        (void)execve(argv[0], argv, environment);
        _exit(127);
    }
    int r = pid < 0 ? -errno : child_wait(pid);
    return r > 0 ? -EIO : r;
}
