/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole of what cove-egress does besides keeping the vault: the networks of all sandboxes, by order of coved
 * (wire/egress.h), under the policies that cove-api gives. One libuv loop, one thread.
 */
#pragma once

#include "base/err.h"

#include <uv.h>

struct egress;
struct vault;

struct egress_config {
    int control_fd;       /* SOCK_SEQPACKET from coved; owned by the egress from here on */
    struct vault *vault;  /* borrowed, outlives it */
    const char *resolver; /* "ADDRESS:PORT[,...]" instead of what /etc/resolv.conf says; NULL */
    const char *trust;    /* file with further CA certificates; NULL */
    unsigned still_ms;    /* a connection that is passed through ends after so long without a byte; 0: FLOW_STILL_MS */
    void (*on_lost)(void *ctx); /* coved is gone: exit */
    void *ctx;
};

/* Starts serving. -1: the certificates or the resolver can't be set up. */
int egress_new(uv_loop_t *loop, const struct egress_config *config, struct egress **ret_egress,
               struct err *err) WARN_UNUSED;

/* Cuts everything. The loop must run once more to free the handles. */
void egress_free(struct egress *e);

/* A secret was set or removed by a user of the machine: cove-api writes it down. */
void egress_tell_secret(struct egress *e, const char *name, bool is_set, uid_t by);
