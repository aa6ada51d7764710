/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dir.h"
#include "base/fd.h"
#include "base/mem.h"
#include "image/apply/apply_internal.h"
#include "kernel/tree/tree.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { OPEN_TRIES = 64 };

static bool component_is_good(struct str part, bool last)
{
    if (part.n > APPLY_NAME_MAX || str_eq(part, STR("..")))
        return false;
    return last || !str_starts(part, STR(".wh."));
}

bool place_clean(const char *name, char ret_path[static PATH_TEXT_MAX])
{
    struct str rest = str_of(name), part, next = STR_NULL;
    size_t n = 0;
    if (rest.n == 0 || rest.n >= PATH_TEXT_MAX)
        return false;
    for (bool more = str_split(&rest, '/', &part); more; part = next) {
        do /* to know which component is the last */
            more = str_split(&rest, '/', &next);
        while (more && (next.n == 0 || str_eq(next, STR("."))));
        if (part.n == 0 || str_eq(part, STR(".")))
            continue;
        if (!component_is_good(part, !more))
            return false;
        if (n > 0)
            ret_path[n++] = '/';
        memcpy(ret_path + n, part.p, part.n);
        n += part.n;
    }
    ret_path[n] = '\0';
    return true;
}

/* With the root of the tree as the root of all links. A rename anywhere on the machine may ask for another try. */
static int open_in_root(const struct apply *a, const char *path, uint64_t flags)
{
    struct open_how how = {
        .flags = flags | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };
    long fd = -1;
    for (int tries = 0; tries < OPEN_TRIES; tries++) {
        fd = syscall(SYS_openat2, a->config.root_fd, path, &how, sizeof(how));
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
            break;
    }
    return fd < 0 ? -errno : (int)fd;
}

int place_open_directory(struct apply *a, const char *path, int *ret_fd)
{
    int fd = open_in_root(a, path[0] ? path : ".", O_RDONLY | O_NOFOLLOW);
    if (fd < 0)
        return fd;
    *ret_fd = fd;
    return 0;
}

static void drop_slot(struct place_slot *s)
{
    if (s->path)
        (void)fd_close(s->fd);
    mem_free(TAKE_PTR(s->path));
}

/* Makes what is missing of a path of directories, from the top. */
static int make_directories(struct apply *a, const char *path)
{
    char part[PATH_TEXT_MAX];
    const char *end = path;
    AUTO_CLOSE int at = fcntl(a->config.root_fd, F_DUPFD_CLOEXEC, 3);
    if (at < 0)
        return -errno;
    for (;;) {
        const char *from = end;
        end = from + strcspn(from, "/");
        size_t n = (size_t)(end - path);
        memcpy(part, path, n);
        part[n] = '\0';
        int fd = open_in_root(a, part, O_PATH);
        if (fd == -ENOENT) {
            char name[APPLY_NAME_MAX + 1];
            size_t length = (size_t)(end - from);
            memcpy(name, from, length);
            name[length] = '\0';
            if (a->entries >= a->config.max_entries)
                return -E2BIG;
            if (mkdirat(at, name, 0755) < 0)
                return errno == EEXIST ? -ENOTDIR : -errno; /* a link to nowhere is there */
            a->entries++;
            fd = open_in_root(a, part, O_PATH);
        }
        if (fd < 0)
            return fd;
        (void)fd_close(at);
        at = fd;
        if (!*end)
            return 0;
        end++;
    }
}

static int fill_slot(struct apply *a, struct place_slot *s, const char *path, bool make)
{
    int fd = open_in_root(a, path[0] ? path : ".", O_PATH);
    if (fd == -ENOENT && make) {
        int r = make_directories(a, path);
        if (r < 0)
            return r;
        fd = open_in_root(a, path, O_PATH);
    }
    if (fd < 0)
        return fd;
    struct stat st;
    if (fstat(fd, &st) < 0) {
        int r = -errno;
        (void)fd_close(fd);
        return r;
    }
    drop_slot(s);
    *s = (struct place_slot){.path = mem_strdup(path), .fd = fd, .ino = st.st_ino};
    return 0;
}

int place_find(struct apply *a, unsigned slot, const char *path, bool make, struct apply_place *ret_place)
{
    struct place_slot *s = &a->slots[slot];
    const char *slash = strrchr(path, '/');
    char parent[PATH_TEXT_MAX];
    size_t n = slash ? (size_t)(slash - path) : 0;
    memcpy(parent, path, n);
    parent[n] = '\0';
    if (!s->path || s->stale || strcmp(s->path, parent) != 0) {
        int r = fill_slot(a, s, parent, make);
        if (r < 0)
            return r;
    }
    *ret_place = (struct apply_place){.dir = s->fd, .ino = s->ino, .name = slash ? slash + 1 : path};
    return 0;
}

/* Directories that are open may be gone, or reached through a link that is. The one that is being worked in stays
 * open. */
static void distrust_slots(struct apply *a)
{
    for (size_t i = 0; i < ARRAY_SIZE(a->slots); i++)
        a->slots[i].stale = true;
}

static int remove_at(struct apply *a, int dir, const char *name)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode))
        distrust_slots(a);
    return tree_remove(dir, name);
}

int place_clear(struct apply *a, const struct apply_place *at)
{
    return remove_at(a, at->dir, at->name);
}

static uint64_t place_key(ino_t ino, const char *name)
{
    uint64_t h = 0xcbf29ce484222325ULL ^ (uint64_t)ino * 0x9e3779b97f4a7c15ULL;
    for (; *name; name++)
        h = (h ^ (unsigned char)*name) * 0x100000001b3ULL;
    h ^= h >> 32;
    return h * 0xd6e8feb86659fd93ULL;
}

void place_saw(struct apply *a, const struct apply_place *at)
{
    if (a->lower)
        (void)map_put_u64(&a->seen, place_key(at->ino, at->name), a);
}

int place_hide(struct apply *a, int dir, ino_t ino, const char *name, int depth)
{
    if (!map_get_u64(&a->seen, place_key(ino, name)))
        return remove_at(a, dir, name);
    AUTO_CLOSE int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) /* a file of this layer */
        return errno == ENOTDIR || errno == ELOOP || errno == ENOENT ? 0 : -errno;
    return place_hide_below(a, fd, depth + 1);
}

int place_hide_below(struct apply *a, int dir, int depth)
{
    if (depth > APPLY_HIDE_DEPTH)
        return -ELOOP;
    struct stat st;
    if (fstat(dir, &st) < 0)
        return -errno;
    /* Once in a layer: what comes into it afterwards is the layer's own. Looking again at all of that could take
     * hours. */
    const uint64_t done = place_key(st.st_ino, "");
    if (map_get_u64(&a->seen, done))
        return 0;
    (void)map_put_u64(&a->seen, done, a);
    AUTO(dir_close) DIR *list = dir_open(dir, ".");
    if (!list)
        return -errno;
    int r = 0;
    for (const struct dirent *e; r == 0 && (e = dir_next(list));)
        r = place_hide(a, dir, st.st_ino, e->d_name, depth);
    return r;
}

void place_forget(struct apply *a)
{
    map_fini(&a->seen);
    a->seen = MAP_INIT;
    for (size_t i = 0; i < ARRAY_SIZE(a->slots); i++)
        drop_slot(&a->slots[i]);
}
