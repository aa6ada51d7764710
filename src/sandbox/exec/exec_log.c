/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/exec/exec_log.h"
#include "base/mem.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"

enum { HEAD_WAIT_MS = 1000, EXEC_LOG_PACE_MS = 10, STORE_CHUNK = 64 * 1024, ESCAPED_MAX = 6144 };

static const char *const channel_names[] = {"stdout", "stderr", "pty"};

void exec_log_init(struct exec_log *log, struct sandbox *sb, uint64_t cause)
{
    *log = (struct exec_log){.sb = sb, .cause = cause, .keeps_middle = true, .head = BUF_INIT(EXEC_LOG_HEAD_MAX)};
    log->began = clock_mono();
    for (size_t i = 0; i < EXEC_LOG_CHANNELS; i++)
        log->channels[i].pending = BUF_INIT(STORE_CHUNK);
}

void exec_log_fini(struct exec_log *log)
{
    loop_alarm_clear(log->sb->core->loop, &log->head_alarm);
    buf_fini(&log->head);
    MEM_FREE(log->tail, log->paces);
    log->tail = NULL;
    log->paces = NULL;
    for (size_t i = 0; i < EXEC_LOG_CHANNELS; i++) {
        buf_fini(&log->channels[i].pending);
        artefact_writer_free(log->channels[i].writer);
        log->channels[i].writer = NULL;
    }
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

static void exec_log_put_text(struct event_data *d, const char *name, struct str s)
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
    AUTO_BUF struct buf runs = BUF_INIT(EVENT_DATA_MAX);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_U64("pid", log->pid));
    (void)buf_append_char(&runs, '[');
    size_t from = 0;
    for (size_t i = 0; i < log->n_runs; i++) {
        AUTO_EVENT_DATA struct event_data run = EVENT_DATA_INIT;
        exec_log_put_text(&run, channel_names[log->runs[i].channel - 1],
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
    exec_log_put_text(d, "tail", str_n(line, n));
}

/* ---- the artefacts ---- */

static struct artefact_key exec_log_key(const struct exec_log *log, size_t i)
{
    return (struct artefact_key){.sandbox = log->sb->info.id, .seq = log->cause, .part = (unsigned)i};
}

static int exec_log_writer(struct exec_log *log, size_t i, struct err *err)
{
    struct artefact_key key = exec_log_key(log, i);
    struct artefact_writer **w = &log->channels[i].writer;
    return *w ? 0 : artefact_writer_new(log->sb->core->config.artefacts, &key, w, err);
}

/* All channels at once, so that in each batch of the store what the rows hold is the output up to one moment: that is
 * where another worker goes on. */
static void store_pending_output(struct exec_log *log)
{
    struct err err;
    for (size_t i = 0; i < EXEC_LOG_CHANNELS; i++) {
        struct buf *pending = &log->channels[i].pending;
        if (buf_len(pending) &&
            (exec_log_writer(log, i, &err) < 0 || artefact_write(log->channels[i].writer, buf_str(pending), &err) < 0))
            core_unrecorded(log->sb->core, &err);
        buf_fini(pending);
    }
    keeper_wrote(log->sb->core->keeper);
}

static void put_middle(struct exec_log *log, size_t i, struct str bytes)
{
    uint64_t skip = MIN(log->skip, (uint64_t)bytes.n);
    log->skip -= skip;
    bytes = str_sub(bytes, (size_t)skip);
    while (bytes.n) {
        struct buf *pending = &log->channels[i].pending;
        size_t n = MIN(bytes.n, STORE_CHUNK - buf_len(pending));
        (void)buf_append(pending, bytes.p, n);
        bytes = str_sub(bytes, n);
        if (buf_len(pending) == STORE_CHUNK)
            store_pending_output(log);
    }
}

static bool exec_log_is_long(const struct exec_log *log)
{
    bool is_long = log->bytes > EXEC_LOG_HEAD_MAX + EXEC_LOG_TAIL_MAX;
    for (size_t i = 0; i < EXEC_LOG_CHANNELS; i++)
        is_long = is_long || log->channels[i].writer;
    return is_long;
}

/* [{"channel":"stdout","sha256":"...","bytes":n,"cut":n}] */
static void tell_artefacts(struct exec_log *log, struct event_data *d)
{
    AUTO_BUF struct buf all = BUF_INIT(EVENT_DATA_MAX);
    struct err err;
    if (!exec_log_is_long(log))
        return;
    store_pending_output(log);
    for (size_t i = 0; i < EXEC_LOG_CHANNELS; i++) {
        struct artefact_writer **w = &log->channels[i].writer;
        if (*w && (!artefact_written(*w)->bytes || artefact_finish(*w, &err) < 0)) {
            if (artefact_written(*w)->bytes)
                core_unrecorded(log->sb->core, &err);
            log->lost += artefact_written(*w)->dropped;
            artefact_writer_free(TAKE_PTR(*w));
        }
        if (!*w)
            continue;
        AUTO_EVENT_DATA struct event_data one = EVENT_DATA(
            DATA_STR("channel", channel_names[i]), DATA_STR("sha256", artefact_written(*w)->digest),
            DATA_U64("bytes", artefact_written(*w)->bytes), DATA_COUNT("cut", artefact_written(*w)->dropped));
        (void)buf_append_char(&all, buf_len(&all) ? ',' : '[');
        (void)buf_append_str(&all, event_data_end(&one));
    }
    (void)buf_append_char(&all, ']');
    if (buf_len(&all) > 1 && !buf_error(&all))
        event_data_json(d, "artefacts", buf_str(&all));
    EVENT_DATA_PUT(d, DATA_COUNT("output_lost", log->lost));
}

/* The last event of the log names them. */
static void keep_artefacts(struct exec_log *log)
{
    struct err err;
    uint64_t seq = event_newest(log->sb->core->config.events, log->sb->info.id);
    for (size_t i = 0; i < EXEC_LOG_CHANNELS; i++)
        if (log->channels[i].writer && artefact_keep(log->channels[i].writer, seq, &err) < 0)
            core_unrecorded(log->sb->core, &err);
}

/* ---- the pace of a terminal, for replay ---- */

static void put_pace(struct exec_log *log, size_t bytes)
{
    uint32_t ms = (uint32_t)((clock_mono() - log->began) / USEC_PER_MS);
    if (!log->paces) {
        log->paces = mem_array(EXEC_LOG_PACES, sizeof(*log->paces));
        log->pace_ms = EXEC_LOG_PACE_MS;
    }
    struct exec_pace *last = log->n_paces ? &log->paces[log->n_paces - 1] : NULL;
    if (last && ms - last->ms < log->pace_ms) {
        last->bytes += (uint32_t)bytes;
        return;
    }
    /* Full: the same at half the resolution. */
    assert(log->paces);
    while (log->n_paces == EXEC_LOG_PACES) {
        size_t n = 0;
        log->pace_ms *= 2;
        for (size_t i = 0; i < log->n_paces; i++) {
            if (n && log->paces[i].ms - log->paces[n - 1].ms < log->pace_ms)
                log->paces[n - 1].bytes += log->paces[i].bytes;
            else
                log->paces[n++] = log->paces[i];
        }
        log->n_paces = n;
    }
    log->paces[log->n_paces++] = (struct exec_pace){ms, (uint32_t)bytes};
}

/* [ms,bytes,ms,bytes,...]; nothing when another worker saw the beginning. */
static void tell_paces(const struct exec_log *log, struct event_data *d)
{
    AUTO_BUF struct buf all = BUF_INIT(EVENT_DATA_MAX);
    if (!log->n_paces || log->is_taken_over)
        return;
    for (size_t i = 0; i < log->n_paces; i++)
        buf_printf(&all, "%c%u,%u", i ? ',' : '[', log->paces[i].ms, log->paces[i].bytes);
    (void)buf_append_char(&all, ']');
    if (!buf_error(&all))
        event_data_json(d, "pace", buf_str(&all));
}

/* ---- all of it ---- */

void exec_log_output(struct exec_log *log, enum wire_channel channel, struct str bytes)
{
    assert(channel >= WIRE_STDOUT && channel <= WIRE_PTY);
    log->bytes += bytes.n;
    if (channel == WIRE_PTY)
        put_pace(log, bytes.n);
    put_tail(log, str_sub(bytes, put_head(log, (uint8_t)channel, bytes)));
    if (log->keeps_middle)
        put_middle(log, channel - 1, bytes);
}

void exec_log_resume(struct exec_log *log, uint64_t base, bool head_done)
{
    struct err err;
    log->base = base;
    log->is_taken_over = true;
    log->head_done = head_done || base > 0;
    uint64_t kept = 0;
    for (unsigned i = 0; i < EXEC_LOG_CHANNELS; i++) {
        struct artefact_info info;
        struct artefact_key key = exec_log_key(log, i);
        if (artefact_stat(log->sb->core->config.artefacts, &key, &info, &err) == 0 &&
            exec_log_writer(log, i, &err) == 0)
            kept += info.bytes + info.dropped;
    }
    log->keeps_middle = base <= kept; /* else nobody knows which channel the missing bytes were of */
    log->skip = log->keeps_middle ? kept - base : 0;
    log->lost = log->keeps_middle ? 0 : base - kept;
}

void exec_log_exit(struct exec_log *log, const struct exec_exit *exit, usec_t duration, bool expired,
                   enum event_grade grade, const struct err *err)
{
    if (log->n_runs)
        flush_head(log);
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_COUNT("pid", log->pid));
    if (err) {
        action_describe_error(&d, err);
    } else {
        event_data_u64(&d, exit->signaled ? "signal" : "exit_code", exit->code);
    }
    EVENT_DATA_PUT(&d, DATA_FLAG("deadline_exceeded", expired));
    if (log->pid) {
        EVENT_DATA_PUT(&d, DATA_U64("output_bytes", log->base + log->bytes),
                       DATA_U64("duration_ms", duration / USEC_PER_MS));
    }
    tell_artefacts(log, &d);
    if (log->pid)
        tell_tail(log, &d);
    tell_paces(log, &d);
    action_observe(log->sb, log->cause, err ? EVENT_EXEC_FAILED : EVENT_EXEC_EXIT, grade, event_data_end(&d));
    keep_artefacts(log);
    if (err || exit->signaled || exit->code)
        usage_suspect(log->sb);
}

/* ---- read back ---- */

int exec_kept_output(const struct core *core, const char *sandbox, uint64_t seq, enum wire_channel channel,
                     struct exec_kept *ret_kept, struct err *err)
{
    const struct artefact_key key = {.sandbox = sandbox, .seq = seq, .part = channel - WIRE_STDOUT};
    struct artefact_info info;
    if (artefact_open(core->config.artefacts, &key, &info, &ret_kept->fd, err) < 0)
        return -1;
    ret_kept->bytes = info.bytes;
    ret_kept->dropped = info.dropped;
    return 0;
}

int exec_kept_artefact(const struct core *core, const char *sandbox, struct str digest, struct exec_kept *ret_kept,
                       struct err *err)
{
    struct artefact_info info;
    if (artefact_open_digest(core->config.artefacts, sandbox, digest, &info, &ret_kept->fd, err) < 0)
        return -1;
    ret_kept->bytes = info.bytes;
    ret_kept->dropped = info.dropped;
    return 0;
}
