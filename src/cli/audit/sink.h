/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where `cove audit export` writes to.
 *
 *  1. A directory has a file for each day (UTC), "2026-11-26.jsonl", which only grows; in their order they are the
 *     feed. An event's day is that of its time, but never one before the newest file's, so that a clock that is set
 *     back changes nothing.
 *  2. There is no other state: who comes next goes on behind the last whole line of the newest file. A piece of a line,
 *     as a kill leaves one, is cut off. So nothing is missing and nothing is twice, whenever the writer dies.
 *  3. One writer at a time has the directory: a lock, which dies with it.
 *  4. A receiver of syslog answers nothing. The cursor in the state file is that of the last message which the kernel
 *     took; after a death it may come twice.
 */
#pragma once

#include "base/err.h"
#include "cli/audit/form.h"

struct audit_sink;

/* Each: NULL with err. A directory is made when it isn't there. *ret_cursor: the last one in it, 0: none. */
struct audit_sink *sink_directory(const char *path, const struct form *form, uint64_t *ret_cursor, struct err *err);
/* "/dev/log" or another path of a datagram socket, "udp:HOST:PORT", "tcp:HOST:PORT" (octet counting, RFC 6587). */
struct audit_sink *sink_syslog(const char *address, struct err *err);
struct audit_sink *sink_stdout(bool is_flushed); /* is_flushed: with each event */
void sink_free(struct audit_sink *s);            /* NULL: nothing */

/* path is made when it isn't there. *ret_cursor as above. */
int sink_state(struct audit_sink *s, const char *path, uint64_t *ret_cursor, struct err *err) WARN_UNUSED;

/*
 * text: one event in its form, without the end of the line; day: "2026-11-26", "" unknown. 0; -1: ERR_UNAVAILABLE when
 * the receiver of syslog isn't there, then the same event may be put again.
 */
int sink_put(struct audit_sink *s, struct str text, const char *day, uint64_t cursor, struct err *err) WARN_UNUSED;
int sink_end(struct audit_sink *s, struct err *err) WARN_UNUSED; /* everything is on the disk */
