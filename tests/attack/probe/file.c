/* SPDX-License-Identifier: Apache-2.0 */
/* Files, devices and terminals. */
#include "probe.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <termios.h>
#include <unistd.h>

enum { WALK_DEPTH = 12, WALK_NOTED = 40 };

static int do_open_write(int argc, char **argv)
{
    return result_of(open(argument(argc, argv, 0), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

static int do_mknod(int argc, char **argv)
{
    const char *path = argument(argc, argv, 0);
    mode_t type = *argument(argc, argv, 1) == 'b' ? S_IFBLK : S_IFCHR;
    dev_t dev = makedev((unsigned)number(argument(argc, argv, 2)), (unsigned)number(argument(argc, argv, 3)));
    int r = result_of(mknod(path, type | 0666, dev));
    if (r == REACHED)
        (void)unlink(path);
    return r;
}

static int do_link(int argc, char **argv)
{
    const char *to = argument(argc, argv, 1);
    int r = result_of(link(argument(argc, argv, 0), to));
    if (r == REACHED)
        (void)unlink(to);
    return r;
}

struct handle {
    uint32_t bytes;
    int32_t type;
    unsigned char data[128];
};

static int do_handle_name(int argc, char **argv)
{
    struct handle h = {.bytes = sizeof(h.data)};
    int mount_id;
    return result_of(syscall(SYS_name_to_handle_at, AT_FDCWD, argument(argc, argv, 0), &h, &mount_id, 0));
}

/* The handle of an ext4's, an xfs's or a btrfs's root directory by guess: any answer but a refusal means that guesses
 * are taken. */
static int do_handle_open(int argc, char **argv)
{
    struct handle h = {.bytes = 8, .type = 1, .data = {2}};
    int fd = open(argument(argc, argv, 0), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    return REACHED_IF(syscall(SYS_open_by_handle_at, fd, &h, O_RDONLY), ESTALE, EINVAL);
}

static int do_setxattr(int argc, char **argv)
{
    const char *value = argc > 2 ? argv[2] : "x";
    return result_of(setxattr(argument(argc, argv, 0), argument(argc, argv, 1), value, strlen(value), 0));
}

/* cap_sys_admin, effective, of the kind that is not bound to a user namespace. */
static int do_setcap(int argc, char **argv)
{
    uint32_t v2[] = {0x02000001, 1U << 21, 0, 0, 0};
    return result_of(setxattr(argument(argc, argv, 0), "security.capability", v2, sizeof(v2), 0));
}

static int do_attribute(int argc, char **argv)
{
    int flags = 0, fd = open(argument(argc, argv, 0), O_RDONLY | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
        return errno == ENOTTY || errno == EOPNOTSUPP ? ABSENT : errno;
    int was = flags;
    flags |= (int)number(argument(argc, argv, 1));
    int r = result_of(ioctl(fd, FS_IOC_SETFLAGS, &flags));
    if (r == REACHED)
        (void)ioctl(fd, FS_IOC_SETFLAGS, &was);
    return r;
}

/* Which regular files below a directory can be opened for writing? Opening is all that is done to them. */
static size_t walk(const char *path, int depth)
{
    size_t found = 0;
    DIR *dir = depth ? opendir(path) : NULL;
    if (!dir)
        return 0;
    for (struct dirent *e; (e = readdir(dir));) {
        char below[1024];
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            snprintf(below, sizeof(below), "%s/%s", path, e->d_name) >= (int)sizeof(below) || lstat(below, &st) < 0)
            continue;
        /* Those of processes are theirs. */
        if (S_ISDIR(st.st_mode) && !(strcmp(path, "/proc") == 0 && e->d_name[0] >= '0' && e->d_name[0] <= '9'))
            found += walk(below, depth - 1);
        if (!S_ISREG(st.st_mode))
            continue;
        int fd = open(below, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
        if (fd >= 0) {
            (void)close(fd);
            if (found++ < WALK_NOTED)
                note("%s ", below);
        }
    }
    (void)closedir(dir);
    return found;
}

static int do_writable_below(int argc, char **argv)
{
    return walk(argument(argc, argv, 0), WALK_DEPTH) ? REACHED : EACCES;
}

static int terminal(int *ret_master)
{
    int unlock = 0, n = 0;
    char path[32];
    int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0 || ioctl(master, TIOCGPTN, &n) < 0)
        return -1;
    (void)snprintf(path, sizeof(path), "/dev/pts/%d", n);
    *ret_master = master;
    return open(path, O_RDWR | O_CLOEXEC); /* a session leader's first terminal becomes its own */
}

/* An ioctl, by number, on our own terminal. What a terminal does not know says nothing about a right. */
static int do_tty_ioctl(int argc, char **argv)
{
    int master, argument_of = 0;
    char byte = 'x';
    unsigned long request = (unsigned long)number(argument(argc, argv, 0));
    int fd = terminal(&master);
    if (fd < 0)
        return ABSENT;
    void *p = (uint32_t)request == TIOCSTI ? (void *)&byte : (void *)&argument_of;
    return REACHED_IF(syscall(SYS_ioctl, fd, request, p), ENOTTY, EINVAL, EIO);
}

/* The same on something that is no terminal: only a filter by number says anything but ENOTTY. */
static int do_pipe_ioctl(int argc, char **argv)
{
    int p[2];
    if (pipe(p) < 0)
        return ABSENT;
    return REACHED_IF(syscall(SYS_ioctl, p[0], number(argument(argc, argv, 0)), NULL), ENOTTY);
}

static int do_flock(int argc, char **argv)
{
    int fd = open(argument(argc, argv, 0), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno;
    return result_of(flock(fd, LOCK_EX | LOCK_NB));
}

static int do_flock_hold(int argc, char **argv)
{
    int r = do_flock(argc, argv);
    if (r != REACHED)
        return r;
    say_and_hold("locked", 1, (unsigned)number(argument(argc, argv, 1)));
    return REACHED;
}

static int do_fcntl_lock(int argc, char **argv)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int fd = open(argument(argc, argv, 0), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno;
    return result_of(fcntl(fd, F_SETLK, &l));
}

/* Counts what happens to a file, until it was quiet for so many milliseconds; says when it watches. */
static int do_watch(int argc, char **argv)
{
    _Alignas(struct inotify_event) char events[65536];
    int fd = inotify_init1(IN_CLOEXEC);
    if (fd < 0 || inotify_add_watch(fd, argument(argc, argv, 0), IN_ALL_EVENTS) < 0)
        return errno;
    (void)alarm((unsigned)number(argument(argc, argv, 1)));
    (void)printf("watching\n");
    (void)fflush(stdout);
    ssize_t n = read(fd, events, sizeof(events));
    (void)printf("event %zd\n", n);
    return n > 0 ? REACHED : EIO;
}

static int do_mmap_exec(int argc, char **argv)
{
    int fd = open(argument(argc, argv, 0), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    void *p = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
    return p == MAP_FAILED ? errno : REACHED;
}

static int do_chroot(int argc, char **argv)
{
    /* Out of a chroot by a directory above it, the oldest trick there is. */
    int here = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (here < 0 || chroot(argument(argc, argv, 0)) < 0 || fchdir(here) < 0)
        return errno;
    for (int i = 0; i < 64; i++)
        if (chdir("..") < 0)
            return errno;
    if (chroot(".") < 0)
        return errno;
    struct stat st;
    if (stat(argument(argc, argv, 1), &st) < 0)
        return errno;
    note("found %s", argv[1]);
    return REACHED;
}

static int do_lease(int argc, char **argv)
{
    int fd = open(argument(argc, argv, 0), O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    return result_of(fcntl(fd, F_SETLEASE, F_RDLCK));
}

const struct verb file_verbs[] = {
    {"open_write", do_open_write},
    {"mknod", do_mknod},
    {"link", do_link},
    {"handle_name", do_handle_name},
    {"handle_open", do_handle_open},
    {"setxattr", do_setxattr},
    {"setcap", do_setcap},
    {"attribute", do_attribute},
    {"writable_below", do_writable_below},
    {"tty_ioctl", do_tty_ioctl},
    {"pipe_ioctl", do_pipe_ioctl},
    {"flock", do_flock},
    {"flock_hold", do_flock_hold},
    {"fcntl_lock", do_fcntl_lock},
    {"watch", do_watch},
    {"mmap_exec", do_mmap_exec},
    {"chroot", do_chroot},
    {"lease", do_lease},
};
const size_t n_file_verbs = COUNT(file_verbs);
