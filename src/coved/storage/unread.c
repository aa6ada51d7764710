/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/storage/unread.h"
#include "base/buf.h"
#include "base/fd.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define MAX_ORPHANS "sys/net/ipv4/tcp_max_orphans"

enum { FALL = 128 << 20, FALL_SHORT = 32 << 20, UNREAD_AGAIN_USEC = 5000000, RMEM_COLUMN = 4 };

/* The column of a table that is aligned with spaces; empty: there is none. */
static struct str unread_column(struct str line, int column)
{
    struct str word = STR("");
    while (str_split(&line, ' ', &word))
        if (word.n && column-- == 0)
            return word;
    return STR("");
}

static uint64_t unread_number(struct str word)
{
    uint64_t n = 0;
    return str_to_u64(word, &n) < 0 ? 0 : n;
}

/* "sk Eth Pid Groups Rmem Wmem ..." */
static uint64_t rmem(struct str line)
{
    return unread_number(unread_column(line, RMEM_COLUMN));
}

int unread_bytes(int proc_fd, pid_t pid, uint64_t *ret_bytes)
{
    AUTO_BUF struct buf text = BUF_INIT(UNREAD_TEXT_MAX);
    char path[48];
    uint64_t sum = 0;
    (void)snprintf(path, sizeof(path), "%d/net/netlink", (int)pid);
    int r = fd_read_file(proc_fd, path, &text);
    if (r < 0)
        return r;
    struct str rest = buf_str(&text), line;
    while (str_split(&rest, '\n', &line))
        sum += rmem(line);
    *ret_bytes = sum;
    return 0;
}

/* ---- connections ---- */

enum {
    ST_COLUMN = 3,
    QUEUES_COLUMN = 4,
    TIMER_COLUMN = 5,
    INODE_COLUMN = 9,
    TCP_PIECE = 64 << 10,
    TCP_TEXT_MAX = 32 << 20,
    SOCKET_BYTES = 4096,
    SOCKET_SMALL = 256,
    SOCKET_WAITING_MOST = 4096, /* connections that have not begun, of one that listens: SOMAXCONN */
    NETLINK_OVER = 256 << 10,   /* the last answer may exceed the limit */
    ORPHANS_OF_ALL = 8,         /* of the limit, of all and of one */
    ORPHANS_OF_ONE = 16,
};

/* After the key ("TCP:"), the number behind a word ("inuse"): "TCP: inuse 6 orphan 0 tw 13 alloc 156 mem 243". */
static uint64_t unread_of_sockstat(struct str text, const char *key, const char *wanted)
{
    struct str line, word;
    while (str_split(&text, '\n', &line)) {
        if (!str_starts(line, str_of(key)))
            continue;
        while (str_split(&line, ' ', &word))
            if (str_eqc(word, wanted))
                return unread_number(unread_column(line, 0));
    }
    return 0;
}

static uint64_t unread_sockstat(int proc_fd, const char *path, const char *key, const char *wanted)
{
    AUTO_BUF struct buf text = BUF_INIT(4096);
    return fd_read_file(proc_fd, path, &text) < 0 ? 0 : unread_of_sockstat(buf_str(&text), key, wanted);
}

static uint64_t unread_setting(int proc_fd, const char *path)
{
    AUTO_BUF struct buf text = BUF_INIT(256);
    struct str rest, line;
    uint64_t n;
    int r = fd_read_file(proc_fd, path, &text);
    rest = buf_str(&text);
    return r < 0 || !str_split(&rest, '\n', &line) || str_to_u64(line, &n) < 0 ? UINT32_MAX : n;
}

void unread_bounds_read(int proc_fd, struct unread_bounds *ret_bounds)
{
    uint64_t most = unread_setting(proc_fd, "sys/net/core/rmem_max") * 2; /* what is asked for is doubled */
    uint64_t without = unread_setting(proc_fd, "sys/net/core/rmem_default");
    uint64_t pages = unread_sockstat(proc_fd, "net/sockstat", "TCP:", "mem");
    *ret_bounds = (struct unread_bounds){.netlink_socket = MAX(most, without) + NETLINK_OVER,
                                         .orphans = unread_setting(proc_fd, MAX_ORPHANS) / ORPHANS_OF_ONE,
                                         .tcp = pages * (uint64_t)sysconf(_SC_PAGESIZE)};
}

struct unread_may unread_may(int proc_fd, pid_t pid, size_t n_networks, const struct unread_bounds *bounds)
{
    AUTO_BUF struct buf text = BUF_INIT(4096);
    char path[48];
    const uint64_t waiting = SOCKET_BYTES + (uint64_t)SOCKET_WAITING_MOST * SOCKET_SMALL,
                   most = UNREAD_MOST / 2 / n_networks;
    (void)snprintf(path, sizeof(path), "%d/net/sockstat", (int)pid);
    if (fd_read_file(proc_fd, path, &text) < 0)
        return (struct unread_may){true, true};
    uint64_t sockets = unread_of_sockstat(buf_str(&text), "sockets:", "used");
    uint64_t tcp = unread_of_sockstat(buf_str(&text), "TCP:", "inuse");
    (void)snprintf(path, sizeof(path), "%d/net/sockstat6", (int)pid);
    tcp += unread_sockstat(proc_fd, path, "TCP6:", "inuse");
    return (struct unread_may){.netlink = (sockets - MIN(sockets, tcp)) * bounds->netlink_socket > most,
                               .tcp =
                                   tcp && (tcp * waiting + bounds->tcp > most || tcp > bounds->orphans / n_networks)};
}

/* "sl local remote st tx:rx tr:when retrnsmt uid timeout inode ...": the inode is 0 where no program has the socket. */
static void unread_of_connection(struct str line, struct unread_connections *sum)
{
    char queues[24], *end;
    struct str st = unread_column(line, ST_COLUMN);
    if (!str_eqc(unread_column(line, INODE_COLUMN), "0"))
        return;
    /* What is left of one is small, and the kernel has a limit for them; its timer is of a kind of its own. */
    if (str_eqc(st, "06") || str_starts(unread_column(line, TIMER_COLUMN), STR("03:")))
        return;
    if (str_eqc(st, "03")) { /* one that has not begun */
        sum->bytes += SOCKET_SMALL;
        return;
    }
    sum->orphans += str_eqc(st, "04") || str_eqc(st, "05") || str_eqc(st, "09") || str_eqc(st, "0B");
    (void)snprintf(queues, sizeof(queues), "%.*s", STR_ARG(unread_column(line, QUEUES_COLUMN)));
    uint64_t sent = strtoull(queues, &end, 16), come = *end == ':' ? strtoull(end + 1, NULL, 16) : 0;
    sum->bytes += SOCKET_BYTES + sent + come;
}

static int unread_tcp(int proc_fd, const char *path, struct unread_connections *sum)
{
    AUTO_CLOSE int fd = openat(proc_fd, path, O_RDONLY | O_CLOEXEC);
    AUTO_BUF struct buf text = BUF_INIT(2 * TCP_PIECE);
    size_t total = 0;
    ssize_t got = 1;
    if (fd < 0)
        return -errno;
    while (got > 0 && total < TCP_TEXT_MAX && sum->bytes <= UNREAD_MOST) {
        char *room = buf_reserve(&text, TCP_PIECE);
        struct str rest, line;
        got = room ? read(fd, room, TCP_PIECE) : 0;
        buf_commit(&text, got > 0 ? (size_t)got : 0);
        total += got > 0 ? (size_t)got : 0;
        for (rest = buf_str(&text); rest.n && memchr(rest.p, '\n', rest.n) && str_split(&rest, '\n', &line);)
            unread_of_connection(line, sum);
        buf_consume(&text, buf_len(&text) - rest.n);
    }
    return got < 0 ? -errno : 0;
}

int unread_connections(int proc_fd, pid_t pid, struct unread_connections *ret_sum)
{
    static const char *const tables[][3] = {{"sockstat", "TCP:", "tcp"}, {"sockstat6", "TCP6:", "tcp6"}};
    char path[48];
    struct unread_connections sum = {0};
    int r = 0;
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(tables); i++) {
        (void)snprintf(path, sizeof(path), "%d/net/%s", (int)pid, tables[i][0]);
        if (unread_sockstat(proc_fd, path, tables[i][1], "inuse") == 0)
            continue;
        (void)snprintf(path, sizeof(path), "%d/net/%s", (int)pid, tables[i][2]);
        r = unread_tcp(proc_fd, path, &sum);
    }
    if (r == 0)
        *ret_sum = sum;
    return r;
}

/* limits: "low pressure high", in pages. */
static bool unread_is_half(int proc_fd, const char *limits, const char *protocol)
{
    AUTO_BUF struct buf text = BUF_INIT(256);
    struct str low, rest;
    if (fd_read_file(proc_fd, limits, &text) < 0)
        return false;
    rest = buf_str(&text);
    (void)str_split(&rest, '\t', &low);
    uint64_t pages = unread_number(low);
    return pages && unread_sockstat(proc_fd, "net/sockstat", protocol, "mem") > pages / 2;
}

struct unread_pools unread_pools(int proc_fd)
{
    return (struct unread_pools){.are_buffers_short = unread_is_half(proc_fd, "sys/net/ipv4/tcp_mem", "TCP:") ||
                                                      unread_is_half(proc_fd, "sys/net/ipv4/udp_mem", "UDP:"),
                                 .are_orphans_many = unread_sockstat(proc_fd, "net/sockstat", "TCP:", "orphan") >
                                                     unread_setting(proc_fd, MAX_ORPHANS) / ORPHANS_OF_ALL};
}

/* ---- locks of files ---- */

#define LOCKS_SLAB "../sys/kernel/slab/file_lock_cache/objects"

enum { LOCKS_TEXT = 128 << 10, LOCK_GROUPS = 32, SLAB_TEXT = 256 << 10, LOCK_MOST = 256 };

void unread_group(int proc_fd, pid_t pid, char ret_path[static UNREAD_GROUP_MAX])
{
    AUTO_BUF struct buf text = BUF_INIT(4096);
    struct str rest, line;
    char path[32];
    (void)snprintf(path, sizeof(path), "%d/cgroup", (int)pid);
    ret_path[0] = 0;
    if (fd_read_file(proc_fd, path, &text) < 0)
        return;
    for (rest = buf_str(&text); str_split(&rest, '\n', &line);) {
        const char *memory = line.n ? memmem(line.p, line.n, ":memory:", 8) : NULL;
        if (memory || (!ret_path[0] && str_starts(line, STR("0::"))))
            (void)snprintf(ret_path, UNREAD_GROUP_MAX, "%.*s",
                           STR_ARG(str_sub(line, memory ? (size_t)(memory - line.p) + strlen(":memory:") : 3)));
    }
}

void unread_device(int proc_fd, pid_t pid, char ret_path[static UNREAD_GROUP_MAX])
{
    struct stat st;
    char path[32];
    (void)snprintf(path, sizeof(path), "%d/root/.", (int)pid);
    ret_path[0] = 0;
    if (fstatat(proc_fd, path, &st, 0) == 0)
        (void)snprintf(ret_path, UNREAD_GROUP_MAX, "%02x:%02x", major(st.st_dev), minor(st.st_dev));
}

static bool unread_has_many_locks(int proc_fd)
{
    enum { ACTIVE = 1, SIZE = 3 };
    AUTO_BUF struct buf text = BUF_INIT(SLAB_TEXT);
    struct str rest, line;
    /* "421 N0=421": those, and others of their size that the kernel keeps with them. To write slabinfo it goes through
     * all caches, which took 10 ms of a processor. */
    if (fd_read_file(proc_fd, LOCKS_SLAB, &text) == 0 &&
        unread_number(unread_column(buf_str(&text), 0)) * LOCK_MOST <= UNREAD_MOST)
        return false;
    buf_clear(&text);
    int ignored UNUSED = fd_read_file(proc_fd, "slabinfo", &text);
    for (rest = buf_str(&text); str_split(&rest, '\n', &line);)
        if (str_starts(line, STR("file_lock_cache ")))
            return unread_number(unread_column(line, ACTIVE)) * unread_number(unread_column(line, SIZE)) > UNREAD_MOST;
    return false;
}

/* Of "fe:00:6414469", "fe:00". */
static size_t unread_device_len(struct str place)
{
    while (place.n && place.p[place.n - 1] != ':')
        place.n--;
    return place.n ? place.n - 1 : 0;
}

bool unread_locks(int proc_fd, char ret_path[static UNREAD_GROUP_MAX])
{
    /* "1: POSIX  ADVISORY  WRITE 10184 fe:00:6414469 0 EOF"; "OFDLCK" is an open file's, and has no process */
    enum { KIND = 1, OWNER = 4, PLACE = 5 };
    AUTO_BUF struct buf text = BUF_INIT(LOCKS_TEXT);
    struct {
        char path[UNREAD_GROUP_MAX];
        size_t n;
    } groups[LOCK_GROUPS] = {0};
    char path[UNREAD_GROUP_MAX] = "";
    uint64_t last = 0;
    size_t total = 0;
    struct str rest, line;
    if (!unread_has_many_locks(proc_fd))
        return false;
    int ignored UNUSED = fd_read_file(proc_fd, "locks", &text); /* its beginning is enough */
    for (rest = buf_str(&text); str_split(&rest, '\n', &line);) {
        uint64_t pid = unread_number(unread_column(line, OWNER));
        struct str kind = unread_column(line, KIND), device = unread_column(line, PLACE);
        if (str_eqc(kind, "OFDLCK"))
            (void)snprintf(path, sizeof(path), "%.*s", (int)unread_device_len(device), device.p);
        else if (str_eqc(kind, "POSIX") && (pid != last || path[0] != '/'))
            unread_group(proc_fd, (pid_t)(last = pid), path);
        else if (!str_eqc(kind, "POSIX"))
            continue;
        total++;
        for (size_t i = 0; path[0] && i < ARRAY_SIZE(groups); i++)
            if (!groups[i].n || strcmp(groups[i].path, path) == 0) {
                memcpy(groups[i].path, path, sizeof(path));
                groups[i].n++;
                break;
            }
    }
    for (size_t i = 0; i < ARRAY_SIZE(groups); i++)
        if (groups[i].n * 2 > total) {
            memcpy(ret_path, groups[i].path, sizeof(groups[i].path));
            return true;
        }
    return false;
}

/* ---- when ---- */

bool unread_is_due(struct unread_watch *w, bool is_short, uint64_t there, usec_t now)
{
    bool is_due = there + (is_short ? FALL_SHORT : FALL) <= w->most;
    is_due = is_due || (is_short && (!w->at || now - w->at >= UNREAD_AGAIN_USEC));
    w->most = is_due ? there : MAX(w->most, there);
    w->at = is_due ? now : w->at;
    return is_due;
}
