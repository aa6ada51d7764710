/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What coved tells a worker when it executes it: descriptors, directories and limits, as arguments (the environment is
 * empty). coved writes them, so every mistake is an error.
 *
 *   cove-api --supervisor-fd N --pulse-fd N --key-fd N --tls-fd N --listen-fd N:tcp --listen-fd N:tls --listen-fd
 *   N:unix --state DIR --data DIR [--domain D] ...
 *   cove-egress --control-fd N --pulse-fd N --vault-fd N --state-fd N --owner-uid UID [--group-gid GID] --log-level N
 *   [--resolver ADDR:PORT] [--trust FILE]
 */
#pragma once

#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "sandbox/core.h"
#include "wire/tiers.h"

enum { OPTIONS_LISTEN_MAX = 48 };

struct options {
    uint32_t protocol; /* SUP_VERSION */
    int pulse_fd;      /* daemon/pulse.h; -1: there is none */
    int key_fd;        /* the API key, to end of file; -1: there is none */
    int tls_fd;        /* certificate chain and key in PEM, to end of file; -1: there is none */
    int listen_fd[OPTIONS_LISTEN_MAX];
    bool listen_tls[OPTIONS_LISTEN_MAX]; /* is it one with TLS? */
    size_t n_listen;
    const char *data_dir; /* cove.db is written here */
    uid_t owner_uid;
    enum log_level log_level;
    uint64_t default_timeout_ms;
    const char *builds; /* daemon/build_options.h; NULL: the defaults */
    struct tier_list tiers;
    bool run_code_is_open;   /* api/fusion: who shows no key may run code */
    struct core_config core; /* what coved says of it: its machine, but for `tiers`, and its limits */
};

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
int options_parse(int argc, char **argv, struct options *ret_options, struct err *err) WARN_UNUSED;
int egress_options_parse(int argc, char **argv, struct egress_options *ret_options, struct err *err) WARN_UNUSED;
