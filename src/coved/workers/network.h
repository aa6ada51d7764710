/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The captured networks of sandboxes: who makes them (netmaker.h), who has them (a box, tier/tier.h), and who serves
 * them (cove-egress).
 *
 * Invariants
 *  1. A namespace is one box's and never another's; it is captured before the box's first process is born.
 *  2. cove-egress is told of a sandbox's network before anybody has its session, and of its end once none of its
 *     processes is left. A new cove-egress is told of all there are. Until then connections wait in their sockets'
 *     queues: nothing gets out past it.
 *  3. The two workers share one socket pair. Whenever one of them is new, both get an end of a new one.
 *
 * Without the program, or on a kernel that can't capture, there are no captured networks: sandboxes have their own
 * loopback only, and cove-api, which is given no socket to cove-egress, refuses what it can't enforce.
 */
#pragma once

#include "base/err.h"
#include "coved/listen.h"
#include "coved/loop.h"
#include "coved/workers/netmaker.h"
#include "coved/workers/worker.h"

#define NETWORK_GROUP "egress" /* its control group */

struct boxes;
struct tier_set;

struct coved_network {
    char *program;             /* of cove-egress; NULL: no captured networks */
    struct local_socket vault; /* RUN/vault.sock */
    int state_fd;              /* owned: STATE/egress */
    struct netmaker
        *makers[NETNS_KINDS];    /* NULL: no captured networks; or no tier needs that kind, or it can't be made */
    struct worker *egress;       /* NULL: no captured networks */
    struct cgroup_tree *cgroups; /* borrowed; NULL: cove-egress has no group of its own */
    struct worker *api;          /* borrowed */
    struct boxes *boxes;         /* borrowed */
    struct worker_fd fds[2];
    char *argv[8];
    uint8_t settings[SHA1_BYTES]; /* of cove-egress, as worker_spec has them */
};

#define NETWORK_NONE ((struct coved_network){.vault = LOCAL_SOCKET_NONE, .state_fd = -1})

/* While the host's files can be seen. program_dir: where cove-egress is, if there is one. in: as listen_local() has
 * it. */
int network_prepare(struct coved_network *n, const struct config *config, const char *program_dir, struct inherited *in,
                    struct err *err) WARN_UNUSED;

/*
 * On the stage. stock: how many namespaces to keep ready. A machine that can't make them is no failure; it is logged.
 * cove-egress gets a control group with a limit of memory: whatever somebody makes it keep, it ends and is replaced
 * before the machine is out of it. One that an earlier coved left goes on.
 */
void network_start(struct coved_network *n, struct coved_loop *loop, const struct stage *stage,
                   struct cgroup_tree *cgroups, size_t stock, const struct tier_set *set, struct records *records);

/* Once both are there, before the first turn. */
void network_connect(struct coved_network *n, struct worker *api, struct boxes *boxes);

void network_close(struct coved_network *n); /* when its worker is gone */

/* A sandbox has begun or ended. */
void network_open_box(struct coved_network *n, const char *id, const struct netns *net);
void network_drop_box(struct coved_network *n, const char *id);

/* There is a new cove-api. */
void network_link_workers(struct coved_network *n);

/* One for a new box, or NETNS_NONE where there are none. -EAGAIN as netmaker_take() has it. */
int network_take(struct coved_network *n, enum netns_kind kind, struct netns *ret_net) WARN_UNUSED;

usec_t network_tick(struct coved_network *n);
