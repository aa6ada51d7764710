/* SPDX-License-Identifier: Apache-2.0 */
#include "event/test_replay.h"
#include "event/json.h"
#include "event/kind.h"
#include "event/tail.h"

#include <openssl/evp.h>

static void copy_cause(const struct event *e, char ret_cause[static 64])
{
    struct str value;
    memset(ret_cause, 0, 64);
    if (!json_member(e->data, "cause", &value) || value.n < 2 || value.p[0] != '"')
        return;
    value = str_n(value.p + 1, value.n - 2); /* our own words, which need no escapes */
    memcpy(ret_cause, value.p, MIN(value.n, (size_t)63));
}

/* What it was taken over as: what had begun to be done to it may never have been told. */
static const char *replay_recovered(const struct event *e, const char *phase)
{
    static const char *const phases[] = {"running", "paused"};
    struct str value;
    for (size_t i = 0; i < ARRAY_SIZE(phases) && json_member(e->data, "state", &value); i++)
        if (value.n > 2 && str_eqc(str_n(value.p + 1, value.n - 2), phases[i]))
            return phases[i];
    return phase;
}

static bool replay_fold(const struct event *e, void *ctx)
{
    struct event_state *state = ctx;
    const struct event_kind_info *kind = event_kind_info(e->kind);
    bool over = strcmp(state->phase, "ended") == 0 || strcmp(state->phase, "failed") == 0;
    if (state->first == 0)
        state->first = e->seq;
    state->last = e->seq;
    if (kind->phase && (!over || kind->last))
        state->phase = kind->phase;
    if (kind->last)
        copy_cause(e, state->end_cause);
    state->actions += kind->action;
    switch (e->kind) {
    case EVENT_SERVICE_RECOVERED:
        state->phase = over ? state->phase : replay_recovered(e, state->phase);
        break;
    case EVENT_EXEC_STARTED:
        state->execs_started++;
        break;
    case EVENT_EXEC_EXIT:
        state->execs_exited++;
        break;
    case EVENT_EXEC_FAILED:
        state->execs_failed++;
        break;
    case EVENT_FILE_WRITE:
    case EVENT_FILE_MKDIR:
    case EVENT_FILE_MOVE:
    case EVENT_FILE_REMOVE:
    case EVENT_FILE_UNPACK:
        state->file_changes++;
        break;
    case EVENT_FILE_FAILED:
        state->files_failed++;
        break;
    case EVENT_GUARD_DENIED:
    case EVENT_NET_DENIED:
        state->denied++;
        break;
    case EVENT_AGENT_VIOLATION:
        state->violations++;
        break;
    default:
        break;
    }
    return true;
}

static int digest(struct event_state *state, struct err *err)
{
    AUTO_BUF struct buf text = BUF_INIT(1024);
    const uint64_t numbers[] = {state->complete,     state->actions,      state->execs_started,
                                state->execs_exited, state->execs_failed, state->file_changes,
                                state->files_failed, state->denied,       state->violations};
    buf_append_cstr(&text, state->phase);
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        buf_append_char(&text, ' ');
        buf_append_u64(&text, numbers[i]);
    }
    buf_append_char(&text, ' ');
    buf_append_cstr(&text, state->end_cause);
    if (buf_error(&text) || EVP_Digest(buf_data(&text), buf_len(&text), state->digest, NULL, EVP_sha256(), NULL) != 1)
        return err_set(err, ERR_INTERNAL, "event log: SHA-256 is not available from OpenSSL");
    return 0;
}

int event_replay(struct event_log *log, const char *sandbox, struct event_state *ret_state, struct err *err)
{
    struct event_state state = {.phase = ""};
    if (store_read_begin(log->store, err) < 0)
        return -1;
    int r = event_read(log, sandbox, 0, SIZE_MAX, replay_fold, &state, err);
    store_read_end(log->store);
    if (r < 0)
        return -1;
    state.complete = state.first <= 1;
    if (digest(&state, err) < 0)
        return -1;
    *ret_state = state;
    return 0;
}
