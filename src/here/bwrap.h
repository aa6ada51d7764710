/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line of bubblewrap (bwrap), for agents that bring their own way of calling it: cove-here under the name
 * of cove-bwrap or bwrap.
 *
 *  1. Order counts: a later mount lies on an earlier one. Sources are of the machine, whatever lies on them inside.
 *  2. What an option asks for is done, or the option is refused by its name and nothing runs.
 *  3. What holds in every box of Cove holds here too, asked for or not: namespaces but the network's, no capability, no
 *     new user namespace, the filter on system calls, Landlock, the end with the launcher. Unix sockets but pairs are
 *     refused, unless the network is shared or one is bound by its path.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "here/devices.h"

enum bwrap_kind {
    BWRAP_BIND,
    BWRAP_RO_BIND,
    BWRAP_DEV_BIND,
    BWRAP_REMOUNT_RO,
    BWRAP_PROC,
    BWRAP_DEV,
    BWRAP_TMPFS,
    BWRAP_MQUEUE,
    BWRAP_DIR,
    BWRAP_FILE,
    BWRAP_BIND_DATA,
    BWRAP_RO_BIND_DATA,
    BWRAP_SYMLINK,
    BWRAP_CHMOD,
};

struct bwrap_op {
    enum bwrap_kind kind;
    const char *from,
        *to;          /* from: a path, a descriptor's number or a link's text; NULL where there is none. Borrowed */
    int perms;        /* -1: the usual ones */
    const char *size; /* NULL: the usual one */
    bool may_be_absent, is_directory;
    int fd;               /* for the box: what is put there, or to be read; -1 */
    int nodes[DEVICES_N]; /* for the box, of a /dev */
};

struct bwrap {
    struct bwrap_op *ops; /* in order */
    size_t n;
    bool with_network, is_session, is_cgroup, dies_with_parent, has_unix_sockets;
    long uid, gid; /* -1: the caller's */
    const char *hostname, *cwd, *argv0;
    struct buf *filters; /* BPF programs */
    size_t n_filters;
    char **command; /* NULL-terminated */
};

/* Also changes this process's environment, as the options say. Returns 0; 1: help or version was asked for, and
 * printed; or -1. */
int bwrap_parse(int argc, char **argv, struct bwrap *b, struct err *err) WARN_UNUSED;

/* In the box: the root file system. On failure *ret_what is what failed. */
int bwrap_build(struct bwrap *b, const char *cwd, const char **ret_what) WARN_UNUSED;

/* In the box, at last: the filters that were asked for. */
int bwrap_filter(const struct bwrap *b) WARN_UNUSED;
