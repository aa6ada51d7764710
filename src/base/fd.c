/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/buf.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

int fd_close(int fd)
{
    if (fd >= 0) {
        int saved = errno;
        (void)close(fd);
        errno = saved;
    }
    return -1;
}

int fd_lasting(int fd)
{
    int there = fd < 0 || fd >= FD_LASTING ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FD_LASTING);
    if (there < 0)
        return fd;
    (void)fd_close(fd);
    return there;
}

int fd_standard(int flags)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", flags) != fd)
            return -EBADF;
    return 0;
}

bool fd_peer_is_in(int fd, gid_t group)
{
    gid_t groups[256];
    struct ucred peer;
    socklen_t n = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0)
        return false;
    if (peer.gid == group)
        return true;
    n = sizeof(groups);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &n) < 0)
        return false; /* of more groups than that: nobody is */
    for (size_t i = 0; i < n / sizeof(*groups); i++)
        if (groups[i] == group)
            return true;
    return false;
}

int fd_nonblock(int fd, bool on)
{
    int flag = on;
    return ioctl(fd, FIONBIO, &flag) < 0 ? -errno : 0;
}

int fd_cloexec(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFD);
    if (flags < 0)
        return -errno;
    int wanted = on ? flags | FD_CLOEXEC : flags & ~FD_CLOEXEC;
    return wanted != flags && fcntl(fd, F_SETFD, wanted) < 0 ? -errno : 0;
}

int fd_write_all(int fd, const void *p, size_t n)
{
    const char *from = p;
    while (n) {
        ssize_t r = write(fd, from, n);
        if (r < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        from += r;
        n -= (size_t)r;
    }
    return 0;
}

int fd_read_all(int fd, struct buf *b)
{
    for (;;) {
        size_t room = MIN(b->max - buf_len(b), (size_t)16384);
        char extra = 0;
        char *to = room ? buf_reserve(b, room) : &extra;
        if (!to)
            return buf_error(b);
        ssize_t r = read(fd, to, room ? room : 1);
        if (r < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        if (r == 0)
            return 0;
        if (!room)
            return -ENOBUFS;
        buf_commit(b, (size_t)r);
    }
}

int fd_write_file(int dirfd, const char *path, struct str content, mode_t mode)
{
    AUTO_CLOSE int fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return -errno;
    return fd_write_all(fd, content.p, content.n);
}

int fd_write_existing(int dirfd, const char *path, struct str content)
{
    AUTO_CLOSE int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    ssize_t r;
    do
        r = write(fd, content.p, content.n);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return -errno;
    return (size_t)r == content.n ? 0 : -EIO;
}

int fd_read_file(int dirfd, const char *path, struct buf *b)
{
    AUTO_CLOSE int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    return fd_read_all(fd, b);
}

int fd_send(int sock, const void *p, size_t n, const int *fds, size_t n_fds)
{
    assert(n_fds <= FD_PASS_MAX);
    union {
        char space[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = (void *)(uintptr_t)p, .iov_len = n};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n_fds) {
        memset(&control, 0, sizeof(control));
        msg.msg_control = control.space;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * n_fds);
    }
    ssize_t r;
    do
        r = sendmsg(sock, &msg, MSG_NOSIGNAL);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return -errno;
    return (size_t)r == n ? 0 : -EIO;
}

ssize_t fd_recv(int sock, void *p, size_t n, int *ret_fds, size_t max_fds, size_t *ret_n_fds)
{
    union {
        char space[CMSG_SPACE(sizeof(int) * FD_PASS_MAX)];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = p, .iov_len = n};
    struct msghdr msg = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = sizeof(control.space)};
    ssize_t r;
    do
        r = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return -errno;
    int error = msg.msg_flags & MSG_TRUNC ? -EMSGSIZE : msg.msg_flags & MSG_CTRUNC ? -EPROTO : 0;
    size_t got = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&msg); c; c = CMSG_NXTHDR(&msg, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (got < max_fds) {
                ret_fds[got++] = fd;
            } else {
                (void)fd_close(fd);
                error = error ? error : -EPROTO;
            }
        }
    }
    if (error) {
        for (size_t i = 0; i < got; i++)
            (void)fd_close(ret_fds[i]);
        return error;
    }
    *ret_n_fds = got;
    return r;
}
