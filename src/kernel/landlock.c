/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/landlock.h"
#include "base/fd.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Later than Debian 12's headers. */
enum { FS_TRUNCATE = 1 << 14, FS_IOCTL_DEV = 1 << 15, SCOPE_ABSTRACT_UNIX = 1, SCOPE_SIGNAL = 2 };

struct landlock_attr {
    uint64_t fs, net, scoped;
};

static const uint64_t file_rights = LANDLOCK_ACCESS_FS_WRITE_FILE | FS_TRUNCATE | FS_IOCTL_DEV;

static uint64_t landlock_rights(long abi)
{
    uint64_t rights = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                      LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                      LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO | LANDLOCK_ACCESS_FS_MAKE_BLOCK |
                      LANDLOCK_ACCESS_FS_MAKE_SYM;
    rights |= abi >= 2 ? LANDLOCK_ACCESS_FS_REFER : 0;
    rights |= abi >= 3 ? FS_TRUNCATE : 0;
    return rights | (abi >= 5 ? FS_IOCTL_DEV : 0);
}

static long landlock_abi(void)
{
    return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

bool landlock_keeps_signals(void)
{
    return landlock_abi() >= 6;
}

int landlock_begin(int *ret_ruleset)
{
    long abi = landlock_abi();
    if (abi < 1)
        return -EOPNOTSUPP;
    struct landlock_attr attr = {
        .fs = landlock_rights(abi),
        .scoped = landlock_keeps_signals() ? SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL : 0,
    };
    /* A kernel takes a longer one when what it doesn't know is zero. */
    long fd = syscall(SYS_landlock_create_ruleset, &attr, sizeof(attr), 0);
    if (fd < 0)
        return -errno;
    *ret_ruleset = (int)fd;
    return 0;
}

int landlock_allow(int ruleset, const char *path)
{
    struct stat st;
    AUTO_CLOSE int fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    uint64_t rights = landlock_rights(landlock_abi());
    struct landlock_path_beneath_attr rule = {
        .allowed_access = S_ISDIR(st.st_mode) ? rights : rights & file_rights,
        .parent_fd = fd,
    };
    return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0 ? -errno : 0;
}

int landlock_enforce(int ruleset)
{
    return syscall(SYS_landlock_restrict_self, ruleset, 0) < 0 ? -errno : 0;
}
