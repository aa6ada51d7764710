/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/cgroup/cgroup.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/mem.h"
#include "kernel/cgroup/cgroup_internal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 64 * 1024, KILL_ROUNDS = 500 };

static void cgroup_join_group(char *to, size_t size, const char *name, const char *file)
{
    (void)snprintf(to, size, "%s/%s", name, file);
}

int cgroup_write(int parent_fd, const char *name, const char *file, const char *text)
{
    char path[CGROUP_NAME_MAX + 48];
    cgroup_join_group(path, sizeof(path), name, file);
    return fd_write_existing(parent_fd, path, str_of(text));
}

int cgroup_write_u64(int parent_fd, const char *name, const char *file, uint64_t v)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)v);
    return cgroup_write(parent_fd, name, file, text);
}

int cgroup_read_file(int parent_fd, const char *name, const char *file, struct buf *b)
{
    char path[CGROUP_NAME_MAX + 48];
    cgroup_join_group(path, sizeof(path), name, file);
    return fd_read_file(parent_fd, path, b);
}

int cgroup_read_u64(int parent_fd, const char *name, const char *file, uint64_t *ret_v)
{
    AUTO_BUF struct buf b = BUF_INIT(FILE_MAX);
    int r = cgroup_read_file(parent_fd, name, file, &b);
    if (r < 0)
        return r;
    struct str rest = buf_str(&b), line;
    return str_split(&rest, '\n', &line) ? str_to_u64(line, ret_v) : -EINVAL;
}

int cgroup_read_key(int parent_fd, const char *name, const char *file, const char *key, uint64_t *ret_v)
{
    AUTO_BUF struct buf b = BUF_INIT(FILE_MAX);
    int r = cgroup_read_file(parent_fd, name, file, &b);
    if (r < 0)
        return r;
    struct str rest = buf_str(&b), line, k;
    while (str_split(&rest, '\n', &line))
        if (str_split(&line, ' ', &k) && str_eqc(k, key))
            return str_to_u64(line, ret_v);
    return -ENOENT;
}

int cgroup_read_memory(int parent_fd, const char *name, const char *cache, struct cgroup_usage *usage)
{
    uint64_t active_anon = 0, inactive_anon = 0;
    const struct {
        const char *key;
        uint64_t *to;
    } wanted[] = {{cache, &usage->cache_bytes},
                  {"shmem", &usage->shmem_bytes},
                  {"sock", &usage->socket_bytes},
                  {"active_anon", &active_anon},
                  {"inactive_anon", &inactive_anon},
                  {"active_file", &usage->active_file_bytes},
                  {"inactive_file", &usage->inactive_file_bytes}};
    AUTO_BUF struct buf b = BUF_INIT(FILE_MAX);
    int r = cgroup_read_file(parent_fd, name, "memory.stat", &b);
    struct str rest = buf_str(&b), line, key;
    while (r == 0 && str_split(&rest, '\n', &line)) {
        bool is_pair = str_split(&line, ' ', &key);
        for (size_t i = 0; r == 0 && is_pair && i < ARRAY_SIZE(wanted); i++)
            if (str_eqc(key, wanted[i].key))
                r = str_to_u64(line, wanted[i].to);
    }
    usage->active_bytes = active_anon + usage->active_file_bytes;
    usage->inactive_bytes = inactive_anon + usage->inactive_file_bytes;
    return r;
}

int cgroup_limit_pids(int parent_fd, const char *name, uint32_t pids)
{
    return pids ? cgroup_write_u64(parent_fd, name, "pids.max", pids)
                : cgroup_write(parent_fd, name, "pids.max", "max");
}

int cgroup_read_pids(int parent_fd, const char *name, struct cgroup_usage *usage)
{
    uint64_t n = 0, refused = 0;
    int r = cgroup_read_u64(parent_fd, name, "pids.current", &n);
    usage->pids = (uint32_t)n;
    if (r == 0 && cgroup_read_key(parent_fd, name, "pids.events", "max", &refused) == 0)
        usage->pids_refused = (uint32_t)MIN(refused, (uint64_t)UINT32_MAX);
    return r;
}

int cgroup_is(int parent_fd, const char *name, const char *file, const char *text)
{
    AUTO_BUF struct buf b = BUF_INIT(FILE_MAX);
    int r = cgroup_read_file(parent_fd, name, file, &b);
    if (r < 0)
        return r;
    struct str rest = buf_str(&b), line;
    return str_split(&rest, '\n', &line) && str_eqc(line, text);
}

bool cgroup_has(int parent_fd, const char *file)
{
    return faccessat(parent_fd, file, F_OK, 0) == 0;
}

int cgroup_add_hierarchy(struct cgroup_tree *t, size_t index, const char *root_path)
{
    AUTO_CLOSE int root = open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        return -errno;
    if (mkdirat(root, t->parent, 0755) < 0 && errno != EEXIST)
        return -errno;
    int parent = openat(root, t->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0)
        return -errno;
    t->mount_fds[index] = TAKE_FD(root);
    t->parent_fds[index] = parent;
    t->n = MAX(t->n, index + 1);
    return 0;
}

static void close_all(struct cgroup_tree *t, bool remove_parent)
{
    for (size_t i = 0; i < CGROUP_DIRS_MAX; i++) {
        if (t->mount_fds[i] < 0)
            continue;
        t->parent_fds[i] = fd_close(t->parent_fds[i]);
        if (remove_parent)
            (void)unlinkat(t->mount_fds[i], t->parent, AT_REMOVEDIR);
        t->mount_fds[i] = fd_close(t->mount_fds[i]);
    }
    t->n = 0;
}

static struct cgroup_tree *new_tree(const char *name)
{
    struct cgroup_tree *t = mem_new(struct cgroup_tree);
    (void)snprintf(t->parent, sizeof(t->parent), "%s", name);
    for (size_t i = 0; i < CGROUP_DIRS_MAX; i++)
        t->mount_fds[i] = t->parent_fds[i] = -1;
    t->freezer_fd = -1;
    return t;
}

int cgroup_open_in(const char *dir, const char *name, struct cgroup_tree **ret_tree)
{
    if (strlen(name) >= CGROUP_NAME_MAX)
        return -ENAMETOOLONG;
    struct cgroup_tree *t = new_tree(name);
    int r = cgroup_v2_open_at(t, dir);
    if (r < 0) {
        cgroup_close(t, true);
        return r;
    }
    *ret_tree = t;
    return 0;
}

int cgroup_open(const char *name, int force_version, struct cgroup_tree **ret_tree)
{
    if (strlen(name) >= CGROUP_NAME_MAX)
        return -ENAMETOOLONG;
    struct cgroup_tree *t = new_tree(name);
    int r = force_version == 1 ? -ENOENT : cgroup_v2_open(t);
    if (r < 0 && force_version != 2) {
        close_all(t, true);
        int of_v2 = r;
        r = cgroup_v1_open(t);
        if (r == -ENOENT)
            r = of_v2; /* what keeps us from the version that there is */
    }
    if (r < 0) {
        cgroup_close(t, true);
        return r;
    }
    *ret_tree = t;
    return 0;
}

void cgroup_close(struct cgroup_tree *t, bool remove_parent)
{
    close_all(t, remove_parent);
    mem_free(t);
}

const struct cgroup_features *cgroup_features(const struct cgroup_tree *t)
{
    return &t->features;
}

int cgroup_limit_all(struct cgroup_tree *t, uint64_t pids)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->parent_fds[i] >= 0 && cgroup_has(t->parent_fds[i], "pids.max"))
            return cgroup_write_u64(t->parent_fds[i], ".", "pids.max", pids);
    return -ENOENT;
}

int cgroup_make(struct cgroup_tree *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (t->parent_fds[i] >= 0 && mkdirat(t->parent_fds[i], name, 0755) < 0 && errno != EEXIST)
            return -errno;
    return 0;
}

int cgroup_remove(struct cgroup_tree *t, const char *name)
{
    int r = cgroup_part_remove(t, name);
    if (r < 0)
        return r;
    for (size_t i = 0; i < t->n; i++)
        if (t->parent_fds[i] >= 0 && unlinkat(t->parent_fds[i], name, AT_REMOVEDIR) < 0 && errno != ENOENT)
            r = -errno;
    return r;
}

int cgroup_limit(struct cgroup_tree *t, const char *name, const struct cgroup_limits *limits)
{
    return t->ops->limit(t, name, limits);
}

int cgroup_door_open(struct cgroup_tree *t, const char *name, struct cgroup_door *ret_door)
{
    struct cgroup_door d = CGROUP_DOOR_NONE;
    if (t->features.version == 2) {
        int fd = openat(t->parent_fds[0], name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
            return -errno;
        d.group_fd = fd;
    }
    for (size_t i = 0; t->features.version == 1 && i < t->n; i++) {
        char path[CGROUP_NAME_MAX + 48];
        if (t->parent_fds[i] < 0)
            continue;
        /* Not cgroup.procs: "0" there moves all threads of the caller, for which it waits until every CPU has seen it,
         * often 15 ms. */
        cgroup_join_group(path, sizeof(path), name, "tasks");
        d.procs_fds[i] = openat(t->parent_fds[i], path, O_WRONLY | O_CLOEXEC);
        if (d.procs_fds[i] < 0) {
            int r = -errno;
            cgroup_door_close(&d);
            return r;
        }
    }
    *ret_door = d;
    return 0;
}

int cgroup_door_enter(const struct cgroup_door *d)
{
    for (size_t i = 0; i < CGROUP_DOOR_MAX; i++)
        if (d->procs_fds[i] >= 0 && write(d->procs_fds[i], "0", 1) != 1)
            return -errno;
    return 0;
}

void cgroup_door_close(struct cgroup_door *d)
{
    d->group_fd = fd_close(d->group_fd);
    for (size_t i = 0; i < CGROUP_DOOR_MAX; i++)
        d->procs_fds[i] = fd_close(d->procs_fds[i]);
}

int cgroup_attach(struct cgroup_tree *t, const char *name, pid_t pid)
{
    for (size_t i = 0; i < t->n; i++) {
        int r = t->parent_fds[i] < 0 ? 0 : cgroup_write_u64(t->parent_fds[i], name, "cgroup.procs", (uint64_t)pid);
        if (r < 0)
            return r;
    }
    return 0;
}

int cgroup_usage(struct cgroup_tree *t, const char *name, struct cgroup_usage *ret_usage)
{
    return t->ops->usage(t, name, ret_usage);
}

uint32_t cgroup_oom_kills(struct cgroup_tree *t, const char *name)
{
    return t->ops->oom_kills(t, name);
}

int cgroup_freeze(struct cgroup_tree *t, const char *name, bool frozen)
{
    return t->features.freeze ? t->ops->freeze(t, name, frozen) : -EOPNOTSUPP;
}

int cgroup_is_frozen(struct cgroup_tree *t, const char *name)
{
    return t->features.freeze ? t->ops->is_frozen(t, name) : -EOPNOTSUPP;
}

int cgroup_yield_memory(struct cgroup_tree *t, const char *name, bool first)
{
    return t->features.memory ? t->ops->yield_memory(t, name, first) : 0;
}

int cgroup_reclaim(struct cgroup_tree *t, const char *name)
{
    return t->features.reclaim ? t->ops->reclaim(t, name) : -EOPNOTSUPP;
}

int cgroup_kill(struct cgroup_tree *t, const char *name)
{
    if (t->features.version == 2 && cgroup_write(t->parent_fds[0], name, "cgroup.kill", "1") == 0)
        return 0;
    /* Without cgroup.kill (before Linux 5.14, and version 1): until a round finds nobody, since those killed may have
     * just forked. */
    size_t any = 0;
    while (any < t->n && t->parent_fds[any] < 0)
        any++;
    if (any == t->n)
        return -ENOENT;
    for (int round = 0; round < KILL_ROUNDS; round++) {
        if (round > 0)
            (void)poll(NULL, 0, 1);
        AUTO_BUF struct buf b = BUF_INIT(1 << 20);
        int r = cgroup_read_file(t->parent_fds[any], name, "cgroup.procs", &b);
        if (r < 0)
            return r == -ENOENT ? 0 : r;
        if (buf_len(&b) == 0)
            return 0;
        struct str rest = buf_str(&b), line;
        uint64_t pid;
        while (str_split(&rest, '\n', &line))
            if (line.n && str_to_u64(line, &pid) == 0 && pid > 1)
                (void)kill((pid_t)pid, SIGKILL);
        if (t->features.freeze)
            (void)t->ops->freeze(t, name, false);
        int thawed UNUSED = cgroup_part_is_there(t, name) ? cgroup_part_freeze(t, name, false) : 0;
    }
    return -EBUSY;
}

int cgroup_each(struct cgroup_tree *t, void (*fn)(void *ctx, const char *name), void *ctx)
{
    for (size_t i = 0; i < t->n; i++) {
        if (t->parent_fds[i] < 0)
            continue;
        AUTO(dir_close) DIR *dir = dir_open(t->parent_fds[i], ".");
        if (!dir)
            return -errno;
        for (const struct dirent *e; (e = dir_next(dir));)
            if (e->d_type == DT_DIR && e->d_name[0] != '.' && strlen(e->d_name) < CGROUP_NAME_MAX)
                fn(ctx, e->d_name);
    }
    return 0;
}
