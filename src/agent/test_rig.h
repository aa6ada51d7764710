/* SPDX-License-Identifier: Apache-2.0 */
/* A whole agent in a child process, and the host's end of its session in the test. Every wait is bounded; a frame that
 * breaks the rules fails the test. */
#pragma once

#include "agent/agent.h"
#include "base/buf.h"
#include "base/map.h"
#include "wire/frame.h"

/* What its control descriptor is (agent/agent.h). */
enum rig_way { RIG_ORDERS, RIG_LISTENS, RIG_SERIAL };

struct rig {
    enum rig_way way;
    pid_t agent;
    int control, session;
    char dir[64]; /* a directory for the test's files, removed at the end */
    uint32_t next_stream;
    struct buf in;
    struct list arrived; /* frames of streams that nobody waited for yet */
    struct map rules;    /* stream -> struct stream_rules: what the agent may send on it */
};

struct frame {
    struct list node;
    uint8_t type, flags;
    uint32_t stream;
    size_t n;
    char *payload; /* owned */
};

/* The users: root, "user" (1000) with home <dir>/home and in group "extra" (2000), "tester" (1001). */
void rig_start(struct rig *r);
void rig_start_as(struct rig *r, enum rig_way way);
void rig_stop(struct rig *r);    /* closes the control socket; the agent must end with success and without leaks */
void rig_connect(struct rig *r); /* a new session, in place of the one before */
void rig_disconnect(struct rig *r);
void rig_expect_dropped(struct rig *r); /* the agent closes the session */

char *rig_path(struct rig *r, const char *fmt, ...) PRINTF_LIKE(2, 3); /* <dir>/...; 16 of them at a time */
const char *rig_read(const char *path);                                /* a whole file; until the next call */
void rig_write(const char *path, const char *content);

/* Frames to the agent. */
void rig_send(struct rig *r, uint8_t type, uint8_t flags, uint32_t stream, const void *p, size_t n);
void rig_send_raw(struct rig *r, const void *p, size_t n);
void rig_credit(struct rig *r, uint32_t stream, uint32_t bytes, bool delivered);

/* A request: rig_request(r) begins it, the wire_put_* fill it, rig_open() sends it and returns the stream. */
struct buf *rig_request(uint8_t verb);
uint32_t rig_open(struct rig *r, struct buf *request);
uint32_t rig_open_path(struct rig *r, uint8_t verb, const char *user, const char *path);

struct exec_options {
    const char *user, *cwd, *tag;
    const char *const *env; /* name, value, ..., NULL */
    uint8_t flags;
    uint16_t cols, rows;
};
uint32_t rig_exec(struct rig *r, const struct exec_options *o, ...); /* argv as strings, NULL */
#define EXEC_AS(r, o, ...) rig_exec(r, o, __VA_ARGS__, (const char *)NULL)
#define EXEC(r, ...) EXEC_AS(r, (&(struct exec_options){.user = "root"}), __VA_ARGS__)

/* The next frame of a stream (0: of any); freed with frame_free(). NULL when `ms` passed. */
struct frame *rig_next(struct rig *r, uint32_t stream, int ms);
struct frame *rig_expect(struct rig *r, uint32_t stream, uint8_t type);
void frame_free(struct frame *f);
bool rig_is_quiet(struct rig *r, uint32_t stream, int ms); /* nothing comes for that long */

/* Everything of a stream up to its END. Credit is given back (as delivered) when `ack`. */
struct result {
    bool has_head;
    struct buf head, data, marks; /* marks: the channel of each byte of data */
    uint16_t code;
    char *message;
    struct buf tail;
};
void rig_result(struct rig *r, uint32_t stream, bool ack, struct result *ret);
void result_fini(struct result *x);
/* The usual: asserts the code and the whole message. */
void rig_expect_end(struct rig *r, uint32_t stream, uint16_t code, const char *message);

struct exit_info {
    uint32_t pid;
    uint64_t offset;
    uint8_t how;
    uint32_t code;
    uint64_t total;
};
struct exit_info result_exit(const struct result *x);        /* of EXEC and ATTACH */
uint32_t rig_expect_started(struct rig *r, uint32_t stream); /* the head of an EXEC: its pid */

struct entry {
    struct str name, path, owner, group, target;
    uint8_t type, is_link;
    uint32_t mode, link_mode, uid, gid, n_metadata;
    uint64_t size, mtime;
    struct str metadata[64][2];
};
struct entry entry_get(struct wire_reader *r);
struct entry rig_stat(struct rig *r, const char *path, struct result *keep); /* strings live in keep */
long rig_agent_rss(const struct rig *r);                                     /* KiB */
