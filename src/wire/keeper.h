/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What coved says to its keeper (coved/workers/keeper.h), over the SOCK_SEQPACKET pair that it was born with: each
 * message is one struct keeper_message, with the descriptors that belong to it. Both are root and trust each other.
 *
 * A keeper outlives the coved that it was built with: a newer coved talks to it. What is here therefore changes only
 * together with KEEPER_VERSION, and a coved of another version is not started in place of one that runs.
 */
#pragma once

#include "base/def.h"

/* In run_dir: the configuration in force (coved/workers/keeper.h); and the one before, until a coved serves with the
 * new one. */
#define KEEPER_CONFIG "cove.yaml"
#define KEEPER_CONFIG_BEFORE KEEPER_CONFIG ".before"

enum { KEEPER_VERSION = 1, KEEPER_DATA_MAX = 1024, KEEPER_FDS_MAX = 4 };

enum keeper_type {
    /*
     * A record, in place of one that has the same kind and number. Its descriptors stay when none come along. pid: a
     * child of the keeper that it is about, whose exit status is kept until the record is dropped; 0: none. No answer.
     */
    KEEPER_PUT = 1,
    KEEPER_DROP, /* by kind and number; its child is reaped if it has ended. No answer */
    KEEPER_LIST, /* -> KEEPER_RECORD for each, then KEEPER_DONE with KEEPER_VERSION as its number */
    KEEPER_EXIT, /* by pid -> KEEPER_DONE: 1 in `found`, with code and status as waitid(2) has them, when that child has ended; it is not reaped */
    KEEPER_READY, /* coved serves. No answer */

    KEEPER_RECORD = 64, /* as it was put; pid 0: it was no child of the keeper any more when it was put */
    KEEPER_DONE,
};

/* What `data` is for each kind is coved's own. */
enum keeper_kind { KEEPER_BOX = 1, KEEPER_WORKER, KEEPER_SOCKET, KEEPER_STORAGE, KEEPER_TREE /* of a box */ };

struct keeper_message {
    uint32_t type; /* enum keeper_type */
    uint32_t kind; /* enum keeper_kind */
    uint32_t number;
    int32_t pid;
    int32_t found, code, status;
    uint32_t size; /* of data that is used */
    char data[KEEPER_DATA_MAX];
};
