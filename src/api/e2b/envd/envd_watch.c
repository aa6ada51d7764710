/* SPDX-License-Identifier: Apache-2.0 */
/* Filesystem.WatchDir: a directory's changes as a stream. */
#include "api/e2b/envd/envd.h"
#include "api/e2b/envd/envd_entry.h"
#include "api/e2b/envd/rpc.h"
#include "http/client/connect.h"

int watch_request_read(const json_t *message, struct str *ret_path, uint8_t *ret_flags, struct err *err)
{
    bool recursive = false, entries = false, network = false;
    *ret_path = STR("");
    if (json_get_str(message, "path", ret_path, err) < 0 || json_get_bool(message, "recursive", &recursive, err) < 0 ||
        json_get_bool(message, "includeEntry", &entries, err) < 0 ||
        json_get_bool(message, "allowNetworkMounts", &network, err) < 0)
        return err_prefix(err, "unmarshal message");
    *ret_flags = (uint8_t)((recursive ? WIRE_WATCH_RECURSIVE : 0) | (entries ? WIRE_WATCH_ENTRY : 0) |
                           (network ? WIRE_WATCH_NETWORK_FS : 0));
    return 0;
}

void watch_event_append(struct buf *b, enum wire_watch_kind kind, struct str name, const struct file_entry *entry)
{
    static const char *const types[] = {
        [WIRE_WATCH_CREATE] = "EVENT_TYPE_CREATE", [WIRE_WATCH_WRITE] = "EVENT_TYPE_WRITE",
        [WIRE_WATCH_REMOVE] = "EVENT_TYPE_REMOVE", [WIRE_WATCH_RENAME] = "EVENT_TYPE_RENAME",
        [WIRE_WATCH_CHMOD] = "EVENT_TYPE_CHMOD",
    };
    json_open(b, "name", name);
    if ((size_t)kind < ARRAY_SIZE(types) && types[kind])
        buf_printf(b, ",\"type\":\"%s\"", types[kind]);
    if (entry) {
        buf_append_cstr(b, ",\"entry\":");
        entry_append(b, entry, false);
    }
    buf_append_char(b, '}');
}

static void envd_watch_send(struct call *c, struct str message)
{
    connect_append(&e2b_of(c)->scratch, 0, message);
    rpc_stream_send(c);
}

static void envd_watch_on_start(void *ctx)
{
    struct call *c = ctx;
    if (c->answered)
        return;
    envd_watch_send(c, STR("{\"start\":{}}"));
    rpc_stream_alive(c);
}

static void envd_watch_on_event(void *ctx, enum wire_watch_kind kind, struct str name, const struct file_entry *entry)
{
    AUTO_BUF struct buf event = BUF_INIT(BODY_MAX);
    struct call *c = ctx;
    if (c->answered)
        return;
    buf_append_cstr(&event, "{\"filesystem\":");
    watch_event_append(&event, kind, name, entry);
    buf_append_char(&event, '}');
    envd_watch_send(c, buf_str(&event));
    call_paced(c, 1);
}

static void envd_watch_ack(struct call *c, size_t n)
{
    if (c->file)
        file_watch_ack(c->file, n);
}

static void envd_watch_on_end(void *ctx, const struct err *err)
{
    struct call *c = ctx;
    c->file = NULL;
    if (err)
        call_fail_err(c, err);
    else
        rpc_end(c);
}

static const struct file_watch_ops envd_watch_ops = {envd_watch_on_start, envd_watch_on_event, envd_watch_on_end};

void envd_watch_dir(struct call *c)
{
    struct str path;
    uint8_t flags;
    if (!call_ok(c, watch_request_read(c->body, &path, &flags, &c->err)))
        return;
    struct rpc_stream *s = rpc_stream_begin(c, sizeof(*s), STR("{\"keepalive\":{}}"));
    if (c->timeout_ms)
        s->deadline = s->last + c->timeout_ms * USEC_PER_MS;
    call_pace(c, envd_watch_ack);
    call_ok(c, file_watch(c->sandbox, &c->actor, c->user, path, flags, &envd_watch_ops, c, &c->file, &c->err));
}
