/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a sandbox, and connections to its ports. Paths are resolved by the agent, inside (see wire/proto.h). */
#pragma once

#include "sandbox/sandbox.h"
#include "wire/proto.h"

/* All strings are borrowed during the callback. */
struct file_entry {
    struct str name, path, owner, group;
    enum wire_file_type type; /* of the target, for links */
    uint32_t mode;            /* st_mode of the target */
    uint32_t link_mode;       /* st_mode of the entry itself */
    uint64_t size;
    uint32_t uid, gid;
    uint64_t mtime_ns;
    bool is_link;
    struct str target;
    const struct pair *metadata;
    size_t n_metadata;
};

struct file_call; /* a pending operation of any kind below */
void file_call_cancel(struct file_call *call);

typedef void (*file_entry_fn)(void *ctx, const struct file_entry *entry, const struct err *err);

int file_stat(struct sandbox *sb, const struct actor *actor, struct str user, struct str path, file_entry_fn done,
              void *ctx, struct file_call **ret_call, struct err *err) WARN_UNUSED;
int file_make_dir(struct sandbox *sb, const struct actor *actor, struct str user, struct str path, file_entry_fn done,
                  void *ctx, struct file_call **ret_call, struct err *err) WARN_UNUSED;
int file_move(struct sandbox *sb, const struct actor *actor, struct str user, struct str source, struct str destination,
              file_entry_fn done, void *ctx, struct file_call **ret_call, struct err *err) WARN_UNUSED;
/* entry is NULL on success too. */
int file_remove(struct sandbox *sb, const struct actor *actor, struct str user, struct str path, file_entry_fn done,
                void *ctx, struct file_call **ret_call, struct err *err) WARN_UNUSED;

/* flags: enum wire_change. */
struct file_change {
    uint8_t flags;
    uint32_t uid, gid, mode;
};
int file_change(struct sandbox *sb, const struct actor *actor, struct str user, struct str path,
                const struct file_change *change, file_entry_fn done, void *ctx, struct file_call **ret_call,
                struct err *err) WARN_UNUSED;

/* each: as they come; then done with entry NULL. */
int file_list(struct sandbox *sb, const struct actor *actor, struct str user, struct str path, uint32_t depth,
              void (*each)(void *ctx, const struct file_entry *entry), file_entry_fn done, void *ctx,
              struct file_call **ret_call, struct err *err) WARN_UNUSED;

/* Reading: on_open with the entry, then data under credit, then exactly one on_end (err NULL: all was read). */
struct file_read_ops {
    void (*on_open)(void *ctx, const struct file_entry *entry); /* may be NULL */
    void (*on_data)(void *ctx, struct str bytes);
    void (*on_end)(void *ctx, const struct err *err);
};
int file_read(struct sandbox *sb, const struct actor *actor, struct str user, struct str path, uint64_t offset,
              uint64_t length, const struct file_read_ops *ops, void *ctx, struct file_call **ret_call,
              struct err *err) WARN_UNUSED;
void file_read_ack(struct file_call *call, size_t bytes);

/*
 * Writing: on_ready when bytes may be given (first, once the file is open, and each time after file_write_data()
 * returned 0); exactly one on_end with the written file's entry or the error. file_write_data() takes as much as credit
 * allows and returns the count, 0 when it has to wait for on_ready.
 */
struct file_write_ops {
    void (*on_ready)(void *ctx);
    void (*on_end)(void *ctx, const struct file_entry *entry, const struct err *err);
};
int file_write(struct sandbox *sb, const struct actor *actor, struct str user, struct str path,
               const struct pair *metadata, size_t n_metadata, const struct file_write_ops *ops, void *ctx,
               struct file_call **ret_call, struct err *err) WARN_UNUSED;
size_t file_write_data(struct file_call *call, struct str bytes);
void file_write_eof(struct file_call *call); /* once more is fine. Before it, no write ends well */

/*
 * A directory as a tar stream, read and written as the bytes of a file are: file_read_ack(), file_write_data(),
 * file_write_eof(). named: any file; the names in the archive begin with the last part of the path. ERR_UNIMPLEMENTED:
 * the sandbox runs since before Cove could.
 */
int file_pack(struct sandbox *sb, const struct actor *actor, struct str user, struct str path, bool named,
              const struct file_read_ops *ops, void *ctx, struct file_call **ret_call, struct err *err) WARN_UNUSED;
int file_unpack(struct sandbox *sb, const struct actor *actor, struct str user, struct str path,
                const struct file_write_ops *ops, void *ctx, struct file_call **ret_call, struct err *err) WARN_UNUSED;

/* Watching a directory. on_start, then events, until file_call_cancel() or on_end with the error. */
struct file_watch_ops {
    void (*on_start)(void *ctx);
    /* entry may be NULL. */
    void (*on_event)(void *ctx, enum wire_watch_kind kind, struct str name, const struct file_entry *entry);
    void (*on_end)(void *ctx, const struct err *err);
};
int file_watch(struct sandbox *sb, const struct actor *actor, struct str user, struct str path, uint8_t flags,
               const struct file_watch_ops *ops, void *ctx, struct file_call **ret_call, struct err *err) WARN_UNUSED;
/* Events that the client took; at most 1,024 are outstanding. */
void file_watch_ack(struct file_call *call, size_t events);

/* A connection to a port inside (127.0.0.1, then ::1): read and written as the bytes of files are, both at a time. */
struct dial_ops {
    void (*on_open)(void *ctx);
    void (*on_data)(void *ctx, struct str bytes); /* give back with file_read_ack() */
    void (*on_writable)(void *ctx);               /* after file_write_data() took less than it was given */
    void (*on_eof)(void *ctx);                    /* the port's side sends no more */
    /* Exactly once. ERR_UNAVAILABLE: nobody listens there; err NULL: both sides are done. */
    void (*on_end)(void *ctx, const struct err *err);
};
int dial_open(struct sandbox *sb, const struct actor *actor, uint16_t port, const struct dial_ops *ops, void *ctx,
              struct file_call **ret_call, struct err *err) WARN_UNUSED;
