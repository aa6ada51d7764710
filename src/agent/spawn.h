/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting a program in the sandbox: fork, a session of its own, descriptors 0 to 2, the user, the directory, exec. All that a foreign
 * file system could hang (chdir, exec) happens in the child, after fork and not vfork: the agent must never wait for it, and a child that
 * shares the agent's memory would be stoppable by its user before it execs. That costs some 30 us.
 */
#pragma once

#include "agent/user.h"
#include "base/def.h"

#include <sys/resource.h>

struct spawn {
    char *const *argv; /* NULL-terminated, like envp */
    char *const *envp;
    const char *search; /* PATH for a command without a slash */
    const char *cwd;
    const struct user *user;
    const struct rlimit *nofile; /* the limit to give to the child */
    int null_fd;
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
    pid_t pid;
    int in;       /* writes to stdin, or to the terminal */
    int out, err; /* err is -1 with a terminal */
    int status;   /* struct spawn_report */
};

/* -errno when no child could be made; nothing is left behind then. */
int spawn(const struct spawn *s, struct spawned *ret_spawned) WARN_UNUSED;
