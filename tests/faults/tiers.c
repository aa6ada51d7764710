/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One tier more than what is installed has (tier/table.c): "stub", a boundary of a few namespaces, which does most
 * things in another way than a container. No control group: it is frozen by signals. No descriptor passed: its agent
 * listens, and coved connects. Its network is behind a gate. By it the table is tested, and what stands on the table.
 * Its memory is what lies in /dev/shm/memory: that is all that goes on from a checkpoint.
 */
#include "base/fault.h"
#include "base/fd.h"
#include "base/str.h"
#include "kernel/mount.h"
#include "kernel/namespace.h"
#include "kernel/pool/pool.h"
#include "tier/container.h"
#include "tier/files.h"
#include "tier/root.h"
#include "tier/stage.h"
#include "tier/tier.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { STUB_CONTROL = 3, STUB_BODY = 4, STUB_AGENT = 5, STUB_BACKLOG = 16, STUB_MEMORY_MAX = 64 * 1024 };

#define STUB_MEMORY "dev/shm/memory"

/* ---- the body ---- */

static void stub_must(bool ok, const char *step)
{
    if (ok)
        return;
    char message[TIER_MESSAGE_MAX] = {TIER_FAILED};
    const uint16_t number = (uint16_t)errno;
    memcpy(message + 1, &number, sizeof(number));
    int n = 3 + snprintf(message + 3, sizeof(message) - 3, "%s: %s", step, strerror(number));
    ssize_t ignored UNUSED = send(STUB_BODY, message, (size_t)n, MSG_NOSIGNAL);
    _exit(1);
}

static void stub_mount(const char *type, const char *at, unsigned long flags, const char *options)
{
    stub_must(mkdir(at, 0755) == 0 || errno == EEXIST, at);
    stub_must(mount(type, at, type, flags, options) == 0, at);
}

static void stub_restore(int dir_fd)
{
    AUTO_BUF struct buf text = BUF_INIT(STUB_MEMORY_MAX);
    stub_must(fd_read_file(dir_fd, "memory", &text) == 0 &&
                  fd_write_file(AT_FDCWD, "/root/" STUB_MEMORY, buf_str(&text), 0666) == 0,
              "restore");
}

NORETURN static void stub_body(const struct tier_host *host, const struct box *box, int sock, int listener)
{
    static const char *const names[] = {"proc", "sys", "dev"};
    char message[1 + TIER_NAME_MAX], path[32],
        *argv[] = {(char[]){"cove-agent"}, NULL},
        *envp[] = {(char[]){"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, NULL};
    int got[2] = {-1, -1};
    size_t n_fds = 0;
    (void)snprintf(path, sizeof(path), "/trees/%u", box->tree);
    const int spare[] = {fcntl(listener, F_DUPFD, 64), fcntl(sock, F_DUPFD, 64), fcntl(host->agent_fd, F_DUPFD, 64)};
    if (chdir(path) < 0 || dup2(spare[0], STUB_CONTROL) < 0 || dup2(spare[1], STUB_BODY) < 0 ||
        dup3(spare[2], STUB_AGENT, O_CLOEXEC) < 0 || close_range(STUB_AGENT + 1, ~0U, 0) < 0)
        _exit(1);
    for (int s = 1; s <= 64; s++)
        (void)signal(s, SIG_DFL);
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)umask(022);
    stub_must(recv(STUB_BODY, message, 1, 0) == 1 && namespace_become_root() == 0, "become root inside");
    stub_must(prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) == 0, "tie to the keeper");
    if (box->net.tcp < 0)
        stub_must(namespace_network() == 0, "make a network namespace");
    stub_must(send(STUB_BODY, (char[]){TIER_READY}, 1, MSG_NOSIGNAL) == 1, "say that it is ready");
    ssize_t n = fd_recv(STUB_BODY, message, sizeof(message), got, 2, &n_fds);
    if (n == sizeof(message) && n_fds == 0) { /* its memory comes later, and all of it with that */
        (void)prctl(PR_SET_NAME, "stub-awaits", 0, 0, 0);
        stub_must(send(STUB_BODY, (char[]){TIER_RUNS}, 1, MSG_NOSIGNAL) == 1, "say that it waits");
        n = fd_recv(STUB_BODY, message, sizeof(message), got, 2, &n_fds);
    }
    if (n != sizeof(message) || n_fds < 1)
        _exit(0);
    int root = got[0];
    stub_must(mount_attach(root, AT_FDCWD, "/root") == 0, "attach the root file system");
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        int tree = -1;
        char at[32];
        (void)snprintf(at, sizeof(at), "/root/%s", names[i]);
        if (i == 0)
            stub_mount("proc", at, MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
        else
            stub_must((mkdir(at, 0755) == 0 || errno == EEXIST) && mount_clone(AT_FDCWD, names[i], &tree) == 0 &&
                          mount_attach(tree, AT_FDCWD, at) == 0,
                      at);
    }
    stub_mount("devpts", "/root/dev/pts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620,gid=5");
    stub_mount("tmpfs", "/root/dev/shm", MS_NOSUID | MS_NODEV, "mode=1777");
    if (n_fds == 2)
        stub_restore(got[1]);
    stub_must(mount_pivot(root) == 0 && sethostname(message + 1, strlen(message + 1)) == 0, "enter the root");
    (void)close(root);
    stub_must(send(STUB_BODY, (char[]){TIER_RUNS}, 1, MSG_NOSIGNAL) == 1, "say that the agent runs");
    (void)syscall(SYS_execveat, STUB_AGENT, "", argv, envp, AT_EMPTY_PATH);
    stub_must(false, "execute cove-agent");
    _exit(1);
}

/* ---- coved's side ---- */

/* At a point that is to fail, its body is dead, of which coved has not heard yet. */
static void stub_point(const char *point, const struct box *box)
{
    struct pollfd p = {.fd = box->pidfd, .events = POLLIN};
    if (fault_error(point) == 0)
        return;
    (void)pidfd_send_signal(box->pidfd, SIGKILL, NULL, 0);
    (void)poll(&p, 1, -1);
}

/* A listening socket for the agent; *ret_path_fd leads to it, and to no name. */
static int stub_listen(const struct box *box, int *ret_listener, int *ret_path_fd)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    (void)snprintf(a.sun_path, sizeof(a.sun_path), "/scratch/%s", box->name);
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 || listen(fd, STUB_BACKLOG) < 0)
        return -errno;
    *ret_path_fd = open(a.sun_path, O_PATH | O_CLOEXEC);
    if (*ret_path_fd < 0 || unlink(a.sun_path) < 0)
        return -errno;
    *ret_listener = TAKE_FD(fd);
    return 0;
}

static int stub_blank(const struct tier_host *host, struct box *box, struct err *err)
{
    int pair[2], tree = -1;
    AUTO_CLOSE int listener = -1;
    root_name(box);
    int r = stage_tree_take(host->stage, &box->tree, &tree);
    (void)fd_close(tree);
    box->has_tree = r == 0;
    r = r ? r : stub_listen(box, &listener, &box->carried_fd);
    if (r < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_errno(err, r ? r : errno, "make sockets");
    if (box->net.ns >= 0 && setns(box->net.ns, CLONE_NEWNET) < 0)
        return err_errno(err, errno, "enter the network");
    box->pid = namespace_spawn(-1, root_base(host, box), CLONE_PARENT, &box->pidfd);
    if (box->pid == 0)
        stub_body(host, box, pair[1], listener);
    int back = setns(host->net_fd, CLONE_NEWNET);
    assert(back == 0);
    box->net.ns = fd_close(box->net.ns);
    (void)fd_close(pair[1]);
    box->sock = pair[0];
    if (box->pid < 0)
        return err_errno(err, box->pid, "make namespaces");
    r = fd_nonblock(box->sock, true);
    r = r ? r : namespace_map_ids(host->proc_fd, box->pid, root_base(host, box));
    r = r ? r : namespace_open_user(host->proc_fd, box->pid, &box->userns_fd);
    r = r ? r : fd_send(box->sock, (char[]){TIER_MAPPED}, 1, NULL, 0);
    return r < 0 ? err_errno(err, r, "map ids") : 0;
}

static int stub_dress(const struct tier_host *host, struct box *box, const struct tier_dress *how, struct err *err)
{
    char message[1 + TIER_NAME_MAX] = {TIER_DRESS};
    AUTO_CLOSE int root = -1;
    struct files_plan plan = *how->files;
    struct tier_dress with = *how;
    with.files = &plan;
    if (box->awaits)
        stub_point("stub.dress", box);
    plan.from_layer |= box->awaits; /* it has a copy of the layer with its memory */
    box->awaits = how->awaits_memory;
    if (!box->awaits && root_mount(host, box, &with, &root, NULL, err) < 0)
        return -1;
    memcpy(message + 1, box->name, TIER_NAME_MAX);
    const int fds[] = {root, how->memory_fd};
    int r = fd_send(box->sock, message, sizeof(message), fds, box->awaits ? 0 : how->memory_fd < 0 ? 1 : 2);
    if (!box->awaits)
        box->userns_fd = fd_close(box->userns_fd);
    return r < 0 ? err_errno(err, r, "send the order to dress") : 0;
}

static int stub_session(struct box *box, const char *id, const char *template_id, int *ret_fd, struct err *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    (void)snprintf(a.sun_path, sizeof(a.sun_path), "/proc/self/fd/%d", box->carried_fd);
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0)
        return err_errno(err, errno, "connect to the agent");
    int r = container_say_restored(box, id, template_id, fd);
    if (r < 0)
        return err_errno(err, r, "tell the agent");
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int stub_start(const struct tier_host *host UNUSED, struct box *box, const struct tier_spec *spec,
                      int *ret_session_fd, struct err *err)
{
    box->limits = spec->limits;
    stub_point("stub.start", box);
    return stub_session(box, spec->id, spec->template_id, ret_session_fd, err);
}

static void stub_adopt(const struct tier_host *host UNUSED, struct box *box, int carried_fd)
{
    box->carried_fd = carried_fd;
}

static int stub_clean(const struct tier_host *host, struct box *box)
{
    int r = box->has_files ? pool_box_drop(host->pool, box->name) : 0;
    box->has_files = false;
    if (box->has_tree)
        stage_tree_put(host->stage, box->tree);
    box->has_tree = false;
    box->carried_fd = fd_close(box->carried_fd);
    box->sock = fd_close(box->sock);
    box->pidfd = fd_close(box->pidfd);
    box->userns_fd = fd_close(box->userns_fd);
    netns_close(&box->net);
    return r;
}

/* Signals a process and all below it. */
static void stub_signal(int proc_fd, pid_t pid, int number)
{
    char path[64];
    AUTO_BUF struct buf text = BUF_INIT(64 * 1024);
    struct str rest, one;
    uint64_t child;
    (void)kill(pid, number);
    (void)snprintf(path, sizeof(path), "%d/task/%d/children", (int)pid, (int)pid);
    if (fd_read_file(proc_fd, path, &text) < 0)
        return;
    rest = buf_str(&text);
    while (str_split(&rest, ' ', &one))
        if (str_to_u64(one, &child) == 0)
            stub_signal(proc_fd, (pid_t)child, number);
}

static int stub_freeze(const struct tier_host *host, struct box *box, bool frozen)
{
    stub_signal(host->proc_fd, box->pid, frozen ? SIGSTOP : SIGCONT);
    return 0;
}

static int stub_is_frozen(const struct tier_host *host UNUSED, struct box *box UNUSED)
{
    return 1;
}

static int stub_yield(const struct tier_host *host UNUSED, struct box *box UNUSED, bool first UNUSED)
{
    return 0;
}

static int stub_usage(const struct tier_host *host UNUSED, struct box *box UNUSED, usec_t age,
                      struct tier_usage *ret_usage)
{
    *ret_usage = (struct tier_usage){.cpu_usec = age / 100, .memory_bytes = 1 << 20, .pids = 1};
    return 0;
}

static uint32_t stub_oom_kills(const struct tier_host *host UNUSED, struct box *box UNUSED)
{
    return 0;
}

static int stub_mount_volume(const struct tier_host *host UNUSED, const struct tier_mount *m UNUSED)
{
    return -EOPNOTSUPP;
}

static int stub_go_on(const struct tier_host *host, const struct box *box)
{
    stub_signal(host->proc_fd, box->pid, SIGCONT);
    return 0;
}

/* Whose session is open can't be saved. */
static int stub_checkpoint(const struct tier_host *host, const struct box *box, const struct tier_saving *saving)
{
    AUTO_BUF struct buf text = BUF_INIT(STUB_MEMORY_MAX);
    char path[64];
    (void)snprintf(path, sizeof(path), "%d/root/" STUB_MEMORY, (int)box->pid);
    stub_signal(host->proc_fd, box->pid, SIGSTOP);
    fault_point("stub.checkpoint");
    int r = fd_read_file(host->proc_fd, path, &text);
    r = r == -ENOENT ? 0 : r;
    r = r ? r : fd_write_file(saving->dir_fd, "memory", buf_str(&text), 0400);
    r = r || !saving->files ? r : saving->files(saving->ctx);
    return r == 0 && saving->ends ? 0 : stub_go_on(host, box) ? -EIO : r;
}

static int stub_probe(const struct tier_host *host UNUSED, struct tier_powers *ret_powers, struct err *err)
{
    const char *version = getenv("COVE_STUB_VERSION");
    ret_powers->memory = true;
    (void)snprintf(ret_powers->version, sizeof(ret_powers->version), "stub %s", version ? version : "1");
    const char *missing = getenv("COVE_STUB_MISSING"); /* what a machine without it would say */
    return missing ? err_set(err, ERR_FAILED_PRECONDITION, "%s", missing) : 0;
}

static const struct tier tier_stub = {
    .name = "stub",
    .summary = "a boundary for tests",
    .ready = 2,
    .halts = true,
    .waits_for_memory = true,
    .network = NETNS_GATE,
    .probe = stub_probe,
    .blank = stub_blank,
    .dress = stub_dress,
    .start = stub_start,
    .session = stub_session,
    .adopt = stub_adopt,
    .clean = stub_clean,
    .freeze = stub_freeze,
    .is_frozen = stub_is_frozen,
    .yield = stub_yield,
    .usage = stub_usage,
    .oom_kills = stub_oom_kills,
    .snapshot = files_snapshot,
    .mount = stub_mount_volume,
    .checkpoint = stub_checkpoint,
    .go_on = stub_go_on,
};

const struct tier *const tiers[] = {&tier_container, &tier_stub, &tier_gvisor, &tier_microvm, NULL};
