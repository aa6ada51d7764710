/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the files that the pool consists of. An *entry* is a directory of the pool that is made, cloned, bounded and
 * deleted as one: a layer, a box, a kept upper, a volume. What one of these operations is, `struct pool_ops` says for
 * each kind; what an entry holds is the same in all.
 */
#pragma once

#include "base/def.h"
#include "base/str.h"
#include "kernel/pool/pool.h"

enum { POOL_SEEDS = 64, POOL_SHARDS = 64, POOL_ENTRY_MAX = 128, POOL_BELOW_MAX = POOL_CHAIN_MAX * POOL_LAYER_MAX };
#define POOL_JOB_PREFIX "job."

struct pool_ops {
    const char *name;
    bool cheap_clones;
    bool clones_settled; /* a clone is on disk when it is made */
    /* An empty entry. bounded: it may get a limit, and its usage is asked for. */
    int (*make)(struct pool *p, int at, const char *name, bool bounded);
    /* A new entry with u/ and services/ of another. It may hold more of the other's, too. -EEXIST */
    int (*clone)(struct pool *p, int from_at, const char *from, int to_at, const char *to, bool bounded);
    int (*settle)(struct pool *p, int at, const char *name);    /* its bytes are on disk afterwards */
    int (*remove)(struct pool *p, int at, const char *name);    /* with all in it */
    int (*limit)(struct pool *p, int entry_fd, uint64_t bytes); /* both: -ENODATA, it was not made to be bounded */
    int (*usage)(struct pool *p, int entry_fd, uint64_t *ret_bytes);
};

extern const struct pool_ops pool_copy_ops, pool_reflink_ops, pool_btrfs_ops;

struct pool {
    const struct pool_ops *ops;
    struct pool_features features;
    int fd, layers_fd, boxes_fd, kept_fd, volumes_fd, memory_fd, trash_fd, new_fd;
    int dying_fd;           /* -1: no btrfs */
    int seeds_fd, stock_fd; /* pool_number.c; -1: numbers need no care */
    uint32_t seed_step;
    uint8_t stock_next[POOL_SEEDS]; /* the one to try first */
    int shard_fds[POOL_SHARDS];
    int figures_fd;                              /* kernel/pool/btrfs.h; -1: none */
    uint32_t project_cursor;                     /* kernel/pool/project_quota.h */
    int (*on_step)(void *ctx, const char *step); /* of tests; NULL */
    void *step_ctx;
    struct pool_backing backing;
    bool is_backed;
    uint64_t secured; /* kernel/pool/btrfs.h: btrfs_metadata_next() */
    uint64_t tidied;  /* kernel/pool/btrfs.h: btrfs_quota_tidy() */
    uint64_t copied;  /* what the last clone() took, where clones copy */
};

/*
 * Between two things that an operation does to the disk: a test may have the process die here (base/fault.h, or its own
 * hook), or the operation fail with what this returns.
 */
int pool_step(struct pool *p, const char *step) WARN_UNUSED;

bool pool_is_name(const char *name); /* of a box, kept upper, volume or job: [A-Za-z0-9._-], no dot first */
int pool_shard(const struct pool *p, const char *box);

/* A name in new/ or trash/ that nobody else has. */
void pool_unique(const char *name, char ret_name[static POOL_ENTRY_MAX]);

int pool_to_trash(struct pool *p, int at, const char *name) WARN_UNUSED;
void pool_discard(struct pool *p, int at, const char *name); /* the same while something else failed */
int pool_each(int dir_fd, int (*fn)(void *ctx, const char *name), void *ctx) WARN_UNUSED;
int pool_each_named(int dir_fd, bool (*is)(const char *name), void (*fn)(void *ctx, const char *name),
                    void *ctx) WARN_UNUSED;

int pool_entry_open(int at, const char *name, int *ret_fd) WARN_UNUSED; /* O_RDONLY */
/* Empty entries, or with an empty u/, whose inode numbers are not those of what they lie above. The first takes a
 * second or two once for each pool. */
int pool_numbered_layer(struct pool *p, int at, const char *name) WARN_UNUSED;
int pool_numbered_box(struct pool *p, const struct pool_chain *chain, int at, const char *name) WARN_UNUSED;
/* What is made in the entry from now on has numbers beyond those of this chain, too. Counts: a job's. */
int pool_number_beyond(struct pool *p, int entry_fd, const struct pool_chain *chain) WARN_UNUSED;

int pool_own_entry(struct pool *p, int entry_fd, uint64_t owner) WARN_UNUSED;
/* All but u/ and services/ goes, and but `note`, if any. */
int pool_entry_strip(int entry_fd, const char *note) WARN_UNUSED;

/* Notes: small files beside u/, on disk when the entry has been settled, or cloned where a clone is. */
int pool_note_u64(int entry_fd, const char *file, uint64_t *ret_value) WARN_UNUSED; /* reads a number */
/* The size of used_fd's u/. copied: where that is not known, what was counted when it was copied; 0: nothing was */
int pool_note_bytes(struct pool *p, int entry_fd, int used_fd, uint64_t copied) WARN_UNUSED;

/*
 * It is on disk under this name afterwards. What has the name already: -EEXIST (NEW); changes names with it and goes to
 * the trash (EXCHANGE); goes first, since whoever looks for `from` after our death must not find that (AFTER). A
 * failure leaves both as they were.
 */
enum pool_put { POOL_PUT_NEW, POOL_PUT_EXCHANGE, POOL_PUT_AFTER };
int pool_put(struct pool *p, int from_at, const char *from, int to_at, const char *to, enum pool_put how) WARN_UNUSED;

/* Names of layers, topmost first, one a line, each ended. -EBADMSG for anything else. chain: at most `most` of them. */
int pool_below_parse(struct str text, size_t most, struct pool_chain *ret_chain) WARN_UNUSED;
int pool_below_read(int entry_fd, size_t most, struct pool_chain *ret_chain) WARN_UNUSED;
int pool_below_write(int entry_fd, const struct pool_chain *chain) WARN_UNUSED;
bool pool_below_is(int entry_fd, const struct pool_chain *chain); /* it says just that already */
int pool_chain_check(struct pool *p, const struct pool_chain *chain, size_t most) WARN_UNUSED; /* all are here */
