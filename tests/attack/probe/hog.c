/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes as much of something as there is, says how much that was, and keeps it. All of it ends with the process; run
 * under limits. hog verbs: NAME,MOST,SECONDS
 */
#include "probe.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static long most(int argc, char **argv)
{
    return number(argument(argc, argv, 0));
}

static unsigned seconds(int argc, char **argv)
{
    return (unsigned)number(argument(argc, argv, 1));
}

static int hold(const char *what, long n, int argc, char **argv)
{
    char text[96];
    (void)snprintf(text, sizeof(text), "%s %s", what, n < most(argc, argv) ? strerror(errno) : "all");
    say_and_hold(text, n, seconds(argc, argv));
    return REACHED;
}

static int hog_inotify(int argc, char **argv)
{
    long n = 0;
    while (n < most(argc, argv) && inotify_init1(IN_CLOEXEC) >= 0)
        n++;
    return hold("inotify", n, argc, argv);
}

static int hog_watches(int argc, char **argv)
{
    long n = 0;
    int fd = inotify_init1(IN_CLOEXEC);
    for (; fd >= 0 && n < most(argc, argv); n++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "/dev/shm/watched-%ld", n);
        (void)close(open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
        if (inotify_add_watch(fd, path, IN_ALL_EVENTS) < 0)
            break;
    }
    return hold("watches", n, argc, argv);
}

static int hog_ptys(int argc, char **argv)
{
    long n = 0;
    while (n < most(argc, argv) && open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC) >= 0)
        n++;
    return hold("ptys", n, argc, argv);
}

static int hog_aio(int argc, char **argv)
{
    long n = 0, r = 0;
    while (n < most(argc, argv)) {
        unsigned long ctx = 0;
        r = syscall(SYS_io_setup, 4096, &ctx);
        if (r < 0)
            break;
        n += 4096;
    }
    return hold("aio", n, argc, argv);
}

static int hog_timers(int argc, char **argv)
{
    long n = 0;
    struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    int id;
    while (n < most(argc, argv) && syscall(SYS_timer_create, CLOCK_MONOTONIC, &e, &id) == 0)
        n++;
    return hold("timers", n, argc, argv);
}

static int hog_signals(int argc, char **argv)
{
    long n = 0;
    sigset_t set;
    union sigval v = {0};
    (void)sigfillset(&set);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    int r = 0;
    while (n < most(argc, argv) && (r = sigqueue(getpid(), SIGRTMIN + 5, v)) == 0)
        n++;
    (void)sigdelset(&set, SIGRTMIN + 5);
    sigset_t alarm_only;
    (void)sigemptyset(&alarm_only);
    (void)sigaddset(&alarm_only, SIGALRM);
    (void)sigprocmask(SIG_UNBLOCK, &alarm_only, NULL);
    return hold("signals", n, argc, argv);
}

static int hog_mqueues(int argc, char **argv)
{
    long n = 0;
    struct mq_attr attr = {.mq_maxmsg = 10, .mq_msgsize = 8192};
    for (; n < most(argc, argv); n++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "/probe-%d-%ld", (int)getpid(), n);
        if (mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attr) == (mqd_t)-1)
            break;
        (void)mq_unlink(name); /* it lasts as long as the descriptor */
    }
    return hold("mqueues", n, argc, argv);
}

static int hog_memory(int argc, char **argv)
{
    long n = 0;
    const size_t step = 1 << 20;
    while (n < most(argc, argv)) {
        char *p = mmap(NULL, step, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            break;
        memset(p, 1, step);
        n++;
    }
    return hold("memory", n, argc, argv);
}

static int fill(int fd, long mib)
{
    static char block[1 << 20];
    memset(block, 7, sizeof(block));
    for (long n = 0; n < mib; n++)
        if (write(fd, block, sizeof(block)) != (ssize_t)sizeof(block))
            return (int)n;
    return (int)mib;
}

static int hog_memfd(int argc, char **argv)
{
    int fd = (int)syscall(SYS_memfd_create, "hog", 0U);
    return hold("memfd", fd < 0 ? 0 : fill(fd, most(argc, argv)), argc, argv);
}

static int hog_shm(int argc, char **argv)
{
    int fd = open("/dev/shm/hog", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return hold("shm", fd < 0 ? 0 : fill(fd, most(argc, argv)), argc, argv);
}

static int hog_sysv(int argc, char **argv)
{
    long n = 0;
    for (; n < most(argc, argv); n++) {
        int id = shmget(IPC_PRIVATE, 1 << 20, IPC_CREAT | 0600);
        char *p = id < 0 ? (char *)-1 : shmat(id, NULL, 0);
        if (id < 0 || p == (char *)-1)
            break;
        memset(p, 1, 1 << 20);
    }
    return hold("sysv", n, argc, argv);
}

static int hog_fds(int argc, char **argv)
{
    long n = 0;
    struct rlimit all;
    if (getrlimit(RLIMIT_NOFILE, &all) == 0) {
        all.rlim_cur = all.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &all);
    }
    while (n < most(argc, argv) && eventfd(0, EFD_CLOEXEC) >= 0)
        n++;
    return hold("fds", n, argc, argv);
}

static int hog_pipes(int argc, char **argv)
{
    long n = 0;
    int p[2];
    for (; n < most(argc, argv) && pipe2(p, O_CLOEXEC | O_NONBLOCK) == 0; n++)
        (void)fcntl(p[1], F_SETPIPE_SZ, 1 << 20);
    return hold("pipes", n, argc, argv);
}

static int hog_epoll(int argc, char **argv)
{
    long n = 0;
    int target = eventfd(0, EFD_CLOEXEC), r = 0;
    while (n < most(argc, argv) && target >= 0) {
        int ep = epoll_create1(EPOLL_CLOEXEC);
        struct epoll_event e = {.events = EPOLLIN};
        r = ep < 0 ? -1 : epoll_ctl(ep, EPOLL_CTL_ADD, target, &e);
        if (r < 0)
            break;
        n++;
    }
    return hold("epoll", n, argc, argv);
}

/* Descriptors in flight: pairs of sockets that are sent over themselves and closed, so that nobody holds them but the
 * kernel. */
static int hog_in_flight(int argc, char **argv)
{
    long n = 0;
    for (; n < most(argc, argv); n++) {
        int pair[2];
        char byte = 0;
        struct iovec iov = {&byte, 1};
        union {
            struct cmsghdr h;
            char space[CMSG_SPACE(2 * sizeof(int))];
        } c;
        struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof(c)};
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
            break;
        memset(&c, 0, sizeof(c));
        c.h =
            (struct cmsghdr){.cmsg_len = CMSG_LEN(2 * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&c.h), pair, sizeof(pair));
        if (sendmsg(pair[0], &m, 0) < 0)
            break;
        (void)close(pair[0]);
        (void)close(pair[1]);
    }
    return hold("in_flight", n, argc, argv);
}

static int hog_sockets(int argc, char **argv)
{
    long n = 0;
    static char block[65536];
    for (; n < most(argc, argv); n++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
            break;
        while (write(pair[0], block, sizeof(block)) > 0)
            ;
    }
    return hold("sockets", n, argc, argv);
}

static const struct sockaddr_in itself = {.sin_family = AF_INET, .sin_addr = {.s_addr = 0x0100007f /* 127.0.0.1 */}};

/* A socket that sends to itself over lo until its buffer is full; then the next. */
static int hog_udp(int argc, char **argv)
{
    long n = 0;
    static char block[60000];
    const int large = 1 << 30;
    for (; n < most(argc, argv); n++) {
        struct sockaddr_in a = itself;
        socklen_t size = sizeof(a);
        unsigned memory[9] = {0}, before;
        int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (s < 0 || setsockopt(s, SOL_SOCKET, SO_RCVBUF, &large, sizeof(large)) < 0 ||
            bind(s, (struct sockaddr *)&a, size) < 0 || getsockname(s, (struct sockaddr *)&a, &size) < 0)
            break;
        do {
            socklen_t got = sizeof(memory);
            before = memory[0];
            if (sendto(s, block, sizeof(block), 0, (struct sockaddr *)&a, size) < 0 ||
                getsockopt(s, SOL_SOCKET, SO_MEMINFO, memory, &got) < 0)
                break;
        } while (memory[0] > before);
    }
    return hold("udp", n, argc, argv);
}

/* Connections over lo, both ends full. */
static int hog_tcp(int argc, char **argv)
{
    long n = 0;
    static char block[1 << 20];
    const int large = 1 << 30;
    struct sockaddr_in a = itself;
    socklen_t size = sizeof(a);
    int door = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (setsockopt(door, SOL_SOCKET, SO_RCVBUF, &large, sizeof(large)) < 0 ||
        setsockopt(door, SOL_SOCKET, SO_SNDBUF, &large, sizeof(large)) < 0 ||
        bind(door, (struct sockaddr *)&a, size) < 0 || listen(door, 64) < 0 ||
        getsockname(door, (struct sockaddr *)&a, &size) < 0)
        return errno;
    for (; n < most(argc, argv); n++) {
        int ends[2] = {socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), -1};
        if (ends[0] < 0 || connect(ends[0], (struct sockaddr *)&a, size) < 0 ||
            (ends[1] = accept(door, NULL, NULL)) < 0)
            break;
        for (int i = 0; i < 2; i++)
            while (send(ends[i], block, sizeof(block), MSG_DONTWAIT) > 0)
                ;
    }
    return hold("tcp", n, argc, argv);
}

/* Answers of the routing protocol, a GiB at most, that nobody reads. */
static int hog_netlink(int argc, char **argv)
{
    long n = 0;
    unsigned long held = 0;
    const int large = 1 << 30;
    const struct {
        struct nlmsghdr head;
        struct rtgenmsg body;
    } ask = {{sizeof(ask), RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0}, {0}};
    for (; n < most(argc, argv) && held < 1UL << 30; n++) {
        unsigned memory[9] = {0}, before;
        int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
        if (s < 0 || setsockopt(s, SOL_SOCKET, SO_RCVBUF, &large, sizeof(large)) < 0)
            break;
        do {
            socklen_t got = sizeof(memory);
            before = memory[0];
            if (send(s, &ask, sizeof(ask), 0) < 0 || getsockopt(s, SOL_SOCKET, SO_MEMINFO, memory, &got) < 0)
                break;
        } while (memory[0] > before);
        held += memory[0];
    }
    return hold("netlink", (long)(held >> 20), argc, argv);
}

/* Groups of multicast, as many as a socket may join and on as many sockets as there may be. */
static int hog_groups(int argc, char **argv)
{
    long n = 0;
    bool refused = false;
    while (!refused && n < most(argc, argv)) {
        int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (s < 0)
            break;
        for (int i = 0; i < 20 && !refused; i++, n += !refused) {
            const struct ip_mreqn m = {.imr_multiaddr = {htonl(0xef000000U + (uint32_t)n)}, .imr_ifindex = 1};
            refused = setsockopt(s, IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof(m)) < 0;
        }
    }
    return hold("groups", n, argc, argv);
}

static int hog_processes(int argc, char **argv)
{
    long n = 0;
    for (; n < most(argc, argv); n++) {
        pid_t pid = fork();
        if (pid < 0)
            break;
        if (pid == 0) {
            (void)alarm(seconds(argc, argv));
            for (;;)
                (void)pause();
        }
    }
    return hold("processes", n, argc, argv);
}

static int self_socket(int type, int protocol, struct sockaddr_in *ret_address)
{
    socklen_t n = sizeof(*ret_address);
    int s = socket(AF_INET, type | SOCK_CLOEXEC, protocol);
    *ret_address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (s >= 0 &&
        (bind(s, (struct sockaddr *)ret_address, n) < 0 || getsockname(s, (struct sockaddr *)ret_address, &n) < 0))
        return -1;
    return s;
}

/*
 * What a socket is told of what it has sent: errors (a port that nobody has), or copies with the time; asked for by an
 * option or by a message.
 */
static int hog_told(int argc, char **argv, bool is_time)
{
    struct sockaddr_in sink, nobody;
    int sink_fd = self_socket(SOCK_DGRAM, 0, &sink), closed = self_socket(SOCK_DGRAM, 0, &nobody);
    unsigned long held = 0;
    static char bytes[30000];
    (void)close(closed);
    for (long n = 0; sink_fd >= 0 && n < most(argc, argv); n++) {
        unsigned memory[9] = {0}, before;
        const int large = 1 << 30, on = 1, software = 1 << 1 | 1 << 4;
        int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), same = 0;
        char control[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec part = {bytes, is_time ? sizeof(bytes) : 1000};
        struct msghdr m = {
            .msg_name = is_time ? &sink : &nobody, .msg_namelen = sizeof(sink), .msg_iov = &part, .msg_iovlen = 1};
        if (s < 0)
            break;
        (void)setsockopt(s, SOL_SOCKET, SO_RCVBUF, &large, sizeof(large));
        (void)setsockopt(s, IPPROTO_IP, IP_RECVERR, &on, sizeof(on));
        if (is_time) {
            m.msg_control = control;
            m.msg_controllen = sizeof(control);
            (void)setsockopt(s, SOL_SOCKET, SO_TIMESTAMPING, &software, sizeof(software));
            struct cmsghdr *c = CMSG_FIRSTHDR(&m);
            *c = (struct cmsghdr){
                .cmsg_level = SOL_SOCKET, .cmsg_type = SO_TIMESTAMPING, .cmsg_len = CMSG_LEN(sizeof(int))};
            memcpy(CMSG_DATA(c), &(const int){1 << 1}, sizeof(int));
        }
        do {
            socklen_t got = sizeof(memory);
            before = memory[0];
            (void)sendmsg(s, &m, 0);
            (void)sendmsg(s, &m, 0);
            (void)getsockopt(s, SOL_SOCKET, SO_MEMINFO, memory, &got);
            same = memory[0] > before ? 0 : same + 1;
        } while (same < 4);
        held += memory[0];
    }
    return hold(is_time ? "times" : "errors", (long)(held >> 10), argc, argv);
}

static int hog_errors(int argc, char **argv)
{
    return hog_told(argc, argv, false);
}

static int hog_times(int argc, char **argv)
{
    return hog_told(argc, argv, true);
}

/* Connections that nobody accepts, each with what it takes before its client leaves. */
static int hog_backlog(int argc, char **argv)
{
    struct sockaddr_in to;
    const int large = 1 << 30;
    static char bytes[1 << 16];
    unsigned long sent = 0;
    int listener = self_socket(SOCK_STREAM, 0, &to);
    (void)setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &large, sizeof(large));
    (void)listen(listener, 4096);
    for (long n = 0; n < most(argc, argv); n++) {
        int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), waits = 0;
        if (s < 0 || connect(s, (struct sockaddr *)&to, sizeof(to)) < 0)
            break;
        while (waits < 20) {
            ssize_t put = send(s, bytes, sizeof(bytes), MSG_DONTWAIT);
            waits = put > 0 ? 0 : waits + 1;
            sent += put > 0 ? (unsigned long)put : 0;
            if (put <= 0)
                (void)usleep(500);
        }
        (void)close(s);
    }
    return hold("backlog", (long)(sent >> 20), argc, argv);
}

/* A row of /proc/net/tcp: in FIN-WAIT-2, without a file, and more than a row in that table (whose timer is 3). */
static bool is_orphan(char *row)
{
    enum { STATE = 3, TIMER = 5, INODE = 9, FIELDS = 10 };
    char *field[FIELDS];
    int n = 0;
    for (char *one; n < FIELDS && (one = strsep(&row, " "));)
        if (*one)
            field[n++] = one;
    return n == FIELDS && strcmp(field[STATE], "05") == 0 && strncmp(field[TIMER], "03:", 3) != 0 &&
           strcmp(field[INODE], "0") == 0;
}

/*
 * Connections that nobody has any more, each kept for as long as its option says; which are more than a row in a
 * table.
 */
static int hog_orphans(int argc, char **argv)
{
    struct sockaddr_in to;
    char line[256];
    long n = 0, held = 0;
    int listener = self_socket(SOCK_STREAM, 0, &to);
    (void)listen(listener, 128);
    for (; n < most(argc, argv); n++) {
        const int kept_s = 120;
        int s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (s < 0 || setsockopt(s, IPPROTO_TCP, TCP_LINGER2, &kept_s, sizeof(kept_s)) < 0 ||
            connect(s, (struct sockaddr *)&to, sizeof(to)) < 0 || accept(listener, NULL, NULL) < 0)
            break;
        (void)close(s);
    }
    FILE *table = fopen("/proc/self/net/tcp", "re");
    while (table && fgets(line, sizeof(line), table))
        held += is_orphan(line);
    return hold(n < most(argc, argv) ? "fewer orphans" : "orphans", held, argc, argv);
}

/* Locks of every second byte of many files; of processes, or of open files. */
static int hog_locked(int argc, char **argv, int command)
{
    enum { EACH = 200 }; // for each lock the kernel looks at all of its file
    long n = 0;
    for (int fd; n < most(argc, argv) && (fd = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) >= 0;)
        for (long i = EACH; i > 0; i--, n++) {
            struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 2 * i, .l_len = 1};
            if (fcntl(fd, command, &l) < 0)
                return hold("locks", n, argc, argv);
        }
    return hold("locks", n, argc, argv);
}

static int hog_locks(int argc, char **argv)
{
    return hog_locked(argc, argv, F_SETLK);
}

static int hog_file_locks(int argc, char **argv)
{
    return hog_locked(argc, argv, F_OFD_SETLK);
}

/* Every process makes more, for as long as it lives. */
static int hog_bomb(int argc, char **argv)
{
    (void)alarm(seconds(argc, argv));
    (void)signal(SIGCHLD, SIG_IGN);
    while (getpid() > 0)
        if (fork() < 0)
            (void)usleep(1000);
    return REACHED;
}

/* Orphans that end and are nobody's to reap but the first process's. */
static int hog_zombies(int argc, char **argv)
{
    long n = 0;
    for (; n < most(argc, argv); n++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(fork() < 0);
        if (pid < 0)
            break;
        (void)waitpid(pid, NULL, 0);
    }
    return hold("zombies", n, argc, argv);
}

static int hog_cpu(int argc, char **argv)
{
    for (long i = 1; i < most(argc, argv); i++)
        if (fork() == 0)
            break;
    (void)alarm(seconds(argc, argv));
    for (volatile long n = 0; n >= 0;)
        n ^= 1;
    return REACHED;
}

const struct verb hog_verbs[] = {
    {"hog_inotify", hog_inotify}, {"hog_watches", hog_watches}, {"hog_ptys", hog_ptys},
    {"hog_aio", hog_aio},         {"hog_timers", hog_timers},   {"hog_signals", hog_signals},
    {"hog_mqueues", hog_mqueues}, {"hog_memory", hog_memory},   {"hog_memfd", hog_memfd},
    {"hog_shm", hog_shm},         {"hog_sysv", hog_sysv},       {"hog_fds", hog_fds},
    {"hog_pipes", hog_pipes},     {"hog_epoll", hog_epoll},     {"hog_in_flight", hog_in_flight},
    {"hog_sockets", hog_sockets}, {"hog_udp", hog_udp},         {"hog_tcp", hog_tcp},
    {"hog_netlink", hog_netlink}, {"hog_groups", hog_groups},   {"hog_processes", hog_processes},
    {"hog_bomb", hog_bomb},       {"hog_zombies", hog_zombies}, {"hog_cpu", hog_cpu},
    {"hog_errors", hog_errors},   {"hog_times", hog_times},     {"hog_backlog", hog_backlog},
    {"hog_orphans", hog_orphans}, {"hog_locks", hog_locks},     {"hog_file_locks", hog_file_locks},
};
const size_t n_hog_verbs = COUNT(hog_verbs);
