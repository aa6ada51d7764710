/* SPDX-License-Identifier: Apache-2.0 */
/* TRUST. Done on the loop and not as a job: a sandbox gets its certificate before anything else runs in it, and the
 * longest part, Java's digest, takes half a millisecond. */
#include "agent/files/file.h"
#include "agent/jks.h"
#include "base/fd.h"

#include <fcntl.h>
#include <sys/stat.h>

enum { STORE_MAX = 8 << 20 };

struct trust {
    char file[PATH_TEXT_MAX], bundle[PATH_TEXT_MAX], java[PATH_TEXT_MAX];
    struct str pem;
    struct user owner;
};

static int trust_open_regular(const char *path, int flags)
{
    struct stat st;
    AUTO_CLOSE int fd = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0644);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return -EINVAL;
    return TAKE_FD(fd);
}

/* Empty when there is none. */
static int read_store(const char *path, struct buf *b, struct failure *f)
{
    AUTO_CLOSE int fd = trust_open_regular(path, O_RDONLY);
    int r = fd == -ENOENT ? 0 : fd < 0 ? fd : fd_read_all(fd, b);
    if (r == -ENOBUFS)
        return failure_set(f, ERR_FAILED_PRECONDITION, "%s is longer than %d MiB", path, STORE_MAX >> 20);
    return r < 0 ? failure_errno(f, ERR_INTERNAL, -r, "error reading file: open %s", path) : 0;
}

static int write_store(const struct trust *t, const char *path, int how, struct str bytes, struct failure *f)
{
    if (file_make_parents(path, &t->owner, f) < 0)
        return -1;
    AUTO_CLOSE int fd = trust_open_regular(path, O_WRONLY | O_CREAT | how);
    int r = fd < 0 ? fd : fd_write_all(fd, bytes.p, bytes.n);
    return r < 0 ? failure_errno(f, ERR_INTERNAL, -r, "error writing file: write %s", path) : 0;
}

static int append_to_bundle(const struct trust *t, struct buf *bundle, struct failure *f)
{
    AUTO_BUF struct buf more = BUF_INIT(WIRE_PAYLOAD_MAX);
    struct str all = buf_str(bundle);
    if (all.n && memmem(all.p, all.n, t->pem.p, t->pem.n))
        return 0;
    if (all.n && all.p[all.n - 1] != '\n')
        (void)buf_append_char(&more, '\n');
    (void)buf_append_str(&more, t->pem);
    return write_store(t, t->bundle, O_APPEND, buf_str(&more), f);
}

/* What Java trusts by itself stays; where Java is not, or keeps something else there, it is told to trust the
 * bundle. */
static int add_to_java(const struct trust *t, struct str bundle, struct failure *f)
{
    AUTO_BUF struct buf old = BUF_INIT(STORE_MAX);
    AUTO_BUF struct buf store = BUF_INIT(STORE_MAX);
    if (read_store(t->java, &old, f) < 0)
        return -1;
    size_t known = jks_begin(&store, buf_str(&old));
    if (!jks_is(buf_str(&old)))
        jks_add_pem(&store, known, bundle, "system");
    jks_add_pem(&store, known, t->pem, "cove");
    if (jks_end(&store) < 0)
        return failure_set(f, ERR_FAILED_PRECONDITION, "%s is longer than %d MiB", t->java, STORE_MAX >> 20);
    return write_store(t, t->java, O_TRUNC, buf_str(&store), f);
}

static int trust(const struct trust *t, struct failure *f)
{
    AUTO_BUF struct buf bundle = BUF_INIT(STORE_MAX);
    if (write_store(t, t->file, O_TRUNC, t->pem, f) < 0 || read_store(t->bundle, &bundle, f) < 0 ||
        append_to_bundle(t, &bundle, f) < 0)
        return -1;
    return add_to_java(t, buf_str(&bundle), f);
}

static bool get_path(struct wire_reader *r, char ret_path[static PATH_TEXT_MAX])
{
    struct str path = wire_get_str(r);
    return !r->bad && path.n && path.p[0] == '/' && path_clean(path, ret_path) == 0;
}

static void trust_open(struct agent_stream *s, struct wire_reader *r)
{
    struct trust t = {.owner = {0}};
    struct failure why;
    bool sound = get_path(r, t.file) && get_path(r, t.bundle) && get_path(r, t.java);
    t.pem = wire_get_str(r);
    if (!sound || !wire_done(r))
        stream_malformed(s);
    else if (trust(&t, &why) < 0)
        stream_fail(s, &why);
    else
        stream_end(s);
}

const struct verb verb_trust = {.size = sizeof(struct agent_stream), .open = trust_open};
