/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/vm/ram.h"
#include "base/buf.h"
#include "base/dir.h"
#include "base/fd.h"
#include "tier/vm/remap.h"

#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, RUN_PAGES = 256, MAPS_MAX = 1 << 20, RAM_PATH_TEXT = 96, RAM_LOOK_USEC = 200 };

/* Bits of /proc/PID/pagemap. */
#define RAM_PRESENT (1ULL << 63)
#define RAM_SWAPPED (1ULL << 62)
#define RAM_OF_FILE (1ULL << 61)

struct ram_place {
    uint64_t from, to;
    uint64_t first_to; /* of the first of the mappings that it consists of */
};

static int ram_open(int proc_fd, pid_t pid, const char *what, int *ret_fd)
{
    char path[RAM_PATH_TEXT + 16];
    (void)snprintf(path, sizeof(path), "%d/%s", pid, what);
    *ret_fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    return *ret_fd < 0 ? -errno : 0;
}

static int ram_find_monitor(int proc_fd, pid_t parent, uid_t uid, pid_t *ret_pid)
{
    char path[RAM_PATH_TEXT], *end = NULL;
    struct stat st;
    AUTO_BUF struct buf b = BUF_INIT(4096);
    (void)snprintf(path, sizeof(path), "%d/task/%d/children", parent, parent);
    int r = fd_read_file(proc_fd, path, &b);
    (void)buf_append_char(&b, 0);
    if (r < 0 || buf_error(&b))
        return r < 0 ? r : -ESRCH;
    for (const char *at = buf_data(&b); *at; at = end) {
        long pid = strtol(at, &end, 10);
        if (end == at)
            break;
        (void)snprintf(path, sizeof(path), "%ld", pid);
        if (fstatat(proc_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == uid) {
            *ret_pid = (pid_t)pid;
            return 0;
        }
    }
    return -ESRCH;
}

/* A line of /proc/PID/maps: a private, writable mapping of a file? */
static bool ram_read_line(const char *line, struct ram_place *ret_place, unsigned long long *ret_inode)
{
    char *at = NULL;
    const unsigned long long from = strtoull(line, &at, 16), to = *at == '-' ? strtoull(at + 1, &at, 16) : 0;
    if (strncmp(at, " rw-p ", 6) != 0)
        return false;
    (void)strtoull(at + 6, &at, 16); /* offset */
    at = strchr(at + 1, ' ');        /* behind the device */
    *ret_inode = at ? strtoull(at, NULL, 10) : 0;
    *ret_place = (struct ram_place){from, to, to};
    return *ret_inode;
}

/* The first mappings side by side of one file, private and writable, that are as large as the memory. */
static int ram_find_place(int proc_fd, pid_t pid, uint64_t bytes, struct ram_place *ret_place)
{
    AUTO_BUF struct buf b = BUF_INIT(MAPS_MAX);
    AUTO_CLOSE int fd = -1;
    struct ram_place p = {0}, next;
    unsigned long long inode = 0, next_inode;
    int r = ram_open(proc_fd, pid, "maps", &fd);
    r = r ? r : fd_read_all(fd, &b);
    (void)buf_append_char(&b, 0);
    if (r < 0 || buf_error(&b))
        return r < 0 ? r : -ENOBUFS;
    for (const char *line = buf_data(&b); line && *line; line = strchr(line, '\n'), line += line != NULL) {
        if (!ram_read_line(line, &next, &next_inode)) {
            inode = 0;
            continue;
        }
        if (next_inode == inode && next.from == p.to)
            p.to = next.to;
        else
            p = next;
        inode = next_inode;
        if (p.to - p.from == bytes) {
            *ret_place = p;
            return 0;
        }
    }
    return -ENODATA;
}

int ram_clone(int from, int to)
{
    if (ioctl(to, FICLONE, from) == 0)
        return 0;
    for (off_t at = 0, end; (at = lseek(from, at, SEEK_DATA)) >= 0; at = end) {
        end = lseek(from, at, SEEK_HOLE);
        for (off_t out = at; at < end;) {
            ssize_t n = copy_file_range(from, &at, to, &out, (size_t)(end - at), 0);
            if (n <= 0)
                return n < 0 ? -errno : -EIO;
        }
    }
    return errno == ENXIO ? 0 : -errno;
}

/* What the memory began as: shared with what is saved of it, where the file system can. */
static int ram_begin(int proc_fd, pid_t pid, const struct ram_place *p, uint64_t bytes, int to, bool *ret_blank)
{
    char path[RAM_PATH_TEXT];
    struct stat st;
    AUTO_CLOSE int base = -1;
    (void)snprintf(path, sizeof(path), "map_files/%" PRIx64 "-%" PRIx64, p->from, p->first_to);
    int r = ram_open(proc_fd, pid, path, &base);
    if (r == 0 && fstat(base, &st) < 0)
        r = -errno;
    *ret_blank = r == 0 && S_ISCHR(st.st_mode);
    if (r == 0 && !*ret_blank && ((uint64_t)st.st_size != bytes || !S_ISREG(st.st_mode)))
        r = -ENODATA;
    return r || *ret_blank ? r : ram_clone(base, to);
}

static bool ram_is_own(uint64_t page)
{
    return (page & (RAM_PRESENT | RAM_SWAPPED)) && !(page & RAM_OF_FILE);
}

static bool ram_is_zero(const char *p, size_t n)
{
    return p[0] == 0 && memcmp(p, p + 1, n - 1) == 0;
}

static int ram_copy_run(int mem, uint64_t from, int to, uint64_t at, size_t n, bool is_blank)
{
    static char block[RUN_PAGES * PAGE];
    ssize_t got = pread(mem, block, n, (off_t)(from + at));
    if (got != (ssize_t)n)
        return got < 0 ? -errno : -EIO;
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && !(is_blank && ram_is_zero(block + end, PAGE)); end += PAGE)
            ;
        ssize_t written = pwrite(to, block + i, end - i, (off_t)(at + i));
        if (written != (ssize_t)(end - i))
            return written < 0 ? -errno : -ENOSPC;
        end += PAGE; /* the empty one */
    }
    return 0;
}

static int ram_copy_own(int pagemap, int mem, const struct ram_place *p, int to, bool is_blank, uint64_t *ret_own)
{
    uint64_t pages[RUN_PAGES];
    const uint64_t n_pages = (p->to - p->from) / PAGE;
    int r = 0;
    *ret_own = 0;
    for (uint64_t at = 0; r == 0 && at < n_pages; at += RUN_PAGES) {
        const size_t n = (size_t)MIN((uint64_t)RUN_PAGES, n_pages - at);
        if (pread(pagemap, pages, n * sizeof(*pages), (off_t)((p->from / PAGE + at) * sizeof(*pages))) !=
            (ssize_t)(n * sizeof(*pages)))
            return -EIO;
        for (size_t i = 0, end; r == 0 && i < n; i = end) {
            for (end = i; end < n && ram_is_own(pages[end]); end++)
                ;
            if (end > i)
                r = ram_copy_run(mem, p->from, to, (at + i) * PAGE, (end - i) * PAGE, is_blank);
            *ret_own += (end - i) * PAGE;
            end += end == i;
        }
    }
    return r;
}

int ram_save(int proc_fd, pid_t parent, uid_t uid, uint64_t bytes, int dir_fd, const char *name, uint64_t *ret_own)
{
    struct ram_place p;
    bool is_blank = false;
    pid_t pid = 0;
    AUTO_CLOSE int pagemap = -1, mem = -1;
    AUTO_CLOSE int to = openat(dir_fd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (to < 0 || ftruncate(to, (off_t)bytes) < 0)
        return -errno;
    int r = ram_find_monitor(proc_fd, parent, uid, &pid);
    r = r ? r : ram_find_place(proc_fd, pid, bytes, &p);
    r = r ? r : ram_open(proc_fd, pid, "pagemap", &pagemap);
    r = r ? r : ram_open(proc_fd, pid, "mem", &mem);
    r = r ? r : ram_begin(proc_fd, pid, &p, bytes, to, &is_blank);
    return r ? r : ram_copy_own(pagemap, mem, &p, to, is_blank, ret_own);
}

/* The number that the process has this file open as. */
static int ram_find_open(int proc_fd, pid_t pid, const struct stat *file, int *ret_fd)
{
    char path[RAM_PATH_TEXT];
    struct stat st;
    (void)snprintf(path, sizeof(path), "%d/fd", pid);
    AUTO(dir_close) DIR *dir = dir_open(proc_fd, path);
    if (!dir)
        return -errno;
    for (const struct dirent *e; (e = dir_next(dir));)
        if (fstatat(dirfd(dir), e->d_name, &st, 0) == 0 && st.st_ino == file->st_ino && st.st_dev == file->st_dev) {
            *ret_fd = (int)strtol(e->d_name, NULL, 10);
            return 0;
        }
    return -EAGAIN;
}

int ram_share(int proc_fd, pid_t parent, uid_t uid, uint64_t bytes, int file_fd, usec_t patience)
{
    const usec_t until = clock_mono() + patience;
    struct ram_place p, after;
    struct stat file = {.st_size = 0};
    pid_t pid = 0, still = 0;
    int fd = -1, r = ram_find_monitor(proc_fd, parent, uid, &pid);
    AUTO_CLOSE int pidfd = r ? -1 : pidfd_open(pid, 0);
    if (r == 0 && (pidfd < 0 || fstat(file_fd, &file) < 0))
        r = -errno;
    r = r ? r : ram_find_monitor(proc_fd, parent, uid, &still);
    if (r == 0 && (still != pid || (uint64_t)file.st_size != bytes))
        r = -ESRCH;
    r = r ? r : ram_find_place(proc_fd, pid, bytes, &p);
    while (r == 0 && (r = ram_find_open(proc_fd, pid, &file, &fd)) == -EAGAIN && clock_mono() < until)
        r = usleep(RAM_LOOK_USEC) < 0 ? -errno : 0;
    r = r || fd >= 0 ? r : -EAGAIN;
    if (r < 0 || (r = remap(pidfd, pid, p.from, bytes, fd, patience)) == 0)
        return r;
    if (ram_find_place(proc_fd, pid, bytes, &after) < 0 || after.from != p.from)
        (void)pidfd_send_signal(pidfd, SIGKILL, NULL, 0);
    return r;
}
