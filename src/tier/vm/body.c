/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/vm/body.h"
#include "base/fd.h"
#include "kernel/cgroup/cgroup.h"
#include "tier/vm/jail.h"
#include "tier/vm/relay.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SOCK_FD = 3, STATE_FD = 4, TAP_FD = 5, SIGNALS = 64, WIRE_BUFFER_BYTES = 512 * 1024 };

NORETURN static void vm_fail(const char *step, int error)
{
    char message[TIER_MESSAGE_MAX] = {TIER_FAILED};
    uint16_t number = (uint16_t)(error < 0 ? -error : error);
    memcpy(message + 1, &number, sizeof(number));
    int n = 3 + snprintf(message + 3, sizeof(message) - 3, "%s: %s", step, strerror(number));
    ssize_t ignored UNUSED = send(SOCK_FD, message, MIN((size_t)n, sizeof(message) - 1), MSG_NOSIGNAL);
    _exit(1);
}

static void vm_must(int r, const char *step)
{
    if (r < 0)
        vm_fail(step, r);
}

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
        vm_fail("unblock signals", errno);
}

static void vm_tie(void)
{
    vm_must(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 ? -errno : 0, "tie to the keeper");
}

NORETURN static void vm_execute(const struct jail *jail, const struct vmm *vmm, const struct vmm_spec *spec, int status)
{
    static struct vmm_command command;
    char *const environment[] = {NULL};
    int r = jail_enter(jail);
    vmm->command(spec, &command);
    if (r == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        r = -errno;
    const int kept[] = {spec->wire_fd, spec->console_fd, spec->net_fd};
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(kept) - (spec->net_fd < 0); i++)
        r = fd_cloexec(kept[i], false);
    if (r == 0) {
        (void)dup2(spec->console_fd, 2);
        (void)execve(vmm->program, command.argv, environment);
        r = -errno;
    }
    ssize_t ignored UNUSED = write(status, &r, sizeof(r));
    _exit(127);
}

/* Returns its pidfd. */
static int vm_start(const struct jail *jail, const struct vmm_spec *spec)
{
    int status[2], r = 0;
    if (pipe2(status, O_CLOEXEC) < 0)
        vm_fail("make a pipe", errno);
    pid_t pid = fork();
    if (pid < 0)
        vm_fail("start the monitor", errno);
    if (pid == 0)
        vm_execute(jail, &vmm_qemu, spec, status[1]);
    (void)fd_close(status[1]);
    if (read(status[0], &r, sizeof(r)) == sizeof(r))
        vm_fail("execute the monitor in its jail", r);
    (void)fd_close(status[0]);
    int fd = pidfd_open(pid, 0);
    vm_must(fd < 0 ? -errno : 0, "watch the monitor");
    return fd;
}

static struct vm_order vm_await_order(void)
{
    struct vm_order o;
    ssize_t n = recv(SOCK_FD, &o, sizeof(o), 0);
    if (n == 0)
        _exit(0); /* never needed: the service stops */
    if (n != sizeof(o) || o.what != TIER_DRESS)
        vm_fail("the order to dress", EPROTO);
    return o;
}

void vm_body(int sock, int state_fd, int tap_fd, const struct cgroup_door *door, uid_t uid)
{
    static struct vm_order order;
    static const int size = WIRE_BUFFER_BYTES;
    int joined = cgroup_door_enter(door), wire[2], console[2];
    const char ready = TIER_READY, *step = "";
    vm_settle_descriptors(sock, state_fd, tap_fd);
    vm_must(joined, "join the control group");
    vm_reset_signals();
    (void)prctl(PR_SET_NAME, "cove-machine", 0, 0, 0);
    (void)umask(022);
    vm_tie();
    if (send(SOCK_FD, &ready, 1, MSG_NOSIGNAL) != 1)
        _exit(1);

    order = vm_await_order();
    struct jail jail = {.usr = VM_STAGE_USR, .uid = uid, .device = order.emulated ? NULL : VM_STAGE_KVM};
    jail_add(&jail, VM_STAGE_KERNEL, "kernel", true);
    jail_add(&jail, VM_STAGE_INITRAMFS, "initramfs", true);
    int n_layers = vm_disks(&order, uid, &jail, &step);
    vm_must(n_layers, step);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, wire) < 0 ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, console) < 0)
        vm_fail("make a socket pair", errno);
    for (int i = 0; i < 2; i++)
        (void)setsockopt(wire[i], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
    const struct vmm_spec spec = {.memory_bytes = order.memory_bytes,
                                  .cpus = order.cpus,
                                  .n_layers = (uint32_t)n_layers,
                                  .tsc_khz = order.tsc_khz,
                                  .emulated = order.emulated,
                                  .wire_fd = wire[1],
                                  .console_fd = console[1],
                                  .net_fd = tap_fd < 0 ? -1 : TAP_FD};
    const struct relay_spec relay = {.sock = SOCK_FD,
                                     .state_fd = STATE_FD,
                                     .wire_fd = wire[0],
                                     .console_fd = console[0],
                                     .vmm_fd = vm_start(&jail, &spec),
                                     .name = order.name,
                                     .pids = order.pids};
    (void)fd_close(wire[1]);
    (void)fd_close(console[1]);
    (void)fd_close(spec.net_fd);
    const struct jail empty = {.usr = VM_STAGE_USR, .uid = uid + 1};
    vm_must(jail_enter(&empty), "give up what it may");
    vm_tie(); /* once more: the change of ids has cleared it */
    relay_run(&relay);
}
