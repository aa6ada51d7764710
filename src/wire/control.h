/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What coved tells the agent over its control socket (descriptor 3, SOCK_SEQPACKET): one kind of message, with the
 * socket of a new session. The agent is started ahead of need, so the first one also says whose sandbox this has
 * become; the later ones repeat it.
 */
#pragma once

#include "base/id.h"

enum { CONTROL_TEMPLATE_MAX = 64, CONTROL_SESSION = 'S' };

struct control_session {
    char what;                              /* CONTROL_SESSION */
    char id[ID_SANDBOX_LEN + 1];            /* the COVE_SANDBOX_ID of every process started from here on */
    char template_id[CONTROL_TEMPLATE_MAX]; /* COVE_TEMPLATE_ID */
};
