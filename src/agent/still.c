/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/still.h"
#include "base/buf.h"
#include "base/fd.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROUNDS = 8, STILL_PATIENCE_MS = 200, PROCESSES_TEXT = 1 << 20, PATH_TEXT = 300 };

#define STILL_GROUP "cove"

static int still_root_fd = -1; /* the root of control groups, from the first time on */
static bool still_is_set;      /* of a group at least */

/* Of the root group to ours: what was started since, but no thread of the kernel's. False: there was nothing. */
static bool still_gather(void)
{
    AUTO_BUF struct buf b = BUF_INIT(PROCESSES_TEXT);
    bool moved = false;
    char *end = NULL;
    if (fd_read_file(still_root_fd, "cgroup.procs", &b) < 0 || buf_append_char(&b, 0) < 0)
        return false;
    for (const char *at = buf_data(&b); *at; at = end) {
        char path[32], number[16], ignored;
        long pid = strtol(at, &end, 10);
        if (end == at)
            break;
        (void)snprintf(path, sizeof(path), "/proc/%ld/exe", pid);
        (void)snprintf(number, sizeof(number), "%ld", pid);
        if (pid <= 1 || readlink(path, &ignored, 1) <= 0)
            continue;
        (void)mkdirat(still_root_fd, STILL_GROUP, 0755);
        moved |= fd_write_existing(still_root_fd, STILL_GROUP "/cgroup.procs", str_of(number)) == 0;
    }
    return moved;
}

static bool still_is_frozen(const char *group)
{
    char path[PATH_TEXT];
    AUTO_BUF struct buf b = BUF_INIT(4096);
    (void)snprintf(path, sizeof(path), "%s/cgroup.events", group);
    return fd_read_file(still_root_fd, path, &b) < 0 || memmem(buf_data(&b), buf_len(&b), "frozen 1", 8);
}

static void still_each(bool frozen, int *patience_ms)
{
    static DIR *dir; /* kept, as what it has read is: a copy begins sooner */
    int fd = dir ? -1 : openat(still_root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!dir && (dir = fdopendir(fd)) == NULL) {
        (void)fd_close(fd);
        return;
    }
    rewinddir(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[PATH_TEXT];
        if (e->d_name[0] == '.' || e->d_type != DT_DIR)
            continue;
        still_is_set = frozen;
        (void)snprintf(path, sizeof(path), "%s/cgroup.freeze", e->d_name);
        int ignored UNUSED = fd_write_existing(still_root_fd, path, frozen ? STR("1") : STR("0"));
        while (frozen && *patience_ms > 0 && !still_is_frozen(e->d_name)) {
            (void)usleep(1000);
            --*patience_ms;
        }
    }
}

void still_set(bool frozen)
{
    int patience_ms = STILL_PATIENCE_MS;
    if (still_root_fd < 0 && frozen)
        still_root_fd = open("/sys/fs/cgroup", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (still_root_fd < 0 || (!frozen && !still_is_set))
        return;
    for (int i = 0; frozen && i < ROUNDS && still_gather(); i++)
        ;
    still_each(frozen, &patience_ms);
}
