/* SPDX-License-Identifier: Apache-2.0 */
/*
 *  1. What is shown is read-only, nosuid and nodev, with all that is mounted below it, from before coved enters the
 *     stage. A box's mounts are copies in another user namespace, where these flags are locked.
 *  2. Its owners have no id inside. So nobody there owns a file of the host's or has a capability over one, and root
 *     reads what a stranger may.
 *  3. Where it goes is looked up below the box's root, over no link: a template is hostile.
 *  4. no_new_privs and Landlock come before the agent, and so hold for everything in the box.
 */
#include "tier/process.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "kernel/landlock.h"
#include "kernel/mount.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PROCESS_TOPS_MAX = 256 };

static struct {
    char *const *paths;
    size_t n;
    bool is_there;
} process_shown;

void process_configure(char *const *paths, size_t n)
{
    process_shown.paths = paths;
    process_shown.n = n;
}

int process_probe(struct err *err)
{
    AUTO_CLOSE int rules = -1;
    struct stat st;
    process_shown.is_there = false;
    if (!process_shown.n)
        return err_set(err, ERR_FAILED_PRECONDITION,
                       "the configuration names no directories of the host (tiers.process)");
    for (size_t i = 0; i < process_shown.n; i++)
        if (lstat(process_shown.paths[i], &st) < 0 || (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)))
            return err_set(err, ERR_FAILED_PRECONDITION, "tiers.process: %s is neither a directory nor a file",
                           process_shown.paths[i]);
    if (landlock_begin(&rules) < 0)
        return err_set(err, ERR_FAILED_PRECONDITION, "the kernel has no Landlock (boot with lsm=landlock,...)");
    process_shown.is_there = true;
    return 0;
}

static int process_place(int root, size_t i, bool is_directory)
{
    char at[32];
    (void)snprintf(at, sizeof(at), "host/%zu", i);
    return is_directory ? (mkdirat(root, at, 0755) < 0 ? -errno : 0) : fd_write_file(root, at, STR(""), 0444);
}

int process_stage(int root)
{
    int r = !process_shown.is_there || mkdirat(root, "host", 0755) == 0 ? 0 : -errno;
    for (size_t i = 0; r == 0 && process_shown.is_there && i < process_shown.n; i++) {
        AUTO_CLOSE int fd = -1;
        char at[32];
        struct stat st;
        (void)snprintf(at, sizeof(at), "host/%zu", i);
        r = mount_clone_tree(AT_FDCWD, process_shown.paths[i], MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
                             &fd);
        r = r ? r : fstat(fd, &st) < 0 ? -errno : process_place(root, i, S_ISDIR(st.st_mode));
        r = r ? r : mount_attach(fd, root, at);
    }
    return r;
}

int process_enter(int root, const char **ret_what)
{
    const struct open_how how = {
        .flags = O_PATH | O_CLOEXEC,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
    };
    int r = 0;
    for (size_t i = 0; r == 0 && i < process_shown.n; i++) {
        AUTO_CLOSE int fd = -1, at = -1;
        char from[32];
        (void)snprintf(from, sizeof(from), "/host/%zu", i);
        *ret_what = process_shown.paths[i];
        r = mount_clone_tree(AT_FDCWD, from, 0, &fd);
        at = r ? -1 : (int)syscall(SYS_openat2, root, process_shown.paths[i], &how, sizeof(how));
        r = r ? r : at < 0 ? -errno : mount_attach(fd, at, "");
    }
    return r;
}

const char *process_overlap(const char *path)
{
    for (size_t i = 0; i < process_shown.n; i++) {
        struct str shown = str_of(process_shown.paths[i]);
        if (path_is_below(shown, str_of(path)) || path_is_below(str_of(path), shown))
            return shown.p;
    }
    return NULL;
}

static bool process_shows(const char *name)
{
    for (size_t i = 0; i < process_shown.n; i++)
        if (strcmp(process_shown.paths[i] + 1, name) == 0)
            return true;
    return false;
}

int process_confine(void)
{
    AUTO_CLOSE int rules = -1;
    size_t n = 0;
    int r = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : landlock_begin(&rules);
    AUTO(dir_close) DIR *top = r ? NULL : dir_open(AT_FDCWD, "/");
    r = r || top ? r : -errno;
    for (const struct dirent *e; r == 0 && (e = dir_next(top));) {
        AUTO_FREE char *path = mem_printf("/%s", e->d_name);
        struct stat st;
        if (process_shows(e->d_name) || lstat(path, &st) < 0 || S_ISLNK(st.st_mode))
            continue;
        r = ++n > PROCESS_TOPS_MAX ? -E2BIG : landlock_allow(rules, path);
    }
    return r ? r : landlock_enforce(rules);
}
