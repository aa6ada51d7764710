/* SPDX-License-Identifier: Apache-2.0 */
/* What the file operations and dials share: one call is one stream. Internal to src/sandbox. */
#pragma once

#include "sandbox/files/files.h"
#include "sandbox/object.h"
#include "wire/frame.h"

/* ---- a file's entry, as the agent describes it (wire/proto.h) ---- */

enum { ENTRY_METADATA_MAX = 256 };

/* The entry and room for its list; strings stay borrowed from the payload. */
struct wire_entry {
    struct file_entry e;
    struct pair metadata[ENTRY_METADATA_MAX];
};

/* r->bad: there is not enough of it (yet). False: it is whole, but says what can't be. */
bool entry_get(struct wire_reader *r, struct wire_entry *ret_entry);

/* ---- calls ---- */

struct file_call {
    struct sandbox *sb; /* a reference */
    struct stream *stream;
    uint64_t cause; /* seq of its action */
    void *ctx;
    union {
        file_entry_fn entry;
        const struct file_read_ops *read;
        const struct file_write_ops *write;
        const struct file_watch_ops *watch;
        const struct dial_ops *dial;
    } to;
    void (*each)(void *ctx, const struct file_entry *entry); /* of a list */
    enum event_kind kind;
    bool starved;        /* the client waits for room */
    bool opened;         /* of a dial */
    bool is_whole;       /* of a write: the client has given all of it */
    bool busy, gone;     /* within a loop over callbacks; if freed there, the loop's end does it */
    uint32_t owed;       /* given to the client, not acknowledged */
    uint64_t in, out;    /* bytes or records, for the record; of a watch: events that the client has not taken */
    struct buf rest;     /* of a list: a record that is not whole yet */
    struct list events;  /* of a watch: frames that the client has not taken */
    struct loop_job job; /* of a watch: there is room for events that waited */
};

struct file_call *file_call_new(struct sandbox *sb, enum event_kind kind, uint64_t cause, void *ctx);
void file_call_free(struct file_call *call);

/* Opens the call's stream, or frees the call. */
int file_call_open(struct file_call *call, struct buf *request, const struct stream_ops *ops,
                   struct file_call **ret_call, struct err *err) WARN_UNUSED;

/* Paths and users as they may be sent; then the action with them in its data. */
int file_action(struct sandbox *sb, const struct actor *actor, enum event_kind kind, struct str user, struct str path,
                struct str destination, uint64_t *ret_cause, struct err *err) WARN_UNUSED;

/* That, the call, and the request up to the path, or to the destination of a move. NULL: err says why. */
struct buf *file_begin(struct sandbox *sb, const struct actor *actor, enum wire_verb verb, enum event_kind kind,
                       struct str user, struct str path, struct str destination, void *ctx, struct file_call **ret_call,
                       struct err *err) WARN_UNUSED;

/* Records how it ended: file.done with what went through, or file.failed. Nothing once the core closes. */
void file_record_end(struct file_call *call, const struct err *err);

/* Reads the one entry that a payload is. False after a violation. */
bool file_take_entry(struct file_call *call, struct str payload, struct wire_entry *ret_entry);

/* Records and frees it. Returns what its client is told: err, or that an answer without one was malformed, in *room. */
const struct err *file_end(struct file_call *call, bool is_sound, const struct err *err, struct err *room);
