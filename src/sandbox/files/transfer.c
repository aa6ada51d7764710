/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of files, both ways, under credit: nothing of a file is ever held here. */
#include "sandbox/files/file_call.h"

enum { DIALS_PER_SEC = 100 };

/* ---- reading ---- */

static void on_read_reply(void *user, struct str head)
{
    struct file_call *c = user;
    struct wire_entry entry;
    if (file_take_entry(c, head, &entry) && c->to.read->on_open)
        c->to.read->on_open(c->ctx, &entry.e);
}

static void on_read_data(void *user, uint8_t flags UNUSED, struct str bytes)
{
    struct file_call *c = user;
    c->in += bytes.n;
    c->owed += (uint32_t)bytes.n;
    c->to.read->on_data(c->ctx, bytes);
}

static void on_read_end(void *user, struct str tail, const struct err *err)
{
    struct file_call *c = user;
    const struct file_read_ops *ops = c->to.read;
    void *ctx = c->ctx;
    struct err local;
    ops->on_end(ctx, file_end(c, !tail.n, err, &local));
}

static const struct stream_ops read_ops = {
    .on_reply = on_read_reply, .on_data = on_read_data, .on_end = on_read_end, .long_lived = true};

int file_read(struct sandbox *sb, const struct actor *actor, struct str user, struct str path, uint64_t offset,
              uint64_t length, const struct file_read_ops *ops, void *ctx, struct file_call **ret_call, struct err *err)
{
    struct file_call *c;
    struct buf *b = file_begin(sb, actor, WIRE_READ, EVENT_FILE_READ, user, path, STR_NULL, ctx, &c, err);
    if (!b)
        return -1;
    c->to.read = ops;
    wire_put_u64(b, offset);
    wire_put_u64(b, length);
    return file_call_open(c, b, &read_ops, ret_call, err);
}

int file_pack(struct sandbox *sb, const struct actor *actor, struct str user, struct str path, bool named,
              const struct file_read_ops *ops, void *ctx, struct file_call **ret_call, struct err *err)
{
    struct file_call *c;
    struct buf *b =
        file_begin(sb, actor, named ? WIRE_PACK_NAMED : WIRE_PACK, EVENT_FILE_PACK, user, path, STR_NULL, ctx, &c, err);
    if (!b)
        return -1;
    c->to.read = ops;
    return file_call_open(c, b, &read_ops, ret_call, err);
}

void file_read_ack(struct file_call *c, size_t bytes)
{
    bytes = MIN(bytes, (size_t)c->owed);
    c->owed -= (uint32_t)bytes;
    stream_grant(c->stream, bytes, false);
}

/* ---- writing ---- */

static void on_write_reply(void *user, struct str head)
{
    struct file_call *c = user;
    if (head.n)
        stream_violation(c->stream, "a malformed head of WRITE");
    else if (c->to.write->on_ready)
        c->to.write->on_ready(c->ctx);
}

static void on_write_room(void *user)
{
    struct file_call *c = user;
    if (c->starved && c->to.write->on_ready) {
        c->starved = false;
        c->to.write->on_ready(c->ctx);
    }
}

static void on_write_end(void *user, struct str tail, const struct err *err)
{
    struct file_call *c = user;
    const struct file_write_ops *ops = c->to.write;
    void *ctx = c->ctx;
    struct wire_entry entry;
    struct err local;
    /* What is not all there yet can't have been written: who still gives bytes of it hears no success. */
    err = file_end(c, err || (c->is_whole && file_take_entry(c, tail, &entry)), err, &local);
    ops->on_end(ctx, err ? NULL : &entry.e, err);
}

static const struct stream_ops write_ops = {
    .on_reply = on_write_reply, .on_room = on_write_room, .on_end = on_write_end, .long_lived = true};

int file_write(struct sandbox *sb, const struct actor *actor, struct str user, struct str path,
               const struct pair *metadata, size_t n_metadata, const struct file_write_ops *ops, void *ctx,
               struct file_call **ret_call, struct err *err)
{
    struct file_call *c;
    if (n_metadata > ENTRY_METADATA_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "more than %d entries of metadata", ENTRY_METADATA_MAX);
    struct buf *b = file_begin(sb, actor, WIRE_WRITE, EVENT_FILE_WRITE, user, path, STR_NULL, ctx, &c, err);
    if (!b)
        return -1;
    c->to.write = ops;
    wire_put_u32(b, (uint32_t)n_metadata);
    for (size_t i = 0; i < n_metadata; i++) {
        wire_put_str(b, metadata[i].key);
        wire_put_str(b, metadata[i].value);
    }
    return file_call_open(c, b, &write_ops, ret_call, err);
}

int file_unpack(struct sandbox *sb, const struct actor *actor, struct str user, struct str path,
                const struct file_write_ops *ops, void *ctx, struct file_call **ret_call, struct err *err)
{
    struct file_call *c;
    struct buf *b = file_begin(sb, actor, WIRE_UNPACK, EVENT_FILE_UNPACK, user, path, STR_NULL, ctx, &c, err);
    if (!b)
        return -1;
    c->to.write = ops;
    return file_call_open(c, b, &write_ops, ret_call, err);
}

size_t file_write_data(struct file_call *c, struct str bytes)
{
    size_t n = stream_send(c->stream, bytes);
    c->out += n;
    if (n < bytes.n)
        c->starved = true;
    return n;
}

void file_write_eof(struct file_call *c)
{
    c->is_whole = true;
    stream_eof(c->stream);
}

/* ---- connections to ports inside ---- */

static void on_dial_reply(void *user, struct str head)
{
    struct file_call *c = user;
    c->opened = true;
    if (head.n)
        stream_violation(c->stream, "a malformed head of DIAL");
    else if (c->to.dial->on_open)
        c->to.dial->on_open(c->ctx);
}

static void on_dial_data(void *user, uint8_t flags UNUSED, struct str bytes)
{
    struct file_call *c = user;
    c->in += bytes.n;
    c->owed += (uint32_t)bytes.n;
    c->to.dial->on_data(c->ctx, bytes);
}

static void on_dial_eof(void *user)
{
    struct file_call *c = user;
    if (c->to.dial->on_eof)
        c->to.dial->on_eof(c->ctx);
}

static void on_dial_room(void *user)
{
    struct file_call *c = user;
    if (c->starved && c->to.dial->on_writable) {
        c->starved = false;
        c->to.dial->on_writable(c->ctx);
    }
}

static void on_dial_end(void *user, struct str tail, const struct err *err)
{
    struct file_call *c = user;
    const struct dial_ops *ops = c->to.dial;
    void *ctx = c->ctx;
    struct err local;
    ops->on_end(ctx, file_end(c, !tail.n, err, &local));
}

static const struct stream_ops dialled_ops = {.on_reply = on_dial_reply,
                                              .on_data = on_dial_data,
                                              .on_eof = on_dial_eof,
                                              .on_room = on_dial_room,
                                              .on_end = on_dial_end,
                                              .long_lived = true};

/* Whoever knows the address of a public port may connect to it as often as they like. */
int dial_open(struct sandbox *sb, const struct actor *actor, uint16_t port, const struct dial_ops *ops, void *ctx,
              struct file_call **ret_call, struct err *err)
{
    uint64_t cause;
    if (!port)
        return err_set(err, ERR_INVALID_ARGUMENT, "there is no port 0");
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_U64("port", port));
    const struct event_limit limit = event_limit_after(sb->n_dials_told, DIALS_PER_SEC);
    if (action_begin_limited(sb, actor, EVENT_DIAL, event_data_end(&d), &limit, &cause, err) < 0)
        return -1;
    sb->n_dials_told += cause != 0;
    struct file_call *c = file_call_new(sb, EVENT_DIAL, cause, ctx);
    c->to.dial = ops;
    struct buf *b = session_request(sb->session, WIRE_DIAL);
    wire_put_u16(b, port);
    return file_call_open(c, b, &dialled_ops, ret_call, err);
}
