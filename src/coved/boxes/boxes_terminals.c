/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When terminals are short. A sandbox may have so many (the mounts' "max"). The kernel has one number for all instances
 * of devpts on the machine, less what it keeps for the host's own. While there are sandboxes, coved looks once a second
 * how many are taken. From three quarters on it ends the sandbox that has most, and those that have half as many or
 * more. Who has only a few stays, however many of these there are.
 */
#include "base/buf.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "coved/boxes/boxes_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { FEW = 16, INSTANCES_MAX = 64, CHILDREN_TEXT_MAX = 1 << 20 };

static uint64_t terminals_number(const struct boxes *b, const char *path)
{
    AUTO_BUF struct buf text = BUF_INIT(64);
    struct str rest = STR_NULL, line;
    uint64_t n = 0;
    if (fd_read_file(b->host->proc_fd, path, &text) < 0)
        return 0;
    rest = buf_str(&text);
    return str_split(&rest, '\n', &line) && str_to_u64(line, &n) == 0 ? n : 0;
}

/* -1: the process has none, or what a sandbox put in their place. */
static int terminals_open(const struct boxes *b, pid_t pid)
{
    const struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    char path[32];
    struct statfs fs;
    (void)snprintf(path, sizeof(path), "%d/root", (int)pid);
    AUTO_CLOSE int root = openat(b->host->proc_fd, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    AUTO_CLOSE int fd = root < 0 ? -1 : (int)syscall(SYS_openat2, root, "dev/pts", &how, sizeof(how));
    return fd >= 0 && fstatfs(fd, &fs) == 0 && fs.f_type == DEVPTS_SUPER_MAGIC ? TAKE_FD(fd) : -1;
}

/* Takes fd. */
static uint32_t terminals_count(int fd)
{
    DIR *dir = fdopendir(fd);
    uint32_t n = 0;
    if (!dir)
        (void)fd_close(fd);
    for (const struct dirent *one; dir && (one = readdir(dir));)
        n += one->d_name[0] >= '0' && one->d_name[0] <= '9';
    if (dir)
        (void)closedir(dir);
    return n;
}

/* Its own, and those of isolated sessions, whose first processes are children of its first. */
static uint32_t terminals_of(const struct box_entry *e)
{
    AUTO_BUF struct buf text = BUF_INIT(CHILDREN_TEXT_MAX);
    dev_t seen[INSTANCES_MAX];
    size_t n_seen = 0;
    uint32_t n = 0;
    char path[48];
    uint64_t pid = (uint64_t)e->box.pid;
    struct str rest, word;
    (void)snprintf(path, sizeof(path), "%d/task/%d/children", (int)e->box.pid, (int)e->box.pid);
    int ignored UNUSED = fd_read_file(e->owner->host->proc_fd, path, &text);
    rest = buf_str(&text);
    do {
        struct stat st;
        int fd = terminals_open(e->owner, (pid_t)pid);
        bool is_new = fd >= 0 && fstat(fd, &st) == 0 && n_seen < INSTANCES_MAX;
        for (size_t i = 0; is_new && i < n_seen; i++)
            is_new = seen[i] != st.st_dev;
        if (is_new) {
            seen[n_seen++] = st.st_dev;
            n += terminals_count(fd);
        } else {
            (void)fd_close(fd);
        }
    } while (str_split(&rest, ' ', &word) && str_to_u64(word, &pid) == 0);
    return n;
}

static void terminals_end(struct box_entry *e, uint32_t n)
{
    struct err err;
    log_warn("the machine's terminals are nearly all taken (kernel.pty.max): sandbox %s has %u of them, and is ended",
             e->id, n);
    (void)err_set(&err, ERR_ABORTED, "sandbox %s is ended because it has %u of the machine's terminals", e->id, n);
    e->ended.cause = SUP_CAUSE_OOM;
    boxes_tasks_abort(e, &err);
    boxes_kill_body(e);
}

void boxes_terminals_look(struct boxes *b)
{
    static const enum box_state states[] = {BOX_RUNNING, BOX_FROZEN};
    uint64_t all = terminals_number(b, "sys/kernel/pty/max"), kept = terminals_number(b, "sys/kernel/pty/reserve");
    uint32_t most = 0;
    if (fault_error("coved.terminals.short") == 0 &&
        terminals_number(b, "sys/kernel/pty/nr") < (all - MIN(all, kept)) / 4 * 3)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(states); i++)
        LIST_FOREACH (struct box_entry, e, &b->lists[states[i]], node) {
            e->n_terminals = e->ended.cause || boxes_is_stopping(e) ? 0 : terminals_of(e);
            most = MAX(most, e->n_terminals);
        }
    for (size_t i = 0; most > FEW && i < ARRAY_SIZE(states); i++)
        LIST_FOREACH (struct box_entry, e, &b->lists[states[i]], node) {
            if (e->n_terminals >= most / 2)
                terminals_end(e, e->n_terminals);
        }
}
