/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/pool/loopfile.h"
#include "base/clock.h"
#include "base/fd.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { TRIES = 64, LOOP_MAJOR = 7, BLOCK_BYTES = 4096, AGAIN_USEC = 20000 };

int loopfile_open(const char *path, bool make, uint32_t wait_ms, int *ret_fd)
{
    usec_t end = clock_mono() + wait_ms * USEC_PER_MS;
    AUTO_CLOSE int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (make ? O_CREAT : 0), 0600);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK || clock_mono() >= end)
            return -errno;
        (void)usleep(AGAIN_USEC);
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* The node may be missing where /dev is not the kernel's own; then one that nobody else can open is used. */
static int open_device(int number, char ret_name[static LOOPFILE_NAME_MAX])
{
    (void)snprintf(ret_name, LOOPFILE_NAME_MAX, "/dev/loop%d", number);
    int fd = open(ret_name, O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && mknod(ret_name, S_IFBLK | 0600, makedev(LOOP_MAJOR, (unsigned)number)) == 0)
        fd = open(ret_name, O_RDWR | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int loopfile_attach(int file_fd, int *ret_device, char ret_name[static LOOPFILE_NAME_MAX])
{
    /* Direct I/O, where the file system under the file can: its bytes are not cached twice. */
    struct loop_config config = {.fd = (uint32_t)file_fd,
                                 .block_size = BLOCK_BYTES,
                                 .info = {.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO}};
    char name[LOOPFILE_NAME_MAX];
    (void)snprintf((char *)config.info.lo_file_name, sizeof(config.info.lo_file_name), "cove-pool");
    AUTO_CLOSE int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0)
        return errno == ENOENT || errno == ENODEV || errno == EPERM ? -EOPNOTSUPP : -errno;
    for (int i = 0; i < TRIES; i++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE);
        if (number < 0)
            return -errno;
        AUTO_CLOSE int device = open_device(number, name);
        if (device < 0)
            return device;
        if (ioctl(device, LOOP_CONFIGURE, &config) == 0) {
            *ret_device = TAKE_FD(device);
            (void)snprintf(ret_name, LOOPFILE_NAME_MAX, "%s", name);
            return 0;
        }
        if (errno != EBUSY)
            return -errno;
    }
    return -EBUSY;
}

int loopfile_name(int device_fd, char ret_name[static LOOPFILE_NAME_MAX])
{
    struct stat st;
    if (fstat(device_fd, &st) < 0)
        return -errno;
    if (!S_ISBLK(st.st_mode) || major(st.st_rdev) != LOOP_MAJOR)
        return -ENODEV;
    (void)snprintf(ret_name, LOOPFILE_NAME_MAX, "/dev/loop%u", minor(st.st_rdev));
    return 0;
}

int loopfile_size(int file_fd, uint64_t *ret_bytes, uint64_t *ret_allocated)
{
    struct stat st;
    if (fstat(file_fd, &st) < 0)
        return -errno;
    *ret_bytes = (uint64_t)st.st_size;
    *ret_allocated = (uint64_t)st.st_blocks * 512;
    return 0;
}

int loopfile_grow(int file_fd, int device_fd, uint64_t bytes)
{
    uint64_t now = 0, allocated = 0;
    int r = loopfile_size(file_fd, &now, &allocated);
    if (r < 0)
        return r;
    if (bytes > now && ftruncate(file_fd, (off_t)bytes) < 0)
        return -errno;
    return device_fd >= 0 && ioctl(device_fd, LOOP_SET_CAPACITY) < 0 ? -errno : 0;
}

int loopfile_back(int file_fd, uint64_t at, uint64_t bytes)
{
    return fallocate(file_fd, FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)bytes) < 0 ? -errno : 0;
}
