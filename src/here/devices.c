/* SPDX-License-Identifier: Apache-2.0 */
#include "here/devices.h"
#include "base/fd.h"
#include "base/mem.h"
#include "kernel/mount.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const devices_names[DEVICES_N] = {"null", "zero", "full", "random", "urandom", "tty"};

int devices_touch(int directory, const char *path, mode_t mode, const char *content)
{
    AUTO_CLOSE int fd = openat(directory, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    return fd < 0 ? -errno : fd_write_all(fd, content, strlen(content));
}

int devices_open(int nodes[static DEVICES_N])
{
    int r = 0;
    for (size_t i = 0; i < DEVICES_N; i++) {
        AUTO_FREE char *path = mem_printf("/dev/%s", devices_names[i]);
        nodes[i] = -1;
        r = r ? r : mount_clone(AT_FDCWD, path, &nodes[i]);
    }
    return r;
}

int devices_mount(int nodes[static DEVICES_N], const char *where)
{
    static const char *const links[][2] = {{"/proc/self/fd", "fd"},
                                           {"/proc/self/fd/0", "stdin"},
                                           {"/proc/self/fd/1", "stdout"},
                                           {"/proc/self/fd/2", "stderr"},
                                           {"pts/ptmx", "ptmx"}};
    AUTO_CLOSE int dev = -1, pts = -1, shm = -1;
    const uint64_t attrs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
    int r = mount_new("tmpfs", (const char *const[]){"mode", "0755", "size", "1m", NULL}, attrs, &dev);
    if (r == 0 && (mkdirat(dev, "pts", 0755) < 0 || mkdirat(dev, "shm", 0755) < 0 || mkdirat(dev, ".cove", 0755) < 0))
        r = -errno;
    for (size_t i = 0; r == 0 && i < DEVICES_N; i++)
        r = devices_touch(dev, devices_names[i], 0666, "");
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(links); i++)
        r = symlinkat(links[i][0], dev, links[i][1]) < 0 ? -errno : 0;
    r = r ? r : devices_touch(dev, ".cove/nothing", 0, "");
    r = r ? r : mount_attach(dev, AT_FDCWD, where);
    for (size_t i = 0; i < DEVICES_N; i++) {
        r = r ? r : mount_attach(nodes[i], dev, devices_names[i]);
        nodes[i] = fd_close(nodes[i]);
    }
    r = r ? r
          : mount_new("devpts", (const char *const[]){"newinstance", NULL, "ptmxmode", "0666", "mode", "0620", NULL},
                      attrs, &pts);
    r = r ? r : mount_attach(pts, dev, "pts");
    r = r ? r
          : mount_new("tmpfs", (const char *const[]){"mode", "1777", NULL}, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, &shm);
    r = r ? r : mount_attach(shm, dev, "shm");
    return r;
}
