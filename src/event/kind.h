/* SPDX-License-Identifier: Apache-2.0 */
/* The table of kinds, for src/event alone. */
#pragma once

#include "event/event.h"

struct event_kind_info {
    const char *name;
    bool action;       /* asked for by a client */
    const char *phase; /* what the sandbox is afterwards; NULL: as before */
    bool last;         /* nothing that happens in the sandbox comes after it */
};

const struct event_kind_info *event_kind_info(enum event_kind kind); /* never NULL */
