/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/workers/network.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/config.h"
#include "coved/arguments.h"
#include "coved/boxes/boxes.h"
#include "coved/state.h"
#include "kernel/cgroup/cgroup.h"
#include "kernel/rights.h"
#include "wire/egress.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    LINK_BUFFER_BYTES = 4 << 20,
    GATES = 2,
    MEMORY_PART = 4, /* of the machine's, for cove-egress; */
    NETWORK_MEMORY_LEAST = 512 << 20,
};

static const char group[] = NETWORK_GROUP;

static void arguments(struct coved_network *n, const struct config *config)
{
    size_t i = 0;
    n->argv[i++] = mem_strdup("--owner-uid");
    n->argv[i++] = mem_printf("%u", config->owner_uid);
    if (config->group_gid != (gid_t)-1) {
        n->argv[i++] = mem_strdup("--group-gid");
        n->argv[i++] = mem_printf("%u", config->group_gid);
    }
    n->argv[i++] = mem_strdup("--log-level");
    n->argv[i++] = mem_printf("%d", (int)config->log_level + (config->log_is_json ? LOG_AS_JSON : 0));
    assert(i < ARRAY_SIZE(n->argv));
}

int network_prepare(struct coved_network *n, const struct config *config, const char *program_dir, struct inherited *in,
                    struct err *err)
{
    AUTO_FREE char *program = mem_printf("%s/cove-egress", program_dir);
    AUTO_FREE char *state = mem_printf("%s/egress", config->state_dir);
    if (access(program, X_OK) < 0) {
        log_info("%s is not there: sandboxes have no network except their own loopback", program);
        return 0;
    }
    n->state_fd = open(state, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (n->state_fd < 0)
        return err_errno(err, errno, "open %s", state);
    if (listen_local(config->run_dir, "vault.sock", config->group_gid == (gid_t)-1 ? 0600 : 0660, config->owner_uid,
                     config->group_gid, in, &n->vault, err) < 0)
        return -1;
    arguments(n, config);
    n->program = TAKE_PTR(program);
    return 0;
}

/* ---- orders ---- */

static void order(struct coved_network *n, uint32_t type, const char *id, const int *fds, size_t n_fds)
{
    struct egress_order o;
    memset(&o, 0, sizeof(o));
    o.type = type;
    (void)snprintf(o.id, sizeof(o.id), "%s", id);
    worker_send_fds(n->egress, &o, sizeof(o), fds, n_fds);
}

void network_open_box(struct coved_network *n, const char *id, const struct netns *net)
{
    const int fds[EGRESS_NET_FDS] = {net->tcp, net->dns_udp, net->dns_tcp};
    if (n->egress && net->tcp >= 0)
        order(n, EGRESS_NET, id, fds, EGRESS_NET_FDS);
}

void network_drop_box(struct coved_network *n, const char *id)
{
    if (n->egress)
        order(n, EGRESS_DROP, id, NULL, 0);
}

static void network_open_one(void *ctx, const char *id, const struct netns *net)
{
    network_open_box(ctx, id, net);
}

/* ---- the workers ---- */

void network_link_workers(struct coved_network *n)
{
    static const int size = LINK_BUFFER_BYTES;
    const struct sup_head head = {SUP_EGRESS, 0};
    int pair[2];
    if (!n->egress || !worker_runs(n->egress) || !worker_runs(n->api))
        return;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0) {
        log_error("connect cove-api and cove-egress: %s", strerror(errno));
        return;
    }
    for (size_t i = 0; i < ARRAY_SIZE(pair); i++) {
        (void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof(size));
        rights_refuse(pair[i]);
    }
    order(n, EGRESS_API, "", &pair[0], 1);
    worker_send(n->api, &head, sizeof(head), pair[1]);
    (void)fd_close(pair[0]);
    (void)fd_close(pair[1]);
}

static void drop_group(struct coved_network *n)
{
    int r = n->cgroups ? cgroup_remove(n->cgroups, group) : 0;
    if (r < 0)
        log_warn("remove the control group of cove-egress: %s", strerror(-r));
    n->cgroups = NULL;
}

static void on_egress(void *ctx)
{
    struct coved_network *n = ctx;
    boxes_each_network(n->boxes, network_open_one, n);
    network_link_workers(n);
}

static void make_group(struct coved_network *n, struct cgroup_tree *cgroups)
{
    uint64_t all = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    const struct cgroup_limits limits = {.memory_bytes = MAX(all / MEMORY_PART, (uint64_t)NETWORK_MEMORY_LEAST),
                                         .serves_many = true};
    n->cgroups = cgroups;
    int r = cgroup_make(cgroups, group);
    r = r ? r : cgroup_limit(cgroups, group, &limits);
    if (r < 0) {
        log_warn("the memory of cove-egress is not limited: %s", strerror(-r));
        drop_group(n);
    }
}

void network_start(struct coved_network *n, struct coved_loop *loop, const struct stage *stage,
                   struct cgroup_tree *cgroups, size_t stock, const struct tier_set *set, struct records *records)
{
    struct err why;
    if (!n->program)
        return;
    if (netmaker_start(loop, state_uid(STATE_NETMAKER), NETNS_CAPTURED, stock, &n->makers[NETNS_CAPTURED], &why) < 0) {
        log_warn("sandboxes have no network except their own loopback: %s ('coved doctor' says more)", why.msg);
        listen_local_close(&n->vault);
        return;
    }
    for (size_t i = NETNS_CAPTURED + 1; i < NETNS_KINDS; i++)
        if (tier_set_needs(set, (enum netns_kind)i) &&
            netmaker_start(loop, state_uid(STATE_NETMAKER), (enum netns_kind)i, GATES, &n->makers[i], &why) < 0)
            log_warn("sandboxes of tiers with a network stack of their own can't be made: %s", why.msg);
    make_group(n, cgroups);
    n->fds[0] = (struct worker_fd){"--vault-fd", n->vault.fd, ""};
    n->fds[1] = (struct worker_fd){"--state-fd", n->state_fd, ""};
    struct sha1 s;
    sha1_init(&s);
    arguments_add(&s, n->argv);
    sha1_end(&s, n->settings);
    const struct worker_spec spec = {
        .name = "cove-egress",
        .program = n->program,
        .control = "--control-fd",
        .fds = n->fds,
        .n_fds = ARRAY_SIZE(n->fds),
        .argv = n->argv,
        .uid = state_uid(STATE_EGRESS),
        .stage = stage,
        .cgroups = n->cgroups,
        .group = group,
        .on_start = on_egress,
        .records = records,
        .number = STATE_EGRESS,
        .version = EGRESS_VERSION,
        .settings = n->settings,
        .ctx = n,
    };
    n->egress = worker_new(loop, &spec);
}

void network_connect(struct coved_network *n, struct worker *api, struct boxes *boxes)
{
    n->api = api;
    n->boxes = boxes;
}

int network_take(struct coved_network *n, enum netns_kind kind, struct netns *ret_net)
{
    if (!n->makers[NETNS_CAPTURED])
        return 0;
    return n->makers[kind] ? netmaker_take(n->makers[kind], ret_net) : -EOPNOTSUPP;
}

usec_t network_tick(struct coved_network *n)
{
    if (!n->egress)
        return UINT64_MAX;
    usec_t next = worker_tick(n->egress);
    for (size_t i = 0; i < NETNS_KINDS; i++)
        next = n->makers[i] ? MIN(next, netmaker_tick(n->makers[i])) : next;
    return next;
}

void network_close(struct coved_network *n)
{
    worker_free(n->egress);
    drop_group(n);
    for (size_t i = 0; i < NETNS_KINDS; i++)
        if (n->makers[i])
            netmaker_stop(n->makers[i]);
    listen_local_close(&n->vault);
    n->state_fd = fd_close(n->state_fd);
    for (size_t i = 0; n->argv[i]; i++)
        mem_free(n->argv[i]);
    mem_free(n->program);
}
