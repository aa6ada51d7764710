/* SPDX-License-Identifier: Apache-2.0 */
/* WRITE: the host's bytes go into the file as they come; credit is given back for what was written. */
#include "agent/files/file.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { METADATA_MAX = 4096, METADATA_NAME_MAX = 255, METADATA_LIST_MAX = 64 * 1024 };

struct file_writing {
    struct agent_stream stream;
    int fd;         /* plus one, 0: none */
    char *path;     /* owned */
    char *metadata; /* owned: the request's pairs as they came */
    size_t metadata_bytes;
    uint32_t n_metadata;
};

static int check_metadata(size_t prefix, struct str pairs, uint32_t n, struct failure *f)
{
    struct wire_reader r = wire_reader_of(pairs);
    size_t total = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct str key = wire_get_str(&r), value = wire_get_str(&r);
        size_t name = prefix + key.n;
        total += name + value.n;
        if (key.n == 0 || str_has_nul(key))
            return failure_set(f, ERR_INVALID_ARGUMENT, "invalid metadata: empty key or NUL in a key");
        if (name > METADATA_NAME_MAX)
            return failure_set(f, ERR_INVALID_ARGUMENT, "invalid metadata: metadata key \"%.*s\" exceeds %zu bytes",
                               STR_ARG_MAX(key, 300), METADATA_NAME_MAX - prefix);
    }
    if (total > METADATA_MAX)
        return failure_set(f, ERR_INVALID_ARGUMENT, "invalid metadata: total metadata size %zu exceeds %d bytes", total,
                           METADATA_MAX);
    return 0;
}

static void remove_metadata(int fd, struct str prefix)
{
    AUTO_FREE char *list = NULL;
    ssize_t n = flistxattr(fd, NULL, 0);
    if (n <= 0 || n > METADATA_LIST_MAX)
        return;
    list = mem_alloc((size_t)n + 1);
    n = flistxattr(fd, list, (size_t)n);
    if (n <= 0 || list[n - 1])
        return;
    for (const char *name = list; name < list + n; name += strlen(name) + 1)
        if (str_starts(str_of(name), prefix))
            (void)fremovexattr(fd, name);
}

static int set_metadata(const struct file_writing *w, struct failure *f)
{
    struct wire_reader r = wire_reader_of(str_n(w->metadata, w->metadata_bytes));
    char name[METADATA_NAME_MAX + 1];
    struct str prefix = w->stream.session->agent->attributes;
    remove_metadata(w->fd - 1, prefix);
    for (uint32_t i = 0; i < w->n_metadata; i++) {
        struct str key = wire_get_str(&r), value = wire_get_str(&r);
        (void)snprintf(name, sizeof(name), "%.*s%.*s", STR_ARG(prefix), STR_ARG(key));
        if (fsetxattr(w->fd - 1, name, value.p ? value.p : "", value.n, 0) == 0)
            continue;
        if (errno == EOPNOTSUPP)
            return 0; /* the file is what counts */
        return failure_errno(f, ERR_INTERNAL, errno, "error writing metadata: setxattr %s", w->path);
    }
    return 0;
}

/* One text, whichever of its limits the disk is at: clients go by it. */
static int no_room(struct failure *f)
{
    return failure_errno(f, ERR_RESOURCE_EXHAUSTED, ENOSPC, "not enough disk space available");
}

static bool is_full(int errnum)
{
    return errnum == ENOSPC || errnum == EDQUOT;
}

static int file_write_open_file(const char *path, const struct user *u, struct failure *f)
{
    struct stat st;
    struct failure why;
    bool exists = stat(path, &st) == 0;
    if (exists && S_ISDIR(st.st_mode))
        return failure_set(f, ERR_INVALID_ARGUMENT, "path is a directory: %s", path);
    if (exists && !S_ISREG(st.st_mode))
        return failure_set(f, ERR_INVALID_ARGUMENT, "path '%s' is not a regular file", path);
    if (!exists && file_make_parents(path, u, &why) < 0)
        return why.code == ERR_RESOURCE_EXHAUSTED
                   ? failure_set(f, why.code, "%s", why.text)
                   : failure_set(f, why.code, "error ensuring directories: %s", why.text);
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0644);
    if (fd < 0 && is_full(errno))
        return no_room(f);
    if (fd < 0)
        return failure_errno(f, ERR_INTERNAL, errno, "error opening file: open %s", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return failure_set(f, ERR_INVALID_ARGUMENT, "path '%s' is not a regular file", path);
    if (fchown(fd, u->uid, u->gid) < 0)
        return failure_errno(f, ERR_INTERNAL, errno, "error changing file ownership: chown %s", path);
    if (st.st_size && ftruncate(fd, 0) < 0)
        return failure_errno(f, ERR_INTERNAL, errno, "error opening file: truncate %s", path);
    return TAKE_FD(fd);
}

static void write_open(struct agent_stream *s, struct wire_reader *r)
{
    struct file_writing *w = container_of(s, struct file_writing, stream);
    AUTO_REQUEST struct file_request q;
    struct failure why;
    int got = file_request_get(s, r, &q, &why);
    uint32_t n = wire_get_count(r, 8);
    struct str pairs = str_n(r->p, r->n);
    for (uint32_t i = 0; i < n && !r->bad; i++) {
        (void)wire_get_str(r);
        (void)wire_get_str(r);
    }
    if (!wire_done(r)) {
        stream_malformed(s);
        return;
    }
    int fd = got < 0 || check_metadata(s->session->agent->attributes.n, pairs, n, &why) < 0
                 ? -1
                 : file_write_open_file(q.path, &q.user, &why);
    if (fd < 0) {
        file_refuse(s, &why);
        return;
    }
    w->fd = fd + 1;
    w->path = mem_strdup(q.path);
    w->metadata = mem_dup(pairs.p, pairs.n);
    w->metadata_bytes = pairs.n;
    w->n_metadata = n;
    stream_reply(s);
}

static void fail_write(struct file_writing *w, int errnum)
{
    struct failure why;
    if (is_full(errnum))
        (void)no_room(&why);
    else
        (void)failure_errno(&why, ERR_INTERNAL, errnum, "error writing file: write %s", w->path);
    stream_fail(&w->stream, &why);
}

static void write_data(struct agent_stream *s, struct str bytes)
{
    struct file_writing *w = container_of(s, struct file_writing, stream);
    int r = fd_write_all(w->fd - 1, bytes.p, bytes.n);
    if (r < 0)
        fail_write(w, -r);
    else
        stream_consumed(s, bytes.n);
}

static void write_eof(struct agent_stream *s)
{
    struct file_writing *w = container_of(s, struct file_writing, stream);
    struct failure why = {.code = ERR_OK};
    if (set_metadata(w, &why) < 0) {
        stream_fail(s, &why);
        return;
    }
    int fd = w->fd - 1;
    w->fd = 0;
    if (close(fd) < 0 && errno != EINTR)
        fail_write(w, errno);
    else
        file_end_with_entry(s, w->path);
}

static void write_fini(struct agent_stream *s)
{
    struct file_writing *w = container_of(s, struct file_writing, stream);
    (void)fd_close(w->fd - 1);
    MEM_FREE(w->path, w->metadata);
}

const struct verb verb_write = {
    .size = sizeof(struct file_writing),
    .open = write_open,
    .data = write_data,
    .eof = write_eof,
    .fini = write_fini,
};
