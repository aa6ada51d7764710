/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/audit/sink.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { SINK_DAY_LEN = 10, SINK_TAIL_MAX = 1 << 20, SINK_SEND_SECONDS = 30, SINK_STATE_LEN = 21 };

enum sink_kind { SINK_STDOUT, SINK_DIRECTORY, SINK_SYSLOG };

struct audit_sink {
    enum sink_kind kind;
    const struct form *form;
    int directory, file, socket, state; /* -1: none */
    char day[SINK_DAY_LEN + 1];         /* of `file`; "": none yet */
    char *path;                         /* of the directory, or the address; owned */
    bool is_stream, is_flushed;
};

static struct audit_sink *sink_new(enum sink_kind kind, const char *path)
{
    struct audit_sink *s = mem_new(struct audit_sink);
    s->kind = kind;
    s->directory = s->file = s->socket = s->state = -1;
    s->path = mem_strdup(path);
    return s;
}

void sink_free(struct audit_sink *s)
{
    if (!s)
        return;
    (void)fd_close(s->directory);
    (void)fd_close(s->file);
    (void)fd_close(s->socket);
    (void)fd_close(s->state);
    MEM_FREE(s->path, s);
}

struct audit_sink *sink_stdout(bool is_flushed)
{
    struct audit_sink *s = sink_new(SINK_STDOUT, "standard output");
    s->is_flushed = is_flushed;
    return s;
}

/* ---- files by day ---- */

static bool sink_is_day(const char *text)
{
    static const char like[] = "0000-00-00";
    for (size_t i = 0; i < SINK_DAY_LEN; i++)
        if (like[i] == '0' ? text[i] < '0' || text[i] > '9' : text[i] != like[i])
            return false;
    return true;
}

static int sink_open_day(struct audit_sink *s, const char *day, struct err *err)
{
    char name[SINK_DAY_LEN + 32];
    (void)snprintf(name, sizeof(name), "%.*s%s", SINK_DAY_LEN, day, s->form->suffix);
    if (s->file >= 0 && fdatasync(s->file) < 0)
        return err_errno(err, errno, "%s/%s%s", s->path, s->day, s->form->suffix);
    (void)fd_close(TAKE_FD(s->file));
    s->file = openat(s->directory, name, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->file < 0)
        return err_errno(err, errno, "%s/%s", s->path, name);
    (void)snprintf(s->day, sizeof(s->day), "%.*s", SINK_DAY_LEN, day);
    return 0;
}

/* A day's file in another form than this one's: the next export would begin anew beside it. */
static int sink_check_forms(const struct audit_sink *s, struct err *err)
{
    AUTO(dir_close) DIR *list = dir_open(s->directory, ".");
    const struct form *other = NULL;
    if (!list)
        return err_errno(err, errno, "%s", s->path);
    for (const struct dirent *one; !other && (one = dir_next(list));)
        if (strlen(one->d_name) > SINK_DAY_LEN && sink_is_day(one->d_name))
            other = form_of_file(one->d_name + SINK_DAY_LEN);
    return !other || other == s->form
               ? 0
               : err_set(err, ERR_INVALID_ARGUMENT,
                         "%s has files in the format %s: write --format %s, or another directory", s->path, other->name,
                         other->name);
}

/* The day of the newest file before `before`, which may be ret_day. False: there is none. */
static bool sink_newest_day(const struct audit_sink *s, const char *before, char ret_day[static SINK_DAY_LEN + 1])
{
    AUTO(dir_close) DIR *list = dir_open(s->directory, ".");
    char newest[SINK_DAY_LEN + 1] = "";
    for (const struct dirent *one; (one = dir_next(list));)
        if (strlen(one->d_name) > SINK_DAY_LEN && sink_is_day(one->d_name) &&
            strcmp(one->d_name + SINK_DAY_LEN, s->form->suffix) == 0 &&
            strncmp(one->d_name, newest, SINK_DAY_LEN) > 0 && strncmp(one->d_name, before, SINK_DAY_LEN) < 0)
            (void)snprintf(newest, sizeof(newest), "%.*s", SINK_DAY_LEN, one->d_name);
    if (!list)
        return false;
    memcpy(ret_day, newest, sizeof(newest));
    return *newest;
}

/* Cuts the file behind its last whole line. *ret_cursor: that line's; 0: the file is empty now. */
static int sink_mend(struct audit_sink *s, uint64_t *ret_cursor, struct err *err)
{
    struct stat st;
    if (fstat(s->file, &st) < 0)
        return err_errno(err, errno, "%s", s->path);
    size_t n = (size_t)MIN(st.st_size, (off_t)SINK_TAIL_MAX), end;
    AUTO_FREE char *tail = mem_alloc(n + 1);
    if (pread(s->file, tail, n, st.st_size - (off_t)n) != (ssize_t)n)
        return err_set(err, ERR_INTERNAL, "%s: the newest file can't be read", s->path);
    uint64_t cursor = 0;
    for (end = n; end > 0 && !cursor;) {
        const char *last = memrchr(tail, '\n', end);
        end = last ? (size_t)(last - tail) : 0;
        const char *before = end ? memrchr(tail, '\n', end) : NULL;
        size_t from = before ? (size_t)(before - tail) + 1 : 0;
        if (last && (cursor = form_cursor(s->form, str_n(tail + from, end - from))))
            end++;
    }
    if (!cursor && st.st_size > (off_t)n)
        return err_set(err, ERR_FAILED_PRECONDITION, "%s/%s%s was not written by this command", s->path, s->day,
                       s->form->suffix);
    if (end < n && ftruncate(s->file, st.st_size - (off_t)(n - end)) < 0)
        return err_errno(err, errno, "%s", s->path);
    *ret_cursor = cursor;
    return 0;
}

/* Opens the directory and, behind what is in it, the newest file. */
static int sink_resume(struct audit_sink *s, uint64_t *ret_cursor, struct err *err)
{
    char newest[SINK_DAY_LEN + 1] = "", day[SINK_DAY_LEN + 1] = ":"; /* behind all digits */
    uint64_t cursor = 0;
    if ((mkdir(s->path, 0700) < 0 && errno != EEXIST) ||
        (s->directory = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        return err_errno(err, errno, "%s", s->path);
    if (flock(s->directory, LOCK_EX | LOCK_NB) < 0)
        return err_set(err, ERR_FAILED_PRECONDITION, "%s: another export writes there", s->path);
    if (sink_check_forms(s, err) < 0)
        return -1;
    while (!cursor && sink_newest_day(s, day, day)) {
        if (!*newest)
            memcpy(newest, day, sizeof(newest));
        if (sink_open_day(s, day, err) < 0 || sink_mend(s, &cursor, err) < 0)
            return -1;
    }
    if (*newest && strcmp(newest, s->day) != 0 && sink_open_day(s, newest, err) < 0)
        return -1;
    *ret_cursor = cursor;
    return 0;
}

struct audit_sink *sink_directory(const char *path, const struct form *form, uint64_t *ret_cursor, struct err *err)
{
    struct audit_sink *s = sink_new(SINK_DIRECTORY, path);
    s->form = form;
    if (sink_resume(s, ret_cursor, err) == 0)
        return s;
    sink_free(s);
    return NULL;
}

static int sink_put_file(struct audit_sink *s, struct str text, const char *day, struct err *err)
{
    if (!sink_is_day(day) && !*s->day)
        day = "1970-01-01"; /* a gap before the first event has no time */
    if (sink_is_day(day) && strcmp(day, s->day) > 0 && sink_open_day(s, day, err) < 0)
        return -1;
    int r = fd_write_all(s->file, text.p, text.n);
    return r < 0 ? err_errno(err, -r, "%s/%s%s", s->path, s->day, s->form->suffix) : 0;
}

/* ---- syslog ---- */

static int sink_connect_path(struct audit_sink *s)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (strlen(s->path) >= sizeof(to.sun_path))
        return -ENAMETOOLONG;
    memcpy(to.sun_path, s->path, strlen(s->path) + 1);
    s->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return s->socket < 0 || connect(s->socket, (struct sockaddr *)&to, sizeof(to)) < 0 ? -errno : 0;
}

static int sink_connect(struct audit_sink *s)
{
    const struct timeval bound = {.tv_sec = SINK_SEND_SECONDS};
    if (*s->path == '/')
        return sink_connect_path(s);
    AUTO_FREE char *host = mem_strdup(s->path + 4);
    char *port = strrchr(host, ':'), *name = host;
    *port++ = '\0';
    if (*name == '[' && name[strlen(name) - 1] == ']') {
        name[strlen(name) - 1] = '\0';
        name++;
    }
    struct addrinfo hints = {.ai_socktype = s->is_stream ? SOCK_STREAM : SOCK_DGRAM}, *list = NULL;
    if (getaddrinfo(name, port, &hints, &list) != 0)
        return -EHOSTUNREACH;
    int r = -EHOSTUNREACH;
    for (const struct addrinfo *a = list; a && r < 0; a = a->ai_next) {
        (void)fd_close(TAKE_FD(s->socket));
        s->socket = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, 0);
        if (s->socket >= 0)
            (void)setsockopt(s->socket, SOL_SOCKET, SO_SNDTIMEO, &bound, sizeof(bound));
        r = s->socket < 0 || connect(s->socket, a->ai_addr, a->ai_addrlen) < 0 ? -errno : 0;
    }
    freeaddrinfo(list);
    return r;
}

struct audit_sink *sink_syslog(const char *address, struct err *err)
{
    struct audit_sink *s = sink_new(SINK_SYSLOG, address);
    bool is_tcp = strncmp(address, "tcp:", 4) == 0, is_udp = strncmp(address, "udp:", 4) == 0;
    const char *port = strrchr(address, ':');
    uint64_t number;
    s->is_stream = is_tcp;
    if (*address == '/' || ((is_tcp || is_udp) && port > address + 4 && str_to_u64(str_of(port + 1), &number) == 0 &&
                            number > 0 && number <= UINT16_MAX))
        return s;
    (void)err_set(err, ERR_INVALID_ARGUMENT, "%s: write /dev/log, udp:HOST:PORT or tcp:HOST:PORT", address);
    sink_free(s);
    return NULL;
}

/* A receiver that closed the connection has read nothing of what is sent then. */
static bool sink_is_closed(const struct audit_sink *s)
{
    char c;
    ssize_t n = s->is_stream ? recv(s->socket, &c, 1, MSG_DONTWAIT | MSG_PEEK) : 1;
    return n == 0 || (n < 0 && errno != EAGAIN);
}

static int sink_send(struct audit_sink *s, struct str text)
{
    if (s->socket >= 0 && sink_is_closed(s))
        (void)fd_close(TAKE_FD(s->socket));
    int r = s->socket < 0 ? sink_connect(s) : 0;
    AUTO_FREE char *framed = s->is_stream ? mem_printf("%zu %.*s", text.n, STR_ARG(text)) : NULL;
    if (framed)
        text = str_of(framed);
    while (r >= 0 && text.n) {
        ssize_t n = send(s->socket, text.p, text.n, MSG_NOSIGNAL);
        r = n < 0 && errno != EINTR ? -errno : 0;
        text = str_sub(text, n < 0 ? 0 : (size_t)n);
    }
    if (r < 0)
        (void)fd_close(TAKE_FD(s->socket)); /* a piece of a message may be out: the next one begins a new connection */
    return r;
}

/* ---- all of them ---- */

int sink_state(struct audit_sink *s, const char *path, uint64_t *ret_cursor, struct err *err)
{
    char text[SINK_STATE_LEN + 1];
    s->state = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->state < 0)
        return err_errno(err, errno, "%s", path);
    if (flock(s->state, LOCK_EX | LOCK_NB) < 0)
        return err_set(err, ERR_FAILED_PRECONDITION, "%s: another export uses it", path);
    ssize_t n = pread(s->state, text, sizeof(text), 0);
    *ret_cursor = 0;
    if (n != 0 && (n != SINK_STATE_LEN || str_to_u64(str_n(text, SINK_STATE_LEN - 1), ret_cursor) < 0))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s was not written by this command", path);
    return 0;
}

int sink_put(struct audit_sink *s, struct str text, const char *day, uint64_t cursor, struct err *err)
{
    char state[SINK_STATE_LEN + 1];
    int r = 0;
    if (s->kind == SINK_DIRECTORY) {
        AUTO_FREE char *line =
            mem_printf("%.*s\n", STR_ARG(text)); /* one write: a kill leaves a piece of one line at most */
        return sink_put_file(s, str_of(line), day, err);
    }
    if (s->kind == SINK_SYSLOG && (r = sink_send(s, text)) < 0)
        return err_set(err, ERR_UNAVAILABLE, "%s: %s", s->path, strerror(-r));
    if (s->kind == SINK_STDOUT) {
        errno = 0;
        if (printf("%.*s\n", STR_ARG(text)) < 0 || (s->is_flushed && fflush(stdout) < 0))
            return err_errno(err, errno ? errno : EIO, "write the output");
    }
    (void)snprintf(state, sizeof(state), "%020llu\n", (unsigned long long)cursor);
    if (s->state >= 0 && pwrite(s->state, state, SINK_STATE_LEN, 0) != SINK_STATE_LEN)
        return err_errno(err, errno, "the state file");
    return 0;
}

int sink_end(struct audit_sink *s, struct err *err)
{
    if (s->file >= 0 && fdatasync(s->file) < 0)
        return err_errno(err, errno, "%s", s->path);
    return 0;
}
