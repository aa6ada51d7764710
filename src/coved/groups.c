/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/groups.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "kernel/cgroup/cgroup.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

struct leftovers {
    struct cgroup_tree *tree;
    bool (*spares)(void *ctx, const char *name);
    void *ctx;
};

static void kill_leftover(void *ctx, const char *name)
{
    const struct leftovers *l = ctx;
    struct cgroup_tree *tree = l->tree;
    if (l->spares(l->ctx, name))
        return;
    int r = cgroup_kill(tree, name);
    /* Version 1 has one directory of this name in each hierarchy: the others find it gone. */
    for (int i = 0; i < 1000 && (r = cgroup_remove(tree, name)) == -EBUSY; i++)
        (void)usleep(1000);
    if (r < 0)
        log_warn("can't remove the control group %s of an earlier run: %s", name, strerror(-r));
}

/* In containers the same path may be another directory, and the control groups the same. */
static int group_name(const char *state_dir, char ret_name[static CGROUP_NAME_MAX], struct err *err)
{
    struct stat st;
    if (stat(state_dir, &st) < 0)
        return err_errno(err, errno, "%s", state_dir);
    AUTO_FREE char *what = mem_printf("%s#%ju:%ju", state_dir, (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
    uint64_t hash = 0xcbf29ce484222325ULL; /* FNV-1a */
    for (const char *p = what; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 0x100000001b3ULL;
    (void)snprintf(ret_name, CGROUP_NAME_MAX, "cove-%08x", (unsigned)(hash ^ hash >> 32));
    return 0;
}

/* -ENOENT: where systemd has given us nothing, or nothing that will do. */
static int open_given(const char *name, struct cgroup_tree **ret_tree)
{
    char dir[CGROUP_PATH_MAX];
    if (cgroup_delegated(dir) < 0)
        return -ENOENT;
    int r = cgroup_open_in(dir, name, ret_tree);
    if (r == 0) {
        log_debug("sandboxes' control groups lie in %s", dir);
        return 0;
    }
    log_warn("%s can't hold sandboxes' control groups (%s): they are at the top of the tree, where the service's own "
             "limits don't apply to them",
             dir, strerror(-r));
    return -ENOENT;
}

/*
 * What all sandboxes may have of the machine's processes. Each has a limit of its own, but where nobody has raised
 * kernel.pid_max (32,768), some thirty of them would leave nobody any: no new sandbox, no job of ours, no shell.
 */
static void limit_all(struct cgroup_tree *tree)
{
    static const char *const settings[] = {"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"};
    uint64_t most = UINT64_MAX, n;
    for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
        AUTO_BUF struct buf text = BUF_INIT(64);
        struct str rest, line;
        int r = fd_read_file(AT_FDCWD, settings[i], &text);
        rest = buf_str(&text);
        if (r == 0 && str_split(&rest, '\n', &line) && str_to_u64(line, &n) == 0)
            most = MIN(most, n);
    }
    int r = most == UINT64_MAX ? -ENOENT : cgroup_limit_all(tree, most / 4 * 3);
    if (r < 0)
        log_warn("limit the processes of all sandboxes: %s", strerror(-r));
}

int groups_open(const char *state_dir, bool (*spares)(void *ctx, const char *name), void *ctx,
                struct cgroup_tree **ret_tree, struct err *err)
{
    char name[CGROUP_NAME_MAX];
    if (group_name(state_dir, name, err) < 0)
        return -1;
    int r = open_given(name, ret_tree);
    r = r == -ENOENT ? cgroup_open(name, 0, ret_tree) : r;
    if (r < 0)
        return err_errno(err, r, "set up control groups: no usable memory and pids controller (see 'cove doctor')");
    limit_all(*ret_tree);
    struct leftovers leftovers = {*ret_tree, spares, ctx};
    r = cgroup_each(*ret_tree, kill_leftover, &leftovers);
    return r < 0 ? err_errno(err, r, "look for processes of an earlier run") : 0;
}

static bool spares_none(void *ctx UNUSED, const char *name UNUSED)
{
    return false;
}

void groups_end(const char *state_dir)
{
    struct cgroup_tree *tree = NULL;
    struct err err;
    if (groups_open(state_dir, spares_none, NULL, &tree, &err) < 0)
        log_error("end what is left of the sandboxes: %s", err.msg);
    if (tree)
        cgroup_close(tree, true);
}
