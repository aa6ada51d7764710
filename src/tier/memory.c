/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/memory.h"
#include "base/buf.h"
#include "base/dir.h"
#include "base/fault.h"
#include "base/fd.h"
#include "kernel/pool/pool.h"
#include "tier/tier.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MEMORY_FILES_MAX = 16, MEMORY_NAME_MAX = 64, MEMORY_TEXT_MAX = 4096 };

#define MEMORY_MANIFEST "cove"
#define MEMORY_MARK "taken"
#define MEMORY_FORM "cove-memory 1"

static void memory_describe(const struct memory_maker *by, struct buf *b)
{
    (void)buf_printf(b, MEMORY_FORM "\n%s\n%s\n%s\n", COVE_VERSION, by->tier->name, by->version);
    (void)buf_printf(b, "%llu %u\n", (unsigned long long)by->limits->memory_bytes, by->limits->cpu_milli);
}

/* What was written by who may be anybody is ours from here on, plain files only, and never changes. */
static int memory_settle(int dir_fd, struct buf *b)
{
    AUTO(dir_close) DIR *dir = dir_open(dir_fd, ".");
    int r = 0, n = 0;
    if (!dir || fchown(dir_fd, 0, 0) < 0)
        return -errno;
    for (const struct dirent *e; r == 0 && (e = dir_next(dir));) {
        struct stat st;
        AUTO_CLOSE int fd = openat(dir_fd, e->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0 || fchown(fd, 0, 0) < 0 || fchmod(fd, 0444) < 0)
            r = -errno;
        else if (!S_ISREG(st.st_mode) || strlen(e->d_name) >= MEMORY_NAME_MAX || strchr(e->d_name, '\n') ||
                 ++n > MEMORY_FILES_MAX)
            r = -EBADMSG;
        else
            (void)buf_printf(b, "%lld %s\n", (long long)st.st_size, e->d_name);
    }
    return r ? r : n ? 0 : -ENODATA;
}

int memory_save(const struct tier_host *host, const char *name, const struct memory_maker *by, const struct box *box,
                struct tier_saving *saving)
{
    AUTO_BUF struct buf b = BUF_INIT(MEMORY_TEXT_MAX);
    AUTO_CLOSE int fd = -1;
    int r = pool_memory_begin(host->pool, name, &fd);
    saving->dir_fd = fd;
    fault_point("coved.memory.begun");
    r = r ? r : by->tier->checkpoint(host, box, saving);
    fault_point("coved.memory.saved");
    memory_describe(by, &b);
    r = r ? r : memory_settle(fd, &b);
    r = r ? r : fd_write_file(fd, MEMORY_MANIFEST, buf_str(&b), 0444);
    r = r ? r : pool_memory_commit(host->pool, name, !saving->passes);
    fault_point("coved.memory.named");
    if (r < 0)
        pool_forget(host->pool, name);
    return r;
}

/* ---- and back ---- */

static int memory_check_file(int dir_fd, struct str line, struct err *err)
{
    struct str size, name = line;
    struct stat st;
    char path[MEMORY_NAME_MAX];
    uint64_t bytes;
    if (!str_split(&name, ' ', &size) || str_to_u64(size, &bytes) < 0 || !name.n || name.n >= sizeof(path))
        return err_set(err, ERR_DATA_LOSS, "the saved memory can't be read");
    (void)snprintf(path, sizeof(path), "%.*s", STR_ARG(name));
    if (fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0 || (uint64_t)st.st_size != bytes)
        return err_set(err, ERR_DATA_LOSS, "the saved memory is damaged: %s does not have the size it was written with",
                       path);
    return 0;
}

static int memory_check(int dir_fd, struct str text, const struct memory_maker *want, struct err *err)
{
    static const char *const whats[] = {"format", "version of Cove", "tier", "version of the tier", "size"};
    AUTO_BUF struct buf b = BUF_INIT(MEMORY_TEXT_MAX);
    struct str ours, has, is;
    memory_describe(want, &b);
    ours = buf_str(&b);
    for (size_t i = 0; i < ARRAY_SIZE(whats); i++) {
        bool is_free = i + 1 == ARRAY_SIZE(whats) && !want->tier->is_sized;
        if (!str_split(&text, '\n', &has) || !str_split(&ours, '\n', &is))
            return err_set(err, ERR_DATA_LOSS, "the saved memory can't be read");
        if (!str_eq(has, is) && !is_free)
            return err_set(err, ERR_FAILED_PRECONDITION, "the saved memory is of another %s (%.*s, not %.*s)", whats[i],
                           (int)MIN(has.n, (size_t)64), has.p, STR_ARG(is));
    }
    while (text.n && str_split(&text, '\n', &has))
        if (memory_check_file(dir_fd, has, err) < 0)
            return -1;
    return 0;
}

int memory_open(const struct tier_host *host, const char *name, const struct memory_maker *want, int *ret_fd,
                struct err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(MEMORY_TEXT_MAX);
    AUTO_CLOSE int fd = -1;
    int r = pool_memory_open(host->pool, name, &fd);
    r = r ? r : fd_read_file(fd, MEMORY_MANIFEST, &text);
    if (r == -ENOENT)
        return err_set(err, ERR_NOT_FOUND, "no memory is saved of %s", name);
    if (r < 0)
        return err_errno(err, r, "read the saved memory of %s", name);
    if (memory_check(fd, buf_str(&text), want, err) < 0)
        return err_prefix(err, "%s can't go on where it was; it can start anew on its files", name);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int memory_mark(const struct tier_host *host, const char *name, bool marked)
{
    AUTO_CLOSE int fd = -1;
    int r = pool_memory_open(host->pool, name, &fd);
    if (r < 0)
        return r;
    if (marked)
        r = fd_write_file(fd, MEMORY_MARK, STR(""), 0400);
    else if (unlinkat(fd, MEMORY_MARK, 0) < 0 && errno != ENOENT)
        r = -errno;
    return r == 0 && fsync(fd) < 0 ? -errno : r; /* a power cut must not take it off */
}

bool memory_is_good(const struct tier_host *host, const char *name)
{
    AUTO_CLOSE int fd = -1;
    return pool_memory_open(host->pool, name, &fd) == 0 && faccessat(fd, MEMORY_MARK, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
}
