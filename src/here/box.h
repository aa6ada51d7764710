/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The box: namespaces of an ordinary user's own, in which the machine's files are seen as the plan says, and one
 * command.
 *
 *  1. The box's first process makes all of it in itself, gives up every right, and only then starts the command. What
 *     fails is told, and nothing runs.
 *  2. It has the caller's id and no other; no id inside is root's. New user namespaces are refused by the filter, so no
 *     right comes back.
 *  3. It dies with the launcher, and everything inside with it. It can be neither traced nor opened from inside.
 *  4. It says how the command ended by the status of wait(), as it was.
 */
#pragma once

#include "here/plan.h"

#define BOX_OWN "/dev/.cove/" /* in the box: files of ours that others are covered with */

enum box_word {
    BOX_NETWORK = 1, /* from the box, with BOX_FDS descriptors */
    BOX_READY,       /* without a network */
    BOX_STATUS,      /* number: of wait() */
    BOX_FAILED,      /* number: errno; text: what */
    BOX_GO,          /* to the box; text: a CA as PEM, or empty */
};

enum { BOX_FDS = 4, BOX_TEXT_MAX = 16 * 1024 }; /* tcp, dns_udp, dns_tcp, and a directory in memory for the vault */

struct box_message {
    enum box_word word;
    int number;
    char text[BOX_TEXT_MAX];
};

struct box_spec {
    const struct plan *plan;
    struct bwrap *bwrap; /* NULL: the plan says what becomes of files */
    const char *cwd;
    const char *file; /* the program, looked for in PATH */
    char *const *argv;
    char *const *environment;
    bool with_network, all_unix_sockets, weaker_nested;
    int link;             /* SOCK_SEQPACKET, to the launcher */
    int link_of_launcher; /* closed in the box */
};

/* Returns the pid of the first process, or -errno. Signals must be blocked; the command gets `mask`. */
pid_t box_start(const struct box_spec *spec, const void *mask) WARN_UNUSED;
