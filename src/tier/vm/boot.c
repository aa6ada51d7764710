/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/vm/boot.h"
#include "base/fd.h"
#include "base/mem.h"
#include "kernel/tree/tree.h"
#include "tier/files.h"
#include "tier/vm/ram.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIZES_MAX = 8 }; /* kept of one layer */

static const char *const boot_files[] = {SAVED_MACHINE, SAVED_DEVICES, SAVED_MEMORY, FILES_DISK};

bool boot_path(const struct vm_order *o, const struct saved_machine *m, char ret_path[static BOOT_PATH_MAX])
{
    if (!vm_disks_are_new(o))
        return false;
    (void)snprintf(ret_path, BOOT_PATH_MAX, "/pool/" FILES_BOOTS "/%s/%016llx-%llu-%u-%llu-%u%u", o->chain.names[0],
                   (unsigned long long)o->guest, (unsigned long long)(o->memory_bytes >> 20), o->cpus,
                   (unsigned long long)o->disk_bytes, m->emulated, m->has_net);
    return true;
}

/*
 * Those of another kernel or agent go, and of ours the one that nobody has gone on from for longest, if there are as
 * many as may be: else whoever asks for many sizes first would have all others boot. False: it is being read.
 */
static bool boot_make_room(int layer, const char *key)
{
    struct dirent **names = NULL;
    char oldest[NAME_MAX + 1] = "";
    time_t since = 0;
    size_t left = 0;
    int ignored UNUSED = 0;
    int n = scandirat(layer, ".", &names, NULL, NULL);
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;
        struct stat st = {.st_mtime = 0};
        if (name[0] != '.' && strncmp(name, key, 17) != 0) {
            ignored = tree_remove(layer, name);
        } else if (name[0] != '.' && fstatat(layer, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            if (left++ == 0 || st.st_mtime < since)
                (void)snprintf(oldest, sizeof(oldest), "%s", name);
            since = left == 1 ? st.st_mtime : MIN(since, st.st_mtime);
        }
        mem_free(names[i]);
    }
    mem_free(names);
    AUTO_CLOSE int fd = left < SIZES_MAX ? -1 : openat(layer, oldest, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return left < SIZES_MAX || (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && tree_remove(layer, oldest) == 0);
}

static int boot_sync(int dir)
{
    for (size_t i = 0; i < ARRAY_SIZE(boot_files); i++) {
        AUTO_CLOSE int fd = openat(dir, boot_files[i], O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 || fsync(fd) < 0)
            return -errno;
    }
    return fsync(dir) < 0 ? -errno : 0;
}

static int boot_save(const struct vm_order *o, int layer, const char *path, int state_fd, pid_t body, uid_t uid)
{
    char making[BOOT_PATH_MAX], disk[BOOT_PATH_MAX];
    struct vm_devices d;
    uint64_t own;
    (void)snprintf(making, sizeof(making), "%.*s/.new", (int)(strrchr(path, '/') - path), path);
    (void)snprintf(disk, sizeof(disk), "%s/u", o->path);
    int ignored UNUSED = tree_remove(layer, ".new");
    AUTO_CLOSE int dir =
        mkdirat(layer, ".new", 0700) < 0 ? -1 : openat(layer, ".new", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    AUTO_CLOSE int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || proc < 0)
        return -errno;
    int r = pread(state_fd, &d, sizeof(d), VM_DEVICES_AT) == sizeof(d) ? 0 : -EIO;
    r = r ? r : saved_write(dir, &d.machine, state_fd, VM_DEVICES_DATA, d.bytes);
    r = r ? r : ram_save(proc, body, uid, o->memory_bytes, dir, SAVED_MEMORY, &own);
    r = r ? r : vm_disk_copy(disk, making);
    r = r ? r : boot_sync(dir);
    if (r == 0 && rename(making, path) < 0)
        r = -errno;
    if (r < 0) /* on a full disk it would take the last of it */
        ignored = tree_remove(layer, ".new");
    return r;
}

/* As /proc counts. */
static pid_t boot_self(void)
{
    char text[16] = "";
    return readlink("/proc/self", text, sizeof(text) - 1) > 0 ? (pid_t)strtol(text, NULL, 10) : -1;
}

int boot_saver(const struct vm_order *o, const char *path, int state_fd, uid_t uid)
{
    char layer[BOOT_PATH_MAX], byte = 0;
    int pair[2];
    const pid_t body = boot_self();
    const char *key = strrchr(path, '/') + 1;
    (void)snprintf(layer, sizeof(layer), "%.*s", (int)(key - path - 1), path);
    (void)mkdir("/pool/" FILES_BOOTS, 0700);
    (void)mkdir(layer, 0700);
    AUTO_CLOSE int dir = open(layer, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    if (dir < 0 || body < 0 || flock(dir, LOCK_EX | LOCK_NB) < 0 || !boot_make_room(dir, key) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -1;
    int ignored UNUSED = tree_remove(dir, key); /* who calls us could not use it */
    pid_t pid = fork();
    if (pid == 0) {
        (void)fd_close(pair[0]);
        if (recv(pair[1], &byte, 1, 0) != 1)
            _exit(0);
        byte = (char)-boot_save(o, dir, path, state_fd, body, uid);
        (void)send(pair[1], &byte, 1, MSG_NOSIGNAL);
        _exit(0);
    }
    (void)fd_close(pair[1]);
    return pid < 0 ? fd_close(pair[0]) : pair[0];
}
