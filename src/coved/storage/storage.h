/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the storage pool lies, and as which kind. Either in the directory <state>/pool, on whatever file system that
 * is; or on a btrfs of our own in the file <state>/pool.btrfs, which is mounted where only we see it and goes when we
 * do, however that comes.
 *
 *  1. What there is stays what it is: a pool with anything in it keeps its kind until the configuration names another.
 *     Nothing is converted.
 *  2. A new one is btrfs where that can be had, else reflink, else copy. What keeps it from being btrfs is logged.
 *  3. pool.btrfs appears whole, by a rename. Its lock (kernel/pool/loopfile.h) keeps two devices from ever being made
 *     of it.
 *  4. A file system that we have not made is used, never reconfigured: quotas are switched on in our own file only.
 */
#pragma once

#include "base/err.h"
#include "kernel/pool/pool.h"

struct config;
struct records;

/* Owns its descriptors. */
struct storage {
    int mount;   /* the pool's directory, as a detached mount */
    int host_fd; /* the state directory */
    int file_fd; /* pool.btrfs; -1: the pool is a directory */
    int device_fd;
    enum pool_kind kind;
    bool has_limits; /* of a directory */
    uint64_t reserve_bytes, most_bytes;
};

#define STORAGE_NONE ((struct storage){.mount = -1, .host_fd = -1, .file_fd = -1, .device_fd = -1})

struct storage_choice {
    enum pool_kind kind; /* of a directory: at best */
    bool in_file;
    bool is_new;     /* nothing is there yet */
    bool is_forced;  /* the configuration says so */
    char other[160]; /* what else lies there unused, for people; "": nothing */
};

/* What storage_open() would begin with; looks and changes nothing. Needs no lock. */
void storage_choose(const struct config *config, struct storage_choice *ret_choice);

/*
 * Under the state directory's lock. Waits for what a process that died still holds, for half a minute at most. records,
 * or NULL: whose pool.btrfs an earlier coved has left there is mounted once more, through the same device.
 */
int storage_open(const struct config *config, struct records *records, struct storage *ret_storage,
                 struct err *err) WARN_UNUSED;
void storage_close(struct storage *s);

/* dir: where s->mount is attached by now. */
int storage_pool(const struct storage *s, const char *dir, struct pool **ret_pool, struct err *err) WARN_UNUSED;
