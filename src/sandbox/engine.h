/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine: the machine that sandboxes are on, and what it can do. Today there is one, this machine, whose coved
 * answers wire/supervisor.h over a socket pair; sandbox/supervisor.h is its client, and all that the core knows of a
 * machine.
 *
 * What a machine on the other end of a network would need beside another client:
 * - sessions and the link to cove-egress are descriptors in answers of coved: there they are streams that are dialled
 *   by a number in the answer (of a session nothing is promised but that it is a stream);
 * - so are images, comparisons and evidence, which are written to a descriptor that goes along;
 * - SUP_RESTARTED and SUP_AGAIN carry over as they are: a connection that was lost is a coved that has died, and
 *   requests that have no answer are repeated;
 * - layers are named by digest or by an id that is nobody else's, so that one which isn't there can be fetched by its
 *   name;
 * - a home in the sandbox's id, by which whoever has the id knows the machine;
 * - how much is free, and which tiers there are, told once a second and not once at the start.
 */
#pragma once

struct tier_list;

struct engine {
    int supervisor_fd; /* SOCK_SEQPACKET to coved (wire/supervisor.h); owned by the core from core_open() on */
    const struct tier_list *tiers; /* which boundaries there are (wire/tiers.h); borrowed; NULL: containers */
    const char *default_tier;      /* of a request that names none, borrowed; NULL: the weakest one available */
};
