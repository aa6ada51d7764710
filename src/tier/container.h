/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What containers share with other tiers whose agent gets its control socket from coved. Each function fits into the
 * table (tier/tier.h).
 */
#pragma once

#include "kernel/cgroup/cgroup.h"
#include "tier/tier.h"

/* Sandboxes go before the host's own processes; the agent makes what it starts go before itself. */
enum { CONTAINER_OOM_SCORE = 50 };

/* A body that is about to be born into the box's group: its end of the control socket, and what it leaves the host
 * by. */
struct container_birth {
    struct cgroup_door door;
    int ours, theirs;
    bool shares; /* the body uses these very descriptors until it is ready */
};
int container_birth_begin(const struct tier_host *host, struct box *box, struct container_birth *b,
                          struct err *err) WARN_UNUSED;
/* pid: what the spawn said, which is told with this. maps: box->userns_fd becomes its user namespace, with the box's
 * ids. */
int container_birth_end(const struct tier_host *host, struct box *box, struct container_birth *b, pid_t pid, bool maps,
                        struct err *err) WARN_UNUSED;
/*
 * With its root file system, whose limits are in force. parts: the body takes what that was made of, too (overlay.h).
 */
int container_dress_root(const struct tier_host *host, struct box *box, const struct tier_dress *how, bool parts,
                         struct err *err) WARN_UNUSED;
int container_session(struct box *box, const char *id, const char *template_id, int *ret_fd,
                      struct err *err) WARN_UNUSED;
/* At the front of the first session of a box that goes on from a checkpoint: what the agent is to know
 * (wire/wake.h). */
int container_say_restored(struct box *box, const char *id, const char *template_id, int session_fd) WARN_UNUSED;
/* Of a box with nothing to adopt but its descriptor, which is closed when it is clean. */
void container_adopt_carried(const struct tier_host *host, struct box *box, int carried_fd);
int container_clean_carried(const struct tier_host *host, struct box *box) WARN_UNUSED;
