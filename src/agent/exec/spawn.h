/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a program in the sandbox: a child, a session of its own, descriptors 0 to 2, the user, the directory, exec.
 *
 * Theory of operation
 *
 *  1. All that a foreign file system could hang (chdir, exec) happens in the child, and the agent never waits for it:
 *     its user can stop it before it executes, and a file lease can hold its exec for a minute.
 *  2. Copying the agent's memory for the few instructions until exec would cost a tenth of a millisecond, most of it in
 *     page faults afterwards. So the child shares it (CLONE_VM, not CLONE_VFORK, which would be waiting). It has a
 *     stack of its own, and everything that it needs is in its `struct spawn_launch`, which stays until the status pipe
 *     is at its end (the kernel takes the memory from a process that executes or exits before its descriptors) or the
 *     child was reaped.
 *  3. While it shares memory, the child has its user's id. Nobody of that id gets at the memory: the agent is not
 *     dumpable, and a change of ids makes it what fs.suid_dumpable says: 0, or 2, which is as good since Linux 5.16.
 *     Else memory is copied after all (spawn_may_share()).
 *  4. The OOM killer's preference for children over the agent belongs to memory as long as it is shared; so the agent
 *     sets it once the child has executed. Until then either's end would be the other's.
 */
#pragma once

#include "agent/user.h"
#include "base/arena.h"

#include <sys/resource.h>

struct spawn_launch;

struct spawn {
    char *const *argv; /* NULL-terminated, like envp */
    char *const *envp;
    struct str search; /* PATH for a command without a slash */
    const char *cwd;
    uid_t uid;
    gid_t gid;
    const gid_t *groups;
    size_t n_groups;
    const struct rlimit *nofile; /* the limit to give to the child */
    bool pty, stdin_pipe;
    uint16_t cols, rows;
};

enum spawn_stage { SPAWN_OK, SPAWN_SETUP, SPAWN_USER, SPAWN_CWD, SPAWN_SEARCH, SPAWN_EXEC };

/* What the status pipe says before its end; it ends with nothing said once the program runs. */
struct spawn_report {
    enum spawn_stage stage; /* that failed */
    int errnum;
};

/* Non-blocking descriptors of the agent's side; -1 where there is none. */
struct spawned {
    struct spawn_launch *launch; /* until spawn_executed(), or the agent learns that the pid was reaped */
    pid_t pid;
    int in;       /* writes to stdin, or to the terminal */
    int out, err; /* err is -1 with a terminal */
    int status;   /* struct spawn_report */
};

/*
 * -errno when no child could be made; nothing is left behind then. Else takes the arena, which holds *s and everything
 * that it points to, but for the agent's own.
 */
int spawn(struct agent *a, const struct spawn *s, struct arena *arena, struct spawned *ret_spawned) WARN_UNUSED;

void spawn_executed(struct spawn_launch *l);   /* the status pipe ended, and nothing was said */
void spawn_reaped(struct agent *a, pid_t pid); /* whatever child it was */
void spawn_forget_all(struct agent *a);        /* kills those that have not executed yet */
bool spawn_may_share(void);                    /* for agent_init() */
