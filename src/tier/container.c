/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/log.h"
#include "kernel/cgroup/cgroup.h"
#include "kernel/namespace.h"
#include "kernel/pool/pool.h"
#include "kernel/rights.h"
#include "kernel/tree/overlay.h"
#include "tier/container_child.h"
#include "tier/stage.h"
#include "tier/tier.h"
#include "wire/control.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Sandboxes go before the host's own processes; the agent makes what it starts go before itself. */
enum { SESSION_BUFFER_BYTES = 512 * 1024, OOM_SCORE = 50 };

static uid_t base_of(const struct tier_host *host, const struct box *box)
{
    return host->first_uid + box->slot * (uid_t)NAMESPACE_IDS;
}

/* A process is born in its parent's network namespace. */
static pid_t spawn_in_network(const struct tier_host *host, struct box *box, int group_fd)
{
    bool captured = box->net.ns >= 0;
    if (captured && setns(box->net.ns, CLONE_NEWNET) < 0)
        return -errno;
    pid_t pid = namespace_spawn(group_fd, base_of(host, box), true, &box->pidfd);
    if (pid != 0 && captured) {
        int back = setns(host->net_fd, CLONE_NEWNET);
        assert(back == 0);
        box->net.ns = fd_close(box->net.ns);
    }
    return pid;
}

static int spawn(const struct tier_host *host, struct box *box, struct err *err)
{
    int pair[2];
    AUTO_DOOR struct cgroup_door door = CGROUP_DOOR_NONE;
    int r = cgroup_door_open(host->cgroups, box->group, &door);
    if (r < 0)
        return err_errno(err, r, "open control group %s", box->group);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_errno(err, errno, "make a socket pair");
    pid_t pid = spawn_in_network(host, box, door.group_fd);
    if (pid == 0)
        container_child(pair[1], host, &door, box);
    (void)fd_close(pair[1]);
    if (pid < 0) {
        (void)fd_close(pair[0]);
        return err_errno(err, pid, "make namespaces");
    }
    box->pid = pid;
    box->sock = pair[0];
    r = fd_nonblock(box->sock, true);
    r = r ? r : namespace_set_oom_score(host->proc_fd, pid, OOM_SCORE);
    r = r ? r : namespace_map_ids(host->proc_fd, pid, base_of(host, box));
    r = r ? r : namespace_open_user(host->proc_fd, pid, &box->userns_fd);
    return r < 0 ? err_errno(err, r, "map ids") : 0;
}

static int container_inside(const struct tier_host *host, struct box *box, const struct cgroup_limits *limits)
{
    return inside_limit(&box->inside, host->stage->machine, cgroup_features(host->cgroups)->version, limits, box->pid);
}

static int blank(const struct tier_host *host, struct box *box, struct err *err)
{
    static uint32_t serial; /* a slot is used again, a name is not */
    char random[7];
    id_token(random, sizeof(random) - 1);
    (void)snprintf(box->name, sizeof(box->name), "cove-%s%x", random, serial++);
    (void)snprintf(box->group, sizeof(box->group), "%u", box->slot);
    int r = cgroup_make(host->cgroups, box->group);
    if (r < 0)
        return err_errno(err, r, "make control group %s", box->group);
    box->has_group = true;
    box->inside = INSIDE_NONE;
    r = stage_tree_take(host->stage, &box->tree, &box->inside.tree_fd);
    if (r < 0)
        return err_errno(err, r, "make a tree for /dev and /sys");
    box->has_tree = true;
    r = container_inside(host, box, &box->limits);
    if (r < 0)
        return err_errno(err, r, "write what is told of the machine");
    if (spawn(host, box, err) < 0)
        return -1;
    const char mapped = TIER_MAPPED;
    r = fd_send(box->sock, &mapped, 1, NULL, 0);
    return r < 0 ? err_errno(err, r, "tell the new process") : 0;
}

/* Answers come from this machine: who waits longer than that for one waits in vain. */
static const char resolver[] = "nameserver " NETNS_DNS_ADDRESS "\noptions timeout:3 attempts:2\n";

static int make_root(const struct tier_host *host, struct box *box, const struct tier_dress *how, int *ret_fd,
                     struct err *err)
{
    char hostname[TIER_NAME_MAX + 1], hosts[256];
    (void)snprintf(hostname, sizeof(hostname), "%s\n", box->name);
    (void)snprintf(hosts, sizeof(hosts),
                   "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 %s\n", box->name);
    const struct pool_file files[] = {{"etc/hostname", hostname}, {"etc/hosts", hosts}, {"etc/resolv.conf", resolver}};
    bool captured = box->net.tcp >= 0;
    const struct pool_box spec = {.name = box->name,
                                  .from_layer = how->from_layer,
                                  .from_kept = how->from_kept,
                                  .chain = how->chain,
                                  .files = files,
                                  .n_files = ARRAY_SIZE(files) - !captured,
                                  .limit_bytes = 0};
    int layer_fds[POOL_CHAIN_MAX];
    const size_t own = how->from_layer; /* layers of which it has a copy */
    AUTO_CLOSE int box_fd = -1;
    int r = pool_box_make(host->pool, &spec, &box_fd);
    if (r < 0)
        return err_errno(err, r, "make the private directory in the storage pool");
    box->has_files = true;
    box->disk_bytes = 0;
    r = pool_chain_open(host->pool, how->chain, layer_fds);
    if (r < 0)
        return err_errno(err, r, "open the template's layers");
    const struct overlay overlay = {
        .mode = (enum overlay_mode)host->overlay_mode,
        .lower_fds = layer_fds + own,
        .n_lower = how->chain->n - own,
        .box_fd = box_fd,
        .userns_fd = box->userns_fd,
        .base = base_of(host, box),
        .scratch = "/scratch",
    };
    r = overlay_mount(&overlay, ret_fd);
    for (size_t i = 0; i < how->chain->n; i++)
        (void)fd_close(layer_fds[i]);
    return r < 0 ? err_errno(err, r, "mount the root file system") : 0;
}

static int limit_disk(const struct tier_host *host, struct box *box, uint64_t bytes, struct err *err)
{
    if (bytes == box->disk_bytes || !pool_features(host->pool)->limits)
        return 0;
    int r = pool_box_limit(host->pool, box->name, bytes);
    if (r == -ENODATA)
        return 0; /* resumed from files of a time without limits */
    if (r < 0)
        return err_errno(err, r, "limit the disk space");
    box->disk_bytes = bytes;
    return 0;
}

static int container_set_limits(const struct tier_host *host, struct box *box, const struct cgroup_limits *limits,
                                struct err *err)
{
    const struct cgroup_limits *now = &box->limits;
    if (now->memory_bytes == limits->memory_bytes && now->cpu_milli == limits->cpu_milli && now->pids == limits->pids)
        return 0;
    int r = cgroup_limit(host->cgroups, box->group, limits);
    if (r < 0)
        return err_errno(err, r, "set limits");
    r = container_inside(host, box, limits);
    if (r < 0)
        return err_errno(err, r, "write what is told of the limits");
    box->limits = *limits;
    return 0;
}

static int dress(const struct tier_host *host, struct box *box, const struct tier_dress *how, struct err *err)
{
    AUTO_CLOSE int root = -1;
    /* The disk's limit comes behind the mount: overlayfs, which has a directory to make, would be read-only above files that are at it already. */
    if (container_set_limits(host, box, &how->limits, err) < 0 || make_root(host, box, how, &root, err) < 0 ||
        limit_disk(host, box, how->disk_bytes, err) < 0)
        return -1;
    char message[1 + TIER_NAME_MAX] = {TIER_DRESS};
    memcpy(message + 1, box->name, TIER_NAME_MAX);
    int r = fd_send(box->sock, message, sizeof(message), &root, 1);
    box->userns_fd = fd_close(box->userns_fd);
    return r < 0 ? err_errno(err, r, "send the order to dress") : 0;
}

static int container_start(const struct tier_host *host, struct box *box, const struct tier_spec *spec,
                           int *ret_session_fd, struct err *err)
{
    if (container_set_limits(host, box, &spec->limits, err) < 0 || limit_disk(host, box, spec->disk_bytes, err) < 0)
        return -1;
    return tier_open_session(box, spec->id, spec->template_id, ret_session_fd, err);
}

static int clean(const struct tier_host *host, struct box *box)
{
    int r = 0;
    if (box->has_group) {
        r = cgroup_remove(host->cgroups, box->group);
        if (r == -EBUSY)
            return r;
        box->has_group = false;
    }
    if (box->has_files)
        r = pool_box_drop(host->pool, box->name);
    box->has_files = false;
    inside_close(&box->inside, host->stage->machine);
    if (box->has_tree)
        stage_tree_put(host->stage, box->tree);
    box->has_tree = false;
    box->sock = fd_close(box->sock);
    box->pidfd = fd_close(box->pidfd);
    box->userns_fd = fd_close(box->userns_fd);
    netns_close(&box->net);
    return r;
}

static void container_sampled(const struct tier_host *host, struct box *box, const struct cgroup_usage *usage,
                              usec_t age)
{
    inside_sample(&box->inside, host->stage->machine, cgroup_features(host->cgroups)->version, &box->limits, usage,
                  age);
}

static void container_adopt(const struct tier_host *host, struct box *box, int tree_fd)
{
    inside_adopt(&box->inside, host->stage->machine, tree_fd, box->pid);
}

const struct tier tier_container = {"container",       blank,           dress, container_start,
                                    container_sampled, container_adopt, clean};

int tier_open_session(struct box *box, const char *id, const char *template_id, int *ret_fd, struct err *err)
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
    int r = fd_send(box->sock, &order, sizeof(order), &pair[1], 1);
    (void)fd_close(pair[1]);
    if (r < 0) {
        (void)fd_close(pair[0]);
        return err_errno(err, r, "offer a session to the agent");
    }
    *ret_fd = pair[0];
    return 0;
}
