/* SPDX-License-Identifier: Apache-2.0 */
/*
 * READ: a regular file's bytes, one frame whenever the session has room. Of a large one the disk is asked for the next
 * pieces while earlier ones are sent: the kernel's own reading ahead stops at what the device suggests, often 128 KiB.
 */
#include "agent/files/file.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { AHEAD_BYTES = 4 << 20 };

struct file_read_reading {
    struct agent_stream stream;
    int fd;     /* plus one, 0: none */
    char *path; /* owned */
    bool sized; /* it ends where fstat() said; else where read() finds the end */
    uint64_t left;
    uint64_t at, asked; /* offsets: up to where it was read, and read ahead */
};

/* Looked at before it is opened: opening a pipe or a device may do something already. */
static int file_read_open(const char *path, struct stat *ret_st, struct failure *f)
{
    if (stat(path, ret_st) < 0) {
        if (errno == ENOENT)
            return failure_set(f, ERR_NOT_FOUND, "path '%s' does not exist", path);
        return failure_errno(f, ERR_INTERNAL, errno, "error checking if path exists '%s': stat %s", path, path);
    }
    if (S_ISDIR(ret_st->st_mode))
        return failure_set(f, ERR_INVALID_ARGUMENT, "path '%s' is a directory", path);
    AUTO_CLOSE int fd = S_ISREG(ret_st->st_mode) ? open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC) : -1;
    if (S_ISREG(ret_st->st_mode) && fd < 0)
        return failure_errno(f, ERR_INTERNAL, errno, "error opening file '%s': open %s", path, path);
    if (fd < 0 || fstat(fd, ret_st) < 0 || !S_ISREG(ret_st->st_mode))
        return failure_set(f, ERR_INVALID_ARGUMENT, "path '%s' is not a regular file", path);
    return TAKE_FD(fd);
}

static int file_read_start(struct file_read_reading *rd, struct file_request *q, uint64_t offset, uint64_t length,
                           struct buf *entry, struct failure *f)
{
    struct stat st;
    AUTO_CLOSE int fd = file_read_open(q->path, &st, f);
    if (fd < 0)
        return -1;
    rd->sized = st.st_size > 0;
    rd->left = rd->sized ? (uint64_t)st.st_size - MIN(offset, (uint64_t)st.st_size) : UINT64_MAX;
    rd->left = MIN(rd->left, length);
    if (offset && rd->left && (offset > INT64_MAX || lseek(fd, (off_t)offset, SEEK_SET) < 0))
        return failure_errno(f, ERR_INTERNAL, offset > INT64_MAX ? EINVAL : errno, "error reading file '%s': seek %s",
                             q->path, q->path);
    rd->at = rd->asked = offset;
    int r = file_entry_put(entry, rd->stream.session->agent, q->path);
    if (r < 0)
        return failure_errno(f, ERR_NOT_FOUND, -r, "file not found: lstat %s", q->path);
    rd->fd = TAKE_FD(fd) + 1;
    rd->path = mem_strdup(q->path);
    return 0;
}

static void read_open(struct agent_stream *s, struct wire_reader *r)
{
    struct file_read_reading *rd = container_of(s, struct file_read_reading, stream);
    AUTO_REQUEST struct file_request q;
    AUTO_BUF struct buf entry = BUF_INIT(ENTRY_MAX);
    struct failure why;
    int got = file_request_get(s, r, &q, &why);
    uint64_t offset = wire_get_u64(r), length = wire_get_u64(r);
    if (!wire_done(r)) {
        stream_malformed(s);
    } else if (got < 0 || file_read_start(rd, &q, offset, length, &entry, &why) < 0) {
        file_refuse(s, &why);
    } else {
        (void)buf_append_str(stream_head(s), buf_str(&entry));
        stream_head_commit(s);
        stream_ready(s);
    }
}

static void read_ahead(struct file_read_reading *rd)
{
    if (!rd->sized || rd->left <= AHEAD_BYTES || rd->at + AHEAD_BYTES <= rd->asked)
        return;
    (void)posix_fadvise(rd->fd - 1, (off_t)rd->asked, AHEAD_BYTES, POSIX_FADV_WILLNEED);
    rd->asked += AHEAD_BYTES;
}

static bool read_produce(struct agent_stream *s)
{
    struct file_read_reading *rd = container_of(s, struct file_read_reading, stream);
    size_t room = (size_t)MIN((uint64_t)stream_room(s), rd->left);
    if (rd->left == 0) {
        stream_end(s);
        return false;
    }
    if (room == 0)
        return false;
    read_ahead(rd);
    char *to = stream_scratch(s);
    ssize_t n = read(rd->fd - 1, to, room);
    if (n < 0 && errno == EINTR)
        return true;
    if (n < 0) {
        stream_failf(s, ERR_INTERNAL, "error reading file '%s': read %s: %s", rd->path, rd->path, errno_text(errno));
        return false;
    }
    if (n == 0 && rd->sized) {
        stream_failf(s, ERR_ABORTED, "file '%s' became shorter while it was read", rd->path);
        return false;
    }
    if (n)
        stream_send_bytes(s, to, (size_t)n);
    rd->at += (uint64_t)MAX(n, 0);
    rd->left = n ? rd->left - (uint64_t)n : 0;
    return true;
}

static void read_fini(struct agent_stream *s)
{
    struct file_read_reading *rd = container_of(s, struct file_read_reading, stream);
    (void)fd_close(rd->fd - 1);
    mem_free(rd->path);
}

const struct verb verb_read = {
    .size = sizeof(struct file_read_reading),
    .open = read_open,
    .produce = read_produce,
    .fini = read_fini,
};
