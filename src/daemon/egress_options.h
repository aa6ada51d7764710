/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What coved tells cove-egress when it executes it, as arguments (the environment is empty).
 *
 *   cove-egress --control-fd N --pulse-fd N --vault-fd N --state-fd N --owner-uid UID [--group-gid GID] --log-level N
 *   [--resolver ADDR:PORT] [--trust FILE]
 */
#pragma once

#include "base/err.h"
#include "base/log.h"

struct egress_options {
    int control_fd; /* SOCK_SEQPACKET to coved */
    int pulse_fd;   /* daemon/pulse.h; -1: there is none */
    int vault_fd;   /* RUN/vault.sock, listening */
    int state_fd;   /* the directory STATE/egress */
    uid_t owner_uid;
    gid_t group_gid; /* (gid_t)-1: none */
    enum log_level log_level;
    const char *resolver; /* instead of /etc/resolv.conf; NULL: none. For tests, as is the next */
    const char *trust;    /* file of further CA certificates; NULL: none */
};

/* Strings are argv's. Descriptors are checked to be open, and made close-on-exec. */
int egress_options_parse(int argc, char **argv, struct egress_options *ret_options, struct err *err) WARN_UNUSED;
