/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile agent: the input is what it says (after HELLO) while every kind of operation waits for it. The first byte
 * says in which pieces it comes. Whatever it is: every operation ends exactly once, and nothing is left.
 */
#include "base/fd.h"
#include "base/log.h"
#include "sandbox/exec/exec.h"
#include "sandbox/exec/exec_life.h"
#include "sandbox/files/files.h"
#include "sandbox/life/life.h"
#include "sandbox/network/network_life.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "store/artefact.h"
#include "store/store.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ID "i00000000000000000000"
enum { OPERATIONS = 12 };

static uv_loop_t uv;
static struct store *store;
static struct event_log *events;
static struct artefacts *artefacts;
static struct core *core;
static int coved;
static char dir[] = "/tmp/cove-fuzz-XXXXXX";
static unsigned ends[OPERATIONS];
static struct follow *follows[OPERATIONS];
static struct file_call *calls[OPERATIONS];
static const struct actor actor = {.name = "fuzz"};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static void clean_up(void)
{
    (void)nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void begin(void)
{
    int pair[2];
    struct err err;
    char path[64], outputs[64];
    log_init("fuzz", LOG_ERROR);
    if (!mkdtemp(dir) || atexit(clean_up) != 0 || uv_loop_init(&uv) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
        abort();
    (void)snprintf(path, sizeof(path), "%s/store.db", dir);
    (void)snprintf(outputs, sizeof(outputs), "%s/artefacts", dir);
    coved = pair[1];
    struct sup_done none = {.head = {SUP_DONE, 1}}; /* nothing lives: the answer to the first question */
    if (fd_send(coved, &none, sizeof(none), NULL, 0) < 0 || store_open(path, &store, &err) < 0 ||
        event_log_open(store, &events, &err) < 0 || artefacts_open(store, outputs, 0, 0, &artefacts, &err) < 0)
        abort();
    struct core_config config = {.state_dir = dir,
                                 .engine.supervisor_fd = pair[0],
                                 .store = store,
                                 .events = events,
                                 .artefacts = artefacts,
                                 .max_sandboxes = 10};
    if (core_open(&uv, &config, &core, &err) < 0)
        abort();
}

static void end(void *ctx)
{
    ++*(unsigned *)ctx;
    follows[(unsigned *)ctx - ends] = NULL;
    calls[(unsigned *)ctx - ends] = NULL;
}

static void on_output(void *ctx, enum wire_channel channel, struct str bytes)
{
    if (channel < WIRE_STDOUT || channel > WIRE_PTY || !bytes.n)
        abort();
    exec_ack(follows[(unsigned *)ctx - ends], bytes.n);
}
static void on_error(void *ctx, const struct err *err)
{
    if (err && !str_is_utf8(str_of(err->msg)))
        abort();
    end(ctx);
}
static void on_exec_end(void *ctx, const struct exec_exit *exit, const struct err *err)
{
    if (!exit == !err)
        abort();
    on_error(ctx, err);
}
static void on_done(void *ctx, const struct err *err)
{
    (void)err;
    end(ctx);
}
static void on_list(void *ctx, const struct exec_process *list, size_t n, const struct err *err)
{
    for (size_t i = 0; !err && i < n; i++)
        for (size_t k = 0; k < list[i].n_args; k++)
            if (list[i].args[k].n && !list[i].args[k].p)
                abort();
    end(ctx);
}
static void on_entry(void *ctx, const struct file_entry *entry, const struct err *err)
{
    if (entry && (err || entry->path.p[0] != '/' || entry->n_metadata > 256))
        abort();
    end(ctx);
}
static void on_each(void *ctx, const struct file_entry *entry)
{
    (void)ctx;
    if (entry->path.p[0] != '/')
        abort();
}
static void on_data(void *ctx, struct str bytes)
{
    file_read_ack(calls[(unsigned *)ctx - ends], bytes.n);
}
static void on_open(void *ctx, const struct file_entry *entry)
{
    (void)ctx;
    (void)entry;
}
static void on_ready(void *ctx)
{
    (void)file_write_data(calls[(unsigned *)ctx - ends], STR("some bytes"));
}
static void on_event(void *ctx, enum wire_watch_kind kind, struct str name, const struct file_entry *entry)
{
    (void)name;
    (void)entry;
    if (kind < WIRE_WATCH_CREATE || kind > WIRE_WATCH_CHMOD)
        abort();
    file_watch_ack(calls[(unsigned *)ctx - ends], 1);
}

static const struct exec_ops exec_ops = {NULL, on_output, on_exec_end, NULL};
static const struct file_read_ops read_ops = {on_open, on_data, on_error};
static const struct file_write_ops write_ops = {on_ready, on_entry};
static const struct file_watch_ops watch_ops = {NULL, on_event, on_error};
static const struct dial_ops dial_ops = {.on_data = on_data, .on_end = on_error};

/* Streams 1 to 12, in this order. */
static void open_all(struct sandbox *sb)
{
    struct exec_spec spec = {.cmd = STR("cmd"), .tag = STR("tag")};
    struct exec_select which = {.pid = 7};
    struct exec_call *call;
    struct err err;
    int r = exec_start(sb, &actor, &spec, &exec_ops, &ends[0], &follows[0], &err);
    spec.pty = true;
    r |= exec_start(sb, &actor, &spec, &exec_ops, &ends[1], &follows[1], &err);
    exec_close(TAKE_PTR(follows[1]));
    r |= exec_attach(sb, &actor, &which, 0, &exec_ops, &ends[2], &follows[2], &err);
    r |= exec_list(sb, &actor, on_list, &ends[3], &call, &err);
    r |= file_stat(sb, &actor, STR(""), STR("/a"), on_entry, &ends[4], &calls[4], &err);
    r |= file_list(sb, &actor, STR(""), STR("/a"), 1, on_each, on_entry, &ends[5], &calls[5], &err);
    r |= file_read(sb, &actor, STR(""), STR("/a"), 0, 1, &read_ops, &ends[6], &calls[6], &err);
    r |= file_write(sb, &actor, STR(""), STR("/a"), NULL, 0, &write_ops, &ends[7], &calls[7], &err);
    r |= file_watch(sb, &actor, STR(""), STR("/a"), 0, &watch_ops, &ends[8], &calls[8], &err);
    r |= dial_open(sb, &actor, 80, &dial_ops, &ends[9], &calls[9], &err);
    r |= exec_input(sb, &actor, &which, false, STR("x"), on_done, &ends[10], &call, &err);
    r |= file_stat(sb, &actor, STR(""), STR("/a"), on_entry, &ends[11], &calls[11], &err);
    file_call_cancel(TAKE_PTR(calls[11]));
    if (r)
        abort();
}

static void answer_kills(void)
{
    union sup_message m;
    while (recv(coved, &m, sizeof(m), MSG_DONTWAIT) > 0) {
        struct sup_done done = {.head = {SUP_DONE, m.head.tag}};
        if (fd_send(coved, &done, sizeof(done), NULL, 0) < 0)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int pair[2];
    struct err err;
    if (!core)
        begin();
    if (size < 1 || size > 1 << 20)
        return 0;
    memset(ends, 0, sizeof(ends));
    struct sandbox *sb = sandbox_new(core, ID);
    sb->info.template_id = sb->layer = "t";
    sb->info.state = SANDBOX_RUNNING;
    network_new(sb, NULL);
    sandbox_enlist(sb);
    if (rows_insert(sb, &err) < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        abort();
    sb->session = sandbox_session_new(sb);
    if (session_start(sb->session, pair[0], &err) < 0)
        abort();
    open_all(sb);
    bool goes_on = session_input(sb->session, "\4\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0", 16);
    size_t piece = data[0] ? data[0] : size;
    for (size_t at = 1; at < size && goes_on; at += piece)
        goes_on = session_input(sb->session, (const char *)data + at, MIN(piece, size - at));
    (void)uv_run(&uv, UV_RUN_NOWAIT);
    struct sup_ended ended = {.cause = SUP_CAUSE_KILLED};
    memcpy(ended.id, sb->info.id, sizeof(ended.id));
    sandbox_on_ended(core, &ended);
    for (int i = 0; i < 4; i++)
        (void)uv_run(&uv, UV_RUN_NOWAIT);
    answer_kills();
    for (int i = 0; i < 4; i++)
        (void)uv_run(&uv, UV_RUN_NOWAIT);
    for (unsigned i = 0; i < OPERATIONS; i++)
        if (ends[i] != (i == 1 || i == 11 ? 0 : 1))
            abort();
    if (store_commit(store, &err) < 0) /* until then its end is kept */
        abort();
    if (sb->refs != 1 || !list_empty(&sb->processes))
        abort();
    sandbox_forget(sb);
    (void)fd_close(pair[1]);
    if (sandbox_rows_delete(store, ID, &err) < 0 || event_erase(events, ID, &err) < 0)
        abort();
    return 0;
}
