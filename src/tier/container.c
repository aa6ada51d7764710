/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/log.h"
#include "kernel/cgroup.h"
#include "kernel/namespace.h"
#include "kernel/overlay.h"
#include "kernel/pool.h"
#include "tier/container_child.h"
#include "tier/tier.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SESSION_BUFFER_BYTES = 512 * 1024 };

static uid_t base_of(const struct tier_host *host, const struct box *box)
{
    return host->first_uid + box->slot * (uid_t)NAMESPACE_IDS;
}

static int spawn(const struct tier_host *host, struct box *box, struct err *err)
{
    int pair[2];
    AUTO_CLOSE int group = -1;
    int r = cgroup_open_group(host->cgroups, box->group, &group);
    if (r < 0 && r != -EOPNOTSUPP)
        return err_errno(err, r, "open control group %s", box->group);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_errno(err, errno, "make a socket pair");
    pid_t pid = namespace_spawn(group, &box->pidfd);
    if (pid == 0)
        container_child(pair[1], host, box, group >= 0);
    (void)fd_close(pair[1]);
    if (pid < 0) {
        (void)fd_close(pair[0]);
        return err_errno(err, pid, "make namespaces");
    }
    box->pid = pid;
    box->sock = pair[0];
    r = fd_nonblock(box->sock, true);
    r = r ? r : namespace_map_ids(host->proc_fd, pid, base_of(host, box));
    r = r ? r : namespace_open_user(host->proc_fd, pid, &box->userns_fd);
    return r < 0 ? err_errno(err, r, "map ids") : 0;
}

static int blank(const struct tier_host *host, struct box *box, struct err *err)
{
    (void)snprintf(box->group, sizeof(box->group), "%u", box->slot);
    int r = cgroup_make(host->cgroups, box->group);
    if (r < 0)
        return err_errno(err, r, "make control group %s", box->group);
    box->has_group = true;
    if (spawn(host, box, err) < 0)
        return -1;
    const char mapped = TIER_MAPPED;
    r = fd_send(box->sock, &mapped, 1, NULL, 0);
    return r < 0 ? err_errno(err, r, "tell the new process") : 0;
}

static int make_root(const struct tier_host *host, struct box *box, const struct tier_spec *spec, int *ret_fd, struct err *err)
{
    char hostname[ID_SANDBOX_LEN + 2], hosts[256];
    (void)snprintf(hostname, sizeof(hostname), "%s\n", spec->id);
    (void)snprintf(hosts, sizeof(hosts),
                   "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 %s\n", spec->id);
    const struct pool_file files[] = {{"etc/hostname", hostname}, {"etc/hosts", hosts}};
    AUTO_CLOSE int box_fd = -1;
    int r = pool_box_make(host->pool, spec->id, files, ARRAY_SIZE(files), &box_fd);
    if (r < 0)
        return err_errno(err, r, "make the private directory in the storage pool");
    box->has_files = true;
    const struct overlay overlay = {
        .mode = (enum overlay_mode)host->overlay_mode,
        .lower_fds = &spec->layer_fd,
        .n_lower = 1,
        .box_fd = box_fd,
        .userns_fd = box->userns_fd,
        .base = base_of(host, box),
        .scratch = "/scratch",
    };
    r = overlay_mount(&overlay, ret_fd);
    return r < 0 ? err_errno(err, r, "mount the root file system") : 0;
}

static int start(const struct tier_host *host, struct box *box, const struct tier_spec *spec, struct err *err)
{
    const struct cgroup_limits limits = {spec->memory_bytes, spec->cpu_milli, spec->pids};
    int r = cgroup_limit(host->cgroups, box->group, &limits);
    if (r < 0)
        return err_errno(err, r, "set limits");
    AUTO_CLOSE int root = -1;
    (void)snprintf(box->id, sizeof(box->id), "%s", spec->id);
    if (make_root(host, box, spec, &root, err) < 0)
        return -1;
    struct container_go go;
    memset(&go, 0, sizeof(go));
    (void)snprintf(go.id, sizeof(go.id), "%s", spec->id);
    (void)snprintf(go.template_id, sizeof(go.template_id), "%s", spec->template_id);
    char message[1 + sizeof(go)];
    message[0] = TIER_GO;
    memcpy(message + 1, &go, sizeof(go));
    r = fd_send(box->sock, message, sizeof(message), &root, 1);
    box->userns_fd = fd_close(box->userns_fd);
    return r < 0 ? err_errno(err, r, "send the start order") : 0;
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
        r = pool_box_drop(host->pool, box->id);
    box->has_files = false;
    box->sock = fd_close(box->sock);
    box->pidfd = fd_close(box->pidfd);
    box->userns_fd = fd_close(box->userns_fd);
    return r;
}

const struct tier tier_container = {"container", blank, start, clean};

int tier_open_session(struct box *box, int *ret_fd, struct err *err)
{
    static const int size = SESSION_BUFFER_BYTES;
    const char what = TIER_SESSION;
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return err_errno(err, errno, "make a socket pair");
    for (int i = 0; i < 2; i++)
        (void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
    int r = fd_send(box->sock, &what, 1, &pair[1], 1);
    (void)fd_close(pair[1]);
    if (r < 0) {
        (void)fd_close(pair[0]);
        return err_errno(err, r, "offer a session to the agent");
    }
    *ret_fd = pair[0];
    return 0;
}
