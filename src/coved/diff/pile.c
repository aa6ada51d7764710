/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/diff/pile.h"
#include "base/fd.h"
#include "kernel/pool/pool.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { POOL_SHARDS_MOST = 256 };

/* Which of the directories that boxes are spread over has it, is the pool's business. */
static int open_own(struct pool *pool, const struct boxes_files *f, int *ret_fd)
{
    char path[128];
    int fd = -1;
    if (f->kept[0]) {
        (void)snprintf(path, sizeof(path), "kept/%s/u", f->kept);
        fd = openat(pool_fd(pool), path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    for (unsigned i = 0; fd < 0 && f->box[0] && i < POOL_SHARDS_MOST; i++) {
        (void)snprintf(path, sizeof(path), "boxes/%02x/%s/u", i, f->box);
        fd = openat(pool_fd(pool), path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    if (fd < 0)
        return -ENOENT;
    *ret_fd = fd;
    return 0;
}

int pile_open(struct pool *pool, const struct boxes_files *files, struct pile *ret_pile)
{
    struct pile *p = ret_pile;
    struct pool_chain chain = {.n = 0};
    int r = 0;
    if (files->box[0] || files->kept[0]) {
        r = open_own(pool, files, &p->fds[0]);
        p->n = r == 0;
    }
    r = r || !files->stands_on[0] ? r : pool_chain_read(pool, files->stands_on, &chain);
    r = r ? r : pool_chain_open(pool, &chain, p->fds + p->n);
    if (r < 0)
        return r;
    for (size_t i = 0; i < chain.n; i++)
        memcpy(p->names[p->n++], chain.names[i], sizeof(p->names[0]));
    return 0;
}

static bool is_one(int a, int b)
{
    struct stat x, y;
    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int pile_check(struct pool *pool, const struct boxes_files *files, const struct pile *pile)
{
    struct pile now = {.n = 0};
    int r = pile_open(pool, files, &now);
    if (r == -ENOENT || (r == 0 && now.n != pile->n))
        r = -ESTALE;
    for (size_t i = 0; i < now.n; i++) {
        if (r == 0 && !is_one(now.fds[i], pile->fds[i]))
            r = -ESTALE;
        (void)fd_close(now.fds[i]);
    }
    return r;
}
