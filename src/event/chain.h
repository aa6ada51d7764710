/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chain, defined so that anyone can check it with a few lines of script.
 *
 *   hash(n) = SHA-256( hash(n-1) || record(n) )        hash(0) = 32 zero bytes; hashes enter as 32 raw bytes
 *
 * record(n) is one line of UTF-8 JSON without blanks or line break, keys in exactly this order, all always present:
 *
 *   {"sandbox":"<id>","seq":<n>,"time":<us>,"kind":"<name>","source":"<name>","grade":"<name>","actor":"<text>",
 *    "cause":<seq>,"data":<data>}                                                  (broken here only for the page)
 *
 *   <n>, <us>, <seq>   decimal; <us> is microseconds since 1970-01-01 UTC; <seq> is 0 when there is no cause
 *   "..."              escaped are only \" and \\, \n \r \t, and other bytes below 0x20 and 0x7f as \u00xx (lower case)
 *   <data>             the stored text of the data object, byte for byte
 *
 * After pruning up to event m the chain starts with the stored hash(m) instead of hash(0).
 *
 * In the store: event_heads (log, sandbox, last_seq, last_hash, base_seq = m, base_hash), and events (log, seq, time,
 * kind, source, grade, actor, cause, data, hash) with one row per event.
 */
#pragma once

#include "base/err.h"
#include "event/event.h"

struct chain;

struct chain *chain_new(void);
void chain_free(struct chain *c);

/* Appends record(n); e->hash is not looked at. */
void chain_format_record(const struct event *e, struct buf *b);

/* hash(n) from hash(n-1); the two may be the same memory. Returns 1 for a record that is longer than any that is
 * written. */
int chain_next(struct chain *c, const unsigned char previous[EVENT_HASH_SIZE], const struct event *e,
               unsigned char ret_hash[static EVENT_HASH_SIZE], struct err *err) WARN_UNUSED;
