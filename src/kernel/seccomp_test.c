/* SPDX-License-Identifier: Apache-2.0 */
/* What cove-egress can't do any more behind its filter, and what it still can; what a sandbox can't ask of a file. */
#include "base/fd.h"
#include "kernel/seccomp.h"
#include "kernel/test_calls.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/btrfs.h>
#include <linux/fs.h>
#include <linux/ioprio.h>
#include <linux/keyctl.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SYS_NEW_CALL = 1000 };

/* Of linux/mroute.h, linux/in6.h and linux/netfilter_ipv4.h, which are at odds with the C library's headers. */
enum { MRT_FIRST = 200, MRT_LAST = 212, FLOWLABEL_MGR = 32, ORIGINAL_DST = 80 };

static int load(void)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seccomp_load(SECCOMP_EGRESS) < 0)
        return -1;
    return 0;
}

static const char text[] = "/proc/self/exe";

static int powers(void)
{
    const struct test_call calls[] = {
        {"execve", SYS_execve, {(long)text}, EPERM},
        {"execveat", SYS_execveat, {AT_FDCWD, (long)text}, EPERM},
        {"fork", SYS_clone, {SIGCHLD}, EPERM},
        {"clone into a user namespace", SYS_clone, {CLONE_NEWUSER | SIGCHLD}, EPERM},
        {"clone3", SYS_clone3, {0, 0}, ENOSYS},
        {"unshare", SYS_unshare, {CLONE_NEWUSER}, EPERM},
        {"setns", SYS_setns, {0, 0}, EPERM},
        {"mount", SYS_mount, {(long)text, (long)text}, EPERM},
        {"chroot", SYS_chroot, {(long)text}, EPERM},
        {"ptrace", SYS_ptrace, {PTRACE_TRACEME}, EPERM},
        {"process_vm_readv", SYS_process_vm_readv, {1}, EPERM},
        {"process_vm_writev", SYS_process_vm_writev, {1}, EPERM},
        {"pidfd_open", SYS_pidfd_open, {1}, EPERM},
        {"pidfd_getfd", SYS_pidfd_getfd, {0}, EPERM},
        {"kill", SYS_kill, {1, 0}, EPERM},
        {"tkill", SYS_tkill, {1, 0}, EPERM},
        {"setuid", SYS_setuid, {0}, EPERM},
        {"setresuid", SYS_setresuid, {0, 0, 0}, EPERM},
        {"setgid", SYS_setgid, {0}, EPERM},
        {"capset", SYS_capset, {0}, EPERM},
        {"prctl", SYS_prctl, {PR_SET_DUMPABLE, 1}, EPERM},
        {"seccomp", SYS_seccomp, {0}, EPERM},
        {"bpf", SYS_bpf, {0}, EPERM},
        {"perf_event_open", SYS_perf_event_open, {0}, EPERM},
        {"userfaultfd", SYS_userfaultfd, {0}, EPERM},
        {"io_uring_setup", SYS_io_uring_setup, {1}, EPERM},
        {"io_uring_enter", SYS_io_uring_enter, {0}, EPERM},
        {"keyctl", SYS_keyctl, {KEYCTL_GET_KEYRING_ID}, EPERM},
        {"add_key", SYS_add_key, {0}, EPERM},
        {"memfd_create", SYS_memfd_create, {(long)text}, EPERM},
        {"openat2", SYS_openat2, {AT_FDCWD, (long)text}, EPERM},
        {"open_by_handle_at", SYS_open_by_handle_at, {0}, EPERM},
        {"fchmodat", SYS_fchmodat, {AT_FDCWD, (long)text, 0}, EPERM},
        {"fchownat", SYS_fchownat, {AT_FDCWD, (long)text}, EPERM},
        {"ftruncate", SYS_ftruncate, {0, 0}, EPERM},
        {"mkdirat", SYS_mkdirat, {AT_FDCWD, (long)text, 0}, EPERM},
        {"symlinkat", SYS_symlinkat, {(long)text, AT_FDCWD, (long)text}, EPERM},
        {"mknodat", SYS_mknodat, {AT_FDCWD, (long)text, 0}, EPERM},
        {"shmget", SYS_shmget, {0}, EPERM},
        {"reboot", SYS_reboot, {0}, EPERM},
        {"init_module", SYS_init_module, {0}, EPERM},
        {"another's limits", SYS_prlimit64, {1, 0}, EPERM},
        {"a call that is not known yet", SYS_NEW_CALL, {0}, EPERM},
    };
    return load() < 0 ? 255 : test_calls(calls, ARRAY_SIZE(calls));
}

static int sockets_refused(void)
{
    static const int families[] = {AF_UNIX, AF_PACKET, AF_VSOCK, AF_ALG, AF_BLUETOOTH, AF_CAN, AF_KEY, AF_RDS, AF_TIPC};
    static const int inet[][2] = {{SOCK_RAW, IPPROTO_TCP},
                                  {SOCK_RAW, IPPROTO_ICMP},
                                  {SOCK_DGRAM, IPPROTO_ICMP},
                                  {SOCK_SEQPACKET, 0},
                                  {SOCK_STREAM, IPPROTO_SCTP},
                                  {SOCK_STREAM, IPPROTO_MPTCP},
                                  {SOCK_DGRAM, IPPROTO_UDPLITE},
                                  {SOCK_DCCP, 0},
                                  {SOCK_RAW, 0}};
    struct test_call calls[2 * ARRAY_SIZE(inet) + ARRAY_SIZE(families) + 3];
    size_t n = 0;
    if (load() < 0)
        return 255;
    for (size_t i = 0; i < ARRAY_SIZE(families); i++)
        calls[n++] = (struct test_call){"socket of a family", SYS_socket, {families[i], SOCK_STREAM}, EPERM};
    for (size_t i = 0; i < ARRAY_SIZE(inet); i++) {
        calls[n++] = (struct test_call){"internet socket", SYS_socket, {AF_INET, inet[i][0], inet[i][1]}, EPERM};
        calls[n++] = (struct test_call){"internet socket", SYS_socket, {AF_INET6, inet[i][0], inet[i][1]}, EPERM};
    }
    calls[n++] = (struct test_call){"netfilter", SYS_socket, {AF_NETLINK, SOCK_RAW, 12}, EPERM};
    calls[n++] = (struct test_call){"kernel events", SYS_socket, {AF_NETLINK, SOCK_RAW, 15}, EPERM};
    calls[n++] = (struct test_call){"pair", SYS_socketpair, {AF_UNIX, SOCK_STREAM}, EPERM};
    return test_calls(calls, n);
}

static int code_refused(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const struct test_call calls[] = {
        {"mmap", SYS_mmap, {0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0}, EPERM},
        {"mprotect", SYS_mprotect, {(long)page, 4096, PROT_READ | PROT_EXEC}, EPERM},
        {"pkey_mprotect", SYS_pkey_mprotect, {(long)page, 4096, PROT_EXEC, -1}, EPERM},
        {"mprotect without", SYS_mprotect, {(long)page, 4096, PROT_READ}, 0},
        {"typing into a terminal", SYS_ioctl, {0, TIOCSTI, (long)page}, EPERM},
        {"typing into a terminal, disguised", SYS_ioctl, {0, (long)(TIOCSTI | 1ULL << 32), (long)page}, EPERM},
    };
    /* cppcheck-suppress memleak ; this process ends with it */
    return load() < 0 ? 255 : test_calls(calls, ARRAY_SIZE(calls));
}

static int a_maker_of_networks(void)
{
    const struct test_call calls[] = {
        {"execve", SYS_execve, {(long)text}, EPERM},
        {"fork", SYS_clone, {SIGCHLD}, EPERM},
        {"clone3", SYS_clone3, {0, 0}, EPERM},
        {"a mount namespace", SYS_unshare, {CLONE_NEWNS}, EPERM},
        {"a network with a user namespace", SYS_unshare, {CLONE_NEWNET | CLONE_NEWUSER}, EPERM},
        {"entering any namespace", SYS_setns, {-1, 0}, EPERM},
        {"entering a network", SYS_setns, {-1, CLONE_NEWNET}, EBADF},
        {"mount", SYS_mount, {(long)text, (long)text}, EPERM},
        {"ptrace", SYS_ptrace, {PTRACE_TRACEME}, EPERM},
        {"bpf", SYS_bpf, {0}, EPERM},
        {"connect", SYS_connect, {-1}, EPERM},
        {"raw", SYS_socket, {AF_INET, SOCK_RAW, IPPROTO_TCP}, EPERM},
        {"packets", SYS_socket, {AF_PACKET, SOCK_RAW}, EPERM},
        {"unix", SYS_socket, {AF_UNIX, SOCK_STREAM}, EPERM},
        {"kernel events", SYS_socket, {AF_NETLINK, SOCK_RAW, 15}, EPERM},
        {"code", SYS_mmap, {0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0}, EPERM},
    };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seccomp_load(SECCOMP_NETMAKER) < 0)
        return 255;
    return test_calls(calls, ARRAY_SIZE(calls));
}

/* Of no file, so that what passes says EBADF. */
static int requests_of_a_sandbox(void)
{
    const struct test_call calls[] = {
        {"making a subvolume", SYS_ioctl, {-1, BTRFS_IOC_SUBVOL_CREATE}, ENOTTY},
        {"making a subvolume, disguised", SYS_ioctl, {-1, (long)(BTRFS_IOC_SUBVOL_CREATE | 1ULL << 32)}, ENOTTY},
        {"making a subvolume, otherwise", SYS_ioctl, {-1, BTRFS_IOC_SUBVOL_CREATE_V2}, ENOTTY},
        {"making a snapshot", SYS_ioctl, {-1, BTRFS_IOC_SNAP_CREATE_V2}, ENOTTY},
        {"cloning a file", SYS_ioctl, {-1, FICLONE}, EBADF},
        {"cloning a part of a file", SYS_ioctl, {-1, FICLONERANGE}, EBADF},
        {"deduplicating", SYS_ioctl, {-1, FIDEDUPERANGE}, EBADF},
        {"typing into a terminal", SYS_ioctl, {-1, TIOCSTI}, EPERM},
        {"asking a terminal", SYS_ioctl, {-1, TCGETS}, EBADF},
        {"asking for bridges", SYS_ioctl, {-1, SIOCGIFBR}, EPERM},
        {"making a bridge", SYS_ioctl, {-1, SIOCBRADDBR}, EPERM},
        {"asking for VLANs", SYS_ioctl, {-1, SIOCGIFVLAN}, EPERM},
        {"asking for addresses", SYS_ioctl, {-1, SIOCGIFCONF}, EBADF},
        {"a socket for SCTP", SYS_socket, {AF_INET, SOCK_STREAM, IPPROTO_SCTP}, EPROTONOSUPPORT},
        {"a socket for SCTP, over IPv6", SYS_socket, {AF_INET6, SOCK_STREAM, IPPROTO_SCTP}, EPROTONOSUPPORT},
        {"a socket of no type", SYS_socket, {AF_INET, 99, IPPROTO_TCP}, EINVAL},
        {"a unix socket of a protocol", SYS_socket, {AF_UNIX, SOCK_STREAM, IPPROTO_SCTP}, EPROTONOSUPPORT},
        {"a program for packets", SYS_setsockopt, {-1, SOL_SOCKET, SO_ATTACH_FILTER}, EPERM},
        {"a program for packets, disguised",
         SYS_setsockopt,
         {-1, (long)(SOL_SOCKET | 1ULL << 32), (long)(SO_ATTACH_FILTER | 1ULL << 32)},
         EPERM},
        {"a loaded program", SYS_setsockopt, {-1, SOL_SOCKET, SO_ATTACH_BPF}, EPERM},
        {"a program that chooses", SYS_setsockopt, {-1, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF}, EPERM},
        {"a loaded program that chooses", SYS_setsockopt, {-1, SOL_SOCKET, SO_ATTACH_REUSEPORT_EBPF}, EPERM},
        {"an option of sockets", SYS_setsockopt, {-1, SOL_SOCKET, SO_RCVBUF}, EBADF},
        {"an option of TCP with that number", SYS_setsockopt, {-1, IPPROTO_TCP, SO_ATTACH_FILTER}, EBADF},
        {"waiting when it is closed", SYS_setsockopt, {-1, SOL_SOCKET, SO_LINGER}, 0},
        {"waiting when it is closed, disguised",
         SYS_setsockopt,
         {-1, (long)(SOL_SOCKET | 1ULL << 32), (long)(SO_LINGER | 1ULL << 32)},
         0},
        {"an option of TCP with the number of that", SYS_setsockopt, {-1, IPPROTO_TCP, SO_LINGER}, EBADF},
        {"huge pages", SYS_mmap, {0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0}, ENOMEM},
        {"huge pages, disguised",
         SYS_mmap,
         {0, 0, PROT_READ, (long)(1ULL << 32 | MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB | 30 << MAP_HUGE_SHIFT), -1, 0},
         ENOMEM},
        {"pages", SYS_mmap, {0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0}, EINVAL},
        {"a file of huge pages", SYS_memfd_create, {0, MFD_CLOEXEC | MFD_HUGETLB}, ENOMEM},
        {"a file of memory, asked with flags that no kernel has", SYS_memfd_create, {0, 0xffffffff}, EINVAL},
        {"a file of memory", SYS_memfd_create, {0, MFD_CLOEXEC}, EFAULT},
        {"keeping what nobody has", SYS_setsockopt, {-1, IPPROTO_TCP, TCP_LINGER2}, 0},
        {"an option of sockets with the number of that", SYS_setsockopt, {-1, SOL_SOCKET, TCP_LINGER2}, EBADF},
        {"errors of what was sent", SYS_setsockopt, {-1, IPPROTO_IP, IP_RECVERR}, 0},
        {"errors of what was sent, disguised",
         SYS_setsockopt,
         {-1, (long)(IPPROTO_IP | 1ULL << 32), (long)(IP_RECVERR | 1ULL << 32)},
         0},
        {"errors of what was sent, with what came back", SYS_setsockopt, {-1, IPPROTO_IP, 26}, 0},
        {"errors of what was sent over IPv6", SYS_setsockopt, {-1, IPPROTO_IPV6, IPV6_RECVERR}, 0},
        {"errors of what was sent over IPv6, with what came back", SYS_setsockopt, {-1, IPPROTO_IPV6, 31}, 0},
        {"whether errors are told", SYS_getsockopt, {-1, IPPROTO_IP, IP_RECVERR}, EBADF},
        {"an option of TCP with the number of errors", SYS_setsockopt, {-1, IPPROTO_TCP, IP_RECVERR}, EBADF},
        {"times of what was sent", SYS_setsockopt, {-1, SOL_SOCKET, SO_TIMESTAMPING}, EOPNOTSUPP},
        {"times of what was sent, newer", SYS_setsockopt, {-1, SOL_SOCKET, 65}, EOPNOTSUPP},
        {"times of what came", SYS_setsockopt, {-1, SOL_SOCKET, SO_TIMESTAMP}, EBADF},
        {"sending in time", SYS_setsockopt, {-1, SOL_SOCKET, 61}, EOPNOTSUPP},
        {"whether a radio has sent it", SYS_setsockopt, {-1, SOL_SOCKET, SO_WIFI_STATUS}, EOPNOTSUPP},
        {"TLS in the kernel", SYS_setsockopt, {-1, IPPROTO_TCP, TCP_ULP}, EPROTONOSUPPORT},
        {"TLS in the kernel, disguised",
         SYS_setsockopt,
         {-1, (long)(IPPROTO_TCP | 1ULL << 32), (long)(TCP_ULP | 1ULL << 32)},
         EPROTONOSUPPORT},
        {"an option of sockets with the number of that", SYS_setsockopt, {-1, SOL_SOCKET, TCP_ULP}, EBADF},
        {"signed segments", SYS_setsockopt, {-1, IPPROTO_TCP, TCP_MD5SIG}, EPROTONOSUPPORT},
        {"signed segments, newer", SYS_setsockopt, {-1, IPPROTO_TCP, 38}, EPROTONOSUPPORT},
        {"an option of TCP", SYS_setsockopt, {-1, IPPROTO_TCP, TCP_NODELAY}, EBADF},
        {"a lease", SYS_fcntl, {-1, F_SETLEASE, F_RDLCK}, EPERM},
        {"a lease, disguised", SYS_fcntl, {-1, (long)(F_SETLEASE | 1ULL << 32), F_RDLCK}, EPERM},
        {"a lock", SYS_fcntl, {-1, F_GETFD}, EBADF},
        {"a core of one's own", SYS_prctl, {PR_SCHED_CORE, 1}, EPERM},
        {"a name", SYS_prctl, {PR_SET_NAME, (long)text}, 0},
    };
    return seccomp_load(SECCOMP_SANDBOX) < 0 ? 255 : test_calls(calls, ARRAY_SIZE(calls));
}

/* Of both calls, and with what lies beside them. */
static int options_of_multicast(void)
{
    static const struct {
        int level, first, last;
    } refused[] = {
        {IPPROTO_IP, IP_ADD_MEMBERSHIP, IP_DROP_SOURCE_MEMBERSHIP},
        {IPPROTO_IP, IP_MSFILTER, MCAST_MSFILTER},
        {IPPROTO_IP, MRT_FIRST, MRT_LAST},
        {IPPROTO_IP, IP_ROUTER_ALERT, IP_ROUTER_ALERT},
        {IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, IPV6_DROP_MEMBERSHIP},
        {IPPROTO_IPV6, IPV6_ROUTER_ALERT, IPV6_ROUTER_ALERT},
        {IPPROTO_IPV6, IPV6_JOIN_ANYCAST, IPV6_LEAVE_ANYCAST},
        {IPPROTO_IPV6, MCAST_JOIN_GROUP, MCAST_MSFILTER},
        {IPPROTO_IPV6, MRT_FIRST, MRT_LAST},
        {IPPROTO_IPV6, IPV6_ADDRFORM, IPV6_ADDRFORM},
        {IPPROTO_IPV6, FLOWLABEL_MGR, FLOWLABEL_MGR},
    };
    static const int passed[][2] = {
        {IPPROTO_IP, IP_TOS},
        {IPPROTO_IP, IP_RECVOPTS},
        {IPPROTO_IP, IP_MULTICAST_LOOP},
        {IPPROTO_IP, MCAST_MSFILTER + 1 /* IP_MULTICAST_ALL */},
        {IPPROTO_IP, IP_UNICAST_IF},
        {IPPROTO_IP, ORIGINAL_DST},
        {IPPROTO_IP, MRT_FIRST - 1},
        {IPPROTO_IP, MRT_LAST + 1},
        {IPPROTO_IPV6, IPV6_MULTICAST_LOOP},
        {IPPROTO_IPV6, IPV6_MTU_DISCOVER},
        {IPPROTO_IPV6, IPV6_V6ONLY},
        {IPPROTO_IPV6, IPV6_MULTICAST_ALL},
        {IPPROTO_IPV6, FLOWLABEL_MGR + 1 /* IPV6_FLOWINFO_SEND */},
        {IPPROTO_IPV6, IP_ADD_MEMBERSHIP},
        {IPPROTO_IPV6, IPV6_TCLASS},
        {IPPROTO_TCP, TCP_INFO},
        {IPPROTO_UDP, MCAST_JOIN_GROUP},
        {SOL_SOCKET, SO_MARK /* as IP_DROP_MEMBERSHIP */},
    };
    const long disguise = (long)(1ULL << 32);
    struct test_call calls[256];
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_SIZE(refused); i++)
        for (int name = refused[i].first; name <= refused[i].last; name++) {
            calls[n++] = (struct test_call){"setting", SYS_setsockopt, {-1, refused[i].level, name}, EPERM};
            calls[n++] = (struct test_call){"asking", SYS_getsockopt, {-1, refused[i].level, name}, EPERM};
            calls[n++] = (struct test_call){
                "setting, disguised", SYS_setsockopt, {-1, refused[i].level | disguise, name | disguise}, EPERM};
        }
    for (size_t i = 0; i < ARRAY_SIZE(passed); i++) {
        calls[n++] = (struct test_call){"setting another", SYS_setsockopt, {-1, passed[i][0], passed[i][1]}, EBADF};
        calls[n++] = (struct test_call){"asking for another", SYS_getsockopt, {-1, passed[i][0], passed[i][1]}, EBADF};
    }
    return seccomp_load(SECCOMP_SANDBOX) < 0 ? 255 : test_calls(calls, n) ? 1 : 0;
}

static int requests_to_hardware(void)
{
    const struct test_call calls[] = {
        {"what kind of a device", SYS_ioctl, {-1, SIOCETHTOOL}, EOPNOTSUPP},
        {"what kind of a device, disguised", SYS_ioctl, {-1, (long)(SIOCETHTOOL | 1ULL << 32)}, EOPNOTSUPP},
        {"time stamps", SYS_ioctl, {-1, SIOCGHWTSTAMP}, EOPNOTSUPP},
        {"bonds", SYS_ioctl, {-1, SIOCBONDINFOQUERY}, EOPNOTSUPP},
        {"members of bonds", SYS_ioctl, {-1, SIOCBONDSLAVEINFOQUERY}, EOPNOTSUPP},
        {"wide area", SYS_ioctl, {-1, 0x894a}, EOPNOTSUPP},
        {"neighbours", SYS_ioctl, {-1, SIOCGARP}, EOPNOTSUPP},
        {"a device's own", SYS_ioctl, {-1, SIOCDEVPRIVATE}, EOPNOTSUPP},
        {"a device's own, the last", SYS_ioctl, {-1, SIOCDEVPRIVATE + 15}, EOPNOTSUPP},
        {"wireless", SYS_ioctl, {-1, 0x8b01}, EOPNOTSUPP},
        {"wireless, the last", SYS_ioctl, {-1, 0x8bff}, EOPNOTSUPP},
        {"what is beside them", SYS_ioctl, {-1, SIOCDEVPRIVATE + 16}, EBADF},
        {"the name of a device", SYS_ioctl, {-1, SIOCGIFNAME}, EBADF},
        {"an address", SYS_ioctl, {-1, SIOCGIFADDR}, EBADF},
        {"a network's mask", SYS_ioctl, {-1, SIOCGIFNETMASK}, EBADF},
        {"an address of hardware", SYS_ioctl, {-1, SIOCGIFHWADDR}, EBADF},
        {"flags", SYS_ioctl, {-1, SIOCGIFFLAGS}, EBADF},
        {"a size", SYS_ioctl, {-1, SIOCGIFMTU}, EBADF},
        {"how much is there", SYS_ioctl, {-1, FIONREAD}, EBADF},
    };
    return seccomp_load(SECCOMP_SANDBOX) < 0 ? 255 : test_calls(calls, ARRAY_SIZE(calls));
}

static void *thread(void *arg)
{
    return arg;
}

/* One connection over loopback, through a pipe on the way, and a file: what it lives by. */
static int work(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(at);
    struct ifaddrs *own = NULL;
    pthread_t id;
    char byte = 0, dir[] = "/tmp/cove-seccomp-test-XXXXXX";
    int p[2], on = 1;
    if (!mkdtemp(dir))
        return 1;
    AUTO_CLOSE int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (load() < 0)
        return 2;
    AUTO_CLOSE int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    AUTO_CLOSE int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    AUTO_CLOSE int udp = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP);
    if (listener < 0 || client < 0 || (udp < 0 && errno != EAFNOSUPPORT))
        return 3;
    if (setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        bind(listener, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(listener, 1) < 0 ||
        getsockname(listener, (struct sockaddr *)&at, &n) < 0 || connect(client, (struct sockaddr *)&at, n) < 0)
        return 4;
    /* cppcheck-suppress nullPointer ; both may be, says accept(2) */
    AUTO_CLOSE int server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (server < 0 || send(client, "x", 1, MSG_NOSIGNAL) != 1 || pipe2(p, O_CLOEXEC) < 0 ||
        splice(server, NULL, p[1], NULL, 1, 0) != 1 || read(p[0], &byte, 1) != 1 || byte != 'x')
        return 5;
    if (ioctl(server, FIONBIO, &on) < 0 || ioctl(server, FIONREAD, &on) < 0)
        return 6;
    if (getifaddrs(&own) < 0 || !own)
        return 7;
    freeifaddrs(own);
    if (pthread_create(&id, NULL, thread, NULL) != 0 || pthread_join(id, NULL) != 0)
        return 8;
    int fd = openat(dir_fd, "a", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0 || write(fd, "x", 1) != 1 || fsync(fd) < 0 ||
        linkat(dir_fd, "a", dir_fd, "b", 0) < 0 || renameat(dir_fd, "a", dir_fd, "c") < 0 || fsync(dir_fd) < 0 ||
        faccessat(dir_fd, "b", F_OK, AT_SYMLINK_NOFOLLOW) < 0 || unlinkat(dir_fd, "b", 0) < 0 ||
        unlinkat(dir_fd, "c", 0) < 0 || unlinkat(AT_FDCWD, dir, AT_REMOVEDIR) < 0)
        return 9;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || mlock(page, 4096) < 0 || madvise(page, 4096, MADV_DONTDUMP) < 0)
        return 10;
    return 0;
}

static void processes_and_privileges_are_out_of_reach(void **state)
{
    (void)state;
    test_in_child(powers);
}

static void sockets_are_tcp_and_udp(void **state)
{
    (void)state;
    test_in_child(sockets_refused);
}

static void no_memory_becomes_code(void **state)
{
    (void)state;
    test_in_child(code_refused);
}

static void a_maker_of_networks_makes_nothing_else(void **state)
{
    (void)state;
    test_in_child(a_maker_of_networks);
}

static void test_a_sandbox_gets_at_no_file_system(void **state)
{
    (void)state;
    test_in_child(requests_of_a_sandbox);
}

static void a_sandbox_joins_no_group(void **state)
{
    (void)state;
    test_in_child(options_of_multicast);
}

static void a_sandbox_asks_no_hardware(void **state)
{
    (void)state;
    test_in_child(requests_to_hardware);
}

static int group_with(bool with_signals)
{
    const int refused = with_signals ? EPERM : 0;
    const struct test_call calls[] = {
        {"a signal to the group", SYS_kill, {0, 0}, refused},
        {"a signal to oneself", SYS_kill, {getpid(), 0}, 0},
        {"the group's priority", SYS_setpriority, {PRIO_PGRP, 0, 19}, EPERM},
        {"one's priority", SYS_setpriority, {PRIO_PROCESS, 0, 19}, 0},
        {"the group's bandwidth", SYS_ioprio_set, {IOPRIO_WHO_PGRP, 0, 0}, EPERM},
        {"one's bandwidth", SYS_ioprio_set, {IOPRIO_WHO_PROCESS, 0, 0}, 0},
        {"one's group by its number", SYS_setpriority, {PRIO_PGRP, getpid(), 19}, 0},
    };
    if (setpgid(0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seccomp_load_no_group(with_signals) < 0)
        return -1;
    return test_calls(calls, ARRAY_SIZE(calls));
}

static int group(void)
{
    return group_with(false);
}

static int group_and_signals(void)
{
    return group_with(true);
}

static void a_group_of_others_is_left_alone(void **state)
{
    (void)state;
    test_in_child(group);
    test_in_child(group_and_signals);
}

static void its_work_can_be_done(void **state)
{
    (void)state;
    test_in_child(work);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_and_privileges_are_out_of_reach),
        cmocka_unit_test(sockets_are_tcp_and_udp),
        cmocka_unit_test(no_memory_becomes_code),
        cmocka_unit_test(a_maker_of_networks_makes_nothing_else),
        cmocka_unit_test(test_a_sandbox_gets_at_no_file_system),
        cmocka_unit_test(a_sandbox_joins_no_group),
        cmocka_unit_test(a_sandbox_asks_no_hardware),
        cmocka_unit_test(a_group_of_others_is_left_alone),
        cmocka_unit_test(its_work_can_be_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
