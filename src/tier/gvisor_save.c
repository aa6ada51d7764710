/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What asks the sentry has left all of ours before it enters: it has the box's ids and no rights beyond, and of
 * descriptors the directory that is to be filled, which is the box's own until that is done, runsc, and a pipe for its
 * last words.
 *
 * The sentry is told to pause around the checkpoint and the clone of the files, so that both are of one moment; by
 * itself it would go on in between. It can't save what came by descriptor, as the agent's session did: that is closed
 * by then, but the agent may not have seen it yet.
 */
#include "tier/gvisor_save.h"
#include "base/buf.h"
#include "base/child.h"
#include "base/fd.h"
#include "base/log.h"
#include "kernel/namespace.h"
#include "tier/root.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SAVE_DIR = 3,
    SAVE_RUNSC,
    SAVE_PIDFD,
    SAVE_SPARE = 64,
    SAVE_WORDS = 512,
    SAVE_TEXT = 1 << 20,
    TRIES = 20,
    AGAIN_USEC = 20000
};

#define GVISOR_NAMESPACES (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS)

NORETURN static void gvisor_ask_inside(const struct box *box, int dir_fd, int words, char *const argv[])
{
    const int from[] = {dir_fd < 0 ? words : dir_fd, box->carried_fd, box->pidfd};
    char *const envp[] = {(char[]){"PATH=/"}, (char[]){"HOME=/"}, NULL};
    const pid_t job = getppid();
    int spare[ARRAY_SIZE(from)], said = fcntl(words, F_DUPFD, SAVE_SPARE);
    for (size_t i = 0; i < ARRAY_SIZE(from); i++)
        if ((spare[i] = fcntl(from[i], F_DUPFD, SAVE_SPARE)) < 0)
            _exit(126);
    if (said < 0 || dup2(said, 1) < 0 || dup2(said, 2) < 0)
        _exit(126);
    for (size_t i = 0; i < ARRAY_SIZE(from); i++)
        if (dup3(spare[i], SAVE_DIR + (int)i, i ? O_CLOEXEC : 0) < 0)
            _exit(126);
    if (close_range(SAVE_PIDFD + 1, ~0U, 0) < 0 || setns(SAVE_PIDFD, GVISOR_NAMESPACES) < 0 ||
        namespace_become_root() < 0)
        _exit(125);
    /* The change of ids has cleared it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != job)
        _exit(122);
    pid_t inner = fork(); /* the first in there */
    if (inner == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        (void)close(SAVE_PIDFD);
        (void)syscall(SYS_execveat, SAVE_RUNSC, "", argv, envp, AT_EMPTY_PATH);
        _exit(124);
    }
    (void)close(1);
    (void)close(2);
    int status = child_wait(inner);
    _exit(status >= 0 && status < CHILD_SIGNAL ? status : 123);
}

/* 0: it has done so. -EBUSY: something can't be saved. */
static int gvisor_save_ask(const struct box *box, int dir_fd, const char *what, const char *const *more)
{
    AUTO_BUF struct buf text = BUF_INIT(SAVE_TEXT);
    char name[TIER_NAME_MAX + 1] = "";
    char *argv[12] = {(char[]){"runsc"}, (char[]){"--root=/state"}, (char[]){"--ignore-cgroups"},
                      (char *)(uintptr_t)what};
    size_t n = 4;
    int ends[2];
    memcpy(name, box->name, TIER_NAME_MAX);
    while (more && *more)
        argv[n++] = (char *)(uintptr_t)*more++;
    argv[n] = name;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0)
        gvisor_ask_inside(box, dir_fd, ends[1], argv);
    (void)fd_close(ends[1]);
    int r = pid < 0 ? -errno : fd_read_all(ends[0], &text);
    (void)fd_close(ends[0]);
    int status = child_wait(pid);
    if (r == 0 && status == 0)
        return 0;
    (void)buf_append_char(&text, 0);
    const char *said = buf_error(&text) ? "" : buf_data(&text);
    bool is_busy = strstr(said, "not savable") || strstr(said, "can't be saved");
    if (!is_busy)
        log_warn("runsc %s %s: status %d: %.*s", what, name, status, (int)strcspn(said, "\n"), said);
    return is_busy ? -EBUSY : r ? r : strstr(said, "no space left") ? -ENOSPC : -EIO;
}

static int gvisor_save(const struct box *box, int dir_fd)
{
    static const char *const how[] = {"--leave-running", "--image-path=/proc/self/fd/3", NULL};
    static const char *const parts[] = {"checkpoint.img", "pages.img", "pages_meta.img"};
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) /* of a try before, over which runsc writes nothing */
        (void)unlinkat(dir_fd, parts[i], 0);
    return gvisor_save_ask(box, dir_fd, "checkpoint", how);
}

int gvisor_go_on(const struct tier_host *host UNUSED, const struct box *box)
{
    int r = gvisor_save_ask(box, -1, "resume", NULL);
    return r == -EIO ? 0 : r; /* it runs already */
}

int gvisor_checkpoint(const struct tier_host *host, const struct box *box, const struct tier_saving *saving)
{
    const uid_t base = root_base(host, box);
    int r = fchown(saving->dir_fd, base, base) < 0 ? -errno : 0;
    for (int i = 0; r == 0; i++) {
        r = gvisor_save_ask(box, -1, "pause", NULL);
        r = r ? r : gvisor_save(box, saving->dir_fd);
        if (r != -EBUSY || i == TRIES)
            break;
        r = gvisor_go_on(host, box);
        (void)usleep(AGAIN_USEC);
    }
    r = r || !saving->files ? r : saving->files(saving->ctx);
    if (r == 0 && saving->ends)
        return 0;
    int went_on = gvisor_go_on(host, box);
    return r ? r : went_on;
}
