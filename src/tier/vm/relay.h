/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes the wire on between the session that coved handed in last and the machine, and tells the agent in it what only the host knows (WIRE_WAKE). Runs as nobody, in an
 * empty root; whoever is in the machine may send what they like.
 *
 *  1. The machine gets whole frames only, so that one of ours never falls into another, whenever a session ends.
 *  2. What comes from the machine goes to a session only once it has answered that this session began: nothing of before gets there.
 *  3. A machine that doesn't answer within WAKE_USEC loses the session, one that sends what is no wire ends. Both directions are bounded (tier/vm/channel.h), and who does not
 *     read stops whoever sends.
 */
#pragma once

#include "tier/tier.h"

struct relay_spec {
    int sock;                        /* orders of coved's */
    int state_fd;                    /* struct vm_state */
    int wire_fd, console_fd, vmm_fd; /* of the machine; what it says; pidfd of its monitor */
    const char *name;                /* host name inside */
    uint32_t pids;
};

/* Until the machine or coved and the keeper are gone. Tells coved that the agent runs, or why it doesn't. */
NORETURN void relay_run(const struct relay_spec *spec);
