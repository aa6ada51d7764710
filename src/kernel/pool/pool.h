/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The storage pool: read-only layers, the private upper directories of sandboxes ("boxes"), uppers kept of sandboxes
 * that are paused without memory, and volumes.
 *
 *   layers/<layer>/{u,below}     complete layers only: each was renamed into place. `below`: the layers under it, topmost first, one a line; beside
 *                                it `bytes`, its size when it was made
 *   boxes/<shard>/<name>/{u,w}   upper and work directory of a sandbox; where clones are cheap with `below`
 *   .../services/<key>/{u,w}     in a box, and in what is made of one: the same of another root that goes with it
 *   kept/<sandbox>/{u,below}     the files of a paused sandbox; `below` as above
 *   volumes/<volume>/{u,limit}   a volume; its size in bytes, decimal, 0: none
 *   memory/<layer or sandbox>/   plain files: what a tier goes on with from what is in layers/ or kept/ under that name
 *   seeds/<number>/u             where clones are cheap: what layers and boxes begin as, for their inode numbers (pool_number.c)
 *   stock/<number>.<n>/u         copies of these that are ready; stock/<number>: such are wanted
 *   asleep/                      coved's own notes (coved/boxes/boxes_note.c)
 *   new/                         what is being made; emptied at start
 *   trash/                       what is to be deleted; emptied in the background by pool_sweep()
 *   dying/                       btrfs: what that is at
 *
 * What lies in layers/ without u/ is of an earlier version: pool_open() moves it to the trash.
 *
 * Invariants
 *  1. A name in layers/, kept/ or volumes/ is whole: it was made in new/, its bytes are on disk as far as its kind
 *     promises, and one rename put it there, or one clone that was on disk by itself. Whoever dies in between leaves
 *     something in new/ or trash/, or a work directory beside u/ of a layer, which the next pool_open() removes.
 *  2. Nothing of a layer changes after the rename.
 *  3. All is 0700 root and ownership inside is unshifted: a file that a sandbox's root made set-uid is just that on
 *     disk. No link of it is ever followed, no device opened.
 *
 * Kinds. btrfs: every layer, box, kept upper and volume is a subvolume; cloning costs a transaction (about 2 ms, and
 * the write-out of what the source has not on disk yet); sizes are bounded by simple quotas (Linux 6.7; full ones
 * before). reflink (XFS): clones walk the tree and share the bytes. copy: clones copy. In these two, sizes are bounded
 * where the file system has project quotas; what was made before it had them is not.
 *
 * Errors are -errno; -EDQUOT and -ENOSPC mean that the pool is full. What may take long is said; it is for a process of
 * its own. Functions that make things are safe to be called from several processes with one pool, each for other names.
 */
#pragma once

#include "base/def.h"

enum {
    POOL_LAYER_MAX =
        72, /* room for a layer's name: "sha256-" and 64 hexadecimal digits, or "layer-" and 20 of [a-z0-9] */
    POOL_NAME_MAX = 48,       /* of a box, a kept upper, a volume */
    POOL_CHAIN_MAX = 24,      /* layers below one another, a layer itself included */
    POOL_CHAIN_PREFERRED = 12 /* a longer chain is cut when a box is made of it: see struct pool_box */
};

struct pool;

enum pool_kind { POOL_COPY, POOL_REFLINK, POOL_BTRFS };

struct pool_features {
    enum pool_kind kind;
    bool limits;       /* sizes of boxes and volumes are bounded and known */
    bool owners;       /* what belongs to one owner is bounded together: see pool_own() */
    bool cheap_clones; /* a clone does not cost by size */
};

int pool_open(const char *dir,
              struct pool **ret_pool) WARN_UNUSED; /* the best kind that the file system of dir is good for */
int pool_open_as(const char *dir, enum pool_kind kind, struct pool **ret_pool) WARN_UNUSED; /* that kind; -EOPNOTSUPP */
void pool_close(struct pool *p);
DEFINE_AUTO(struct pool *, pool_close)
const struct pool_features *pool_features(const struct pool *p);
const char *pool_kind(const struct pool *p); /* "btrfs", "reflink", "copy" */
const char *pool_kind_name(enum pool_kind kind);
int pool_fd(const struct pool *p); /* borrowed: the pool's directory */

bool pool_is_digest(const char *digest); /* "sha256-" and 64 lower-case hexadecimal digits */
bool pool_is_layer(const char *name);    /* that, or "layer-" and 20 of [a-z0-9] */

/* A layer with those below it, topmost first. */
struct pool_chain {
    size_t n;
    char names[POOL_CHAIN_MAX][POOL_LAYER_MAX];
};

/* -ENOENT: it, or one below it, is not here. */
int pool_chain_read(struct pool *p, const char *layer, struct pool_chain *ret_chain) WARN_UNUSED;

/* A box above it should begin as a copy of its topmost layer: see struct pool_box. Never where clones cost much. */
bool pool_chain_is_long(const struct pool *p, const struct pool_chain *chain);

/* O_PATH descriptors of the files of each, into ret_fds[0..chain->n); all or none. */
int pool_chain_open(struct pool *p, const struct pool_chain *chain, int *ret_fds) WARN_UNUSED;

/* ---- layers ---- */

/*
 * A layer in the making, to be filled through *ret_fd (O_RDONLY, its files' directory, owner root, 0755) by whoever
 * likes; `job`, [a-z0-9.-], names it until it is committed. commit: writes it out (slow), names it; a layer of that
 * name is there already: success, this one is dropped.
 */
int pool_layer_begin(struct pool *p, const char *job, int *ret_fd) WARN_UNUSED;
int pool_layer_commit(struct pool *p, const char *job, const char *layer, const struct pool_chain *below) WARN_UNUSED;
int pool_layer_abandon(struct pool *p, const char *job) WARN_UNUSED; /* to the trash */

/* Clones a box's (or a kept upper's) files into a new layer above `below`. -EEXIST. Slow where clones are not cheap,
 * and where much was written last. */
int pool_layer_of_box(struct pool *p, const char *box, const char *layer, const struct pool_chain *below) WARN_UNUSED;
int pool_layer_of_kept(struct pool *p, const char *sandbox, const char *layer) WARN_UNUSED;

/* False: the box is surely as it was when this layer was made of it. */
bool pool_box_changed(struct pool *p, const char *box, const char *layer);

/* To the trash. Whether anybody needs it is the caller's to know. */
int pool_layer_drop(struct pool *p, const char *layer) WARN_UNUSED;
int pool_layer_each(struct pool *p, void (*fn)(void *ctx, const char *layer), void *ctx) WARN_UNUSED;
/* Bytes that are its own, as far as the kind knows, with its memory; 0: unknown. */
uint64_t pool_layer_bytes(struct pool *p, const char *layer);
bool pool_layer_exists(const struct pool *p, const char *layer);

/* ---- boxes ---- */

struct pool_file {
    const char *path; /* relative, of at most one directory level: "etc/hosts" */
    const char *text;
};

struct pool_box {
    const char *name;
    /*
     * What its files begin as. Neither: empty, above `chain` as it is. from_layer: a clone of the topmost layer of
     * `chain`, so that it lies above chain->names[1..]; that keeps chains short. from_kept: the files kept under this
     * name, which are not kept any more afterwards.
     */
    bool from_layer;
    const char *from_kept;
    const struct pool_chain *chain;
    const struct pool_file *files; /* put into it: owned by root inside, mode 0644 */
    size_t n_files;
    uint64_t limit_bytes; /* 0: none */
};

/* O_PATH descriptor of the directory that holds u/ and w/. A w/ of before is emptied of what would keep overlayfs from
 * taking it. */
int pool_box_make(struct pool *p, const struct pool_box *box, int *ret_fd) WARN_UNUSED;
/* -EOPNOTSUPP: the pool has no limits. -ENODATA: it had none when the files of the box were first made. */
int pool_box_limit(struct pool *p, const char *name, uint64_t limit_bytes) WARN_UNUSED;
int pool_box_usage(struct pool *p, const char *name, uint64_t *ret_bytes) WARN_UNUSED;

/*
 * What a clone would have to write out first; 0: nothing, or not known. Where nothing tells boxes apart, of all of
 * them.
 */
uint64_t pool_box_dirty_bytes(struct pool *p, const char *name);

/*
 * Writes out what of it is not on disk yet (slow), while it lives: a clone soon afterwards has little left to write.
 * Nothing to do where clones copy.
 */
int pool_box_settle(struct pool *p, const char *name) WARN_UNUSED;

/*
 * Another root beside a box's own: it counts as the box's, and goes along when that is cloned or kept. key: one
 * component of a path. Above what such a root of that key has written in `below`, the box's layers, lies `root`.
 * *ret_fd: as of pool_box_make(); ret_lower: O_PATH descriptors, topmost first. A job's. -E2BIG: too many layers.
 */
enum { POOL_LOWER_MAX = 32 };
struct pool_service {
    const char *box, *key;
    const struct pool_chain *below, *root;
    const struct pool_file *files; /* put into it, whatever is there */
    size_t n_files;
};
int pool_service_make(struct pool *p, const struct pool_service *s, int *ret_fd, int ret_lower[static POOL_LOWER_MAX],
                      size_t *ret_n) WARN_UNUSED;

/* Moves it to the trash at once. */
int pool_box_drop(struct pool *p, const char *name) WARN_UNUSED;

/* ---- kept uppers ---- */

/* Removes the box and keeps its files as `sandbox`. Nothing may be mounted on it. It is written out first (slow). */
int pool_keep(struct pool *p, const char *box, const char *sandbox, const struct pool_chain *below) WARN_UNUSED;
/* A clone of the box's files is kept, the box lives on; takes the place of one that is kept already. -EOPNOTSUPP where
 * clones are not cheap. */
int pool_keep_copy(struct pool *p, const char *box, const char *sandbox, const struct pool_chain *below) WARN_UNUSED;
/* What is kept as `sandbox` are from now on the files of this layer, on those below it. Slow where clones are not
 * cheap. */
int pool_keep_layer(struct pool *p, const char *layer, const char *sandbox) WARN_UNUSED;
int pool_kept_chain(struct pool *p, const char *sandbox, struct pool_chain *ret_below) WARN_UNUSED; /* -ENOENT */
int pool_kept_drop(struct pool *p, const char *sandbox) WARN_UNUSED;                                /* -ENOENT */
int pool_kept_each(struct pool *p, void (*fn)(void *ctx, const char *sandbox), void *ctx) WARN_UNUSED;

/* ---- memory ---- */

/*
 * What goes with a layer, or with the files that are kept of a sandbox: a directory, to be filled through *ret_fd with
 * plain files, which commit() names, in place of one before, once they are on disk (slow) if they are to last. Both are
 * a job's.
 */
int pool_memory_begin(struct pool *p, const char *name, int *ret_fd) WARN_UNUSED;
int pool_memory_commit(struct pool *p, const char *name, bool lasts) WARN_UNUSED;
int pool_memory_open(struct pool *p, const char *name, int *ret_fd) WARN_UNUSED; /* -ENOENT; O_RDONLY */
int pool_memory_drop(struct pool *p, const char *name) WARN_UNUSED;              /* -ENOENT */
uint64_t pool_memory_bytes(struct pool *p, const char *name);                    /* on disk; 0: there is none */
/* To the trash: that of layers that are no more, and that of sandboxes which nobody wants. */
int pool_memory_tidy(struct pool *p, bool (*is_wanted)(void *ctx, const char *name), void *ctx) WARN_UNUSED;

/* ---- volumes ---- */

/* -EEXIST; files owned by 1000:1000, 0755. owner: as of pool_own() */
int pool_volume_make(struct pool *p, const char *volume, uint64_t limit_bytes, uint64_t owner) WARN_UNUSED;
int pool_volume_open(struct pool *p, const char *volume, int *ret_fd) WARN_UNUSED; /* O_PATH, its files' directory */
int pool_volume_drop(struct pool *p, const char *volume) WARN_UNUSED;
int pool_volume_usage(struct pool *p, const char *volume, uint64_t *ret_bytes, uint64_t *ret_limit) WARN_UNUSED;
int pool_volume_each(struct pool *p, void (*fn)(void *ctx, const char *volume), void *ctx) WARN_UNUSED;

/* ---- owners ---- */

/*
 * Whatever boxes and volumes of one owner have written counts for it until it is off the disk: also what only clones
 * still have, of whomever, when the box or volume is deleted. Without features.owners both do nothing. owner: below
 * 2^24; 0: nobody.
 */
enum { POOL_OWNER_BITS = 24 };
enum pool_entry { POOL_BOX, POOL_KEPT, POOL_VOLUME, POOL_JOB /* a layer in the making */ };
/* With all that it has; for good. After pool_owner_limit(). */
int pool_own(struct pool *p, enum pool_entry what, const char *name, uint64_t owner) WARN_UNUSED;
int pool_owner_limit(struct pool *p, uint64_t owner, uint64_t limit_bytes) WARN_UNUSED; /* 0: none */
int pool_owner_usage(struct pool *p, uint64_t owner, uint64_t *ret_bytes) WARN_UNUSED;

/* ---- the whole ---- */

struct pool_space {
    uint64_t total, free; /* bytes; free: what can still be written, with what it may grow by */
};
int pool_space(struct pool *p, struct pool_space *ret_space) WARN_UNUSED;

/* A pool whose file system is in a file on the host, and may grow there. */
struct pool_backing {
    int file_fd, device_fd; /* kernel/pool/loopfile.h; borrowed */
    int host_fd;            /* a directory on the host's file system; borrowed */
    uint64_t reserve_bytes; /* what stays free there */
    uint64_t most_bytes;    /* that the file may have; 0: as many as there is room for */
};
void pool_set_backing(struct pool *p, const struct pool_backing *backing);
bool pool_is_backed(const struct pool *p);
/* One step, when less than a quarter is free and the host has room. 1: it has grown, 0: it need not, or can't. Takes
 * milliseconds. */
int pool_grow(struct pool *p) WARN_UNUSED;
/*
 * Takes from the host what the file system has set aside for its metadata, as far as the reserve stays: when others
 * fill the host's disk, btrfs becomes read-only if it can't write that, and only then.
 */
int pool_secure(struct pool *p) WARN_UNUSED;

/* What a process that died while it made a layer or kept upper of this name left half-made goes to the trash. */
void pool_forget(struct pool *p, const char *name);

/* Moves everything half-made to the trash, and every box but those that `spares`, which is asked by name, wants to
 * keep. NULL: none. For the start after a crash. */
int pool_reset(struct pool *p, bool (*spares)(void *ctx, const char *name), void *ctx) WARN_UNUSED;

enum { POOL_STOCK = 64 }; /* of a kind */

/* Makes up to `most` of the empty boxes that should be ready, because making them takes long; returns how many it made,
 * 0: all are there. Slow. */
int pool_stock_fill(struct pool *p, size_t most) WARN_UNUSED;

/* Deletes what is in the trash; returns the number deleted. Slow: for a process of its own. */
int pool_sweep(struct pool *p) WARN_UNUSED;
int pool_sweep_some(struct pool *p, int most) WARN_UNUSED; /* the same of at most so many */
/*
 * Has the kernel forget deleted boxes, layers and volumes that nothing on the disk counts for any more. In a file
 * system of the pool's own.
 */
int pool_owners_tidy(struct pool *p) WARN_UNUSED;
