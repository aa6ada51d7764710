/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent does when the host tells it that it goes on in another place, or at another time (WIRE_WAKE): random
 * numbers, clock, names. After a restore it tells the programs, too:
 *
 *   /run/cove/restored   {"count":2,"sandbox":"…","host_name":"…","at_ms":…}, replaced as a whole; count grows with each restore that these files have seen
 *   SIGCONT              to every process that isn't stopped; who has no handler for it does not notice
 */
#pragma once

#include "base/str.h"

struct agent;

/* False: malformed, or not for this agent. */
bool wake_told(struct agent *a, struct str payload);
