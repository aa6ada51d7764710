/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/container.h"
#include "base/fd.h"
#include "base/mem.h"
#include "kernel/namespace.h"
#include "kernel/pool/pool.h"
#include "kernel/rights.h"
#include "tier/container_child.h"
#include "tier/container_mount.h"
#include "tier/container_nest.h"
#include "tier/files.h"
#include "tier/group.h"
#include "tier/inside.h"
#include "tier/process.h"
#include "tier/root.h"
#include "tier/stage.h"
#include "wire/control.h"
#include "wire/frame.h"
#include "wire/wake.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SESSION_BUFFER_BYTES = 512 * 1024 };

/* A process is born in its parent's network namespace. */
static pid_t spawn_in_network(const struct tier_host *host, struct box *box, const struct container_birth *b)
{
    uint64_t flags = CLONE_PARENT | (b->shares ? CLONE_FILES : 0);
    bool captured = box->net.ns >= 0;
    if (captured && setns(box->net.ns, CLONE_NEWNET) < 0)
        return -errno;
    pid_t pid = namespace_spawn(b->door.group_fd, root_base(host, box), flags, &box->pidfd);
    if (pid != 0 && captured) {
        int back = setns(host->net_fd, CLONE_NEWNET);
        assert(back == 0);
        box->net.ns = fd_close(box->net.ns);
    }
    return pid;
}

static void container_birth_over(struct container_birth *b)
{
    cgroup_door_close(&b->door);
    b->theirs = fd_close(b->theirs);
}

int container_birth_begin(const struct tier_host *host, struct box *box, struct container_birth *b, struct err *err)
{
    int pair[2];
    *b = (struct container_birth){.door = CGROUP_DOOR_NONE, .ours = -1, .theirs = -1};
    int r = cgroup_door_open(host->cgroups, box->group, &b->door);
    if (r < 0)
        return err_errno(err, r, "open control group %s", box->group);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        r = -errno;
        cgroup_door_close(&b->door);
        return err_errno(err, r, "make a socket pair");
    }
    b->ours = fd_lasting(pair[0]);
    b->theirs = pair[1];
    return 0;
}

int container_birth_end(const struct tier_host *host, struct box *box, struct container_birth *b, pid_t pid, bool maps,
                        struct err *err)
{
    if (pid < 0 || !b->shares)
        container_birth_over(b);
    if (pid < 0) {
        (void)fd_close(b->ours);
        return err_errno(err, pid, "make namespaces");
    }
    box->pid = pid;
    box->pidfd = fd_lasting(box->pidfd);
    box->sock = b->ours;
    int r = fd_nonblock(box->sock, true);
    r = r ? r : namespace_set_oom_score(host->proc_fd, pid, CONTAINER_OOM_SCORE);
    if (maps) {
        r = r ? r : namespace_map_ids(host->proc_fd, pid, root_base(host, box));
        r = r ? r : namespace_open_user(host->proc_fd, pid, &box->userns_fd);
    }
    return r < 0 ? err_errno(err, r, "set up the new process") : 0;
}

static bool container_birth_can_share(const struct tier_host *host, const struct container_birth *b)
{
    int most = MAX(MAX(b->theirs, b->door.group_fd), host->agent_fd);
    for (size_t i = 0; i < ARRAY_SIZE(b->door.procs_fds); i++)
        most = MAX(most, b->door.procs_fds[i]);
    return most < FD_LASTING;
}

/* To copy and to close the descriptors of all other boxes would cost each body more, the more there are. */
static int spawn(const struct tier_host *host, struct box *box, struct err *err)
{
    struct container_birth *b = box->birth = mem_new(struct container_birth);
    if (container_birth_begin(host, box, b, err) < 0)
        return -1;
    b->shares = container_birth_can_share(host, b);
    pid_t pid = spawn_in_network(host, box, b);
    if (pid == 0)
        container_child(b->theirs, host, &b->door, box);
    return container_birth_end(host, box, b, pid, true, err);
}

static void container_born(struct box *box)
{
    if (box->birth)
        container_birth_over(box->birth);
    mem_free(TAKE_PTR(box->birth));
}

static int container_inside(const struct tier_host *host, struct box *box, const struct tier_limits *limits)
{
    const struct cgroup_limits l = group_limits(limits);
    return inside_limit(box->inside, host->stage->machine, cgroup_features(host->cgroups)->version, &l, box->pid);
}

static int container_blank(const struct tier_host *host, struct box *box, struct err *err)
{
    root_name(box);
    int r = group_make(host, box);
    if (r < 0)
        return err_errno(err, r, "make control group %s", box->group);
    box->inside = mem_new(struct inside);
    *box->inside = INSIDE_NONE;
    r = stage_tree_take(host->stage, &box->tree, &box->inside->tree_fd);
    if (r < 0)
        return err_errno(err, r, "make a tree for /dev and /sys");
    box->has_tree = true;
    box->carried_fd = box->inside->tree_fd;
    r = inside_boot(box->inside);
    if (r < 0)
        return err_errno(err, r, "write the boot id");
    if (spawn(host, box, err) < 0)
        return -1;
    const char mapped = TIER_MAPPED;
    r = fd_send(box->sock, &mapped, 1, NULL, 0);
    return r < 0 ? err_errno(err, r, "tell the new process") : 0;
}

static int container_set_limits(const struct tier_host *host, struct box *box, const struct tier_limits *limits,
                                struct err *err)
{
    int r = group_limit(host, box, limits);
    if (r < 0)
        return err_errno(err, r, "set limits");
    r = container_inside(host, box, limits);
    if (r < 0)
        return err_errno(err, r, "write the sandbox's limits");
    box->limits = *limits;
    return 0;
}

int container_dress_root(const struct tier_host *host, struct box *box, const struct tier_dress *how, bool parts,
                         struct err *err)
{
    char message[1 + TIER_NAME_MAX] = {TIER_DRESS};
    AUTO_CLOSE int root = -1;
    struct overlay_parts of_root = {.n = 0};
    /* The disk's limit comes behind the mount: overlayfs, which has a directory to make, would be read-only above files
     * that are at it already. */
    if (root_mount(host, box, how, &root, parts ? &of_root : NULL, err) < 0)
        return -1;
    if (group_limit_disk(host, box, how->disk_bytes, err) < 0) {
        overlay_parts_close(&of_root);
        return -1;
    }
    if (how->is_ahead && how->memory_fd >= 0)
        message[0] = TIER_AHEAD;
    memcpy(message + 1, box->name, TIER_NAME_MAX);
    int fds[FD_PASS_MAX] = {root, how->memory_fd};
    size_t n = how->memory_fd < 0 ? 1 : 2;
    for (size_t i = 0; i < of_root.n && n < FD_PASS_MAX; i++)
        fds[n++] = of_root.fds[i];
    int r = fd_send(box->sock, message, sizeof(message), fds, n);
    overlay_parts_close(&of_root);
    box->userns_fd = fd_close(box->userns_fd);
    return r < 0 ? err_errno(err, r, "send the order to dress") : 0;
}

static int container_dress(const struct tier_host *host, struct box *box, const struct tier_dress *how, struct err *err)
{
    return container_set_limits(host, box, &how->limits, err) < 0 ? -1
                                                                  : container_dress_root(host, box, how, true, err);
}

int container_say_restored(struct box *box, const char *id, const char *template_id, int session_fd)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    const struct wake w = {
        .what = WIRE_WAKE_RESTORED, .name = str_of(box->name), .id = str_of(id), .template_id = str_of(template_id)};
    if (!box->is_restored)
        return 0;
    box->is_restored = false;
    int r = wake_put(&b, &w);
    return r ? r : fd_write_all(session_fd, buf_data(&b), buf_len(&b)); /* it is empty: there is room */
}

int container_session(struct box *box, const char *id, const char *template_id, int *ret_fd, struct err *err)
{
    static const int size = SESSION_BUFFER_BYTES;
    struct control_session order = {.what = CONTROL_SESSION};
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return err_errno(err, errno, "make a socket pair");
    for (int i = 0; i < 2; i++)
        (void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
    rights_refuse(pair[0]);
    (void)snprintf(order.id, sizeof(order.id), "%s", id);
    (void)snprintf(order.template_id, sizeof(order.template_id), "%s", template_id);
    int r = container_say_restored(box, order.id, order.template_id, pair[0]);
    r = r ? r : fd_send(box->sock, &order, sizeof(order), &pair[1], 1);
    (void)fd_close(pair[1]);
    if (r < 0) {
        (void)fd_close(pair[0]);
        return err_errno(err, r, "offer a session to the agent");
    }
    *ret_fd = pair[0];
    return 0;
}

static int container_start(const struct tier_host *host, struct box *box, const struct tier_spec *spec,
                           int *ret_session_fd, struct err *err)
{
    const struct tier_limits *now = &box->limits, *wanted = &spec->limits;
    const bool is_set =
        now->memory_bytes == wanted->memory_bytes && now->cpu_milli == wanted->cpu_milli && now->pids == wanted->pids;
    if ((!is_set && container_set_limits(host, box, wanted, err) < 0) ||
        group_limit_disk(host, box, spec->disk_bytes, err) < 0)
        return -1;
    return container_session(box, spec->id, spec->template_id, ret_session_fd, err);
}

static int container_clean(const struct tier_host *host, struct box *box)
{
    int r = group_remove(host, box);
    if (r == -EBUSY)
        return r;
    if (box->has_files)
        r = pool_box_drop(host->pool, box->name);
    box->has_files = false;
    if (box->inside)
        inside_close(box->inside, host->stage->machine);
    mem_free(TAKE_PTR(box->inside));
    if (box->has_tree)
        stage_tree_put(host->stage, box->tree);
    box->has_tree = false;
    container_born(box);
    box->sock = fd_close(box->sock);
    box->pidfd = fd_close(box->pidfd);
    box->userns_fd = fd_close(box->userns_fd);
    netns_close(&box->net);
    return r;
}

int container_clean_carried(const struct tier_host *host, struct box *box)
{
    int r = container_clean(host, box);
    if (r != -EBUSY)
        box->carried_fd = fd_close(box->carried_fd);
    return r;
}

void container_adopt_carried(const struct tier_host *host UNUSED, struct box *box, int carried_fd)
{
    box->carried_fd = carried_fd;
}

static int container_usage(const struct tier_host *host, struct box *box, usec_t age, struct tier_usage *ret_usage)
{
    struct cgroup_usage raw;
    int r = group_usage(host, box, ret_usage, &raw);
    if (r < 0)
        return r;
    const struct cgroup_limits l = group_limits(&box->limits);
    inside_sample(box->inside, host->stage->machine, cgroup_features(host->cgroups)->version, &l, &raw, age);
    return 0;
}

static void container_adopt(const struct tier_host *host, struct box *box, int carried_fd)
{
    box->inside = mem_new(struct inside);
    *box->inside = INSIDE_NONE;
    box->carried_fd = carried_fd;
    inside_adopt(box->inside, host->stage->machine, carried_fd, box->pid);
}

/* coved doesn't start where this one can't be had. */
static int container_probe(const struct tier_host *host, struct tier_powers *ret_powers, struct err *err UNUSED)
{
    *ret_powers = (struct tier_powers){.reclaim = host && cgroup_features(host->cgroups)->reclaim};
    return 0;
}

/* Of everything whose kernel is the host's. */
#define CONTAINER_LIFE                                                                                                 \
    .ready = UINT32_MAX, .born = container_born, .dress = container_dress, .start = container_start,                   \
    .session = container_session, .adopt = container_adopt, .clean = container_clean, .freeze = group_freeze,          \
    .is_frozen = group_is_frozen, .yield = group_yield, .reclaim = group_reclaim, .usage = container_usage,            \
    .oom_kills = group_oom_kills, .snapshot = files_snapshot, .mount = container_mount

const struct tier tier_container = {
    .name = "container",
    .summary = "namespaces, ids of its own, a filter of system calls; the kernel is the host's",
    .probe = container_probe,
    .blank = container_blank,
    .nest = container_nest,
    CONTAINER_LIFE,
};

static int container_probe_process(const struct tier_host *host, struct tier_powers *ret_powers, struct err *err)
{
    return process_probe(err) < 0 ? -1 : container_probe(host, ret_powers, err);
}

static int container_blank_process(const struct tier_host *host, struct box *box, struct err *err)
{
    box->sees_host = true;
    return container_blank(host, box, err);
}

const struct tier tier_process = {
    .name = "process",
    .summary = "a container with programs of the host's, read-only; what else it may write, Landlock says",
    .is_named = true,
    .probe = container_probe_process,
    .blank = container_blank_process,
    CONTAINER_LIFE,
};
