/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evidence that can be handed on: what a log says, signed with a key of the service, in one file that is checked
 * without it.
 *
 * A file is a DSSE envelope (Ed25519) around an in-toto statement. Of a log its subject is the hash of the last event,
 * and its predicate has a summary and, up to EVIDENCE_RECORDS_MAX bytes, the records themselves (event/chain.h): so who
 * checks it computes the chain anew. Of all logs together it is a list of their heads; such a list, signed every day
 * and kept elsewhere, shows that a log was rewritten afterwards by whoever holds the database.
 *
 * The key is no part of the database, but cove-api's own: who takes cove-api over can sign.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "event/log.h"

#define EVIDENCE_TYPE "application/vnd.in-toto+json"
#define EVIDENCE_LOG "urn:cove:evidence:log:1" /* predicate types */
#define EVIDENCE_HEADS "urn:cove:evidence:heads:1"

enum { EVIDENCE_RECORDS_MAX = 8 << 20, EVIDENCE_MAX = 31 << 20 };

struct evidence_key;

/* The key in this file, which is made when there is none. */
int evidence_key_open(const char *path, struct evidence_key **ret_key, struct err *err) WARN_UNUSED;
void evidence_key_free(struct evidence_key *k);
DEFINE_AUTO(struct evidence_key *, evidence_key_free)
int evidence_key_json(const struct evidence_key *k, struct buf *b,
                      struct err *err) WARN_UNUSED; /* {"keyid","public_key"} */

/* For a thread with a log of its own, over a reader store. The chain is checked on the way: ERR_DATA_LOSS says what is
 * wrong with it. */
int evidence_of_log(struct event_log *log, const char *id, const struct evidence_key *k, struct buf *ret_envelope,
                    struct err *err) WARN_UNUSED;
int evidence_of_heads(struct event_log *log, const struct evidence_key *k, struct buf *ret_envelope,
                      struct err *err) WARN_UNUSED;
