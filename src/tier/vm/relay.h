/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes the wire on between the session that coved handed in last and the machine, and tells the agent in it what only
 * the host knows (WIRE_WAKE). Runs as nobody, in an empty root; whoever is in the machine may send what they like.
 *
 *  1. The machine gets whole frames only, so that one of ours never falls into another, whenever a session ends.
 *  2. What comes from the machine goes to a session only once it has answered that this session began: nothing of
 *     before gets there.
 *  3. A machine that stands still was told to before: its agent has stopped everybody else and sends nothing, and it is
 *     sent nothing. So a copy of it begins between two frames, and in both nobody runs before the agent knows the time
 *     and has new random numbers.
 *  4. A machine that doesn't answer within WAKE_USEC loses the session, one that sends what is no wire ends. Both
 *     directions are bounded (tier/vm/channel.h), and who does not read stops whoever sends.
 */
#pragma once

#include "tier/tier.h"
#include "tier/vm/saved.h"
#include "tier/vm/vmm.h"

struct relay_spec {
    int sock;                        /* orders of coved's */
    int state_fd;                    /* struct vm_state, struct vm_devices */
    int wire_fd, console_fd, vmm_fd; /* of the machine; what it says; pidfd of its monitor */
    int monitor_fd;                  /* its monitor takes orders */
    int devices_fd, devices_to;      /* one file: read by us, written by the monitor */
    int saver;                       /* saves it (tier/vm/boot.h) as soon as its agent is there; -1: none */
    const char *name;                /* host name inside */
    const char *goes_on;             /* from a state of this version of monitors; NULL: it boots */
    bool has_programs;               /* it goes on with those of a sandbox: they are told */
    bool rehearses;                  /* before it is said to be there: nobody waits for it */
    uint32_t pids;
    struct saved_machine machine;
};

/* Until the machine or coved and the keeper are gone. Tells coved that the agent runs, or why it doesn't. */
NORETURN void relay_run(const struct relay_spec *spec);
