/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/env/copy.h"
#include "base/child.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/env/kept.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <unistd.h>

enum { COPY_COMMIT = 40, PACK_POLL_MS = 2, COPY_COMPLAINT_MAX = 4096, SETTINGS_MAX = 4096, GRAFTS_MAX = 1 << 20 };

/* ---- what runs inside ---- */

/* Of inside/: each says at its top what it does. */
extern const char script_place[], script_fill[], script_settle[], script_update[];

/*
 * As root: git sets the time of a pack in which it finds what it would write, which would copy the pack up from the
 * layer. Where it can't, it writes that.
 */
static const char script_fix[] = "chown 0:0 \"$1\"/.git/objects/pack/*";

/* ---- sending ---- */

/* git pack-objects here: *ret_pack is what it writes. */
static pid_t copy_pack(struct env *e, const char *const *args, const char *revisions, int *ret_pack)
{
    AUTO_CLOSE int list = child_input(str_of(revisions));
    int ends[2];
    if (list < 0 || pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(&e->ctx->err, errno, "send the repository");
    pid_t pid = repo_start(&e->repo, REPO_OURS, list, ends[1], -1, args);
    (void)fd_close(ends[1]);
    *ret_pack = ends[0];
    return pid;
}

/* The end of both sides: what went wrong there says more. */
static int copy_packed(struct env *e, pid_t pid, int pack, int sent)
{
    struct err why = e->ctx->err;
    (void)fd_close(pack);
    int packed = pid < 0 ? -1 : repo_wait(&e->repo, pid, "pack-objects", STR_NULL);
    if (sent < 0)
        e->ctx->err = why;
    return sent < 0 ? -1 : packed;
}

int copy_send(struct env *e, const char *const *args, const char *revisions, const char *script, char *const *words)
{
    int pack = -1;
    pid_t pid = copy_pack(e, args, revisions, &pack);
    return copy_packed(e, pid, pack, pid < 0 ? -1 : env_script(e, script, words, pack, -1, NULL));
}

static char *copy_file(struct env *e, const char *path)
{
    AUTO_FREE char *whole = mem_printf("%s/%s", e->repo.top, path);
    return service_files(e->id, "files", whole, e->user ? e->user : "user");
}

static int copy_write(struct env *e, const char *path, const char *text)
{
    AUTO_FREE char *target = copy_file(e, path);
    return service_put(e->service, target, str_of(text)) < 0 ? err_prefix(&e->ctx->err, "write %s", path) : 0;
}

/* What git pack-objects writes, from its beginning. -1: it has ended. */
static int copy_open_pack(struct env *e, int ended)
{
    AUTO_FREE char *path = mem_printf("%s/objects/pack", e->repo.ours);
    int fd = -1;
    for (struct pollfd end = {.fd = ended, .events = POLLIN}; fd < 0 && !end.revents;
         (void)poll(&end, 1, fd < 0 ? PACK_POLL_MS : 0)) {
        AUTO(dir_close) DIR *all = dir_open(AT_FDCWD, path);
        for (const struct dirent *one; fd < 0 && (one = dir_next(all));)
            if (str_starts(str_of(one->d_name), STR("tmp_pack_")))
                fd = openat(dirfd(all), one->d_name, O_RDONLY | O_CLOEXEC);
    }
    return fd;
}

/*
 * A file of the copy, which is one event of the record: what is in `from` when its writer, a pidfd, ends (-1: it has).
 */
static int copy_upload(struct env *e, int from, int ended, const char *path)
{
    enum { PIECE = 1 << 18 };
    AUTO(service_close) struct service *s = service_open(e->ctx);
    AUTO_FREE char *target = copy_file(e, path), *piece = mem_alloc(PIECE);
    struct pollfd end = {ended, POLLIN, (short)(ended < 0 ? POLLIN : 0)};
    int r = s ? service_begin(s, "PUT", target, -1) : -1;
    for (bool is_last = false; r == 0;) {
        ssize_t n = read(from, piece, PIECE);
        if (exec_pending_signal())
            return err_set(&e->ctx->err, ERR_CANCELED, "interrupted");
        if (n < 0)
            return err_errno(&e->ctx->err, errno, "send the repository");
        if (n == 0 && is_last)
            break;
        if (n == 0 && !(is_last = end.revents)) /* what was written before the end is read once more */
            (void)poll(&end, 1, PACK_POLL_MS);
        if (n > 0 && (r = http_client_write(service_client(s), str_n(piece, (size_t)n))) < 0)
            return r == -EPIPE && service_answer(s, NULL, NULL) < 0 ? -1 : service_broken(s, r, "send the repository");
    }
    if (r < 0)
        return -1;
    r = http_client_end(service_client(s));
    return r < 0 && r != -EPIPE ? service_broken(s, r, "send the repository") : service_answer(s, NULL, NULL);
}

static int copy_upload_part(struct env *e, const char *base, const char *hash, const char *part)
{
    AUTO_FREE char *path = mem_printf("%s-%s.%s", base, hash, part), *to = mem_printf(".git/objects/pack/new.%s", part);
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? err_errno(&e->ctx->err, errno, "read %s", path) : copy_upload(e, fd, -1, to);
}

/*
 * The pack goes with its index: to make that inside, every object would be read once more. git writes an index beside
 * a file alone, so there is one, which is sent while it grows. What isn't stored as a difference is sent as it is: the
 * way is short.
 */
static int copy_send_packed(struct env *e, const char *commit, bool whole, char **ret_hash)
{
    static const char *const parts[] = {"pack", "rev", "idx"};
    AUTO_FREE char *base = mem_printf("%s/send", e->repo.ours);
    const char *const args[] = {
        "-c",         "core.fsync=none",     "pack-objects",    "--revs", "--quiet",
        "--window=0", "--delta-base-offset", "--compression=1", base,     whole ? NULL : "--shallow",
        NULL};
    AUTO_FREE char *revisions = whole ? mem_printf("%s\n", commit) : mem_printf("--shallow %s\n%s\n", commit, commit);
    AUTO_BUF struct buf name = BUF_INIT(256);
    AUTO_BUF struct buf complaint = BUF_INIT(COPY_COMPLAINT_MAX);
    AUTO_CLOSE int list = child_input(str_of(revisions)), told = memfd_create("name", MFD_CLOEXEC),
                   said = memfd_create("complaint", MFD_CLOEXEC);
    if (list < 0 || told < 0 || said < 0)
        return err_errno(&e->ctx->err, errno, "send the repository");
    pid_t pid = repo_start(&e->repo, REPO_OURS, list, told, said, args);
    AUTO_CLOSE int ended = pid < 0 ? -1 : pidfd_open(pid, 0), pack = ended < 0 ? -1 : copy_open_pack(e, ended);
    const int sent = pack < 0 ? 0 : copy_upload(e, pack, ended, ".git/objects/pack/new.pack");
    if (sent < 0)
        (void)pidfd_send_signal(ended, SIGTERM, NULL, 0);
    if (copy_packed(e, pid, -1, sent) < 0) {
        if (sent == 0 && lseek(said, 0, SEEK_SET) == 0 && fd_read_all(said, &complaint) == 0 && buf_len(&complaint))
            (void)err_set(&e->ctx->err, ERR_UNKNOWN, "git pack-objects: %.*s", STR_ARG_MAX(repo_line(&complaint), 190));
        if (whole && strstr(e->ctx->err.msg, "unable to read"))
            context_hint(e->ctx, "--shallow leaves out the history, of which a partial clone has a part only");
        return -1;
    }
    if (lseek(told, 0, SEEK_SET) < 0 || fd_read_all(told, &name) < 0 || repo_line(&name).n != COPY_COMMIT)
        return err_set(&e->ctx->err, ERR_INTERNAL, "git made no pack");
    *ret_hash = mem_strndup(buf_data(&name), COPY_COMMIT);
    int r = pack < 0 ? copy_upload_part(e, base, *ret_hash, "pack") /* it was faster than we */ : 0;
    r = r < 0 ? r : copy_upload_part(e, base, *ret_hash, "idx");
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
        AUTO_FREE char *path = mem_printf("%s-%s.%s", base, *ret_hash, parts[i]);
        (void)unlink(path);
    }
    return r;
}

/* A line of Git's configuration, which has an end of a line in no value. */
static void copy_append_setting(struct buf *b, const char *key, const char *value)
{
    (void)buf_printf(b, "\t%s = \"", key);
    for (const char *p = value; *p; p++) {
        if (*p == '"' || *p == '\\')
            (void)buf_append_char(b, '\\');
        (void)buf_append_char(b, (unsigned char)*p < ' ' ? ' ' : *p);
    }
    (void)buf_append_cstr(b, "\"\n");
}

int copy_fill(struct env *e, const char *commit, bool whole)
{
    AUTO_FREE char *hash = NULL;
    AUTO_BUF struct buf grafts = BUF_INIT(GRAFTS_MAX);
    char *const place[] = {e->repo.top, e->user ? e->user : (char *)"user", NULL};
    if (env_script(e, script_place, place, -1, -1, "root") < 0 || copy_send_packed(e, commit, whole, &hash) < 0)
        return -1;
    /* The history here may have an end, too. */
    if (whole && fd_read_file(e->repo.lock, "shallow", &grafts) == 0 &&
        (buf_append_char(&grafts, '\0') < 0 || copy_write(e, ".git/shallow", buf_data(&grafts)) < 0))
        return -1;
    AUTO_BUF struct buf settings = BUF_INIT(SETTINGS_MAX);
    (void)buf_append_cstr(&settings, "[user]\n");
    copy_append_setting(&settings, "name", e->repo.name);
    copy_append_setting(&settings, "email", e->repo.email);
    if (buf_append_char(&settings, '\0') < 0 || buf_error(&settings))
        return err_set(&e->ctx->err, ERR_INVALID_ARGUMENT, "user.name or user.email is too long");
    char *const fill[] = {
        e->repo.top, e->name, (char *)commit, (char *)(whole ? "whole" : "shallow"), buf_data(&settings), hash, NULL};
    return env_script(e, script_fill, fill, -1, -1, NULL);
}

/* The branch of a copy whose HEAD is the commit's: no git is started for that. */
static int copy_branch(struct env *e, const char *commit)
{
    AUTO_FREE char *ref = mem_printf(".git/%s", e->head), *text = mem_printf("%s\n", commit),
                   *head = mem_printf("ref: %s\n", e->head);
    return copy_write(e, ref, text) < 0 ? -1 : copy_write(e, ".git/HEAD", head);
}

int copy_continue(struct env *e, const char *commit)
{
    const char *has = strrchr(e->copy, ':') + 1;
    if (strcmp(has, commit) == 0)
        return copy_branch(e, commit);
    const char *const pack[] = {"pack-objects", "--revs", "--stdout", "--quiet", "--delta-base-offset", "--thin", NULL};
    AUTO_FREE char *revisions = mem_printf("%s\n^%s\n", commit, has);
    char *const words[] = {e->repo.top, e->name, (char *)commit, NULL};
    return copy_send(e, pack, revisions, script_update, words);
}

int copy_keep(struct env *e, const char *name, const char *commit)
{
    char *const words[] = {e->repo.top, (char *)commit, NULL};
    if (env_script(e, script_settle, words, -1, -1, NULL) < 0)
        return -1;
    if (env_script(e, script_fix, words, -1, -1, "root") == 0)
        kept_keep(e, name, commit);
    e->ctx->err.code = ERR_OK;
    return copy_branch(e, commit);
}
