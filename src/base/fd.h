/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors: closing, whole reads and writes, passing them over unix sockets. All results are close-on-exec. */
#pragma once

#include "base/str.h"

struct buf;

int fd_close(int fd); /* accepts -1, keeps errno, returns -1 */

static inline UNUSED void fd_close_auto_(int *fd)
{
    (void)fd_close(*fd);
}
#define AUTO_CLOSE __attribute__((cleanup(fd_close_auto_)))

/*
 * The same from FD_LASTING on, where there is room; closes fd. For what a process holds many of for long, so that its
 * children need not copy and close them: whatever they are to have stays below.
 */
enum { FD_LASTING = 1024 };
int fd_lasting(int fd);

/*
 * At the start of a program: opens /dev/null (flags: O_RDONLY or O_RDWR) for each of descriptors 0, 1 and 2 that is
 * closed. Otherwise the first files that the program opens get these numbers, and what it prints is written into them.
 * -EBADF: one stays closed.
 */
int fd_standard(int flags) WARN_UNUSED;

/* Was the client of this unix socket in the group when it connected? */
bool fd_peer_is_in(int fd, gid_t group);

int fd_nonblock(int fd, bool on) WARN_UNUSED;
int fd_cloexec(int fd, bool on) WARN_UNUSED;

/* The whole of p, over short writes and EINTR. For blocking descriptors. */
int fd_write_all(int fd, const void *p, size_t n) WARN_UNUSED;

/* Appends all that can be read until end of file, as far as the buffer's maximum allows (-ENOBUFS). */
int fd_read_all(int fd, struct buf *b) WARN_UNUSED;

/* A small file in one go; dirfd may be AT_FDCWD. */
int fd_write_file(int dirfd, const char *path, struct str content,
                  mode_t mode) WARN_UNUSED; /* creates or truncates; not over a symbolic link, not synced */
int fd_write_existing(int dirfd, const char *path, struct str content) WARN_UNUSED; /* one write(2), for kernel files */
int fd_read_file(int dirfd, const char *path, struct buf *b) WARN_UNUSED;

/*
 * One message with descriptors over a unix socket (SOCK_SEQPACKET or SOCK_STREAM). Send: -EAGAIN when a non-blocking
 * socket is full, nothing was sent then; -EIO when a stream took a part of it. Receive: bytes received, 0 at end of
 * file; when there are more descriptors than max_fds (-EPROTO) or the message was cut (-EMSGSIZE), all that came are
 * closed.
 */
enum { FD_PASS_MAX = 8 };
int fd_send(int sock, const void *p, size_t n, const int *fds, size_t n_fds) WARN_UNUSED;
ssize_t fd_recv(int sock, void *p, size_t n, int *ret_fds, size_t max_fds, size_t *ret_n_fds) WARN_UNUSED;
