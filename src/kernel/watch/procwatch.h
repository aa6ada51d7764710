/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that processes of sandboxes execute, and how these processes end, as the kernel says it (eBPF at two
 * tracepoints). Whose they are goes by the process namespace. Needs CAP_BPF, CAP_PERFMON and a kernel that describes
 * itself (CONFIG_DEBUG_INFO_BTF, Linux 5.8).
 */
#pragma once

#include "base/clock.h"

enum { PROCWATCH_TAG_MAX = 24, PROCWATCH_PATH_MAX = 2304 };

struct procwatch;

/* Borrowed until the callback returns. */
struct procwatch_event {
    bool is_exit;
    usec_t at; /* clock_mono() */
    const char *tag;
    pid_t host_pid, pid, parent; /* the last two as they are inside; parent 0: it is not from there, or an exit's */
    uid_t uid;                   /* the host's; 0 of an exit */
    uint32_t status;             /* of an exit: as of wait(2) */
    uint32_t lost;               /* events of this tag before it that are not told */
    struct str argv, program;    /* each argument ends with a NUL, if it was not cut */
    uint32_t argv_bytes;         /* of all arguments: more than argv has, when it was cut */
    const char *directory;       /* it works in; "": not known */
};

/* -EOPNOTSUPP: the kernel has not what it takes. -EPERM. Takes about 0.1 s. */
int procwatch_open(struct procwatch **ret_watch) WARN_UNUSED;
void procwatch_close(struct procwatch *w); /* accepts NULL */
int procwatch_fd(struct procwatch *w);     /* readable: there is something to read; its edges are as follows */

/*
 * When new events wake whoever waits for an edge of it (EPOLLET): each (at first), each while a fourth of the room for
 * them is taken, or none. Read once more after PROCWATCH_AT_ONCE: events before it woke nobody.
 */
enum procwatch_wakes { PROCWATCH_AT_ONCE, PROCWATCH_WHEN_FULL, PROCWATCH_NEVER };
void procwatch_wake(struct procwatch *w, enum procwatch_wakes when);

int procwatch_add(struct procwatch *w, ino_t namespace, const char *tag) WARN_UNUSED;
uint32_t procwatch_drop(struct procwatch *w, ino_t namespace); /* how many events were lost and not told of */

/* Calls fn for at most `most` events; returns for how many, or -errno. */
int procwatch_read(struct procwatch *w, int most, void (*fn)(void *ctx, const struct procwatch_event *e),
                   void *ctx) WARN_UNUSED;
