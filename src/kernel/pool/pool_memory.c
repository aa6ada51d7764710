/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "kernel/pool/pool_internal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static int memory_entry(const char *name, char ret_entry[static POOL_ENTRY_MAX])
{
    if (!pool_is_name(name) && !pool_is_layer(name))
        return -EINVAL;
    (void)snprintf(ret_entry, POOL_ENTRY_MAX, "%s.memory", name);
    return 0;
}

int pool_memory_begin(struct pool *p, const char *name, int *ret_fd)
{
    char entry[POOL_ENTRY_MAX];
    int r = memory_entry(name, entry);
    if (r < 0)
        return r;
    pool_discard(p, p->new_fd, entry); /* of one who died over it */
    if (mkdirat(p->new_fd, entry, 0755) < 0)
        return -errno;
    r = pool_step(p, "pool.memory.begun");
    return r ? r : pool_entry_open(p->new_fd, entry, ret_fd);
}

static int memory_sync(void *ctx, const char *file)
{
    AUTO_CLOSE int fd = openat(*(const int *)ctx, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

int pool_memory_commit(struct pool *p, const char *name, bool lasts)
{
    char entry[POOL_ENTRY_MAX];
    AUTO_CLOSE int fd = -1;
    int r = memory_entry(name, entry);
    r = r ? r : pool_entry_open(p->new_fd, entry, &fd);
    r = r || !lasts ? r : pool_each(fd, memory_sync, &fd);
    if (r == 0 && lasts && fsync(fd) < 0)
        r = -errno;
    return r ? r : pool_put(p, p->new_fd, entry, p->memory_fd, name, POOL_PUT_EXCHANGE);
}

int pool_memory_open(struct pool *p, const char *name, int *ret_fd)
{
    char entry[POOL_ENTRY_MAX];
    int r = memory_entry(name, entry);
    return r ? r : pool_entry_open(p->memory_fd, name, ret_fd);
}

int pool_memory_drop(struct pool *p, const char *name)
{
    char entry[POOL_ENTRY_MAX];
    int r = memory_entry(name, entry);
    return r ? r : pool_to_trash(p, p->memory_fd, name);
}

struct memory_counting {
    int fd;
    uint64_t bytes;
};

static int memory_count(void *ctx, const char *file)
{
    struct memory_counting *c = ctx;
    struct stat st;
    if (fstatat(c->fd, file, &st, AT_SYMLINK_NOFOLLOW) == 0)
        c->bytes += (uint64_t)st.st_blocks * 512;
    return 0;
}

uint64_t pool_memory_bytes(struct pool *p, const char *name)
{
    AUTO_CLOSE int fd = -1;
    struct memory_counting c = {-1, 0};
    if (pool_memory_open(p, name, &fd) < 0)
        return 0;
    c.fd = fd;
    return pool_each(fd, memory_count, &c) < 0 ? 0 : c.bytes;
}

struct memory_tidying {
    struct pool *p;
    bool (*is_wanted)(void *ctx, const char *name);
    void *ctx;
};

static int memory_tidy(void *ctx, const char *name)
{
    const struct memory_tidying *t = ctx;
    bool stays = pool_is_layer(name) ? pool_layer_exists(t->p, name) || errno != ENOENT : t->is_wanted(t->ctx, name);
    return stays ? 0 : pool_to_trash(t->p, t->p->memory_fd, name);
}

int pool_memory_tidy(struct pool *p, bool (*is_wanted)(void *ctx, const char *name), void *ctx)
{
    struct memory_tidying t = {p, is_wanted, ctx};
    return pool_each(p->memory_fd, memory_tidy, &t);
}
