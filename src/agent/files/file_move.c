/* SPDX-License-Identifier: Apache-2.0 */
/* MOVE and REMOVE. What one system call can do is done at once; whole trees are a job. */
#include "agent/files/file.h"
#include "agent/files/tree.h"
#include "agent/job.h"
#include "base/id.h"
#include "base/mem.h"

#include <sys/stat.h>
#include <unistd.h>

struct file_move_change {
    struct job_stream js;
    char *source, *destination; /* owned; REMOVE has no destination */
};

static int move_failed(const char *source, const char *destination, int errnum, struct failure *f)
{
    struct stat st;
    if (errnum == ENOENT && lstat(source, &st) < 0)
        return failure_set(f, ERR_NOT_FOUND, "source file not found: rename %s %s: %s", source, destination,
                           errno_text(errnum));
    if (errnum == EISDIR || errnum == ENOTEMPTY)
        errnum = EEXIST;
    return failure_errno(f, ERR_INTERNAL, errnum, "error renaming: rename %s %s", source, destination);
}

/* A copy beside the destination takes its place in one step; then the source goes. */
static int run_move(struct job_stream *js, struct buf *out, struct failure *f)
{
    struct file_move_change *c = container_of(js, struct file_move_change, js);
    char copy[PATH_TEXT_MAX], unique[17];
    struct str dir = path_dir(str_of(c->destination));
    struct failure ignored;
    id_token(unique, sizeof(unique) - 1);
    int n = snprintf(copy, sizeof(copy), "%.*s/.moving-%s", STR_ARG(dir), unique);
    if (n < 0 || (size_t)n >= sizeof(copy))
        return move_failed(c->source, c->destination, ENAMETOOLONG, f);
    if (tree_copy(c->source, copy, f) < 0)
        return -1;
    if (rename(copy, c->destination) < 0) {
        int why = errno;
        (void)tree_remove(copy, &ignored);
        return move_failed(c->source, c->destination, why, f);
    }
    if (tree_remove(c->source, f) < 0)
        return -1;
    int r = file_entry_put(out, js->stream.session->agent, c->destination);
    return r < 0 ? failure_errno(f, ERR_INTERNAL, -r, "error getting file info: lstat %s", c->destination) : 0;
}

static void submit(struct file_move_change *c, job_fn run, const char *source, const char *destination)
{
    c->source = mem_strdup(source);
    c->destination = mem_strdup(destination);
    c->js.run = run;
    c->js.may_outlive = true;
    job_submit(&c->js);
}

static void move_open(struct agent_stream *s, struct wire_reader *r)
{
    struct file_move_change *c = container_of(s, struct file_move_change, js.stream);
    AUTO_REQUEST struct file_request q;
    struct failure why;
    char destination[PATH_TEXT_MAX];
    int got = file_request_get(s, r, &q, &why);
    struct str to = wire_get_str(r);
    if (!wire_done(r)) {
        stream_malformed(s);
    } else if (got < 0 || user_path(&q.user, to, destination, &why) < 0) {
        file_refuse(s, &why);
    } else if (file_make_parents(destination, &q.user, &why) < 0) {
        stream_fail(s, &why);
    } else if (rename(q.path, destination) == 0) {
        file_end_with_entry(s, destination);
    } else if (errno == EXDEV) {
        submit(c, run_move, q.path, destination);
    } else {
        (void)move_failed(q.path, destination, errno, &why);
        stream_fail(s, &why);
    }
}

static int run_remove(struct job_stream *js, struct buf *out UNUSED, struct failure *f)
{
    return tree_remove(container_of(js, struct file_move_change, js)->source, f);
}

static bool is_root(const char *path)
{
    struct stat st, root;
    return lstat(path, &st) == 0 && lstat("/", &root) == 0 && st.st_dev == root.st_dev && st.st_ino == root.st_ino;
}

static void remove_open(struct agent_stream *s, struct wire_reader *r)
{
    struct file_move_change *c = container_of(s, struct file_move_change, js.stream);
    AUTO_REQUEST struct file_request q;
    struct failure why;
    if (file_request_get(s, r, &q, &why) < 0)
        file_refuse(s, &why);
    else if (!wire_done(r))
        stream_malformed(s);
    else if (is_root(q.path))
        stream_failf(s, ERR_INVALID_ARGUMENT,
                     "error removing file or directory: unlinkat %s: refused for the root directory", q.path);
    else if (unlink(q.path) == 0 || errno == ENOENT || rmdir(q.path) == 0)
        stream_end(s);
    else
        submit(c, run_remove, q.path, NULL);
}

static void change_fini(struct agent_stream *s)
{
    struct file_move_change *c = container_of(s, struct file_move_change, js.stream);
    MEM_FREE(c->source, c->destination);
    job_stream_fini(s);
}

const struct verb verb_move = {
    .size = sizeof(struct file_move_change),
    .open = move_open,
    .produce = job_stream_produce,
    .fini = change_fini,
};
const struct verb verb_remove = {
    .size = sizeof(struct file_move_change),
    .open = remove_open,
    .produce = job_stream_produce,
    .fini = change_fini,
};
