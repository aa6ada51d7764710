/* SPDX-License-Identifier: Apache-2.0 */
/* Summed up from files as the kernel writes them, bounded, and only when the machine loses memory. */
#include "base/buf.h"
#include "base/fd.h"
#include "coved/storage/unread.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define HEAD "sk               Eth Pid        Groups   Rmem     Wmem     Dump  Locks    Drops    Inode\n"
#define MIB (1ULL << 20)

enum { PID = 4711 };

struct fake {
    char path[40]; /* of what stands for /proc, with a /sys beside it */
    int fd;
};

#define LOCKS_SLAB "../sys/kernel/slab/file_lock_cache"

static int setup(void **state)
{
    static struct fake f;
    char made[] = "/tmp/unread-test-XXXXXX";
    if (!mkdtemp(made))
        return -1;
    (void)snprintf(f.path, sizeof(f.path), "%s/proc", made);
    if (mkdir(f.path, 0700) < 0)
        return -1;
    f.fd = open(f.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = &f;
    return f.fd < 0 || mkdirat(f.fd, "4711", 0700) < 0 || mkdirat(f.fd, "4711/net", 0700) < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    struct fake *f = *state;
    static const char *const files[] = {"4711/net/netlink",
                                        "4711/net/tcp",
                                        "4711/net/tcp6",
                                        "4711/net/sockstat",
                                        "4711/net/sockstat6",
                                        "4711/cgroup",
                                        "slabinfo",
                                        LOCKS_SLAB "/objects",
                                        "locks",
                                        "net/sockstat",
                                        "sys/net/core/rmem_max",
                                        "sys/net/core/rmem_default",
                                        "sys/net/ipv4/tcp_mem",
                                        "sys/net/ipv4/udp_mem",
                                        "sys/net/ipv4/tcp_max_orphans"};
    static const char *const directories[] = {"4711/net",           "4711",          "net",    "sys/net/core",
                                              "sys/net/ipv4",       "sys/net",       "sys",    LOCKS_SLAB,
                                              "../sys/kernel/slab", "../sys/kernel", "../sys", "../proc"};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        (void)unlinkat(f->fd, files[i], 0);
    for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
        (void)unlinkat(f->fd, directories[i], AT_REMOVEDIR);
    (void)close(f->fd);
    *strrchr(f->path, '/') = '\0';
    return rmdir(f->path);
}

static void write_text(const struct fake *f, struct str text)
{
    assert_int_equal(fd_write_file(f->fd, "4711/net/netlink", text, 0600), 0);
}

static uint64_t sum_of(const struct fake *f, const char *text)
{
    uint64_t bytes = 1;
    write_text(f, str_of(text));
    assert_int_equal(unread_bytes(f->fd, PID, &bytes), 0);
    return bytes;
}

static void summed_up(void **state)
{
    const struct fake *f = *state;
    uint64_t bytes = 1;
    assert_int_equal(unread_bytes(f->fd, PID, &bytes), -ENOENT);
    assert_int_equal(bytes, 1);
    assert_int_equal(sum_of(f, ""), 0);
    assert_int_equal(sum_of(f, HEAD), 0);
    assert_int_equal(
        sum_of(f, HEAD "00000000f2f09bf3 0   0          00000000 0        0        0     2        0        4       \n"),
        0);
    assert_int_equal(
        sum_of(f, HEAD "00000000f2f09bf3 0   7          00000000 8388608  0        1     2        0        4       \n"
                       "0000000088ee5f8b 0   4294967295 00000111 2147483647 512    1     2        9        565     \n"
                       "0000000088ee5f8b 4   0          00000000 -5       0        0     2        0        565     \n"
                       "0000000088ee5f8b 4   0\n"
                       "0000000088ee5f8b 0   9          00000000 1"),
        8388608 + 2147483647ULL + 1);
}

static void bounded(void **state)
{
    static const char line[] =
        "00000000f2f09bf3 0   7          00000000 1        0        1     2        0        4       \n";
    const struct fake *f = *state;
    AUTO_BUF struct buf text = BUF_INIT(2 * UNREAD_TEXT_MAX);
    uint64_t bytes = 7, n = 0;
    for (; buf_len(&text) + strlen(line) <= UNREAD_TEXT_MAX; n++)
        assert_int_equal(buf_append_cstr(&text, line), 0);
    write_text(f, buf_str(&text));
    assert_int_equal(unread_bytes(f->fd, PID, &bytes), 0);
    assert_int_equal(bytes, n);
    assert_int_equal(buf_append_cstr(&text, line), 0);
    write_text(f, buf_str(&text));
    assert_int_equal(unread_bytes(f->fd, PID, &bytes), -ENOBUFS);
    assert_int_equal(bytes, n);
}

/* The real thing: what a socket of our own has been sent and has not read. */
static void of_the_kernel(void **state)
{
    (void)state;
    const struct {
        struct nlmsghdr head;
        struct rtgenmsg body;
    } ask = {{sizeof(ask), RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0}, {0}};
    AUTO_CLOSE int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    AUTO_CLOSE int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);
    uint64_t before = 0, after = 0, read_ = 0;
    assert_true(proc >= 0 && s >= 0);
    assert_int_equal(unread_bytes(proc, getpid(), &before), 0);
    for (int i = 0; i < 4; i++)
        assert_true(send(s, &ask, sizeof(ask), 0) > 0 || errno == EAGAIN || errno == ENOBUFS || errno == EBUSY);
    assert_int_equal(unread_bytes(proc, getpid(), &after), 0);
    assert_true(after > before);
    (void)close(s);
    s = -1;
    assert_int_equal(unread_bytes(proc, getpid(), &read_), 0);
    assert_true(read_ < after);
}

static void write_file(const struct fake *f, const char *path, const char *text)
{
    assert_int_equal(fd_write_file(f->fd, path, str_of(text), 0600), 0);
}

#define TCP_HEAD "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

static void connections_that_nobody_has(void **state)
{
    const struct fake *f = *state;
    struct unread_connections sum = {7, 7};
    assert_int_equal(unread_connections(f->fd, PID, &sum), 0);
    assert_int_equal(sum.bytes + sum.orphans, 0);
    write_file(f, "4711/net/tcp6",
               TCP_HEAD "   0: 00000000000000000000000001000000:07E8 00000000000000000000000001000000:0016 08 "
                        "00000000:00200000 00:00000000 00000000     0        0 0 1 0 20 0 0 10 -1\n");
    write_file(f, "4711/net/tcp",
               TCP_HEAD
               "   0: 0100007F:07E8 00000000:0000 0A 00000000:00000FFF 00:00000000 00000000     0        0 41 1\n"
               "   1: 0100007F:07E8 0100007F:0016 01 00000000:00100000 00:00000000 00000000     0        0 0 1\n"
               "   2: 0100007F:07E8 0100007F:0016 01 00000000:00100000 00:00000000 00000000     0        0 42 1\n"
               "   3: 0100007F:07E8 0100007F:0016 03 00000000:00000000 00:00000000 00000000     0        0 0 1\n"
               "   4: 0100007F:07E8 0100007F:0016 04 00000010:00000000 00:00000000 00000000     0        0 0 1\n"
               "   5: 0100007F:07E8 0100007F:0016 06 00000000:00000000 00:00000000 00000000     0        0 0 1\n"
               "   6: 0100007F:07E8 0100007F:0016 05 00000000:00000000 03:00001770 00000000     0        0 0 3\n"
               "   7: 0100007F:07E8 0100007F:0016 05 00000000:00000000 02:00001770 00000000     0        0 0 1\n"
               "   8: 0100007F:07E8\n");
    write_file(f, "4711/net/sockstat", "sockets: used 9\nTCP: inuse 0 orphan 5 tw 1 alloc 9 mem 3\n");
    assert_int_equal(unread_connections(f->fd, PID, &sum), 0);
    assert_int_equal(sum.bytes, 0); /* what it has none of is not read */
    write_file(f, "4711/net/sockstat", "sockets: used 9\nTCP: inuse 4 orphan 5 tw 1 alloc 9 mem 3\n");
    assert_int_equal(unread_connections(f->fd, PID, &sum), 0);
    assert_int_equal(sum.bytes, 4096 + MIB + 256 + 4096 + 16 + 4096);
    assert_int_equal(sum.orphans, 2);
    write_file(f, "4711/net/sockstat6", "TCP6: inuse 1\nUDP6: inuse 0\n");
    assert_int_equal(unread_connections(f->fd, PID, &sum), 0);
    assert_int_equal(sum.bytes, 4096 + MIB + 256 + 4096 + 16 + 4096 + 4096 + 2 * MIB);
    assert_int_equal(sum.orphans, 2);
}

/* What all sockets of the machine have one limit for. */
static void limits_of_all(void **state)
{
    const struct fake *f = *state;
    struct unread_pools p = unread_pools(f->fd);
    assert_false(p.are_buffers_short || p.are_orphans_many); /* nothing is known */
    assert_int_equal(mkdirat(f->fd, "net", 0700) | mkdirat(f->fd, "sys", 0700) | mkdirat(f->fd, "sys/net", 0700) |
                         mkdirat(f->fd, "sys/net/ipv4", 0700),
                     0);
    write_file(f, "sys/net/ipv4/tcp_mem", "1000\t2000\t3000\n");
    write_file(f, "sys/net/ipv4/udp_mem", "500\t1000\t1500\n");
    write_file(f, "sys/net/ipv4/tcp_max_orphans", "8000\n");
    write_file(f, "net/sockstat", "TCP: inuse 5 orphan 1000 tw 8 alloc 3 mem 500\nUDP: inuse 1 mem 250\n");
    p = unread_pools(f->fd);
    assert_false(p.are_buffers_short || p.are_orphans_many);
    write_file(f, "net/sockstat", "TCP: inuse 5 orphan 1001 tw 8 alloc 3 mem 500\nUDP: inuse 1 mem 250\n");
    p = unread_pools(f->fd);
    assert_true(p.are_orphans_many && !p.are_buffers_short);
    write_file(f, "net/sockstat", "TCP: inuse 5 orphan 0 tw 8 alloc 3 mem 501\nUDP: inuse 1 mem 250\n");
    assert_true(unread_pools(f->fd).are_buffers_short);
    write_file(f, "net/sockstat", "TCP: inuse 5 orphan 0 tw 8 alloc 3 mem 0\nUDP: inuse 1 mem 251\n");
    assert_true(unread_pools(f->fd).are_buffers_short);

    struct unread_bounds b;
    unread_bounds_read(f->fd, &b);
    assert_int_equal(b.orphans, 500);
    b.tcp = 0;
    write_file(f, "4711/net/sockstat", "sockets: used 4\nTCP: inuse 500 orphan 0 tw 0 alloc 331 mem 0\n");
    b.netlink_socket = 0;
    assert_true(unread_may(f->fd, PID, 1, &b).tcp); /* 500 that listen */
    b.orphans = 0;
    write_file(f, "4711/net/sockstat", "sockets: used 4\nTCP: inuse 1 orphan 0 tw 0 alloc 331 mem 0\n");
    assert_true(unread_may(f->fd, PID, 1, &b).tcp);
}

/* Who can't have much by the number of his sockets isn't looked at. */
static void told_by_counts(void **state)
{
    const struct fake *f = *state;
    struct unread_bounds b;
    assert_int_equal(mkdirat(f->fd, "net", 0700) | mkdirat(f->fd, "sys", 0700) | mkdirat(f->fd, "sys/net", 0700) |
                         mkdirat(f->fd, "sys/net/core", 0700),
                     0);
    unread_bounds_read(f->fd, &b);
    struct unread_may may = unread_may(f->fd, PID, 1, &b);
    assert_true(may.netlink && may.tcp); /* nothing is known */
    write_file(f, "sys/net/core/rmem_max", "212992\n");
    write_file(f, "sys/net/core/rmem_default", "500000\n");
    write_file(f, "net/sockstat", "sockets: used 187\nTCP: inuse 5 orphan 0 tw 128 alloc 331 mem 2048\n");
    unread_bounds_read(f->fd, &b);
    assert_int_equal(b.netlink_socket, 500000 + (256 << 10));
    assert_int_equal(b.tcp, 2048 * (uint64_t)sysconf(_SC_PAGESIZE));

    write_file(f, "4711/net/sockstat", "sockets: used 4\nTCP: inuse 1 orphan 0 tw 0 alloc 331 mem 2048\n");
    write_file(f, "4711/net/sockstat6", "TCP6: inuse 2\nUDP6: inuse 1\n");
    may = unread_may(f->fd, PID, 1, &b);
    assert_false(may.netlink || may.tcp);
    may = unread_may(f->fd, PID, 64, &b); /* as much in each of 64 */
    assert_true(may.tcp && may.netlink);
    b.tcp = UNREAD_MOST;
    may = unread_may(f->fd, PID, 1, &b);
    assert_true(may.tcp && !may.netlink);
    b.tcp = 8 << 20;
    write_file(f, "4711/net/sockstat", "sockets: used 60\nTCP: inuse 1 orphan 0 tw 0 alloc 331 mem 2048\n");
    may = unread_may(f->fd, PID, 1, &b);
    assert_true(may.netlink && !may.tcp);
    write_file(f, "4711/net/sockstat6", "TCP6: inuse 29\nUDP6: inuse 1\n"); /* each may listen */
    may = unread_may(f->fd, PID, 1, &b);
    assert_true(may.tcp && !may.netlink);
    write_file(f, "4711/net/sockstat", "sockets: used 0\nTCP: inuse 0 orphan 0 tw 0 alloc 331 mem 2048\n");
    write_file(f, "4711/net/sockstat6", "TCP6: inuse 0\nUDP6: inuse 0\n");
    b.tcp = UNREAD_MOST;
    may = unread_may(f->fd, PID, 1, &b);
    assert_false(may.netlink || may.tcp);
}

static void whose_locks_they_are(void **state)
{
    static const char slab[] = "slabinfo - version: 2.1\nfile_lock_cache   400000 400008    192   21    1 : tunables\n";
    const struct fake *f = *state;
    char group[UNREAD_GROUP_MAX] = "none";
    assert_false(unread_locks(f->fd, group));
    write_file(f, "4711/cgroup", "9:pids:/x\n4:memory:/cove-1234abcd/7\n0::/y\n");
    write_file(f, "locks",
               "1: POSIX  ADVISORY  WRITE 4711 fe:00:6414469 0 0\n"
               "2: POSIX  ADVISORY  WRITE 4711 fe:00:6414469 2 2\n"
               "2: -> POSIX  ADVISORY  WRITE 4712 fe:00:6414469 2 2\n"
               "3: FLOCK  ADVISORY  WRITE 4712 fe:00:6414466 0 EOF\n"
               "4: POSIX  ADVISORY  WRITE 4712 fe:00:6414466 0 EOF\n");
    assert_false(unread_locks(f->fd, group));
    write_file(f, "slabinfo", slab);
    assert_true(unread_locks(f->fd, group));
    assert_string_equal(group, "/cove-1234abcd/7");
    write_file(f, "4711/cgroup", "0::/cove-1234abcd/8\n");
    assert_true(unread_locks(f->fd, group));
    assert_string_equal(group, "/cove-1234abcd/8");
    write_file(f, "locks",
               "1: POSIX  ADVISORY  WRITE 4711 fe:00:6414469 0 0\n"
               "2: POSIX  ADVISORY  WRITE 4712 fe:00:6414469 2 2\n");
    assert_false(unread_locks(f->fd, group)); /* nobody has more than half */
    write_file(f, "locks",
               "1: OFDLCK ADVISORY  WRITE -1 00:12f:6414469 0 0\n"
               "2: OFDLCK ADVISORY  WRITE -1 00:12f:6414470 2 2\n"
               "3: POSIX  ADVISORY  WRITE 4711 fe:00:6414469 2 2\n");
    assert_true(unread_locks(f->fd, group));
    assert_string_equal(group, "00:12f");
    static const char *const directories[] = {"../sys", "../sys/kernel", "../sys/kernel/slab", LOCKS_SLAB};
    for (size_t i = 0; i < ARRAY_SIZE(directories); i++)
        assert_int_equal(mkdirat(f->fd, directories[i], 0700), 0);
    write_file(f, LOCKS_SLAB "/objects", "400000 N0=400000\n"); /* or others, which the kernel keeps with them */
    assert_true(unread_locks(f->fd, group));
    write_file(f, LOCKS_SLAB "/objects", "4000 N0=4000\n"); /* it tells the same as slabinfo, but costs little */
    assert_false(unread_locks(f->fd, group));
}

static void when_memory_goes(void **state)
{
    (void)state;
    struct unread_watch w = {0};
    const uint64_t much = 16384 * MIB;
    usec_t t = 100 * USEC_PER_SEC;
    assert_false(unread_is_due(&w, false, much, t += USEC_PER_SEC)); /* the first look tells nothing */
    for (int i = 1; i < 64; i++)
        assert_false(unread_is_due(&w, false, much - i * 2 * MIB, t += USEC_PER_SEC));
    uint64_t there = much - 128 * MIB;
    assert_true(unread_is_due(&w, false, there, t += USEC_PER_SEC)); /* however slowly */
    assert_false(unread_is_due(&w, false, there, t += USEC_PER_SEC));
    assert_false(unread_is_due(&w, false, there + 500 * MIB, t += USEC_PER_SEC));
    assert_true(unread_is_due(&w, false, there, t += USEC_PER_SEC)); /* what was given back was taken again */

    w = (struct unread_watch){0};
    there = 1024 * MIB;
    assert_true(unread_is_due(&w, true, there, t += USEC_PER_SEC));
    for (int i = 0; i < 4; i++)
        assert_false(unread_is_due(&w, true, there - 31 * MIB, t += USEC_PER_SEC));
    assert_true(unread_is_due(&w, true, there - 31 * MIB, t += USEC_PER_SEC)); /* 5 s have gone by */
    assert_false(unread_is_due(&w, true, there - 47 * MIB, t += USEC_PER_SEC));
    assert_true(unread_is_due(&w, true, there - 63 * MIB, t += USEC_PER_SEC)); /* in two steps */
    assert_true(unread_is_due(&w, true, 0, t += USEC_PER_SEC));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(summed_up, setup, teardown),
        cmocka_unit_test_setup_teardown(bounded, setup, teardown),
        cmocka_unit_test(of_the_kernel),
        cmocka_unit_test_setup_teardown(connections_that_nobody_has, setup, teardown),
        cmocka_unit_test_setup_teardown(limits_of_all, setup, teardown),
        cmocka_unit_test_setup_teardown(told_by_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(whose_locks_they_are, setup, teardown),
        cmocka_unit_test(when_memory_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
