/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/vm/body.h"
#include "base/fd.h"
#include "kernel/cgroup/cgroup.h"
#include "tier/vm/boot.h"
#include "tier/vm/jail.h"
#include "tier/vm/lend.h"
#include "tier/vm/relay.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SOCK_FD = TIER_BODY_SOCK,
    STATE_FD,
    TAP_FD,
    SIGNALS = 64,
    WIRE_BUFFER_BYTES = 512 * 1024,
    LEND_USEC = 60 * 1000000
};

static void vm_settle_descriptors(int sock, int state_fd, int tap_fd)
{
    const int given[] = {sock, state_fd, tap_fd};
    int spare[ARRAY_SIZE(given)];
    const size_t n = ARRAY_SIZE(given) - (tap_fd < 0);
    for (size_t i = 0; i < n; i++)
        if ((spare[i] = fcntl(given[i], F_DUPFD, 64)) < 0)
            _exit(1);
    for (size_t i = 0; i < n; i++)
        if (dup3(spare[i], SOCK_FD + (int)i, O_CLOEXEC) < 0)
            _exit(1);
    if (fd_nonblock(SOCK_FD, false) < 0)
        _exit(1);
    int null = open("/trees/0/dev/null", O_RDWR);
    for (int fd = 0; fd <= 2; fd++)
        if (null < 0 || dup2(null, fd) < 0)
            (void)close(fd);
    if (close_range(SOCK_FD + (unsigned)n, ~0U, 0) < 0)
        _exit(1);
}

static void vm_reset_signals(void)
{
    const uint64_t none = 0;
    for (int s = 1; s <= SIGNALS; s++)
        if (s != SIGKILL && s != SIGSTOP)
            (void)signal(s, SIG_DFL);
    if (syscall(SYS_rt_sigprocmask, SIG_SETMASK, &none, NULL, sizeof(none)) < 0)
        tier_body_fail("unblock signals", errno);
}

static void vm_tie(void)
{
    tier_body_must(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 ? -errno : 0, "tie to the keeper");
}

NORETURN static void vm_execute(const struct jail *jail, const struct vmm *vmm, const struct vmm_spec *spec, int status)
{
    static struct vmm_command command;
    char *const environment[] = {NULL};
    int r = jail_enter(jail), asks = -1;
    vmm->command(spec, &command);
    if (r == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        r = -errno;
    /* Of a huge page for translated code most would stay unused, in each machine. */
    if (r == 0 && spec->emulated && prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) < 0)
        r = -errno;
    const int kept[] = {spec->wire_fd,    spec->console_fd, spec->monitor_fd,
                        spec->devices_fd, spec->net_fd,     spec->incoming_fd};
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(kept); i++)
        r = kept[i] < 0 ? 0 : fd_cloexec(kept[i], false);
    if (r == 0)
        r = asks = lend_ask();
    if (r >= 0)
        r = fd_send(status, &r, sizeof(r), &asks, 1);
    (void)fd_close(asks);
    if (r == 0) {
        (void)dup2(spec->console_fd, 2);
        (void)execve(vmm->program, command.argv, environment);
        r = -errno;
    }
    ssize_t ignored UNUSED = write(status, &r, sizeof(r));
    _exit(127);
}

/* A monitor that has all but its memory. */
struct vm_asks {
    int fd;
    uint64_t asked;
};

/* Returns its pidfd. */
static int vm_start(const struct jail *jail, const struct vmm_spec *spec, struct vm_asks *ret_asks)
{
    int status[2], r = 0, asks = -1;
    size_t n_fds = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, status) < 0)
        tier_body_fail("make a socket pair", errno);
    pid_t pid = fork();
    if (pid < 0)
        tier_body_fail("start the monitor", errno);
    if (pid == 0)
        vm_execute(jail, &vmm_qemu, spec, status[1]);
    (void)fd_close(status[1]);
    if (fd_recv(status[0], &r, sizeof(r), &asks, 1, &n_fds) != sizeof(r) || n_fds != 1)
        tier_body_fail("put the monitor into its jail", r < 0 ? r : EPROTO);
    if (read(status[0], &r, sizeof(r)) == sizeof(r))
        tier_body_fail("execute the monitor in its jail", r);
    (void)fd_close(status[0]);
    tier_body_must(lend_await(asks, VMM_MEMORY, clock_mono() + LEND_USEC, &ret_asks->asked), "hear from the monitor");
    ret_asks->fd = asks;
    int fd = pidfd_open(pid, 0);
    tier_body_must(fd < 0 ? -errno : 0, "watch the monitor");
    return fd;
}

static struct vm_order vm_await_order(int *ret_dir)
{
    struct vm_order o;
    size_t n_fds = 0;
    ssize_t n = fd_recv(SOCK_FD, &o, sizeof(o), ret_dir, 1, &n_fds);
    if (n == 0)
        _exit(0); /* never needed: the service stops */
    if (n != sizeof(o) || o.what != TIER_DRESS)
        tier_body_fail("the order to dress", EPROTO);
    return o;
}

/* Where a machine goes on from, and what is made of it for others. */
struct vm_origin {
    struct saved saved; /* memory_fd: of /dev/zero when it boots; devices_fd -1 then */
    const char *disk;   /* that its own begins as, or NULL */
    int lock;           /* what is read stays there while that is open; or -1 */
    int saver;
};

static struct vm_origin vm_originate(const struct vm_order *order, const struct saved_machine *machine, int dir,
                                     uid_t uid)
{
    static char path[BOOT_PATH_MAX];
    struct vm_origin o = {.saved = {.memory_fd = -1, .devices_fd = -1}, .lock = -1, .saver = -1};
    if (dir >= 0) {
        tier_body_must(saved_open(dir, machine, &o.saved), "read the machine that it goes on from");
        return o;
    }
    if (boot_path(order, machine, path)) {
        AUTO_CLOSE int boot = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (boot >= 0 && flock(boot, LOCK_SH | LOCK_NB) == 0 && saved_open(boot, machine, &o.saved) == 0) {
            (void)futimens(boot, NULL); /* used */
            o.disk = path;
            o.lock = TAKE_FD(boot);
            return o;
        }
        o.saver = boot_saver(order, path, STATE_FD, uid);
    }
    o.saved.memory_fd = open("/trees/0/dev/zero", O_RDWR | O_CLOEXEC);
    tier_body_must(o.saved.memory_fd < 0 ? -errno : 0, "open what is empty");
    return o;
}

/* The same for one that is told later: its devices are to be written into a file that the monitor has already. */
static struct vm_origin vm_originate_later(void)
{
    struct vm_origin o = {.saved = {.memory_fd = -1}, .lock = -1, .saver = -1};
    o.saved.devices_fd = memfd_create("cove-incoming", MFD_CLOEXEC);
    tier_body_must(o.saved.devices_fd < 0 ? -errno : 0, "make a file for devices");
    return o;
}

/* Whose memory it is to have, or that nobody needs it; or its monitor ends. */
static int vm_await_memory(struct vm_order *order, const struct saved_machine *machine, int vmm_fd,
                           struct vm_origin *origin)
{
    struct pollfd p[] = {{.fd = SOCK_FD, .events = POLLIN}, {.fd = vmm_fd, .events = POLLIN}};
    struct saved saved = {.memory_fd = -1, .devices_fd = -1};
    struct stat st;
    off_t at = 0;
    int dir = -1;
    tier_body_tell(TIER_RUNS);
    while (poll(p, ARRAY_SIZE(p), -1) < 0)
        tier_body_must(errno == EINTR ? 0 : -errno, "wait");
    tier_body_must(p[1].revents ? -ECHILD : 0, "the monitor waits no more");
    const struct vm_order next = vm_await_order(&dir);
    order->chain = next.chain;
    order->pids = next.pids;
    order->is_ahead = next.is_ahead;
    tier_body_must(dir < 0 ? -EPROTO : saved_open(dir, machine, &saved), "read the machine that it goes on from");
    tier_body_must(vm_disk_fill(order), "copy the disk");
    tier_body_must(fstat(saved.devices_fd, &st) < 0 ? -errno : 0, "read its devices");
    while (at < st.st_size) { /* by its own offset the monitor reads */
        char block[16 * 1024];
        const ssize_t n = pread(saved.devices_fd, block, sizeof(block), at);
        tier_body_must(n <= 0                                                        ? -EIO
                       : pwrite(origin->saved.devices_fd, block, (size_t)n, at) == n ? 0
                                                                                     : -EIO,
                       "copy its devices");
        at += n;
    }
    origin->saved.memory_fd = saved.memory_fd;
    memcpy(origin->saved.version, saved.version, sizeof(saved.version));
    (void)fd_close(saved.devices_fd);
    return dir;
}

static void vm_pair(int ret_pair[static 2])
{
    static const int size = WIRE_BUFFER_BYTES;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ret_pair) < 0)
        tier_body_fail("make a socket pair", errno);
    for (int i = 0; i < 2; i++)
        (void)setsockopt(ret_pair[i], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
}

/* One file, to read and to write: a monitor takes only what is for writing alone. */
static int vm_devices_file(int *ret_to)
{
    char path[32];
    int fd = memfd_create("cove-devices", MFD_CLOEXEC);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    *ret_to = fd < 0 ? -1 : open(path, O_WRONLY | O_CLOEXEC);
    tier_body_must(*ret_to < 0 ? -errno : 0, "make a file for devices");
    return fd;
}

void vm_body(int sock, int state_fd, int tap_fd, const struct cgroup_door *door, uid_t uid)
{
    static struct vm_order order;
    struct vm_asks asks;
    int joined = cgroup_door_enter(door), wire[2], console[2], monitor[2], dir = -1, devices_to = -1;
    const char *step = "";
    vm_settle_descriptors(sock, state_fd, tap_fd);
    tier_body_must(joined, "join the control group");
    vm_reset_signals();
    (void)prctl(PR_SET_NAME, "cove-machine", 0, 0, 0);
    (void)umask(022);
    vm_tie();
    tier_body_tell(TIER_READY);

    order = vm_await_order(&dir);
    struct jail jail = {.usr = VM_STAGE_USR, .uid = uid, .device = order.emulated ? NULL : VM_STAGE_KVM};
    jail_add(&jail, VM_STAGE_KERNEL, "kernel", true);
    jail_add(&jail, VM_STAGE_INITRAMFS, "initramfs", true);
    struct saved_machine machine = {.memory_bytes = order.memory_bytes,
                                    .cpus = order.cpus,
                                    .n_layers = vm_disks_layers(&order),
                                    .emulated = order.emulated,
                                    .has_net = tap_fd >= 0};
    saved_describe(&machine);
    struct vm_origin origin = order.awaits ? vm_originate_later() : vm_originate(&order, &machine, dir, uid);
    int n_layers = vm_disks(&order, origin.disk, uid, &jail, &step);
    tier_body_must(n_layers, step);
    origin.lock = fd_close(origin.lock);
    vm_pair(wire);
    vm_pair(console);
    vm_pair(monitor);
    const int devices = vm_devices_file(&devices_to);
    const struct vmm_spec spec = {.memory_bytes = order.memory_bytes,
                                  .cpus = order.cpus,
                                  .n_layers = (uint32_t)n_layers,
                                  .tsc_khz = order.tsc_khz,
                                  .emulated = order.emulated,
                                  .wire_fd = wire[1],
                                  .console_fd = console[1],
                                  .monitor_fd = monitor[1],
                                  .devices_fd = devices_to,
                                  .incoming_fd = origin.saved.devices_fd,
                                  .net_fd = tap_fd < 0 ? -1 : TAP_FD};
    const int vmm_fd = vm_start(&jail, &spec, &asks);
    if (order.awaits)
        dir = vm_await_memory(&order, &machine, vmm_fd, &origin);
    int lent = lend(asks.fd, asks.asked, origin.saved.memory_fd);
    if (lent == -ENOENT) { /* a signal has interrupted it: it asks anew */
        tier_body_must(lend_await(asks.fd, VMM_MEMORY, clock_mono() + LEND_USEC, &asks.asked),
                       "hear from the monitor again");
        lent = lend(asks.fd, asks.asked, origin.saved.memory_fd);
    }
    tier_body_must(lent, "give the monitor its memory");
    const struct relay_spec relay = {.sock = SOCK_FD,
                                     .state_fd = STATE_FD,
                                     .wire_fd = wire[0],
                                     .console_fd = console[0],
                                     .monitor_fd = monitor[0],
                                     .vmm_fd = vmm_fd,
                                     .devices_fd = devices,
                                     .devices_to = devices_to,
                                     .saver = origin.saver,
                                     .name = order.name,
                                     .goes_on = spec.incoming_fd < 0 ? NULL : origin.saved.version,
                                     .has_programs = dir >= 0,
                                     .rehearses = order.emulated && order.is_ahead,
                                     .pids = order.pids,
                                     .machine = machine};
    const int given[] = {wire[1],          console[1], monitor[1], spec.net_fd,
                         spec.incoming_fd, asks.fd,    dir,        origin.saved.memory_fd};
    for (size_t i = 0; i < ARRAY_SIZE(given); i++)
        (void)fd_close(given[i]);
    const struct jail empty = {.usr = VM_STAGE_USR, .uid = uid + 1};
    tier_body_must(jail_enter(&empty), "give up what it may");
    vm_tie(); /* once more: the change of ids has cleared it */
    relay_run(&relay);
}
