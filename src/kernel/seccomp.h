/* SPDX-License-Identifier: Apache-2.0 */
/*
 * System call filters, compiled into BPF at build time (gen_seccomp.c holds the lists). Loading costs a tenth of
 * building. The sandbox's filter is loaded with CAP_SYS_ADMIN in the sandbox's user namespace, so that no_new_privs
 * stays off and sudo works.
 */
#pragma once

#include "base/def.h"

enum seccomp_filter {
    SECCOMP_SANDBOX, /* unknown calls: ENOSYS; refused ones: EPERM; foreign ABIs: ENOSYS */

    /* Allow-lists, all else EPERM, which need no_new_privs; the first two are for all threads. */
    SECCOMP_WORKER, /* cove-api */

    /*
     * cove-egress. Of sockets TCP, UDP and the routing protocol of netlink, but no unix socket; no memory becomes
     * executable, so that nothing can be loaded any more.
     */
    SECCOMP_EGRESS,

    /* The maker of network namespaces: of namespaces only those of the network; no processes, threads or executable
     * memory. */
    SECCOMP_NETMAKER,

    SECCOMP_FETCH,  /* one half of cove-image */
    SECCOMP_UNPACK, /* the other */
};
int seccomp_load(enum seccomp_filter which) WARN_UNUSED;

/*
 * On top of the sandbox's filter: no unix socket but connected pairs, so that no service of the machine can be reached
 * by a path (a read-only mount does not stop that). A pair of datagram sockets could be given another address.
 */
int seccomp_load_no_unix(void) WARN_UNUSED;

/*
 * On top of it: what would reach all of the caller's process group, which a box shares with whoever started it. Their
 * priority and, unless Landlock keeps signals inside, a signal to "0".
 */
int seccomp_load_no_group(bool with_signals) WARN_UNUSED;
