/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where programs of the host's run for a virtual machine: the monitor itself, and those that make its disks. They see
 * /usr, read-only, and the files that they are given, each under a name of its own in "/", and nothing else of the
 * host: no other process, no network, no device but those given. Only by processes that may mount.
 */
#pragma once

#include "base/def.h"

struct jail_file {
    const char *from; /* absolute, where our own files are */
    const char *name; /* in the jail */
    bool is_dir, read_only;
};

enum { JAIL_FILES_MAX = 32, JAIL_KEEP_UID = 0 };

struct jail {
    const char *usr; /* a mount of the host's /usr, where it can be seen */
    struct jail_file files[JAIL_FILES_MAX];
    size_t n;
    const char
        *device; /* of the host's, where it can be seen; NULL: none. The program gets the group that it belongs to */
    uid_t uid; /* that the program runs as, with no capability; JAIL_KEEP_UID: root's, and may read whatever it finds */
};

void jail_add(struct jail *j, const char *from, const char *name, bool read_only);

/* In a child of its own, which has no threads. Enters; what descriptors there are stays open. 0 or -errno, and then the
 * process is good for nothing but _exit(). */
int jail_enter(const struct jail *j) WARN_UNUSED;

/* Runs a program and waits for it. 0; -EIO: it failed; -errno. What it prints goes nowhere. */
int jail_run(const struct jail *j, char *const argv[]) WARN_UNUSED;
