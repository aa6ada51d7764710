/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets: which there are, and where they reach. */
#include "probe.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { CONNECT_MS = 3000 };

/* socket,FAMILY,TYPE,PROTOCOL: as given, 64 bits of each. */
static int do_socket(int argc, char **argv)
{
    long family = number(argument(argc, argv, 0)), type = number(argument(argc, argv, 1)),
         protocol = number(argument(argc, argv, 2));
    return result_of(syscall(SYS_socket, family, type, protocol));
}

static int do_socketpair(int argc, char **argv)
{
    int pair[2];
    long family = number(argument(argc, argv, 0)), type = number(argument(argc, argv, 1)),
         protocol = number(argument(argc, argv, 2));
    /* "Not supported" is said of sockets that were made for it and thrown away. */
    return REACHED_IF(syscall(SYS_socketpair, family, type, protocol, pair), EOPNOTSUPP);
}

static socklen_t address(const char *text, long port, struct sockaddr_storage *ret_a)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)ret_a;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)ret_a;
    memset(ret_a, 0, sizeof(*ret_a));
    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons((uint16_t)port);
        return sizeof(*v4);
    }
    if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons((uint16_t)port);
        return sizeof(*v6);
    }
    return 0;
}

static int wait_connected(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int e = 0;
    socklen_t n = sizeof(e);
    if (poll(&p, 1, CONNECT_MS) == 0)
        return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n) < 0 ? errno : e;
}

/* tcp,ADDRESS,PORT: sends a line when it gets there. */
static int do_tcp(int argc, char **argv)
{
    struct sockaddr_storage a;
    socklen_t n = address(argument(argc, argv, 0), number(argument(argc, argv, 1)), &a);
    int fd = socket(a.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (!n || fd < 0)
        return n ? errno : ABSENT;
    int r = connect(fd, (struct sockaddr *)&a, n) < 0 ? errno : 0;
    r = r == EINPROGRESS ? wait_connected(fd) : r;
    return r ? r : result_of(send(fd, "GET / HTTP/1.0\r\n\r\n", 18, MSG_NOSIGNAL));
}

/* The same without connect(). */
static int do_tcp_fast_open(int argc, char **argv)
{
    struct sockaddr_storage a;
    socklen_t n = address(argument(argc, argv, 0), number(argument(argc, argv, 1)), &a);
    int fd = socket(a.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (!n || fd < 0)
        return n ? errno : ABSENT;
    ssize_t sent = sendto(fd, "GET / HTTP/1.0\r\n\r\n", 18, MSG_FASTOPEN | MSG_NOSIGNAL, (struct sockaddr *)&a, n);
    int r = sent < 0 ? errno : 0;
    return r == EINPROGRESS ? wait_connected(fd) : r;
}

static int do_udp(int argc, char **argv)
{
    static const int on = 1;
    struct sockaddr_storage a;
    socklen_t n = address(argument(argc, argv, 0), number(argument(argc, argv, 1)), &a);
    int fd = socket(a.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (!n || fd < 0)
        return n ? errno : ABSENT;
    (void)setsockopt(fd, SOL_SOCKET, SO_BROADCAST, &on, sizeof(on));
    return result_of(sendto(fd, "probe", 5, 0, (struct sockaddr *)&a, n));
}

static int do_udp_many(int argc, char **argv)
{
    struct sockaddr_storage a;
    socklen_t n = address(argument(argc, argv, 0), number(argument(argc, argv, 1)), &a);
    int fd = socket(a.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (!n || fd < 0)
        return n ? errno : ABSENT;
    struct iovec iov = {(char[]){"probe"}, 5};
    struct mmsghdr m = {.msg_hdr = {.msg_name = &a, .msg_namelen = n, .msg_iov = &iov, .msg_iovlen = 1}};
    return result_of(sendmmsg(fd, &m, 1, 0));
}

/* An echo request by a datagram socket, which the kernel lets ordinary users send where it was told so. */
static int do_ping(int argc, char **argv)
{
    struct sockaddr_storage a;
    socklen_t n = address(argument(argc, argv, 0), 0, &a);
    bool v6 = a.ss_family == AF_INET6;
    int type = argc > 1 && *argv[1] == 'r' ? SOCK_RAW : SOCK_DGRAM;
    int fd = socket(a.ss_family, type | SOCK_CLOEXEC, v6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
    if (!n || fd < 0)
        return n ? errno : ABSENT;
    struct icmphdr h = {.type = v6 ? 128 : ICMP_ECHO};
    return result_of(sendto(fd, &h, sizeof(h), 0, (struct sockaddr *)&a, n));
}

/* abstract,NAME and unix,PATH. */
static int connect_unix(const char *name, bool abstract)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    size_t n = strlen(name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || n + 2 > sizeof(un.sun_path))
        return fd < 0 ? errno : ABSENT;
    memcpy(un.sun_path + abstract, name, n);
    return result_of(
        connect(fd, (struct sockaddr *)&un, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + abstract + n)));
}

static int do_abstract(int argc, char **argv)
{
    return connect_unix(argument(argc, argv, 0), true);
}

static int do_unix(int argc, char **argv)
{
    return connect_unix(argument(argc, argv, 0), false);
}

static int do_vsock(int argc, char **argv)
{
    struct {
        sa_family_t family;
        uint16_t reserved;
        uint32_t port, cid;
        unsigned char zero[4];
    } a = {40, 0, (uint32_t)number(argument(argc, argv, 1)), (uint32_t)number(argument(argc, argv, 0)), {0}};
    int fd = (int)syscall(SYS_socket, 40L, (long)(SOCK_STREAM | SOCK_NONBLOCK), 0L);
    if (fd < 0)
        return errno;
    return REACHED_IF(connect(fd, (struct sockaddr *)&a, sizeof(a)), ECONNRESET, ENODEV, ECONNREFUSED, ETIMEDOUT,
                      ENETUNREACH, EINPROGRESS);
}

/* Adds an address to the loopback interface: a netlink request that changes something. */
static int do_netlink_write(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    struct {
        struct nlmsghdr h;
        struct ifaddrmsg m;
        struct rtattr a;
        struct in_addr address;
    } request = {
        .h = {sizeof(request), RTM_NEWADDR, NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE, 1, 0},
        .m = {AF_INET, 32, 0, RT_SCOPE_HOST, 1},
        .a = {sizeof(struct rtattr) + sizeof(struct in_addr), IFA_LOCAL},
        .address = {0x0a09027f}, /* 127.2.9.10 */
    };
    struct {
        struct nlmsghdr h;
        struct nlmsgerr e;
        char rest[512];
    } answer;
    int fd = (int)syscall(SYS_socket, (long)AF_NETLINK, (long)SOCK_RAW, (long)NETLINK_ROUTE);
    if (fd < 0 || send(fd, &request, sizeof(request), 0) < 0 ||
        recv(fd, &answer, sizeof(answer), 0) < (ssize_t)sizeof(answer.h))
        return errno;
    errno = -answer.e.error;
    return REACHED_IF(answer.e.error ? -1 : 0, EEXIST);
}

/* Positive: reading the interfaces, as getifaddrs() does. */
static int do_netlink_read(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    struct {
        struct nlmsghdr h;
        struct rtgenmsg g;
    } request = {{sizeof(request), RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0}, {AF_UNSPEC}};
    char answer[65536];
    int fd = (int)syscall(SYS_socket, (long)AF_NETLINK, (long)SOCK_RAW, (long)NETLINK_ROUTE), links = 0;
    if (fd < 0 || send(fd, &request, sizeof(request), 0) < 0)
        return errno;
    ssize_t n = recv(fd, answer, sizeof(answer), 0);
    if (n < 0)
        return errno;
    for (struct nlmsghdr *h = (struct nlmsghdr *)(void *)answer; NLMSG_OK(h, (uint32_t)n); h = NLMSG_NEXT(h, n))
        links += h->nlmsg_type == RTM_NEWLINK;
    note("%d links", links);
    return REACHED;
}

static int do_interface_down(int argc, char **argv)
{
    struct ifreq r;
    memset(&r, 0, sizeof(r));
    (void)snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", argument(argc, argv, 0));
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || ioctl(fd, SIOCGIFFLAGS, &r) < 0)
        return errno;
    return result_of(ioctl(fd, SIOCSIFFLAGS, &r)); /* as they are, which asks for the right to change them */
}

/* option,LEVEL,NAME,SIZE on a TCP socket, its value is 1 and zeros. */
static int do_option(int argc, char **argv)
{
    static const char value[4096] = {1};
    long level = number(argument(argc, argv, 0)), name = number(argument(argc, argv, 1)),
         size = number(argument(argc, argv, 2));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || size > (long)sizeof(value))
        return ABSENT;
    return REACHED_IF(setsockopt(fd, (int)level, (int)name, value, (socklen_t)size), EINVAL, EFAULT, ENOENT,
                      ENOPROTOOPT);
}

/* On a socket of its own; the errno of the first group that it could not join. */
static int join_groups(int first, int n)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    for (int i = first; i < first + n; i++) {
        struct ip_mreqn m = {.imr_multiaddr = {htonl(0xef000000U + (uint32_t)i)}, .imr_ifindex = 1};
        if (setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof(m)) < 0)
            return errno;
    }
    return REACHED;
}

/* groups,PROCESSES,EACH: all of them at once; they are killed when the last is done. */
static int do_groups(int argc, char **argv)
{
    int processes = (int)number(argument(argc, argv, 0)), each = (int)number(argument(argc, argv, 1)), results[2];
    int joined = 0, error = 0, n = 0;
    unsigned char e;
    if (pipe2(results, O_CLOEXEC) < 0)
        return ABSENT;
    for (; n < processes; n++) {
        pid_t pid = fork();
        if (pid < 0)
            break;
        if (pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            e = (unsigned char)join_groups(n * each, each);
            if (write(results[1], &e, 1) == 1)
                (void)pause(); /* with what it has joined, until the others are done, too */
            _exit(1);
        }
    }
    for (int i = 0; i < n && read(results[0], &e, 1) == 1; i++) {
        joined += e == 0;
        error = e ? e : error;
    }
    note("%d processes, %d joined", n, joined);
    return n == 0 ? ABSENT : joined ? REACHED : error;
}

static int do_tun(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    struct ifreq r;
    memset(&r, 0, sizeof(r));
    r.ifr_flags = 0x1001;
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return errno;
    return result_of(ioctl(fd, 0x400454ca /* TUNSETIFF */, &r));
}

/* attach,OPTION: a program for the packets of a socket, which the kernel turns into machine code. */
static int do_attach(int argc, char **argv)
{
    struct sock_filter all[] = {{0x06, 0, 0, 0xffffffff}};
    struct sock_fprog program = {1, all};
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int on = 1, fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)) < 0 ||
        bind(fd, (struct sockaddr *)&any, sizeof(any)) < 0)
        return ABSENT;
    return result_of(setsockopt(fd, SOL_SOCKET, (int)number(argument(argc, argv, 0)), &program, sizeof(program)));
}

const struct verb network_verbs[] = {
    {"attach", do_attach},
    {"socket", do_socket},
    {"socketpair", do_socketpair},
    {"tcp", do_tcp},
    {"tcp_fast_open", do_tcp_fast_open},
    {"udp", do_udp},
    {"udp_many", do_udp_many},
    {"ping", do_ping},
    {"abstract", do_abstract},
    {"unix", do_unix},
    {"vsock", do_vsock},
    {"netlink_write", do_netlink_write},
    {"netlink_read", do_netlink_read},
    {"interface_down", do_interface_down},
    {"option", do_option},
    {"groups", do_groups},
    {"tun", do_tun},
};
const size_t n_network_verbs = COUNT(network_verbs);
