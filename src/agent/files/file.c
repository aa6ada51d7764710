/* SPDX-License-Identifier: Apache-2.0 */
/* STAT and MKDIR, and what the file verbs share. */
#include "agent/files/file.h"

#include <sys/stat.h>
#include <unistd.h>

int file_request_get(struct agent_stream *s, struct wire_reader *r, struct file_request *ret_q, struct failure *f)
{
    struct str name = wire_get_str(r), path = wire_get_str(r);
    ret_q->user = (struct user){0};
    if (r->bad) {
        f->code = ERR_OK;
        return -1;
    }
    if (user_lookup(&s->session->agent->config.users, name, false, &ret_q->user, f) < 0)
        return -1;
    return user_path(&ret_q->user, path, ret_q->path, f);
}

void file_request_fini(struct file_request *q)
{
    user_fini(&q->user);
}

void file_refuse(struct agent_stream *s, const struct failure *f)
{
    if (f->code == ERR_OK)
        stream_malformed(s);
    else
        stream_fail(s, f);
}

int file_entry_put(struct buf *b, const struct agent *a, const char *path)
{
    struct agent_names names;
    names_init(&names, a);
    int r = entry_put(b, &names, path);
    names_fini(&names);
    return r;
}

void file_end_with_entry(struct agent_stream *s, const char *path)
{
    AUTO_BUF struct buf entry = BUF_INIT(ENTRY_MAX);
    int r = file_entry_put(&entry, s->session->agent, path);
    if (r == -ENOENT) {
        stream_failf(s, ERR_NOT_FOUND, "file not found: lstat %s: %s", path, errno_text(-r));
    } else if (r < 0) {
        stream_failf(s, failure_code(ERR_INTERNAL, -r), "error getting file info: lstat %s: %s", path, errno_text(-r));
    } else {
        (void)buf_append_str(stream_tail(s), buf_str(&entry));
        stream_tail_commit(s);
    }
}

static bool file_is_directory(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int make_directory(const char *path, const struct user *u, struct failure *f)
{
    if (mkdir(path, 0755) < 0) {
        int why = errno;
        if (why == EEXIST && file_is_directory(path))
            return 0;
        if (why == ENOTDIR || why == EEXIST)
            return failure_set(f, ERR_INVALID_ARGUMENT, "path is a file: %s", path);
        return failure_errno(f, ERR_INTERNAL, why, "error creating directory: mkdir %s", path);
    }
    if (lchown(path, u->uid, u->gid) < 0)
        return failure_errno(f, ERR_INTERNAL, errno, "failed to chown directory: chown %s", path);
    return 0;
}

int file_make_parents(const char *path, const struct user *u, struct failure *f)
{
    char part[PATH_TEXT_MAX];
    struct str dir = path_dir(str_of(path));
    memcpy(part, dir.p, dir.n);
    part[dir.n] = 0;
    if (file_is_directory(part))
        return 0;
    for (size_t i = 1; i <= dir.n; i++) {
        if (part[i] && part[i] != '/')
            continue;
        char end = part[i];
        part[i] = 0;
        struct stat st;
        if (stat(part, &st) == 0 && !S_ISDIR(st.st_mode))
            return failure_set(f, ERR_INVALID_ARGUMENT, "path is a file: %s", part);
        if (!file_is_directory(part) && make_directory(part, u, f) < 0)
            return -1;
        part[i] = end;
    }
    return 0;
}

static void stat_open(struct agent_stream *s, struct wire_reader *r)
{
    AUTO_REQUEST struct file_request q;
    struct failure why;
    if (file_request_get(s, r, &q, &why) < 0)
        file_refuse(s, &why);
    else if (!wire_done(r))
        stream_malformed(s);
    else
        file_end_with_entry(s, q.path);
}

static void mkdir_open(struct agent_stream *s, struct wire_reader *r)
{
    AUTO_REQUEST struct file_request q;
    struct failure why;
    struct stat st;
    if (file_request_get(s, r, &q, &why) < 0) {
        file_refuse(s, &why);
    } else if (!wire_done(r)) {
        stream_malformed(s);
    } else if (stat(q.path, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            stream_failf(s, ERR_ALREADY_EXISTS, "directory already exists: %s", q.path);
        else
            stream_failf(s, ERR_INVALID_ARGUMENT, "path already exists but it is not a directory: %s", q.path);
    } else if (file_make_parents(q.path, &q.user, &why) < 0 || make_directory(q.path, &q.user, &why) < 0) {
        stream_fail(s, &why);
    } else {
        file_end_with_entry(s, q.path);
    }
}

const struct verb verb_stat = {.size = sizeof(struct agent_stream), .open = stat_open};
const struct verb verb_mkdir = {.size = sizeof(struct agent_stream), .open = mkdir_open};
