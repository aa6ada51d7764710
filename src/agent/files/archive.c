/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PACK, PACK_NAMED and UNPACK: a directory as a tar stream. The sandbox's own tar makes it or takes it apart, as the
 * user who asks: what an archive says
 * can do no more than that user. It is the child of a job, which says at the end what became of it.
 *
 * The host's bytes for UNPACK go through a pipe that never blocks the agent: what does not fit waits here, at most a
 * window of it, and credit is given back for what went on. A tar that ends before its input does is no failure: the job
 * reads the rest.
 */
#include "agent/files/file.h"
#include "agent/job.h"
#include "base/fd.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARCHIVE_MESSAGE_MAX = 400, ARCHIVE_PIECE = 64 * 1024, NO_TAR = 127 };

struct archive {
    struct job_stream js;
    struct file_request request;
    struct loop_io io; /* the pipe to the tar of UNPACK */
    struct buf waiting;
    bool unpacks, is_named, got_all;
};

/* ---- in the job's child, and in its child, which becomes tar ---- */

static void archive_make_dirs(char *path)
{
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        (void)mkdir(path, 0777);
        *at = '/';
    }
    (void)mkdir(path, 0777); /* what is wrong, chdir() says */
}

NORETURN static void archive_exec(struct archive *a, int out_fd, int message_fd)
{
    const struct agent *agent = a->js.stream.session->agent;
    const struct user *u = &a->request.user;
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    if (out_fd >= 0 ? dup2(out_fd, STDOUT_FILENO) < 0 : dup2(agent->null_fd, STDOUT_FILENO) < 0)
        (void)close(STDOUT_FILENO);
    if (dup2(message_fd, STDERR_FILENO) < 0 || setrlimit(RLIMIT_NOFILE, &agent->nofile) < 0 ||
        setgroups(u->n_groups, u->groups) < 0 || setresgid(u->gid, u->gid, u->gid) < 0 ||
        setresuid(u->uid, u->uid, u->uid) < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
        _exit(1);
    if (a->unpacks)
        archive_make_dirs(a->request.path);
    for (size_t n = strlen(a->request.path); a->is_named && n > 1 && a->request.path[n - 1] == '/'; n--)
        a->request.path[n - 1] = '\0';
    char *name = a->is_named ? strrchr(a->request.path, '/') : NULL;
    if (name && name[1])
        *name++ = '\0'; /* its directory, "": the root */
    else
        name = NULL;
    if (chdir(*a->request.path ? a->request.path : "/") < 0) {
        (void)dprintf(STDERR_FILENO, "%s: %s", a->request.path, errno_text(errno));
        _exit(1);
    }
    (void)clearenv();
    (void)setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
    (void)setenv("HOME", u->home, 1);
    if (a->unpacks)
        (void)execlp("tar", "tar", "-xf", "-", "--no-same-owner", (char *)NULL);
    else
        (void)execlp("tar", "tar", "-cf", "-", "--", name ? name : ".", (char *)NULL);
    _exit(errno == ENOENT ? NO_TAR : 126);
}

static int archive_failed(int status, int message_fd, struct failure *f)
{
    char text[ARCHIVE_MESSAGE_MAX];
    ssize_t n = pread(message_fd, text, sizeof(text), 0);
    for (ssize_t i = 0; i < n; i++)
        text[i] = (char)(text[i] == '\n' ? ' ' : text[i]);
    struct str message = str_trim(str_n(text, (size_t)MAX(n, 0)));
    if (WIFEXITED(status) && WEXITSTATUS(status) == NO_TAR)
        return failure_set(f, ERR_FAILED_PRECONDITION,
                           "tar not found: directories are copied with the sandbox's own tar, and it has none");
    if (message.n == 0)
        return failure_set(f, ERR_UNKNOWN, "in the sandbox: tar failed");
    return failure_set(f, ERR_UNKNOWN, "in the sandbox: %.*s", STR_ARG(message));
}

static void archive_relay(struct archive *a, int fd, struct buf *out)
{
    char *room;
    while ((room = buf_reserve(out, ARCHIVE_PIECE))) {
        ssize_t n = read(fd, room, ARCHIVE_PIECE);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        buf_commit(out, (size_t)n);
        job_flush(&a->js, out, 1);
    }
}

static int archive_run(struct job_stream *js, struct buf *out, struct failure *f)
{
    struct archive *a = container_of(js, struct archive, js);
    AUTO_CLOSE int message_fd = memfd_create("tar", MFD_CLOEXEC);
    int data[2] = {-1, -1}, status = 0;
    if (message_fd < 0 || (!a->unpacks && pipe2(data, O_CLOEXEC) < 0))
        return failure_errno(f, ERR_INTERNAL, errno, "start tar");
    pid_t pid = fork();
    if (pid < 0)
        return failure_errno(f, ERR_INTERNAL, errno, "start tar");
    if (pid == 0)
        archive_exec(a, data[1], message_fd);
    if (!a->unpacks) {
        (void)close(data[1]);
        archive_relay(a, data[0], out);
        (void)close(data[0]);
    }
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return archive_failed(status, message_fd, f);
    if (!a->unpacks)
        return 0;
    char rest[4096];
    ssize_t n;
    while ((n = read(STDIN_FILENO, rest, sizeof(rest))) > 0 || (n < 0 && errno == EINTR))
        ;
    int r = file_entry_put(out, js->stream.session->agent, a->request.path);
    return r < 0 ? failure_errno(f, ERR_INTERNAL, -r, "error getting file info: lstat %s", a->request.path) : 0;
}

/* ---- the agent ---- */

/* False when the stream is gone. */
static bool archive_begin(struct archive *a, struct wire_reader *r)
{
    struct agent_stream *s = &a->js.stream;
    const struct agent *agent = s->session->agent;
    struct str user = wire_get_str(r), path = wire_get_str(r);
    struct failure why;
    if (!wire_done(r)) {
        stream_malformed(s);
        return false;
    }
    if ((agent->is_confined && failure_set(&why, ERR_UNIMPLEMENTED, "there are no programs here: no archives") < 0) ||
        user_lookup(&agent->config.users, user, true, &a->request.user, &why) < 0 ||
        user_path(&a->request.user, path, a->request.path, &why) < 0) {
        stream_fail(s, &why);
        return false;
    }
    a->js.run = archive_run;
    return true;
}

static void pack_open(struct agent_stream *s, struct wire_reader *r)
{
    struct archive *a = container_of(s, struct archive, js.stream);
    AUTO_BUF struct buf entry = BUF_INIT(ENTRY_MAX);
    struct stat st;
    a->io.fd = -1;
    if (!archive_begin(a, r))
        return;
    if (!a->is_named && (stat(a->request.path, &st) < 0 || !S_ISDIR(st.st_mode))) {
        stream_failf(s, ERR_NOT_FOUND, "path '%s' is not a directory", a->request.path);
        return;
    }
    int got = file_entry_put(&entry, s->session->agent, a->request.path);
    if (got < 0) {
        stream_failf(s, ERR_NOT_FOUND, "file not found: lstat %s: %s", a->request.path, errno_text(-got));
        return;
    }
    (void)buf_append_str(stream_head(s), buf_str(&entry));
    stream_head_commit(s);
    job_submit(&a->js);
}

static void pack_named_open(struct agent_stream *s, struct wire_reader *r)
{
    container_of(s, struct archive, js.stream)->is_named = true;
    pack_open(s, r);
}

/* What waits goes on; at the end of all of it, the pipe is closed. A tar that is gone says so by itself. */
static void archive_feed(struct archive *a)
{
    struct agent_loop *l = &a->js.stream.session->agent->loop;
    ssize_t n = 0;
    while (buf_len(&a->waiting) && a->io.fd >= 0) {
        n = write(a->io.fd, buf_data(&a->waiting), buf_len(&a->waiting));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN && loop_set(l, &a->io, EPOLLOUT) == 0)
            return;
        if (n < 0) {
            loop_close(l, &a->io);
            break;
        }
        buf_consume(&a->waiting, (size_t)n);
        stream_consumed(&a->js.stream, (size_t)n);
    }
    if (a->io.fd < 0) {
        stream_consumed(&a->js.stream, buf_len(&a->waiting));
        buf_clear(&a->waiting);
    } else if (a->got_all) {
        loop_close(l, &a->io);
    } else {
        (void)loop_set(l, &a->io, 0);
    }
}

static void archive_ready(struct loop_io *io, uint32_t events UNUSED)
{
    archive_feed(container_of(io, struct archive, io));
}

static void unpack_open(struct agent_stream *s, struct wire_reader *r)
{
    struct archive *a = container_of(s, struct archive, js.stream);
    int ends[2];
    a->io = LOOP_IO(archive_ready);
    a->unpacks = true;
    buf_init(&a->waiting, WIRE_WINDOW);
    if (!archive_begin(a, r))
        return;
    if (pipe2(ends, O_CLOEXEC) < 0) {
        stream_failf(s, ERR_RESOURCE_EXHAUSTED, "make a pipe: %s", errno_text(errno));
        return;
    }
    a->js.input_fd = ends[0] + 1;
    a->io.fd = ends[1];
    int e = fd_nonblock(a->io.fd, true);
    if (e == 0)
        e = loop_set(&s->session->agent->loop, &a->io, EPOLLOUT);
    if (e < 0) {
        stream_failf(s, ERR_RESOURCE_EXHAUSTED, "watch a pipe: %s", errno_text(-e));
        return;
    }
    stream_reply(s);
    job_submit(&a->js);
}

static void unpack_data(struct agent_stream *s, struct str bytes)
{
    struct archive *a = container_of(s, struct archive, js.stream);
    (void)buf_append_str(&a->waiting, bytes); /* never more than the window that credit allows */
    archive_feed(a);
}

static void unpack_eof(struct agent_stream *s)
{
    struct archive *a = container_of(s, struct archive, js.stream);
    a->got_all = true;
    archive_feed(a);
}

static void archive_fini(struct agent_stream *s)
{
    struct archive *a = container_of(s, struct archive, js.stream);
    job_stream_fini(s);
    if (a->io.fd >= 0)
        loop_close(&s->session->agent->loop, &a->io);
    (void)fd_close(a->js.input_fd - 1);
    buf_fini(&a->waiting);
    file_request_fini(&a->request);
}

const struct verb verb_pack = {
    .size = sizeof(struct archive),
    .open = pack_open,
    .produce = job_stream_produce,
    .fini = archive_fini,
};
const struct verb verb_pack_named = {
    .size = sizeof(struct archive),
    .open = pack_named_open,
    .produce = job_stream_produce,
    .fini = archive_fini,
};
const struct verb verb_unpack = {
    .size = sizeof(struct archive),
    .open = unpack_open,
    .data = unpack_data,
    .eof = unpack_eof,
    .produce = job_stream_produce,
    .fini = archive_fini,
};
