/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output that is too long for an event, kept whole: files named by the SHA-256 of what is in them, and a row for each
 * output that has one.
 *
 * Theory of operation
 *  1. A row is an output: of a sandbox, an action (the seq of its event) and a part (0 stdout, 1 stderr, 2 terminal).
 *     While it is written its bytes are in "new/<sandbox>.<seq>.<part>"; the row says how many of them count. With its
 *     end the row has a digest, in the same batch as the event that names it.
 *  2. After that batch the file moves to "<first two digits>/<digest>", or goes when that is there already: equal
 *     outputs are one file. Until it has moved it is found under its first name. So what an event names is there,
 *     wherever the process was killed.
 *  3. Rows are deleted with their events. A file goes only when no batch is pending and no row has its digest
 *     (artefact_sweep()). What a kill left behind is found by the sweep that each start begins with.
 *  4. Beyond the limits the rest is dropped and counted, never an error: what is kept is one run from the start.
 *  5. Files are not synced: a power cut can damage the newest ones. Whoever reads one can check its name.
 */
#pragma once

#include "base/str.h"
#include "store/store.h"

enum { ARTEFACT_DIGEST_LEN = 64, ARTEFACT_PART_MAX = 3 };
#define ARTEFACT_SANDBOX_MAX (256ULL << 20) /* bytes of all of one sandbox */
#define ARTEFACT_TOTAL_MAX (8ULL << 30)     /* of all; equal ones count each */

struct artefacts;

/* Makes the directory when it is not there. A limit of 0: the default. The store is borrowed. */
int artefacts_open(struct store *store, const char *dir, uint64_t sandbox_max, uint64_t total_max,
                   struct artefacts **ret_artefacts, struct err *err) WARN_UNUSED;
void artefacts_close(struct artefacts *a); /* NULL is fine */
DEFINE_AUTO(struct artefacts *, artefacts_close)

struct artefact_key {
    const char *sandbox;
    uint64_t seq;
    unsigned part;
};

struct artefact_info {
    uint64_t bytes;                       /* that are kept */
    uint64_t dropped;                     /* that came after a limit was reached */
    char digest[ARTEFACT_DIGEST_LEN + 1]; /* "": it is still written */
};

/* ERR_NOT_FOUND when nothing was kept. */
int artefact_stat(struct artefacts *a, const struct artefact_key *key, struct artefact_info *ret_info,
                  struct err *err) WARN_UNUSED;

/* To read it: a descriptor at its beginning, of which info->bytes count. ERR_NOT_FOUND; ERR_DATA_LOSS: there is a row
 * and no file. */
int artefact_open(struct artefacts *a, const struct artefact_key *key, struct artefact_info *ret_info, int *ret_fd,
                  struct err *err) WARN_UNUSED;
int artefact_open_digest(struct artefacts *a, const char *sandbox, struct str digest, struct artefact_info *ret_info,
                         int *ret_fd, struct err *err) WARN_UNUSED;

/* Writes one output, from its beginning or on from what an earlier process kept of it. */
struct artefact_writer;
int artefact_writer_new(struct artefacts *a, const struct artefact_key *key, struct artefact_writer **ret_writer,
                        struct err *err) WARN_UNUSED;
void artefact_writer_free(struct artefact_writer *w); /* what was written stays; NULL is fine */
int artefact_write(struct artefact_writer *w, struct str data, struct err *err) WARN_UNUSED;
const struct artefact_info *artefact_written(const struct artefact_writer *w);

/*
 * Its end. Gives it a digest, which an event of the same batch is to name; then artefact_keep() says which: the row
 * stays as long as that event.
 */
int artefact_finish(struct artefact_writer *w, struct err *err) WARN_UNUSED;
int artefact_keep(struct artefact_writer *w, uint64_t event_seq, struct err *err) WARN_UNUSED;

/* Deletes rows of a sandbox whose event is older than `before` (UINT64_MAX: all, also what is still written). 1: there
 * are more. */
int artefact_forget(struct artefacts *a, const char *sandbox, uint64_t before, struct err *err) WARN_UNUSED;

/* Deletes files that are nobody's, a bounded part of those that may be. Does nothing while a batch is pending. 1: there
 * is more to look at. */
int artefact_sweep(struct artefacts *a, struct err *err) WARN_UNUSED;
