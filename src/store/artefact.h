/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output that is too long for an event: bytes per sandbox, action (the seq of its event) and part (0 stdout, 1 stderr,
 * 2 terminal), appended as they come and read back in ranges. Beyond the caps the rest is dropped and counted, never an
 * error.
 */
#pragma once

#include "base/buf.h"
#include "store/store.h"

enum {
    ARTEFACT_MAX = 1 << 20,          /* bytes of one artefact */
    ARTEFACT_SANDBOX_MAX = 64 << 20, /* bytes of all artefacts of one sandbox */
    ARTEFACT_CHUNK_MAX = 64 << 10,   /* a longer append is stored as several rows */
};

struct artefact_key {
    const char *sandbox;
    uint64_t seq;
    unsigned part;
};

struct artefact_info {
    uint64_t stored;  /* bytes that can be read back */
    uint64_t dropped; /* bytes that came after the cap was reached: all bytes from offset `stored` on */
};

/* Returns 0, or 1 when a part or all of it was dropped. Appends of 4 KiB and more are the cheap ones. */
int artefact_append(struct store *s, const struct artefact_key *key, struct str data, struct err *err) WARN_UNUSED;

/* ERR_NOT_FOUND when nothing was ever appended. */
int artefact_stat(struct store *s, const struct artefact_key *key, struct artefact_info *ret_info,
                  struct err *err) WARN_UNUSED;

/* Appends up to n bytes from `offset` to *ret_data, fewer at the end. ERR_NOT_FOUND. */
int artefact_read(struct store *s, const struct artefact_key *key, uint64_t offset, size_t n, struct buf *ret_data,
                  struct err *err) WARN_UNUSED;

/* The first action from `from` on that has any: its seq, 0 when there is none. */
int artefact_next(struct store *s, const char *sandbox, uint64_t from, uint64_t *ret_seq, struct err *err) WARN_UNUSED;

/* Removes what one action has, which then counts no longer. */
int artefact_remove(struct store *s, const char *sandbox, uint64_t seq, struct err *err) WARN_UNUSED;

/* Removes a bounded part of what the sandbox has. Returns 1 when there is more: call again in a later turn. */
int artefact_erase(struct store *s, const char *sandbox, struct err *err) WARN_UNUSED;
