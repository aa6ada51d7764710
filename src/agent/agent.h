/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent: what PID 1 of a sandbox does, without what only PID 1 can do (that is in main.c). One object, one loop,
 * one thread.
 *
 * Its sessions come over its control descriptor, each in place of the one before. That is, as its tier can do it,
 *   a SOCK_SEQPACKET socket, whose messages each bring a stream socket (wire/control.h);
 *   a listening socket of whatever family: who connects is the host;
 *   or any other byte stream, which is the only session there will be.
 * It reaps every child there is.
 */
#pragma once

#include "agent/answers.h"
#include "agent/loop.h"
#include "agent/session.h"
#include "agent/user.h"
#include "base/list.h"
#include "wire/control.h"

#include <signal.h>
#include <sys/resource.h>

struct agent_config {
    struct user_files users;
    const char *const *environment; /* NULL-terminated; LANG and PATH are taken from it. Borrowed. */
    usec_t linger;                  /* how long pipes are read after the exit while others hold them */
    usec_t keep;                    /* how long an ended process can be attached */
};

#define AGENT_CONFIG_DEFAULT                                                                                           \
    ((struct agent_config){{"/etc/passwd", "/etc/group"}, NULL, 200 * USEC_PER_MS, 30 * USEC_PER_SEC})

struct agent {
    struct agent_config config;
    struct agent_loop loop;
    struct loop_io control, signals;
    struct agent_session session;
    struct answers answers;
    struct list processes; /* in order of start; agent/exec/process.h */
    struct list ended;     /* those that are done, in that order */
    uint64_t next_seq;
    size_t n_live, n_ended;         /* of the processes */
    size_t input_bytes;             /* waiting for processes to read them */
    struct list jobs, waiting_jobs; /* agent/job.h */
    size_t n_jobs, n_watches;
    struct list launches; /* agent/exec/spawn.c: children that have not executed yet */
    bool spawns_share;    /* they share the agent's memory until they execute (agent/exec/spawn.h) */
    int dumpable;         /* PR_GET_DUMPABLE at the start; a child that shared the memory changes it for both */
    struct list sinks;    /* agent/sink.h */
    size_t n_sinks;
    struct control_session identity; /* whose sandbox this is; what == 0: nobody's yet */
    struct str attributes, env;      /* of the host's HELLO; env: its pairs without the count. Both in `hello`, owned */
    uint32_t n_env;
    char *hello;
    int null_fd;          /* /dev/null, of the sandbox */
    struct rlimit nofile; /* what children get; the agent raises its own to the hard limit */
    bool is_confined;     /* its root is a directory with nothing that may be executed (WIRE_CONFINE) */
    bool is_guest;        /* PID 1 of a virtual machine (agent/guest.h) */
    bool is_restored;     /* told so, and not yet that a session begins */
    bool zombies;         /* there may be more children to reap */
    bool control_is_session, control_lost;
};

/* Takes the control descriptor; blocks SIGCHLD and nothing else, ignores SIGPIPE and nothing else. */
int agent_init(struct agent *a, const struct agent_config *config, int control) WARN_UNUSED;
int agent_run(struct agent *a) WARN_UNUSED; /* until the control socket is at its end: 0 */
void agent_fini(struct agent *a);           /* kills the processes that it knows of */
