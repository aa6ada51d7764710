/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/fd.h"
#include "kernel/pool/pool_internal.h"

#include <fcntl.h>
#include <unistd.h>

bool pool_is_digest(const char *digest)
{
    size_t n = strnlen(digest, POOL_LAYER_MAX);
    return n == 7 + 64 && strncmp(digest, "sha256-", 7) == 0 && str_is_hex(str_n(digest + 7, 64));
}

bool pool_is_layer(const char *name)
{
    size_t n = strnlen(name, POOL_LAYER_MAX);
    return pool_is_digest(name) ||
           (n == 6 + 20 && strncmp(name, "layer-", 6) == 0 && str_is_of(str_n(name + 6, 20), "a-z0-9"));
}

int pool_below_parse(struct str text, size_t most, struct pool_chain *ret_chain)
{
    struct pool_chain c = {0};
    assert(most <= POOL_CHAIN_MAX);
    if (text.n && !str_ends(text, STR("\n")))
        return -EBADMSG;
    while (text.n) {
        ssize_t end = str_find_char(text, '\n');
        if (end < 0 || end >= POOL_LAYER_MAX || c.n == most || str_has_nul(str_n(text.p, (size_t)end)))
            return -EBADMSG;
        memcpy(c.names[c.n], text.p, (size_t)end);
        c.names[c.n][end] = 0;
        if (!pool_is_layer(c.names[c.n]))
            return -EBADMSG;
        for (size_t i = 0; i < c.n; i++)
            if (strcmp(c.names[i], c.names[c.n]) == 0)
                return -EBADMSG;
        c.n++;
        text = str_sub(text, (size_t)end + 1);
    }
    *ret_chain = c;
    return 0;
}

int pool_below_read(int entry_fd, size_t most, struct pool_chain *ret_chain)
{
    AUTO_BUF struct buf b = BUF_INIT(POOL_BELOW_MAX);
    int r = fd_read_file(entry_fd, "below", &b);
    if (r < 0)
        return r == -ENOBUFS || r == -ENOENT ? -EBADMSG : r;
    return pool_below_parse(buf_str(&b), most, ret_chain);
}

int pool_below_write(int entry_fd, const struct pool_chain *chain)
{
    AUTO_BUF struct buf b = BUF_INIT(POOL_BELOW_MAX);
    for (size_t i = 0; chain && i < chain->n; i++)
        (void)buf_printf(&b, "%s\n", chain->names[i]);
    return buf_error(&b) ? buf_error(&b) : fd_write_file(entry_fd, "below", buf_str(&b), 0600);
}

bool pool_below_is(int entry_fd, const struct pool_chain *chain)
{
    struct pool_chain there;
    size_t n = chain ? chain->n : 0;
    if (pool_below_read(entry_fd, POOL_CHAIN_MAX, &there) < 0 || there.n != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (strcmp(there.names[i], chain->names[i]) != 0)
            return false;
    return true;
}

int pool_chain_check(struct pool *p, const struct pool_chain *chain, size_t most)
{
    if (chain && chain->n > most)
        return -E2BIG;
    for (size_t i = 0; chain && i < chain->n; i++) {
        if (!pool_is_layer(chain->names[i]))
            return -EINVAL;
        if (faccessat(p->layers_fd, chain->names[i], F_OK, AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
    }
    return 0;
}

int pool_chain_read(struct pool *p, const char *layer, struct pool_chain *ret_chain)
{
    struct pool_chain below = {0}, chain = {.n = 1};
    AUTO_CLOSE int entry = -1;
    if (!pool_is_layer(layer))
        return -EINVAL;
    int r = pool_entry_open(p->layers_fd, layer, &entry);
    r = r ? r : pool_below_read(entry, POOL_CHAIN_MAX - 1, &below);
    r = r ? r : pool_chain_check(p, &below, POOL_CHAIN_MAX - 1);
    if (r < 0)
        return r;
    (void)snprintf(chain.names[0], sizeof(chain.names[0]), "%s", layer);
    for (size_t i = 0; i < below.n; i++)
        memcpy(chain.names[chain.n++], below.names[i], sizeof(below.names[i]));
    *ret_chain = chain;
    return 0;
}

int pool_chain_open(struct pool *p, const struct pool_chain *chain, int *ret_fds)
{
    int fds[POOL_CHAIN_MAX], r = pool_chain_check(p, chain, POOL_CHAIN_MAX);
    if (r < 0)
        return r;
    for (size_t i = 0; i < chain->n; i++) {
        char path[POOL_LAYER_MAX + 4];
        (void)snprintf(path, sizeof(path), "%s/u", chain->names[i]);
        fds[i] = openat(p->layers_fd, path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fds[i] < 0) {
            r = -errno;
            while (i-- > 0)
                (void)fd_close(fds[i]);
            return r;
        }
    }
    memcpy(ret_fds, fds, chain->n * sizeof(fds[0]));
    return 0;
}
