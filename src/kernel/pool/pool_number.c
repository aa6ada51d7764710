/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inode numbers on btrfs. Every subvolume counts from 257, and an overlay of several shows their numbers as they are,
 * under one device. So a file of a layer and one of the box above it could have the same number, and whoever compares
 * these (cp, mv, cat, tar) took them for one file.
 *
 *  1. A layer that is not made of a box counts from far up, a box above no others from 257 on.
 *  2. A box above layers made of boxes counts from beyond what these have.
 *
 * A subvolume can't be told where to begin, but one that is cloned goes on counting. So there are seeds: seeds/<i> has
 * nothing but an empty u/, whose number is beyond i * seed_step. They are made once, by counting. A box for which there
 * is no seed begins as a copy of the layer below it and goes on counting.
 *
 * A clone takes a commit of the file system. So there is a stock of them: stock/<i>.<n>, for each i that has a file
 * stock/<i>; it has one since it was first asked for. Taking one is a rename.
 */
#include "base/fd.h"
#include "kernel/pool/pool_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SEEDS = POOL_SEEDS, SEED_NAME_MAX = 24 };

static void seed_name(uint32_t i, char ret_name[static SEED_NAME_MAX])
{
    (void)snprintf(ret_name, SEED_NAME_MAX, "%u", (unsigned)i);
}

static bool pool_number_is_there(const struct pool *p, uint32_t i)
{
    char name[SEED_NAME_MAX];
    seed_name(i, name);
    return faccessat(p->seeds_fd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void stock_name(uint32_t i, uint32_t n, char ret_name[static SEED_NAME_MAX])
{
    (void)snprintf(ret_name, SEED_NAME_MAX, "%u.%u", (unsigned)i, (unsigned)n);
}

static bool has_numbers(const struct pool *p)
{
    return p->seeds_fd >= 0;
}

/* Each unnamed file takes a number that is not given again. */
static int count_to(int entry_fd, uint64_t number)
{
    struct stat st = {.st_ino = 0};
    while (st.st_ino < number) {
        AUTO_CLOSE int fd = openat(entry_fd, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
        if (fd < 0 || fstat(fd, &st) < 0)
            return -errno;
    }
    return 0;
}

static int make_seed(struct pool *p, const char *counting, int entry_fd, uint32_t i)
{
    char name[SEED_NAME_MAX];
    seed_name(i, name);
    int r = count_to(entry_fd, (uint64_t)i * p->seed_step);
    if (r == 0 && unlinkat(entry_fd, "u", AT_REMOVEDIR) < 0 && errno != ENOENT)
        r = -errno;
    if (r == 0 && (mkdirat(entry_fd, "u", 0755) < 0 || fchmodat(entry_fd, "u", 0755, 0) < 0))
        r = -errno;
    r = r ? r : p->ops->clone(p, p->new_fd, counting, p->seeds_fd, name, false);
    return r == -EEXIST ? 0 : r; /* another process's */
}

static int ask_for_stock(struct pool *p, uint32_t i)
{
    char name[SEED_NAME_MAX];
    seed_name(i, name);
    AUTO_CLOSE int fd = openat(p->stock_fd, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? -errno : 0;
}

static int make_seeds(struct pool *p)
{
    char counting[POOL_ENTRY_MAX];
    AUTO_CLOSE int entry = -1;
    uint32_t i = SEEDS;
    while (i && !pool_number_is_there(p, i))
        i--;
    if (i == SEEDS)
        return 0;
    int asked UNUSED = ask_for_stock(p, 1); /* of copies of what began above a bottom: most */
    pool_unique("seeds", counting);
    char from[SEED_NAME_MAX];
    seed_name(i, from);
    int r = i ? p->ops->clone(p, p->seeds_fd, from, p->new_fd, counting, false)
              : p->ops->make(p, p->new_fd, counting, false);
    if (r < 0)
        return r;
    r = pool_entry_open(p->new_fd, counting, &entry);
    while (r == 0 && i < SEEDS)
        r = make_seed(p, counting, entry, ++i);
    if (p->ops->remove(p, p->new_fd, counting) < 0)
        pool_discard(p, p->new_fd, counting);
    return r;
}

/* A layer's highest number: that of what was written into it last. 0: not known. */
static uint64_t last_number(const struct pool *p, const char *layer)
{
    char bytes[POOL_LAYER_MAX + 8];
    struct stat st;
    (void)snprintf(bytes, sizeof(bytes), "%s/bytes", layer);
    return fstatat(p->layers_fd, bytes, &st, AT_SYMLINK_NOFOLLOW) < 0 ? 0 : st.st_ino;
}

/* The highest number of the layers made of boxes; 0: there are none. */
static uint64_t last_of_boxes(const struct pool *p, const struct pool_chain *chain)
{
    const uint64_t far_up = (uint64_t)SEEDS * p->seed_step;
    uint64_t last = 0;
    for (size_t i = 0; chain && i < chain->n; i++) {
        uint64_t number = last_number(p, chain->names[i]);
        bool is_bottom = i + 1 == chain->n && number >= far_up;
        last = MAX(last, is_bottom ? 0 : number);
    }
    return last;
}

int pool_number_beyond(struct pool *p, int entry_fd, const struct pool_chain *chain)
{
    return has_numbers(p) ? count_to(entry_fd, last_of_boxes(p, chain)) : 0;
}

/* The seed that counts from beyond them. 0: none is needed; SEEDS: none does. */
static uint32_t find_seed(const struct pool *p, const struct pool_chain *chain)
{
    const uint64_t last = last_of_boxes(p, chain);
    return last ? (uint32_t)MIN(last / p->seed_step + 1, (uint64_t)SEEDS) : 0;
}

bool pool_chain_is_long(const struct pool *p, const struct pool_chain *chain)
{
    if (!p->features.cheap_clones)
        return false;
    return chain->n > POOL_CHAIN_PREFERRED ||
           (has_numbers(p) && pool_number_is_there(p, SEEDS) && find_seed(p, chain) == SEEDS);
}

int pool_numbered_layer(struct pool *p, int at, const char *name)
{
    char seed[SEED_NAME_MAX];
    if (!has_numbers(p))
        return p->ops->make(p, at, name, false);
    seed_name(SEEDS, seed);
    int r = make_seeds(p);
    return r ? r : p->ops->clone(p, p->seeds_fd, seed, at, name, false);
}

/* -ENOENT: there is none just now. */
static int take_from_stock(struct pool *p, uint32_t i, int at, const char *name)
{
    char ready[SEED_NAME_MAX];
    for (uint32_t k = 0; k < POOL_STOCK; k++) {
        uint32_t n = (p->stock_next[i] + k) % POOL_STOCK;
        stock_name(i, n, ready);
        if (renameat2(p->stock_fd, ready, at, name, RENAME_NOREPLACE) == 0) {
            p->stock_next[i] = (uint8_t)((n + 1) % POOL_STOCK);
            return 0;
        }
        if (errno != ENOENT)
            return -errno;
    }
    return -ENOENT;
}

struct stocking {
    struct pool *p;
    size_t most, made;
};

static int stock_one(void *ctx, const char *name)
{
    struct stocking *s = ctx;
    uint64_t i;
    if (str_to_u64(str_of(name), &i) < 0 || i == 0 || i >= SEEDS)
        return 0;
    for (uint32_t n = 0; n < POOL_STOCK && s->made < s->most; n++) {
        char ready[SEED_NAME_MAX];
        stock_name((uint32_t)i, n, ready);
        if (faccessat(s->p->stock_fd, ready, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            continue;
        int r = s->p->ops->clone(s->p, s->p->seeds_fd, name, s->p->stock_fd, ready, true);
        if (r < 0)
            return r;
        s->made++;
    }
    return 0;
}

int pool_stock_fill(struct pool *p, size_t most)
{
    struct stocking s = {p, most, 0};
    int r = has_numbers(p) ? pool_each(p->stock_fd, stock_one, &s) : 0;
    return r < 0 ? r : (int)s.made;
}

int pool_numbered_box(struct pool *p, const struct pool_chain *chain, int at, const char *name)
{
    char seed[SEED_NAME_MAX];
    uint32_t i = has_numbers(p) ? find_seed(p, chain) : 0;
    if (i == 0 || i == SEEDS || !pool_number_is_there(p, i))
        return p->ops->make(p, at, name, true);
    int r = take_from_stock(p, i, at, name);
    if (r != -ENOENT)
        return r;
    int ignored UNUSED = ask_for_stock(p, i);
    seed_name(i, seed);
    return p->ops->clone(p, p->seeds_fd, seed, at, name, true);
}
