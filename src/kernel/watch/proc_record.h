/* SPDX-License-Identifier: Apache-2.0 */
/* What the programs in the kernel (proc.bpf.c) and procwatch.c have in common. */
#pragma once

enum {
    PROC_TAG_MAX = 24, /* whose processes they are, NUL-terminated */
    PROC_ARGV_MAX = 2048,
    PROC_TEXT_MAX = 4096, /* argv, program and working directory together */
    PROC_PER_SEC = 200,   /* records of one sandbox and kind, as many as the log takes; beyond that they are counted */
    PROC_RING_BYTES = 512 << 10, /* little enough to stay in caches: room that nobody touched for long costs time */
    PROC_SPACES_MAX = 8192,
};

enum proc_kind { PROC_EXEC = 1, PROC_EXIT, PROC_KINDS };

/* In the map of process namespaces, whose key is the namespace's inode. */
struct proc_space {
    char tag[PROC_TAG_MAX];
    unsigned long long second;           /* of the kernel's clock, about */
    unsigned int used[PROC_KINDS], lost; /* records in that second; those that are not there and were not told of yet */
};

/* Behind it its text: argv, program, and the components of the working directory, innermost first, each
 * NUL-terminated. */
struct proc_record {
    unsigned long long at; /* CLOCK_MONOTONIC, in nanoseconds */
    unsigned int kind;     /* enum proc_kind */
    char tag[PROC_TAG_MAX];
    unsigned int host_pid, pid,
        parent;          /* the last two as they are inside; parent 0: it is not from there, or PROC_EXIT */
    unsigned int uid;    /* the host's; PROC_EXEC */
    unsigned int status; /* PROC_EXIT: as of wait(2) */
    unsigned int lost;
    unsigned int argv_bytes;               /* of all arguments; those beyond `argv` were cut */
    unsigned int argv, program, directory; /* bytes of each */
};
