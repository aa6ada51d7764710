/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single files go as bodies of the files routes. Directories go as tar streams, one request and one event for all of
 * it; on our side the stream is made or taken apart by a child process.
 *
 * Where a name ends up is as with cp: a directory as destination, or one that ends with '/', takes the source under its
 * own name.
 */
#include "cli/files/copy.h"
#include "base/child.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "cli/exec/exec.h"
#include "cli/exec/terminal.h"
#include "cli/files/archive.h"
#include "config/units.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COPY_BLOCK = 64 * 1024, STDERR_MAX = 4096 };

void place_parse(const char *text, struct copy_place *ret_place)
{
    const size_t n = str_span(str_of(text), "a-z0-9");
    *ret_place = (struct copy_place){.path = text};
    if (n > 0 && text[n] == ':')
        *ret_place = (struct copy_place){.is_remote = true, .id = mem_strndup(text, n), .path = text + n + 1};
}

void place_fini(struct copy_place *p)
{
    mem_free(p->id);
}

bool place_has_no_name(const struct copy_place *p)
{
    struct str path = str_of(p->path);
    while (str_ends(path, STR("/")) || str_eqc(path, ".") || str_ends(path, STR("/.")))
        path.n--;
    return path.n == 0 || str_eqc(path, "..") || str_ends(path, STR("/.."));
}

static char *base_name(const char *path)
{
    struct str base = path_base(str_of(path));
    return mem_strndup(base.p, base.n);
}

static bool ends_with_slash(const char *path)
{
    return *path && path[strlen(path) - 1] == '/';
}

/* HEAD said that it can't be had; what is wrong, only a body says. A path that can be had meanwhile is no help: -1 in
 * any case. */
static int ask_what_is_wrong(struct copy *c, const char *target)
{
    struct err err = c->ctx->err;
    AUTO_FREE char *first_byte = mem_printf("%s&length=1", target);
    if (service_stream(c->service, "GET", first_byte) == 0)
        c->ctx->err = err;
    return -1;
}

enum remote_kind { REMOTE_NONE, REMOTE_FILE, REMOTE_DIRECTORY, REMOTE_OTHER };

static int remote_kind(struct copy *c, const char *path, enum remote_kind *ret_kind)
{
    AUTO_FREE char *target = service_files(c->id, "files", path, c->user);
    if (service_stream(c->service, "HEAD", target) < 0) {
        if (c->ctx->err.code != ERR_NOT_FOUND)
            return ask_what_is_wrong(c, target);
        c->ctx->err.code = ERR_OK;
        *c->ctx->hint = '\0';
        *ret_kind = REMOTE_NONE;
        return 0;
    }
    struct str type = http_client_header(service_client(c->service), "x-cove-type");
    *ret_kind = str_eqc(type, "file") ? REMOTE_FILE : str_eqc(type, "directory") ? REMOTE_DIRECTORY : REMOTE_OTHER;
    char rest[1];
    return http_client_read(service_client(c->service), rest, sizeof(rest)) < 0
               ? service_broken(c->service, -EPIPE, "look at the file in the sandbox")
               : 0;
}

static void copy_show(struct terminal_progress *p, uint64_t bytes)
{
    char text[UNIT_TEXT_MAX];
    unit_format_size(bytes, text);
    progress_show(p, "%s copied", text);
}

/* ---- a child process here, which packs or unpacks ---- */

struct copy_child {
    pid_t pid;
    int message_fd; /* its error text */
};

enum work { PACK, UNPACK, UNPACK_INTO_NEW };

/* Does the work on one end of a pipe; *ret_fd is the other, for us: to read from when it packs, else to write to. */
static int child_start(struct context *ctx, enum work work, const char *dir, struct copy_child *ret_child, int *ret_fd)
{
    const bool packs = work == PACK;
    int data[2], message[2];
    if (pipe2(data, O_CLOEXEC) < 0 || pipe2(message, O_CLOEXEC) < 0)
        return err_errno(&ctx->err, errno, "make a pipe");
    pid_t pid = fork();
    if (pid < 0)
        return err_errno(&ctx->err, errno, "start a process");
    if (pid == 0) {
        struct err err = {0};
        (void)signal(SIGPIPE, SIG_DFL);
        (void)fd_close(data[packs ? 0 : 1]);
        int r = packs ? archive_pack(dir, data[1], &err) : archive_unpack(data[0], dir, work == UNPACK_INTO_NEW, &err);
        if (r < 0 && fd_write_all(message[1], err.msg, strlen(err.msg)) < 0)
            _exit(2);
        _exit(r < 0 ? 1 : 0);
    }
    (void)fd_close(data[packs ? 1 : 0]);
    (void)fd_close(message[1]);
    *ret_child = (struct copy_child){pid, message[0]};
    *ret_fd = data[packs ? 0 : 1];
    return 0;
}

/* Its end, after our end of the data pipe was closed. */
static int copy_await(struct context *ctx, struct copy_child *child)
{
    AUTO_BUF struct buf message = BUF_INIT(512);
    int ignored UNUSED = fd_read_all(child->message_fd, &message);
    (void)fd_close(child->message_fd);
    if (child_wait(child->pid) == 0)
        return 0;
    if (buf_len(&message) == 0)
        return err_set(&ctx->err, ERR_ABORTED, "the copy was cut short");
    return err_set(&ctx->err, ERR_UNKNOWN, "%.*s", STR_ARG(buf_str(&message)));
}

/* A program of the sandbox, without input or output. Non-zero ends are errors. */
static int run_inside(struct copy *c, char *const *argv)
{
    AUTO_BUF struct buf message = BUF_INIT(STDERR_MAX);
    struct exec_request request = {.id = c->id, .argv = argv, .user = c->user};
    const struct exec_io io = {-1, -1, -1, NULL, &message, .forwards_signals = true};
    struct exec_result result = {0};
    AUTO(service_close) struct service *s = service_open(c->ctx);
    exec_block_signals();
    if (!s || exec_in_sandbox(c->ctx, s, &request, &io, &result) < 0)
        return -1;
    return exec_check(c->ctx, &result, buf_str(&message));
}

/* ---- up ---- */

static int send_body(struct copy *c, int fd, uint64_t size, bool sized)
{
    struct http_client *client = service_client(c->service);
    AUTO_FREE char *block = mem_alloc(COPY_BLOCK);
    struct terminal_progress p;
    progress_start(&p, c->ctx->json);
    int r = 0;
    while (r == 0 && (!sized || c->bytes < size)) {
        ssize_t n = read(fd, block, sized ? (size_t)MIN((uint64_t)COPY_BLOCK, size - c->bytes) : COPY_BLOCK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            r = err_errno(&c->ctx->err, errno, "read the file");
        else if (n == 0 && sized)
            r = err_set(&c->ctx->err, ERR_ABORTED, "the file became shorter while it was copied");
        if (n <= 0)
            break;
        int w = http_client_write(client, str_n(block, (size_t)n));
        if (w == -EPIPE) /* it has answered already, usually with what is wrong */
            break;
        if (w < 0)
            r = service_broken(c->service, w, "copy");
        c->bytes += (uint64_t)n;
        copy_show(&p, c->bytes);
    }
    progress_end(&p);
    return r;
}

/* A file that only its owner may read is that from its first byte on: one that exists keeps its mode when it is
 * written. */
static int make_private(struct copy *c, const char *to)
{
    static const char script[] = "[ -e \"$1\" ] || { mkdir -p -- \"$(dirname -- \"$1\")\" && umask 077 && : >\"$1\"; }";
    AUTO_FREE char *text = mem_strdup(script), *dest = mem_strdup(to);
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, text, (char[]){"sh"}, dest, NULL};
    return run_inside(c, argv);
}

static int send_file(struct copy *c, const char *from, const char *to)
{
    struct stat st;
    bool is_stdin = strcmp(from, "-") == 0;
    AUTO_CLOSE int opened = is_stdin ? -1 : open(from, O_RDONLY | O_CLOEXEC);
    int fd = is_stdin ? STDIN_FILENO : opened;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_errno(&c->ctx->err, errno, "open %s", from);
    bool sized = !is_stdin && S_ISREG(st.st_mode);
    AUTO_FREE char *target = service_files(c->id, "files", to, c->user);
    if (sized && !(st.st_mode & 077) && make_private(c, to) < 0)
        return -1;
    if (service_begin(c->service, "PUT", target, sized ? st.st_size : -1) < 0 ||
        send_body(c, fd, (uint64_t)st.st_size, sized) < 0)
        return -1;
    int r = http_client_end(service_client(c->service));
    if (r < 0 && r != -EPIPE)
        return service_broken(c->service, r, "copy");
    if (service_answer(c->service, "waiting for the file to be written", NULL) < 0)
        return -1;
    if (sized && (st.st_mode & 0777) != 0644) {
        AUTO_FREE char *dest = mem_strdup(to), *mode = mem_printf("%o", st.st_mode & 0777);
        char *argv[] = {(char[]){"chmod"}, mode, (char[]){"--"}, dest, NULL};
        return run_inside(c, argv);
    }
    return 0;
}

static int pack_to_sandbox(struct copy *c, const char *from, const char *to)
{
    AUTO_FREE char *target = service_files(c->id, "archive", to, c->user);
    struct copy_child child = {.message_fd = -1};
    int fd = -1;
    if (child_start(c->ctx, PACK, from, &child, &fd) < 0)
        return -1;
    int r = service_begin(c->service, "PUT", target, -1);
    if (r == 0)
        r = send_body(c, fd, 0, false);
    (void)fd_close(fd);
    struct err remote = c->ctx->err;
    int local = copy_await(c->ctx, &child);
    /* An archive that is cut short is not ended: the sandbox takes none of it for the whole. Has the service answered,
     * it has more to say. */
    if (r < 0 || (local < 0 && !http_client_pending(service_client(c->service)))) {
        if (r < 0)
            c->ctx->err = remote;
        return -1;
    }
    r = http_client_end(service_client(c->service));
    if (r < 0 && r != -EPIPE)
        return service_broken(c->service, r, "copy");
    c->bytes = 0;
    return service_answer(c->service, "waiting for the files to be written", NULL);
}

int copy_to_sandbox(struct copy *c, const char *from, const char *to)
{
    struct stat st = {0};
    bool is_stdin = strcmp(from, "-") == 0;
    if (!is_stdin && stat(from, &st) < 0)
        return err_errno(&c->ctx->err, errno, "open %s", from);
    AUTO_FREE char *dest = mem_strdup(*to ? to : ".");
    enum remote_kind kind;
    if (remote_kind(c, dest, &kind) < 0)
        return -1;
    bool into = kind == REMOTE_DIRECTORY || ends_with_slash(dest);
    if (into && is_stdin)
        return err_set(&c->ctx->err, ERR_INVALID_ARGUMENT,
                       "%s is a directory: name the file that standard input is to become", dest);
    if (into) {
        /* "." and ".." have no name of their own: their content is what is meant. */
        AUTO_FREE char *name = base_name(from);
        bool named = strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strcmp(name, "/") != 0;
        char *joined = named ? mem_printf("%s%s%s", dest, ends_with_slash(dest) ? "" : "/", name) : mem_strdup(dest);
        mem_free(dest);
        dest = joined;
    }
    return S_ISDIR(st.st_mode) ? pack_to_sandbox(c, from, dest) : send_file(c, from, dest);
}

/* ---- down ---- */

static int receive_body(struct copy *c, int fd)
{
    struct http_client *client = service_client(c->service);
    AUTO_FREE char *block = mem_alloc(COPY_BLOCK);
    struct terminal_progress p;
    ssize_t n;
    int r = 0;
    progress_start(&p, c->ctx->json);
    while (r == 0 && (n = http_client_read(client, block, COPY_BLOCK)) > 0) {
        r = fd_write_all(fd, block, (size_t)n);
        c->bytes += (uint64_t)n;
        copy_show(&p, c->bytes);
    }
    progress_end(&p);
    if (r < 0)
        return err_errno(&c->ctx->err, r, "write the file");
    return n < 0 ? service_broken(c->service, (int)n, "copy") : 0;
}

/* What tar complained about inside comes behind the archive. */
static int receive_archive(struct copy *c, int fd)
{
    int r = receive_body(c, fd);
    struct str why = http_client_trailer(service_client(c->service), "x-cove-error");
    c->bytes = 0;
    if (r == 0 || !why.p)
        return r;
    *c->ctx->hint = '\0';
    return err_set(&c->ctx->err, ERR_UNKNOWN, "%.*s", STR_ARG(why));
}

static int unpack_from_sandbox(struct copy *c, const char *from, const char *to)
{
    AUTO_FREE char *target = service_files(c->id, "archive", from, c->user);
    struct copy_child child = {.message_fd = -1};
    int fd = -1;
    bool is_new = mkdir(to, 0700) == 0; /* it is ours alone until it is known whose it is to be */
    if (!is_new && errno != EEXIST)
        return err_errno(&c->ctx->err, errno, "make the directory %s", to);
    if (child_start(c->ctx, is_new ? UNPACK_INTO_NEW : UNPACK, to, &child, &fd) < 0)
        return -1;
    (void)signal(SIGPIPE, SIG_IGN);
    int r = service_stream(c->service, "GET", target);
    if (r == 0)
        r = receive_archive(c, fd);
    bool lost_reader = r < 0 && c->ctx->err.errnum == EPIPE;
    (void)fd_close(fd);
    struct err remote = c->ctx->err;
    int local = copy_await(c->ctx, &child);
    if (r < 0 && (local == 0 || !lost_reader)) /* of an archive that is cut short, why it is counts */
        c->ctx->err = remote;
    if (is_new && (r < 0 || local < 0))
        (void)rmdir(to); /* when nothing came */
    return r < 0 ? r : local;
}

static mode_t received_mode(const struct copy *c)
{
    struct str text = http_client_header(service_client(c->service), "x-cove-mode");
    mode_t mode = 0;
    for (size_t i = 0; i < text.n && i < 5; i++)
        mode = mode * 8 + (mode_t)(text.p[i] & 7);
    return text.n ? (mode & 0777) | 0600 : 0644;
}

/* ---- what is not whole yet goes when we are told to end ---- */

static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static const char *volatile unfinished;

static void on_end(int sig)
{
    if (unfinished)
        (void)unlink(unfinished);
    (void)signal(sig, SIG_DFL);
    (void)raise(sig);
}

/* NULL: it is finished, or gone. A signal that is ignored stays that. */
static void guard(const char *path)
{
    struct sigaction now;
    unfinished = path;
    for (size_t i = 0; path && i < ARRAY_SIZE(ends); i++)
        if (sigaction(ends[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            (void)signal(ends[i], on_end);
}

/* Under a name of its own until it is whole. */
static int receive_file(struct copy *c, const char *from, const char *to)
{
    AUTO_FREE char *target = service_files(c->id, "files", from, c->user);
    if (service_stream(c->service, "GET", target) < 0)
        return -1;
    if (strcmp(to, "-") == 0)
        return receive_body(c, STDOUT_FILENO);

    struct stat st;
    if (stat(to, &st) == 0 && !S_ISREG(st.st_mode)) { /* /dev/null, a FIFO */
        AUTO_CLOSE int fd = open(to, O_WRONLY | O_CLOEXEC);
        return fd < 0 ? err_errno(&c->ctx->err, errno, "open %s", to) : receive_body(c, fd);
    }
    AUTO_FREE char *temporary = mem_printf("%s.cove-XXXXXX", to);
    AUTO_CLOSE int fd = mkostemp(temporary, O_CLOEXEC);
    mode_t mask = umask(0);
    (void)umask(mask);
    if (fd < 0)
        return err_errno(&c->ctx->err, errno, "make %s", to);
    guard(temporary);
    int r = receive_body(c, fd);
    if (r == 0 && (fchmod(fd, received_mode(c) & ~mask) < 0 || rename(temporary, to) < 0))
        r = err_errno(&c->ctx->err, errno, "make %s", to);
    if (r < 0)
        (void)unlink(temporary);
    guard(NULL);
    return r;
}

int copy_from_sandbox(struct copy *c, const char *from, const char *to)
{
    struct stat st;
    enum remote_kind kind;
    bool to_stdout = strcmp(to, "-") == 0;
    bool is_dir = !to_stdout && stat(to, &st) == 0 && S_ISDIR(st.st_mode);
    if (remote_kind(c, *from ? from : ".", &kind) < 0)
        return -1;
    if (kind == REMOTE_NONE)
        return err_set(&c->ctx->err, ERR_NOT_FOUND, "there is no %s in the sandbox", from);
    if (kind == REMOTE_OTHER)
        return err_set(&c->ctx->err, ERR_INVALID_ARGUMENT, "%s is neither a file nor a directory", from);
    if (kind == REMOTE_DIRECTORY && to_stdout)
        return err_set(&c->ctx->err, ERR_INVALID_ARGUMENT,
                       "%s is a directory: 'cove exec %.8s -- tar -c %s' makes a stream of it", from, c->id, from);
    AUTO_FREE char *name = base_name(*from ? from : ".");
    bool named = strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strcmp(name, "/") != 0 && *name;
    AUTO_FREE char *dest =
        is_dir && named ? mem_printf("%s%s%s", to, ends_with_slash(to) ? "" : "/", name) : mem_strdup(to);
    return kind == REMOTE_DIRECTORY ? unpack_from_sandbox(c, *from ? from : ".", dest) : receive_file(c, from, dest);
}
