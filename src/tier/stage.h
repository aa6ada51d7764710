/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stage: the small mount namespace in which sandboxes are built. A new mount namespace copies its parent's whole
 * mount table, so coved leaves the host's (dozens of mounts) for one of its own with three: a tmpfs as root, /proc and
 * the storage pool.
 *
 *   /proc             for maps and namespaces of children
 *   /pool             the storage pool (kernel/pool/pool.h)
 *   /trees/N/dev      what one sandbox sees as /dev: null, zero, full, random, urandom, tty, links, and mount points
 *   /trees/N/sys      what it sees as /sys: the few files that runtimes read; nothing of the real one
 *   /trees/N/proc     files that lie over those of its /proc (tier/inside.h)
 *   /trees/N/empty    an empty directory, /trees/N/null a null device: what masked paths show
 *   /host/N           the host's directories that tier process shows (tier/process.h), read-only
 *   /build/{proc,dev,sys,tmp}, /root      mount points for a child's own mounts, private to its mount namespace
 *   /scratch          mount points for overlay layers on kernels that need them attached
 *
 * Each box has a tree of its own, though all are alike and read-only: who shares a file with others can watch them use
 * it (inotify) and lock it. Trees are made as needed and used again.
 */
#pragma once

#include "base/err.h"

struct inside_machine;

enum { STAGE_TREES_MAX = 4096, STAGE_COPIED = 4 };

/* A file of /sys with the machine's own text. */
struct stage_file {
    char text[1024];
    size_t n; /* 0: the machine has none */
};

struct stage {
    int host_mount_ns; /* owned: to start the workers and tools where the host's files are */
    int host_root;     /* owned: the host's root directory */
    struct inside_machine *machine;
    struct stage_file copied[STAGE_COPIED];
    uint32_t n_trees; /* made so far */
    bool tree_used[STAGE_TREES_MAX];
};

/*
 * Enters the stage for good: the calling process's root and working directory change. pool_mount: the pool's directory,
 * as a detached mount that is attached here and nowhere else; stays the caller's to close. scratch_on: an existing host
 * directory that the tmpfs may cover while it is being made, in our private namespace only.
 */
int stage_enter(int pool_mount, const char *scratch_on, struct stage *ret_stage, struct err *err) WARN_UNUSED;

/* In the stage. The tree is the caller's alone until it is put back; so is the descriptor of it (O_PATH). 0 or
 * -errno. */
int stage_tree_take(struct stage *s, uint32_t *ret_tree, int *ret_fd) WARN_UNUSED;
void stage_tree_put(struct stage *s, uint32_t tree);
