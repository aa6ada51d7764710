/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The storage pool below <state>/pool: read-only layers, found by digest, and boxes, the private upper directories of sandboxes.
 *
 *   layers/<digest>/             complete layers only: each was renamed into place
 *   boxes/<shard>/<name>/{u,w}   upper and work directory of a sandbox
 *   new/                         layers being made; emptied at start
 *   trash/                       what is to be deleted; emptied in the background by pool_sweep()
 *
 * The directory is 0700 root: ownership inside is unshifted, so a file that a sandbox's root made set-uid is just that on disk.
 * Shards: ext4 keeps a directory's new inodes near it and, when it looks for one, steps over all that were freed in the last five seconds. With
 * hundreds of boxes coming and going a second that costs more than all else, so boxes are spread over directories that lie far apart.
 *
 * Errors are -errno. `struct pool_ops` hides how directories are cloned and bounded on this file system.
 */
#pragma once

#include "base/def.h"

enum { POOL_DIGEST_MAX = 72, POOL_NAME_MAX = 48 };

struct pool;

struct pool_ops {
    const char *name;                                          /* "directory" */
    int (*box_make)(struct pool *p, int at, const char *name); /* empty u/ and w/ */
};

int pool_open(const char *dir, struct pool **ret_pool) WARN_UNUSED;
void pool_close(struct pool *p);
const char *pool_kind(const struct pool *p);
int pool_fd(const struct pool *p); /* borrowed: the pool's directory */

bool pool_is_digest(const char *digest); /* "sha256-" and 64 lower-case hexadecimal digits */

/* O_PATH descriptor of a complete layer; -ENOENT when there is none. */
int pool_layer_open(struct pool *p, const char *digest, int *ret_fd) WARN_UNUSED;

/* A new box with these files in its upper directory (owned by root inside, mode 0644); O_PATH descriptor. */
struct pool_file {
    const char *path; /* relative, of at most one directory level: "etc/hosts" */
    const char *text;
};
int pool_box_make(struct pool *p, const char *name, const struct pool_file *files, size_t n_files,
                  int *ret_fd) WARN_UNUSED;

/* Moves it to the trash at once. */
int pool_box_drop(struct pool *p, const char *name) WARN_UNUSED;

/* Moves every box and every half-made layer to the trash; fn is told the boxes' names. For the start after a crash. */
int pool_reset(struct pool *p, void (*fn)(void *ctx, const char *name), void *ctx) WARN_UNUSED;

/* Deletes what is in the trash, entry by entry; returns the number deleted. Slow: for a process of its own. */
int pool_sweep(struct pool *p) WARN_UNUSED;
