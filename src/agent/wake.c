/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/wake.h"
#include "agent/agent.h"
#include "base/buf.h"
#include "base/fd.h"
#include "wire/frame.h"
#include "wire/wake.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/random.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REHEARSAL_S = 5 };

#define WAKE_DIR "/run/cove"
#define WAKE_FILE WAKE_DIR "/restored"

/* From when it was to stand still first: a copy begins sooner. */
static int wake_random_fd = -1;
static DIR *wake_processes;
static uint32_t wake_pids; /* the kernel was told last */

static void wake_reseed(struct str entropy)
{
    struct { /* struct rand_pool_info, and what comes behind it */
        int entropy_count, buf_size;
        char bytes[WAKE_ENTROPY];
    } seed = {.entropy_count = (int)(8 * entropy.n), .buf_size = (int)entropy.n};
    int fd = wake_random_fd < 0 ? open("/dev/urandom", O_RDWR | O_CLOEXEC) : wake_random_fd;
    memcpy(seed.bytes, entropy.p, entropy.n);
    (void)ioctl(fd, RNDADDENTROPY, &seed);
    (void)ioctl(fd, RNDRESEEDCRNG);
    explicit_bzero(&seed, sizeof(seed));
    if (fd != wake_random_fd)
        (void)fd_close(fd);
}

/* In other tiers the two files are among those that the host lays over a layer. */
static void wake_name(struct str name, bool is_guest)
{
    AUTO_BUF struct buf text = BUF_INIT(512);
    int ignored UNUSED = sethostname(name.p, name.n);
    if (!is_guest)
        return;
    (void)buf_printf(&text, "%.*s\n", STR_ARG(name));
    ignored = fd_write_file(AT_FDCWD, "/etc/hostname", buf_str(&text), 0644);
    buf_clear(&text);
    (void)buf_printf(&text, "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 %.*s\n",
                     STR_ARG(name));
    ignored = fd_write_file(AT_FDCWD, "/etc/hosts", buf_str(&text), 0644);
}

static void wake_begin(struct agent *a, const struct wake *w)
{
    const struct timeval tv = {.tv_sec = (time_t)(w->now / USEC_PER_SEC),
                               .tv_usec = (suseconds_t)(w->now % USEC_PER_SEC)};
    wake_reseed(w->entropy);
    (void)settimeofday(&tv, NULL); /* where the kernel is the sandbox's own */
    if (w->name.n)
        wake_name(w->name, a->is_guest);
    if (w->pids && w->pids != wake_pids) {
        char text[16];
        (void)snprintf(text, sizeof(text), "%u", w->pids);
        int ignored UNUSED = fd_write_existing(AT_FDCWD, "/proc/sys/kernel/threads-max", str_of(text));
        wake_pids = w->pids;
    }
    a->identity.what = CONTROL_SESSION;
    (void)snprintf(a->identity.id, sizeof(a->identity.id), "%.*s", STR_ARG(w->id));
    (void)snprintf(a->identity.template_id, sizeof(a->identity.template_id), "%.*s", STR_ARG(w->template_id));
}

/* ---- standing still ---- */

/*
 * All programs of a machine, but not its agent, are in a control group of their own, or in one that a program made
 * below the root: each of these is frozen. What root there does to these groups is root's affair.
 */

enum { STILL_ROUNDS = 8, STILL_PATIENCE_MS = 200, STILL_PROCESSES = 1 << 20, STILL_PATH = 300 };

#define STILL_GROUP "cove"

static int still_root_fd = -1; /* the root of control groups, from the first time on */
static bool still_is_set;      /* of a group at least */

/* Of the root group to ours: what was started since, but no thread of the kernel's. False: there was nothing. */
static bool still_gather(void)
{
    AUTO_BUF struct buf b = BUF_INIT(STILL_PROCESSES);
    bool moved = false;
    char *end = NULL;
    if (fd_read_file(still_root_fd, "cgroup.procs", &b) < 0 || buf_append_char(&b, 0) < 0)
        return false;
    for (const char *at = buf_data(&b); *at; at = end) {
        char path[32], number[16], ignored;
        long pid = strtol(at, &end, 10);
        if (end == at)
            break;
        (void)snprintf(path, sizeof(path), "/proc/%ld/exe", pid);
        (void)snprintf(number, sizeof(number), "%ld", pid);
        if (pid <= 1 || readlink(path, &ignored, 1) <= 0)
            continue;
        (void)mkdirat(still_root_fd, STILL_GROUP, 0755);
        moved |= fd_write_existing(still_root_fd, STILL_GROUP "/cgroup.procs", str_of(number)) == 0;
    }
    return moved;
}

static bool still_is_frozen(const char *group)
{
    char path[STILL_PATH];
    AUTO_BUF struct buf b = BUF_INIT(4096);
    (void)snprintf(path, sizeof(path), "%s/cgroup.events", group);
    return fd_read_file(still_root_fd, path, &b) < 0 || memmem(buf_data(&b), buf_len(&b), "frozen 1", 8);
}

static void still_each(bool frozen, int *patience_ms)
{
    static DIR *dir; /* kept, as what it has read is: a copy begins sooner */
    int fd = dir ? -1 : openat(still_root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!dir && (dir = fdopendir(fd)) == NULL) {
        (void)fd_close(fd);
        return;
    }
    rewinddir(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[STILL_PATH];
        if (e->d_name[0] == '.' || e->d_type != DT_DIR)
            continue;
        still_is_set = frozen;
        (void)snprintf(path, sizeof(path), "%s/cgroup.freeze", e->d_name);
        int ignored UNUSED = fd_write_existing(still_root_fd, path, frozen ? STR("1") : STR("0"));
        while (frozen && *patience_ms > 0 && !still_is_frozen(e->d_name)) {
            (void)usleep(1000);
            --*patience_ms;
        }
    }
}

static void still_set(bool frozen)
{
    int patience_ms = STILL_PATIENCE_MS;
    if (still_root_fd < 0 && frozen)
        still_root_fd = open("/sys/fs/cgroup", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (still_root_fd < 0 || (!frozen && !still_is_set))
        return;
    for (int i = 0; frozen && i < STILL_ROUNDS && still_gather(); i++)
        ;
    still_each(frozen, &patience_ms);
}

/* ---- what programs are told ---- */

static uint64_t wake_count(void)
{
    char text[64];
    AUTO_CLOSE int fd = open(WAKE_FILE, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
    struct str rest, digits;
    struct stat st;
    uint64_t n = 0;
    const ssize_t got = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? read(fd, text, sizeof(text)) : -1;
    rest = str_n(text, (size_t)MAX(got, (ssize_t)0));
    if (!str_starts(rest, STR("{\"count\":")))
        return 0;
    rest = str_sub(rest, strlen("{\"count\":"));
    return str_split(&rest, ',', &digits) && str_to_u64(digits, &n) == 0 ? n : 0;
}

static void wake_write(const struct wake *w)
{
    AUTO_BUF struct buf text = BUF_INIT(4096);
    (void)buf_printf(&text, "{\"count\":%llu,\"sandbox\":\"%.*s\",\"host_name\":\"%.*s\",\"at_ms\":%llu}\n",
                     (unsigned long long)wake_count() + 1, STR_ARG(w->id), STR_ARG(w->name),
                     (unsigned long long)(w->now / USEC_PER_MS));
    (void)mkdir(WAKE_DIR, 0755);
    (void)unlink(WAKE_FILE ".new"); /* whatever lies there, nothing is written through it */
    AUTO_CLOSE int fd = open(WAKE_FILE ".new", O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd >= 0 && fd_write_all(fd, buf_data(&text), buf_len(&text)) == 0)
        (void)rename(WAKE_FILE ".new", WAKE_FILE);
}

static bool wake_is_stopped(const char *pid)
{
    char path[64], text[512];
    (void)snprintf(path, sizeof(path), "/proc/%.20s/stat", pid);
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, text, sizeof(text) - 1);
    text[MAX(n, (ssize_t)0)] = 0;
    const char *end = strrchr(text, ')');
    return !end || strncmp(end, ") T", 3) == 0 || strncmp(end, ") t", 3) == 0;
}

/* Threads of a machine's kernel are in no process group. */
static void wake_signal(void)
{
    DIR *dir = wake_processes ? wake_processes : opendir("/proc");
    uint64_t pid;
    if (wake_processes)
        rewinddir(wake_processes);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (str_to_u64(str_of(e->d_name), &pid) == 0 && pid > 1 && pid <= INT32_MAX && getpgid((pid_t)pid) != 0 &&
            !wake_is_stopped(e->d_name))
            (void)kill((pid_t)pid, SIGCONT);
    if (dir && dir != wake_processes)
        (void)closedir(dir);
}

/* Of a stream; no frame is long. */
static void wake_await_end(int fd, uint32_t stream)
{
    uint8_t head[WIRE_HEADER_SIZE];
    char payload[1024];
    struct wire_frame f = {.type = 0};
    while ((f.type != WIRE_END || f.stream != stream) && recv(fd, head, sizeof(head), MSG_WAITALL) == sizeof(head) &&
           wire_header_get(head, &f) == 0 && f.size <= sizeof(payload) &&
           (f.size == 0 || recv(fd, payload, f.size, MSG_WAITALL) == (ssize_t)f.size))
        continue;
}

enum { WAKE_ANSWERS = 1, WAKE_COMMAND }; /* streams */

/*
 * Where a machine is emulated, its monitor then has translated what a session begins with and the first command takes:
 * another agent does all of that, and is gone with what it did.
 */
static void wake_rehearse(const struct agent *a)
{
    static const char *const words[] = {"sh", "-c", "cat /dev/null; echo"};
    static const struct timeval patience = {.tv_sec = REHEARSAL_S};
    AUTO_BUF struct buf b = BUF_INIT(4096);
    AUTO_CLOSE int cat = open("/bin/cat", O_RDONLY | O_CLOEXEC);
    int pair[2];
    (void)posix_fadvise(cat, 0, 0, POSIX_FADV_DONTNEED); /* it comes from the disk again, as other programs do */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return;
    const pid_t pid = fork();
    if (pid == 0) {
        static struct agent other;
        (void)fd_close(pair[0]);
        int r = agent_init(&other, &a->config, pair[1]);
        r = r ? r : agent_run(&other);
        agent_fini(&other);
        _exit(r ? 1 : 0);
    }
    (void)fd_close(pair[1]);
    size_t at = wire_begin(&b, WIRE_HELLO, 0, 0);
    wire_put_str(&b, STR(""));
    wire_put_u32(&b, 0);
    wire_end(&b, at);
    at = wire_begin(&b, WIRE_OPEN, 0, WAKE_ANSWERS);
    wire_put_u8(&b, WIRE_ANSWERS);
    wire_put_u16(&b, 1); /* a port that nobody has */
    wire_put_u32(&b, 0);
    wire_end(&b, at);
    at = wire_begin(&b, WIRE_OPEN, 0, WAKE_COMMAND);
    wire_put_u8(&b, WIRE_EXEC);
    wire_put_str(&b, str_of(words[0]));
    wire_put_u32(&b, ARRAY_SIZE(words) - 1);
    for (size_t i = 1; i < ARRAY_SIZE(words); i++)
        wire_put_str(&b, str_of(words[i]));
    wire_put_u32(&b, 0);
    for (int i = 0; i < 3; i++)
        wire_put_str(&b, STR("")); /* user, directory, tag */
    wire_put_u8(&b, 0);
    wire_put_u32(&b, 0);
    wire_end(&b, at);
    (void)setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (pid > 0 && fd_write_all(pair[0], buf_data(&b), buf_len(&b)) == 0)
        wake_await_end(pair[0], WAKE_COMMAND);
    (void)fd_close(pair[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}

static void wake_settle(void)
{
    AUTO_CLOSE int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (wake_random_fd < 0)
        wake_random_fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
    if (!wake_processes)
        wake_processes = opendir("/proc");
    sync(); /* while those who serve a file system run */
    still_set(true);
    (void)syncfs(root);
}

bool wake_told(struct agent *a, struct str payload)
{
    struct wake w;
    if (!wake_read(payload, &w) || (w.what != WIRE_WAKE_RESTORED && !a->is_guest))
        return false;
    if (w.what == WIRE_WAKE_REHEARSE) {
        wake_begin(a, &w);
        wake_rehearse(a);
    }
    if (w.what == WIRE_WAKE_SETTLE || w.what == WIRE_WAKE_REHEARSE) {
        wake_settle();
    } else {
        if (!a->is_restored) /* else that has been done by what was told before */
            wake_begin(a, &w);
        a->is_restored = a->is_guest && w.what == WIRE_WAKE_RESTORED;
        if (w.what == WIRE_WAKE_RESTORED) {
            wake_write(&w);
            wake_signal();
            return true; /* those who stand still see it when they go on */
        }
        still_set(false);
    }
    session_woken(&a->session, w.what, w.nonce);
    return true;
}
