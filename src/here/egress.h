/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One box's way out: cove-egress as a child, given the box's sockets as coved gives it those of sandboxes, and its
 * policy as cove-api does (wire/egress.h). Its vault lies in memory; what is masked is in it under a name made here.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "base/id.h"
#include "base/json.h"

struct egress_child {
    pid_t pid;
    int control, link; /* owned; -1 */
    int memory;        /* the vault's directory; owned until it is started */
    char id[ID_SANDBOX_LEN + 1];
    int64_t tag;
    json_t *inject; /* stays when the policy changes */
};

/* fds: the box's BOX_FDS; taken. */
int egress_child_start(struct egress_child *e, const char *program, const char *trust, int *fds,
                       struct err *err) WARN_UNUSED;

/* Value goes to these hosts alone; the command sees the sentinel. */
int egress_child_secret(struct egress_child *e, const char *value, const char *sentinel, const json_t *hosts,
                        struct err *err) WARN_UNUSED;

/* In force when it returns. *ret_ca: as PEM, empty when nothing is intercepted. told gets what else is said
 * meanwhile. */
typedef void (*egress_child_told)(void *ctx, const json_t *message);
int egress_child_policy(struct egress_child *e, const json_t *rules, struct buf *ret_ca, egress_child_told told,
                        void *ctx, struct err *err) WARN_UNUSED;

/* One message, or NULL: gone. New reference. */
json_t *egress_child_read(struct egress_child *e);
void egress_child_stop(struct egress_child *e);
