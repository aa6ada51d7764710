/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/exec_log.h"
#include "base/mem.h"
#include "sandbox/internal.h"

enum { HEAD_WAIT_MS = 1000, STORE_CHUNK = ARTEFACT_CHUNK_MAX, ESCAPED_MAX = 6144 };

static const char *const channel_names[] = {"stdout", "stderr", "pty"};

void exec_log_init(struct exec_log *log, struct sandbox *sb, uint64_t cause)
{
    *log = (struct exec_log){.sb = sb, .cause = cause, .keeps_middle = true, .head = BUF_INIT(EXEC_LOG_HEAD_MAX)};
    for (size_t i = 0; i < EXEC_LOG_CHANNELS; i++)
        log->channels[i].pending = BUF_INIT(STORE_CHUNK);
}

void exec_log_fini(struct exec_log *log)
{
    loop_alarm_clear(log->sb->core->loop, &log->head_alarm);
    buf_fini(&log->head);
    mem_free(log->tail);
    log->tail = NULL;
    for (size_t i = 0; i < EXEC_LOG_CHANNELS; i++)
        buf_fini(&log->channels[i].pending);
}

/* ---- text for people where it is text, base64 where it is not ---- */

static size_t escaped_size(struct str s)
{
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        n += c == '\n' || c == '\t' || c == '\r' || c == '"' || c == '\\' ? 2 : c < 0x20 || c == 0x7f ? 6 : 1;
    }
    return n;
}

/* Cutting at a byte count may have split a character at either end. */
static bool is_text(struct str s)
{
    if (!s.p)
        return true;
    for (size_t front = 0; front < 4 && front <= s.n; front++) {
        struct str t = str_sub(s, front);
        for (size_t back = 0; back < 4 && back <= t.n; back++)
            if (str_is_utf8(str_n(t.p, t.n - back)))
                return escaped_size(s) <= ESCAPED_MAX;
        if (front < s.n && ((unsigned char)s.p[front] & 0xc0) != 0x80)
            break;
    }
    return false;
}

static void put_text(struct event_data *d, const char *name, struct str s)
{
    char base64_name[32];
    if (is_text(s)) {
        event_data_str(d, name, s);
        return;
    }
    (void)snprintf(base64_name, sizeof(base64_name), "%s_base64", name);
    event_data_base64(d, base64_name, s);
}

/* ---- the head ---- */

static void flush_head(struct exec_log *log)
{
    if (log->head_done)
        return;
    log->head_done = true;
    loop_alarm_clear(log->sb->core->loop, &log->head_alarm);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    AUTO_BUF struct buf runs = BUF_INIT(EVENT_DATA_MAX);
    event_data_u64(&d, "pid", log->pid);
    (void)buf_append_char(&runs, '[');
    size_t from = 0;
    for (size_t i = 0; i < log->n_runs; i++) {
        AUTO_EVENT_DATA struct event_data run = EVENT_DATA_INIT;
        put_text(&run, channel_names[log->runs[i].channel - 1],
                 str_n(buf_data(&log->head) + from, log->runs[i].end - from));
        from = log->runs[i].end;
        if (i)
            (void)buf_append_char(&runs, ',');
        (void)buf_append_str(&runs, event_data_end(&run));
    }
    (void)buf_append_char(&runs, ']');
    if (!buf_error(&runs))
        event_data_json(&d, "output", buf_str(&runs));
    action_observe(log->sb, log->cause, EVENT_EXEC_OUTPUT, EVENT_CLAIMED, event_data_end(&d));
    buf_fini(&log->head);
}

static void on_head_alarm(struct loop_alarm *alarm)
{
    flush_head(container_of(alarm, struct exec_log, head_alarm));
}

/* Returns how many bytes the head took. */
static size_t put_head(struct exec_log *log, uint8_t channel, struct str bytes)
{
    if (log->head_done)
        return 0;
    if (!log->n_runs || (log->runs[log->n_runs - 1].channel != channel && log->n_runs < EXEC_LOG_RUNS_MAX)) {
        log->runs[log->n_runs].channel = channel;
        log->n_runs++;
    } else if (log->runs[log->n_runs - 1].channel != channel) {
        flush_head(log);
        return 0;
    }
    size_t n = MIN(bytes.n, EXEC_LOG_HEAD_MAX - buf_len(&log->head));
    (void)buf_append(&log->head, bytes.p, n);
    log->runs[log->n_runs - 1].end = (uint16_t)buf_len(&log->head);
    if (buf_len(&log->head) == EXEC_LOG_HEAD_MAX)
        flush_head(log);
    else if (!log->head_alarm.slot)
        loop_alarm_set(log->sb->core->loop, &log->head_alarm, clock_mono() + HEAD_WAIT_MS * USEC_PER_MS, on_head_alarm);
    return n;
}

/* ---- the tail ---- */

static void put_tail(struct exec_log *log, struct str bytes)
{
    if (!bytes.n)
        return;
    if (!log->tail)
        log->tail = mem_alloc(EXEC_LOG_TAIL_MAX);
    if (bytes.n > EXEC_LOG_TAIL_MAX) {
        log->tail_bytes += bytes.n - EXEC_LOG_TAIL_MAX;
        bytes = str_sub(bytes, bytes.n - EXEC_LOG_TAIL_MAX);
    }
    size_t at = log->tail_bytes % EXEC_LOG_TAIL_MAX;
    size_t first = MIN(bytes.n, EXEC_LOG_TAIL_MAX - at);
    memcpy(log->tail + at, bytes.p, first);
    memcpy(log->tail, bytes.p + first, bytes.n - first);
    log->tail_bytes += bytes.n;
}

static void tell_tail(const struct exec_log *log, struct event_data *d)
{
    if (!log->tail)
        return;
    char line[EXEC_LOG_TAIL_MAX];
    size_t n = (size_t)MIN(log->tail_bytes, (uint64_t)EXEC_LOG_TAIL_MAX),
           at = (log->tail_bytes - n) % EXEC_LOG_TAIL_MAX;
    size_t first = MIN(n, EXEC_LOG_TAIL_MAX - at);
    memcpy(line, log->tail + at, first);
    memcpy(line + first, log->tail, n - first);
    put_text(d, "tail", str_n(line, n));
}

/* ---- the artefact ---- */

static bool is_long(const struct exec_log *log)
{
    return log->bytes > EXEC_LOG_HEAD_MAX + EXEC_LOG_TAIL_MAX;
}

static void store_channel(struct exec_log *log, size_t i)
{
    struct err err;
    struct buf *pending = &log->channels[i].pending;
    if (!buf_len(pending))
        return;
    int r = artefact_append(log->sb->core->config.store,
                            &(struct artefact_key){.sandbox = log->sb->info.id, .seq = log->cause, .part = (unsigned)i},
                            buf_str(pending), &err);
    if (r < 0)
        core_unrecorded(log->sb->core, &err);
    log->channels[i].full |= r != 0;
    keeper_wrote(log->sb->core->keeper);
    buf_fini(pending);
}

static void put_middle(struct exec_log *log, size_t i, struct str bytes)
{
    uint64_t skip = log->channels[i].skip > log->channels[i].taken ? log->channels[i].skip - log->channels[i].taken : 0;
    log->channels[i].taken += bytes.n;
    bytes = str_sub(bytes, (size_t)MIN(skip, (uint64_t)bytes.n));
    while (bytes.n && !log->channels[i].full) {
        struct buf *pending = &log->channels[i].pending;
        size_t n = MIN(bytes.n, STORE_CHUNK - buf_len(pending));
        if (buf_append(pending, bytes.p, n) < 0)
            log->channels[i].full = true;
        bytes = str_sub(bytes, n);
        if (buf_len(pending) == STORE_CHUNK) {
            store_channel(log, i);
            log->channels[i].full |= log->channels[i].taken - bytes.n >= ARTEFACT_MAX;
        }
    }
}

/* ---- all of it ---- */

void exec_log_output(struct exec_log *log, enum wire_channel channel, struct str bytes)
{
    assert(channel >= WIRE_STDOUT && channel <= WIRE_PTY);
    log->bytes += bytes.n;
    put_tail(log, str_sub(bytes, put_head(log, (uint8_t)channel, bytes)));
    if (log->keeps_middle && !log->channels[channel - 1].full)
        put_middle(log, channel - 1, bytes);
}

void exec_log_resume(struct exec_log *log, uint64_t base, bool head_done)
{
    struct err err;
    log->base = base;
    log->head_done = head_done || base > 0;
    log->keeps_middle = base == 0; /* else nobody knows which channel the missing bytes were of */
    for (unsigned i = 0; log->keeps_middle && i < EXEC_LOG_CHANNELS; i++) {
        struct artefact_info info;
        struct artefact_key key = {.sandbox = log->sb->info.id, .seq = log->cause, .part = i};
        if (artefact_stat(log->sb->core->config.store, &key, &info, &err) < 0)
            continue;
        log->channels[i].skip = info.stored;
        log->channels[i].full = info.dropped || info.stored >= ARTEFACT_MAX;
    }
}

void exec_log_exit(struct exec_log *log, const struct exec_exit *exit, usec_t duration, bool expired,
                   enum event_grade grade, const struct err *err)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    if (log->n_runs)
        flush_head(log);
    for (size_t i = 0; is_long(log) && i < EXEC_LOG_CHANNELS; i++)
        store_channel(log, i);
    if (log->pid)
        event_data_u64(&d, "pid", log->pid);
    if (err) {
        event_data_str(&d, "code", str_of(err_code_name(err->code)));
        event_data_str(&d, "message", str_of(err->msg));
    } else {
        event_data_u64(&d, exit->signaled ? "signal" : "exit_code", exit->code);
    }
    if (expired)
        event_data_bool(&d, "deadline_exceeded", true);
    if (log->pid) {
        event_data_u64(&d, "output_bytes", log->base + log->bytes);
        event_data_u64(&d, "duration_ms", duration / USEC_PER_MS);
        tell_tail(log, &d);
    }
    action_observe(log->sb, log->cause, err ? EVENT_EXEC_FAILED : EVENT_EXEC_EXIT, grade, event_data_end(&d));
    if (err || exit->signaled || exit->code)
        usage_suspect(log->sb);
}

/* ---- read back ---- */

static_assert((int)EXEC_KEPT_MAX == (int)ARTEFACT_MAX, "all of an artefact");

int exec_kept_output(const struct core *core, const char *sandbox, uint64_t seq, enum wire_channel channel,
                     struct buf *ret_bytes, uint64_t *ret_dropped, struct err *err)
{
    const struct artefact_key key = {.sandbox = sandbox, .seq = seq, .part = channel - WIRE_STDOUT};
    struct artefact_info info;
    if (artefact_stat(core->config.store, &key, &info, err) < 0 ||
        artefact_read(core->config.store, &key, 0, EXEC_KEPT_MAX, ret_bytes, err) < 0)
        return -1;
    *ret_dropped = info.dropped;
    return 0;
}
