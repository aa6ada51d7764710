/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/guest.h"
#include "base/buf.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/reboot.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    LAYERS_MAX = 20,
    GUEST_PATIENCE_MS = 10000, /* devices are there once their drivers are; under emulation it may take a little */
    OPEN_FILES_SOFT = 65536,
    OPEN_FILES_HARD = 524288,
};

#define GUEST_ROOT "/root"

NORETURN static void guest_die(const char *step, const char *what)
{
    char text[256];
    int n = snprintf(text, sizeof(text), "cove-guest: %s %s: %s\n", step, what, strerror(errno));
    ssize_t ignored UNUSED = write(2, text, MIN((size_t)n, sizeof(text) - 1));
    (void)reboot(LINUX_REBOOT_CMD_RESTART);
    for (;;)
        (void)pause();
}

bool guest_is(void)
{
    return getpid() == 1 && fcntl(3, F_GETFD) < 0;
}

static void guest_mount(const char *type, const char *on, unsigned long flags, const char *options)
{
    (void)mkdir(on, 0755);
    if (mount(type, on, type, flags, options) < 0)
        guest_die("mount", on);
}

static int guest_is_module(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static void guest_load_modules(void)
{
    struct dirent **names = NULL;
    int n = scandir("/m", &names, guest_is_module, alphasort);
    if (n < 0)
        guest_die("list", "/m");
    for (int i = 0; i < n; i++) {
        char path[300];
        (void)snprintf(path, sizeof(path), "/m/%s", names[i]->d_name);
        AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
        if ((fd < 0 || syscall(SYS_finit_module, fd, "", 0) < 0) && errno != EEXIST)
            guest_die("load", path);
        (void)unlink(path);
        mem_free(names[i]);
    }
    mem_free(names);
}

/* The device whose attribute in /sys says `value`. */
static bool guest_find(const char *dir, const char *attribute, const char *value, char ret_path[static 64])
{
    AUTO(dir_close) DIR *d = dir_open(AT_FDCWD, dir);
    bool found = false;
    for (const struct dirent *e; !found && (e = dir_next(d));) {
        char path[300];
        AUTO_BUF struct buf text = BUF_INIT(256);
        (void)snprintf(path, sizeof(path), "%s/%s/%s", dir, e->d_name, attribute);
        if (e->d_name[0] == '.' || strlen(e->d_name) > 32 || fd_read_file(AT_FDCWD, path, &text) < 0)
            continue;
        struct str is = buf_str(&text);
        while (is.p && is.n && is.p[is.n - 1] == '\n')
            is.n--;
        found = str_eqc(is, value);
        if (found)
            (void)snprintf(ret_path, 64, "/dev/%.32s", e->d_name);
    }
    return found;
}

static void guest_await(const char *dir, const char *attribute, const char *value, char ret_path[static 64])
{
    for (int i = 0; !guest_find(dir, attribute, value, ret_path); i++) {
        errno = ENODEV;
        if (i == GUEST_PATIENCE_MS)
            guest_die("find", value);
        (void)usleep(1000);
    }
}

static void guest_mount_layers(char *ret_lower, size_t size)
{
    size_t n = 0;
    for (int i = 0; i < LAYERS_MAX; i++) {
        char serial[8], device[64], on[16];
        (void)snprintf(serial, sizeof(serial), "l%02d", i);
        (void)snprintf(on, sizeof(on), "/l/%02d", i);
        if (i == 0)
            guest_await("/sys/block", "serial", serial, device);
        else if (!guest_find("/sys/block", "serial", serial, device))
            return;
        (void)mkdir(on, 0755);
        if (mount(device, on, "erofs", MS_RDONLY | MS_NODEV, NULL) < 0)
            guest_die("mount", on);
        n += (size_t)snprintf(ret_lower + n, size - n, "%s%s", i ? ":" : "", on);
    }
}

/* What "/" belongs to and lets do is said by the topmost directory of an overlay: as in the layer below. */
static void guest_make_upper(void)
{
    struct stat st;
    if (mkdir("/own/u", 0755) < 0) {
        if (errno != EEXIST)
            guest_die("make", "/own/u");
        return;
    }
    if (stat("/l/00", &st) < 0 || chown("/own/u", st.st_uid, st.st_gid) < 0 || chmod("/own/u", st.st_mode & 07777) < 0)
        guest_die("make", "/own/u");
}

static void guest_mount_root(void)
{
    char lower[LAYERS_MAX * 8], options[sizeof(lower) + 80], own[64];
    (void)mkdir("/l", 0755);
    (void)mkdir("/own", 0700);
    guest_mount_layers(lower, sizeof(lower));
    guest_await("/sys/block", "serial", "own", own);
    if (mount(own, "/own", "ext4", MS_NOATIME, "errors=remount-ro") < 0)
        guest_die("mount", "/own");
    guest_make_upper();
    (void)mkdir("/own/w", 0755);
    (void)snprintf(options, sizeof(options), "lowerdir=%s,upperdir=/own/u,workdir=/own/w", lower);
    guest_mount("overlay", GUEST_ROOT, 0, options);
}

/* What says our name is written anew for each copy of the machine: in memory, over what the layers have there. */
static void guest_cover(const char *from, const char *to)
{
    struct stat st;
    if (lstat(to, &st) == 0 && !S_ISREG(st.st_mode))
        (void)unlink(to);
    AUTO_CLOSE int above = open(from, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    AUTO_CLOSE int below = open(to, O_RDONLY | O_CREAT | O_CLOEXEC, 0644);
    if (above >= 0 && below >= 0)
        (void)mount(from, to, NULL, MS_BIND, NULL);
}

static void guest_mount_rest(void)
{
    static const char *const links[][2] = {{"pts/ptmx", GUEST_ROOT "/dev/ptmx"},
                                           {"/proc/self/fd", GUEST_ROOT "/dev/fd"},
                                           {"/proc/self/fd/0", GUEST_ROOT "/dev/stdin"},
                                           {"/proc/self/fd/1", GUEST_ROOT "/dev/stdout"},
                                           {"/proc/self/fd/2", GUEST_ROOT "/dev/stderr"}};
    static const char *const moved[] = {"/proc", "/sys", "/dev"};
    const unsigned long plain = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    for (size_t i = 0; i < ARRAY_SIZE(moved); i++) {
        char to[32];
        (void)snprintf(to, sizeof(to), GUEST_ROOT "%s", moved[i]);
        (void)mkdir(to, 0755);
        if (mount(moved[i], to, NULL, MS_MOVE, NULL) < 0)
            guest_die("move", moved[i]);
    }
    guest_mount("devpts", GUEST_ROOT "/dev/pts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5");
    guest_mount("tmpfs", GUEST_ROOT "/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777");
    guest_mount("mqueue", GUEST_ROOT "/dev/mqueue", plain, NULL);
    guest_mount("cgroup2", GUEST_ROOT "/sys/fs/cgroup", plain, NULL);
    (void)mkdir(GUEST_ROOT "/run", 0755);
    guest_mount("tmpfs", GUEST_ROOT "/run/cove", MS_NOSUID | MS_NODEV, "mode=755"); /* agent/wake.c writes there */
    guest_cover("/hostname", GUEST_ROOT "/etc/hostname");
    guest_cover("/hosts", GUEST_ROOT "/etc/hosts");
    (void)unlink(GUEST_ROOT "/dev/ptmx");
    for (size_t i = 0; i < ARRAY_SIZE(links); i++)
        if (symlink(links[i][0], links[i][1]) < 0 && errno != EEXIST)
            guest_die("make", links[i][1]);
    if (chdir(GUEST_ROOT) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 || chdir("/") < 0)
        guest_die("enter", GUEST_ROOT);
}

static void guest_loopback(void)
{
    AUTO_CLOSE int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq lo;
    memset(&lo, 0, sizeof(lo));
    memcpy(lo.ifr_name, "lo", 3);
    lo.ifr_flags = IFF_UP | IFF_RUNNING;
    if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &lo) < 0)
        guest_die("start", "lo");
}

static void guest_ask(int fd, struct str messages)
{
    char answers[8192];
    if (send(fd, messages.p, messages.n, 0) < 0)
        guest_die("set up", "eth0");
    for (ssize_t n; (n = recv(fd, answers, sizeof(answers), MSG_DONTWAIT)) > 0;) {
        size_t left = (size_t)n;
        for (struct nlmsghdr *h = (void *)answers; NLMSG_OK(h, left); h = NLMSG_NEXT(h, left)) {
            const struct nlmsgerr *e = NLMSG_DATA(h);
            errno = h->nlmsg_type == NLMSG_ERROR ? -e->error : 0;
            if (errno)
                guest_die("set up", "eth0");
        }
    }
}

/* Addresses, routes and the neighbour, as the host's words to our kernel. Behind a gate nobody answers by ARP or
 * DHCP. */
static void guest_network(void)
{
    static const char *const settings[][2] = {{"ipv4/ip_unprivileged_port_start", "0"},
                                              {"ipv6/conf/eth0/addr_gen_mode", "1"},
                                              {"ipv6/conf/eth0/accept_ra", "0"}};
    AUTO_BUF struct buf messages = BUF_INIT(8192), resolver = BUF_INIT(1024);
    int ignored UNUSED = 0;
    AUTO_CLOSE int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (if_nametoindex("eth0") == 0)
        return;
    if (fd < 0 || fd_read_file(AT_FDCWD, "/network", &messages) < 0 ||
        fd_read_file(AT_FDCWD, "/resolv.conf", &resolver) < 0)
        guest_die("read about", "eth0");
    for (size_t i = 0; i < ARRAY_SIZE(settings); i++) {
        char path[80];
        (void)snprintf(path, sizeof(path), "/proc/sys/net/%s", settings[i][0]);
        ignored = fd_write_existing(AT_FDCWD, path, str_of(settings[i][1]));
    }
    guest_ask(fd, buf_str(&messages));
    (void)unlink(GUEST_ROOT "/etc/resolv.conf");
    ignored = fd_write_file(AT_FDCWD, GUEST_ROOT "/etc/resolv.conf", buf_str(&resolver), 0644);
}

void guest_enter(int to)
{
    const struct rlimit files = {OPEN_FILES_SOFT, OPEN_FILES_HARD};
    char port[64];
    (void)umask(022);
    guest_mount("proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    guest_mount("sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    guest_mount("devtmpfs", "/dev", MS_NOSUID | MS_NOEXEC, "mode=0755");
    for (int fd = 0; fd <= 2; fd++) { /* there was none to be opened before us */
        int got = fcntl(fd, F_GETFD) < 0 ? open("/dev/console", O_RDWR | O_NOCTTY) : fd;
        if (got != fd)
            guest_die("open", "/dev/console");
    }
    guest_load_modules();
    guest_mount_root();
    guest_await("/sys/class/virtio-ports", "name", "cove", port);
    int fd = open(port, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || (fd != to && dup2(fd, to) < 0))
        guest_die("open", port);
    if (fd != to)
        (void)fd_close(fd);
    guest_loopback();
    guest_network();
    guest_mount_rest();
    (void)setrlimit(RLIMIT_NOFILE, &files);
    int ignored UNUSED = fd_write_existing(AT_FDCWD, "/proc/self/oom_score_adj", STR("-900"));
}
