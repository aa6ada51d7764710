/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What cove-egress says: messages, a line of the input each, while a policy waits for its answer. Whatever it says: the
 * question is answered exactly once, nothing is left, and the row stays readable.
 */
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "sandbox/exec/exec_life.h"
#include "sandbox/life/life.h"
#include "sandbox/network/network.h"
#include "sandbox/network/network_life.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "store/artefact.h"
#include "store/store.h"

#include <ftw.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ID "i00000000000000000000"

static uv_loop_t uv;
static struct store *store;
static struct event_log *events;
static struct artefacts *artefacts;
static struct core *core;
static int coved;
static char dir[] = "/tmp/cove-fuzz-XXXXXX";
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

static void answer_list(void *arg)
{
    union sup_message m;
    struct pollfd p = {.fd = coved, .events = POLLIN};
    (void)arg;
    if (poll(&p, 1, 10000) != 1 || recv(coved, &m, sizeof(m), 0) <= 0)
        abort();
    struct sup_done done = {.head = {SUP_DONE, m.head.tag}};
    if (fd_send(coved, &done, sizeof(done), NULL, 0) < 0)
        abort();
}

static void begin(void)
{
    char path[64], outputs[64];
    int pair[2];
    uv_thread_t thread;
    struct err err;
    log_init("fuzz", LOG_ERROR + 1);
    if (!mkdtemp(dir) || uv_loop_init(&uv) < 0)
        abort();
    (void)atexit(clean_up);
    (void)snprintf(path, sizeof(path), "%s/store.db", dir);
    (void)snprintf(outputs, sizeof(outputs), "%s/artefacts", dir);
    if (store_open(path, &store, &err) < 0 || event_log_open(store, &events, &err) < 0 ||
        artefacts_open(store, outputs, 0, 0, &artefacts, &err) < 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        abort();
    coved = pair[1];
    struct core_config config = {.state_dir = dir,
                                 .engine.supervisor_fd = pair[0],
                                 .store = store,
                                 .events = events,
                                 .artefacts = artefacts,
                                 .max_sandboxes = 10,
                                 .version = "0"};
    if (uv_thread_create(&thread, answer_list, NULL) < 0 || core_open(&uv, &config, &core, &err) < 0 ||
        uv_thread_join(&thread) < 0)
        abort();
}

static void turn(void)
{
    for (int i = 0; i < 4; i++)
        (void)uv_run(&uv, UV_RUN_NOWAIT);
}

static void on_set(void *ctx, const struct err *err)
{
    (void)err;
    ++*(unsigned *)ctx;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int pair[2];
    unsigned answers = 0;
    struct err err;
    if (!core)
        begin();
    if (size > 64 * 1024 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return 0;
    struct sandbox *sb = sandbox_new(core, ID);
    sb->info.template_id = sb->layer = "t";
    sb->info.state = SANDBOX_RUNNING;
    network_new(sb, NULL);
    sandbox_enlist(sb);
    if (rows_insert(sb, &err) < 0)
        abort();
    networks_attach(core->networks, pair[0]);
    json_t *policy =
        json_pack("{s:[{s:s,s:[{s:s,s:s}]}]}", "inject", "host", "a.b", "headers", "name", "x", "value", "y");
    struct network_spec spec = {.policy = policy};
    if (network_set(sb, &actor, &spec, on_set, &answers, &err) < 0)
        abort();
    json_decref(policy);

    struct str rest = str_n(data, size), line;
    while (str_split(&rest, '\n', &line))
        if (line.n && send(pair[1], line.p, line.n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            turn();
    turn();
    (void)fd_close(pair[1]);
    turn();
    AUTO_FREE char *row = network_row(sb);
    json_t *kept = row ? json_loads(row, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (!kept)
        abort();
    json_decref(kept);

    struct sup_ended ended = {.cause = SUP_CAUSE_KILLED};
    memcpy(ended.id, sb->info.id, sizeof(ended.id));
    sandbox_on_ended(core, &ended);
    turn();
    if (answers != 1 || store_commit(store, &err) < 0)
        abort();
    if (sb->refs != 1)
        abort();
    sandbox_forget(sb);
    if (sandbox_rows_delete(store, ID, &err) < 0 || event_erase(events, ID, &err) < 0)
        abort();
    return 0;
}
