/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/listen.h"
#include "base/fd.h"
#include "config/config.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET_NAME "cove.sock"

enum { BACKLOG = 4096, LISTEN_AGAIN_USEC = 20 * 1000 };

/* Whoever leaves the loopback of IPv4 leaves that of IPv6 in the same moment. */
static const usec_t loopback6_patience = 200 * USEC_PER_MS;

static bool listens_at(int fd, const struct sockaddr *address, socklen_t length)
{
    union {
        struct sockaddr any;
        struct sockaddr_un un;
        struct sockaddr_storage room;
    } has;
    socklen_t n = sizeof(has);
    memset(&has, 0, sizeof(has));
    if (getsockname(fd, &has.any, &n) < 0 || has.any.sa_family != address->sa_family)
        return false;
    return address->sa_family == AF_UNIX ? strcmp(has.un.sun_path, ((const struct sockaddr_un *)address)->sun_path) == 0
                                         : n == length && memcmp(&has, address, length) == 0;
}

static int inherited_take(struct inherited *in, const struct sockaddr *address, socklen_t length)
{
    for (size_t i = 0; in && i < in->n; i++)
        if (in->fds[i] >= 0 && listens_at(in->fds[i], address, length))
            return TAKE_FD(in->fds[i]);
    return -1;
}

void inherited_close(struct inherited *in)
{
    while (in->n)
        (void)fd_close(in->fds[--in->n]);
}

static int listen_open_one(const struct sockaddr *address, socklen_t length, struct inherited *in, int *ret_fd)
{
    static const int on = 1;
    int known = inherited_take(in, address, length);
    if (known >= 0) {
        (void)listen(known, BACKLOG); /* whoever asks for the peer of a unix socket is told of us from now on */
        *ret_fd = known;
        return 0;
    }
    AUTO_CLOSE int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (address->sa_family != AF_UNIX)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (address->sa_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
    if (bind(fd, address, length) < 0 || listen(fd, BACKLOG) < 0)
        return -errno;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* An address that is taken is tried again until then (clock_mono()). */
static int open_until(const struct sockaddr *address, socklen_t length, usec_t until, struct inherited *in, int *ret_fd)
{
    int r;
    while ((r = listen_open_one(address, length, in, ret_fd)) == -EADDRINUSE && clock_mono() < until)
        (void)usleep(LISTEN_AGAIN_USEC);
    return r;
}

static void listen_add(struct listeners *l, int fd, bool is_unix, bool is_tls)
{
    assert(l->n < LISTEN_MAX);
    l->at[l->n++] = (struct coved_listener){fd, is_unix, is_tls};
}

/* Clients that look a loopback name up may get ::1 first: serve it too where IPv4's loopback is served, if nobody else
 * does. */
static void add_loopback6(struct listeners *l, const struct config_listen *c, bool is_tls, usec_t until)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&c->address;
    if (c->address.ss_family != AF_INET || v4->sin_addr.s_addr != htonl(INADDR_LOOPBACK) || l->n + 2 >= LISTEN_MAX)
        return;
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = v4->sin_port, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    int fd = -1;
    until = MIN(until, clock_mono() + loopback6_patience);
    if (open_until((const struct sockaddr *)&v6, sizeof(v6), until, l->inherited, &fd) == 0)
        listen_add(l, fd, false, is_tls);
}

static int name_local(const char *path, mode_t mode, uid_t owner, gid_t group, struct local_socket *s, struct err *err)
{
    struct stat st;
    if (fstatat(s->dir_fd, s->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_errno(err, errno, "look at %s", path);
    s->dev = st.st_dev;
    s->ino = st.st_ino;
    if (fchmodat(s->dir_fd, s->name, mode, 0) < 0 ||
        fchownat(s->dir_fd, s->name, owner, group, AT_SYMLINK_NOFOLLOW) < 0)
        return err_errno(err, errno, "set the owner and mode of %s", path);
    return 0;
}

int listen_local(const char *dir, const char *name, mode_t mode, uid_t owner, gid_t group, struct inherited *in,
                 struct local_socket *ret_socket, struct err *err)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    struct local_socket s = LOCAL_SOCKET_NONE;
    int n = snprintf(un.sun_path, sizeof(un.sun_path), "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= sizeof(un.sun_path))
        return err_set(err, ERR_INVALID_ARGUMENT, "run_dir %s is too long for a unix socket", dir);
    s.fd = inherited_take(in, (const struct sockaddr *)&un, sizeof(un));
    if (s.fd >= 0 && access(un.sun_path, F_OK) < 0)
        s.fd = fd_close(s.fd); /* nobody could reach it */
    if (s.fd >= 0)
        (void)listen(s.fd, BACKLOG); /* as above */
    if (s.fd < 0 && unlink(un.sun_path) < 0 && errno != ENOENT)
        return err_errno(err, errno, "remove the old socket %s", un.sun_path);
    s.name = name;
    s.dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (s.dir_fd < 0)
        return err_errno(err, errno, "open %s", dir);
    int r = s.fd >= 0 ? 0 : listen_open_one((const struct sockaddr *)&un, sizeof(un), NULL, &s.fd);
    r = r < 0 ? err_errno(err, r, "listen on %s", un.sun_path) : name_local(un.sun_path, mode, owner, group, &s, err);
    if (r < 0) {
        listen_local_close(&s);
        return r;
    }
    *ret_socket = s;
    return 0;
}

/* While the socket is open its inode is in use, so that no other file can have the number. */
void listen_local_close(struct local_socket *s)
{
    struct stat st;
    if (s->fd >= 0 && fstatat(s->dir_fd, s->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_dev == s->dev &&
        st.st_ino == s->ino)
        (void)unlinkat(s->dir_fd, s->name, 0);
    s->dir_fd = fd_close(s->dir_fd);
    s->fd = fd_close(s->fd);
}

int listen_open(const struct config *config, usec_t patience, struct inherited *in, struct listeners *ret_listeners,
                struct err *err)
{
    struct listeners l = {.local = LOCAL_SOCKET_NONE, .inherited = in};
    const usec_t until = clock_mono() + patience;
    int r = 0;
    for (size_t i = 0; r == 0 && i < config->n_listen; i++) {
        const struct config_listen *c = &config->listen[i];
        int fd = -1, failed = open_until((const struct sockaddr *)&c->address, c->address_len, until, in, &fd);
        if (failed < 0) {
            r = err_errno(err, failed, "listen on %s (is another service there? set COVE_LISTEN)", c->text);
        } else {
            listen_add(&l, fd, false, false);
            add_loopback6(&l, c, false, until);
        }
    }
    /* Who may use it is decided by the peer's credentials. */
    if (r == 0)
        r = listen_local(config->run_dir, SOCKET_NAME, 0666, 0, (gid_t)-1, in, &l.local, err);
    if (r < 0) {
        listen_close(&l);
        return r;
    }
    listen_add(&l, l.local.fd, true, false);
    *ret_listeners = l;
    return 0;
}

int listen_open_tls(const struct config *config, usec_t patience, struct listeners *l, struct err *err)
{
    const usec_t until = clock_mono() + patience;
    for (size_t i = 0; i < config->n_listen_tls; i++) {
        const struct config_listen *c = &config->listen_tls[i];
        int fd = -1, r = open_until((const struct sockaddr *)&c->address, c->address_len, until, l->inherited, &fd);
        if (r < 0) {
            listen_close_tls(l);
            return err_errno(err, r, "listen on %s (is another service there? set COVE_LISTEN_TLS)", c->text);
        }
        listen_add(l, fd, false, true);
        add_loopback6(l, c, true, until);
    }
    return 0;
}

void listen_close_tls(struct listeners *l)
{
    size_t kept = 0;
    for (size_t i = 0; i < l->n; i++) {
        if (l->at[i].is_tls)
            (void)fd_close(l->at[i].fd);
        else
            l->at[kept++] = l->at[i];
    }
    l->n = kept;
}

void listen_close(struct listeners *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (!l->at[i].is_unix)
            (void)fd_close(l->at[i].fd);
    l->n = 0;
    listen_local_close(&l->local);
}
