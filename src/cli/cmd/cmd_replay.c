/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Terminal sessions, played again from the record: exec.start says that there was a terminal, exec.exit at what pace
 * its bytes came; the bytes are in the events where they are few, else in the artefact that exec.exit names.
 */
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cli/again.h"
#include "cli/cmd/commands.h"
#include "cli/events.h"
#include "cli/service.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>

enum { REPLAY_OUTPUT_MAX = 256 << 20, PTY_COLS = 80, PTY_ROWS = 24 };

static const struct flag replay_flags[] = {
    {0, "cast", "FILE",
     "Writes the session as asciicast v2, for asciinema's players, instead of playing it; - is standard output."},
    {0, "speed", "N", "Plays N times as fast, such as 2 or 0.5. Default: 1."},
    {0, "again", NULL, "Repeats in a new sandbox what was done, and reports differences."},
    {0, "keep", NULL, "With --again: keeps the new sandbox at the end."},
    {0, "last", NULL, "Uses the newest sandbox, even if it has ended."},
    {0, "idle", "SECONDS", "Shortens pauses to this time. Default: 5."},
};

/* One session, by its three events. */
struct replay_session {
    json_t *start, *output, *exit;
};

static void session_fini(struct replay_session *s)
{
    json_decref(s->start);
    json_decref(s->output);
    json_decref(s->exit);
}

static const json_t *data_of(const json_t *event)
{
    return json_object_get(event, "data");
}

/* Of this seq; 0: the last one there is. */
static int session_find(struct context *ctx, struct service *s, const char *id, uint64_t seq,
                        struct replay_session *ret)
{
    AUTO_FREE char *target = service_target(id, "/events?kind=exec.");
    json_t *event;
    int r;
    if (service_stream(s, "GET", target) < 0)
        return -1;
    while ((r = service_object(s, &event)) > 0) {
        const char *kind = service_text(event, "kind");
        uint64_t at = service_number(ret->start, "seq");
        if (strcmp(kind, "exec.start") == 0 && json_is_true(json_object_get(data_of(event), "pty")) &&
            (!seq || service_number(event, "seq") == seq)) {
            session_fini(ret);
            *ret = (struct replay_session){.start = json_incref(event)};
        }
        json_t **slot = strcmp(kind, "exec.output") == 0                                     ? &ret->output
                        : strcmp(kind, "exec.exit") == 0 || strcmp(kind, "exec.failed") == 0 ? &ret->exit
                                                                                             : NULL;
        if (slot && ret->start && service_number(event, "cause") == at && !*slot)
            *slot = json_incref(event);
    }
    if (r < 0)
        return -1;
    if (!ret->start)
        context_hint(ctx, "'cove run -it' and 'cove exec -it' make one; 'cove logs %s' prints what else ran", id);
    if (!ret->start)
        return seq ? err_set(&ctx->err, ERR_NOT_FOUND, "event %llu did not start a terminal", (unsigned long long)seq)
                   : err_set(&ctx->err, ERR_NOT_FOUND, "it has no terminal session");
    return ret->exit ? 0
                     : err_set(&ctx->err, ERR_FAILED_PRECONDITION,
                               "it is still running: 'cove logs -f' "
                               "shows it");
}

static void append_text(struct buf *b, const json_t *object, const char *name)
{
    AUTO_FREE char *coded = mem_printf("%s_base64", name);
    if (json_object_get(object, coded))
        (void)!buf_append_unbase64(b, str_of(service_text(object, coded)));
    else
        (void)buf_append_str(b, str_of(service_text(object, name)));
}

/* False: only the beginning and the end are kept. */
static bool append_events(const struct replay_session *one, struct buf *b)
{
    JSON_FOREACH (piece, json_object_get(data_of(one->output), "output"))
        append_text(b, piece, "pty");
    append_text(b, data_of(one->exit), "tail");
    return buf_len(b) == service_number(data_of(one->exit), "output_bytes");
}

static int append_artefact(struct context *ctx, struct service *s, const char *id, const struct replay_session *one,
                           struct buf *b)
{
    AUTO_FREE char *target = service_target(id, "/output?channel=pty&seq=%llu", service_number(one->start, "seq"));
    if (service_stream(s, "GET", target) < 0)
        return -1;
    int r = http_client_read_all(service_client(s), b);
    return r < 0 ? err_errno(&ctx->err, r, "reading the session's output") : 0;
}

/* ---- what is done with it ---- */

struct player {
    FILE *cast; /* NULL: it is played */
    double speed;
    uint64_t idle_ms, last_ms, at_ms; /* at: as played, idle times cut */
    struct buf held;                  /* of a cast: the beginning of a character whose end comes next */
};

static volatile sig_atomic_t is_interrupted;

static void on_interrupt(int signum)
{
    is_interrupted = signum;
}

/* JSON has no half characters. */
static size_t whole_characters(struct str s)
{
    size_t cut = 0;
    if (!s.p)
        return 0;
    while (cut < 3 && cut < s.n && ((unsigned char)s.p[s.n - 1 - cut] & 0xc0) == 0x80)
        cut++;
    if (cut < s.n && (unsigned char)s.p[s.n - 1 - cut] >= 0xc0) {
        unsigned char lead = (unsigned char)s.p[s.n - 1 - cut];
        size_t whole = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
        return cut + 1 < whole ? s.n - cut - 1 : s.n;
    }
    return s.n;
}

static void play(struct player *p, uint64_t ms, struct str bytes)
{
    uint64_t wait = ms > p->last_ms ? MIN(ms - p->last_ms, p->idle_ms) : 0;
    p->last_ms = MAX(p->last_ms, ms);
    p->at_ms += wait;
    if (!p->cast) {
        double seconds = (double)wait / 1000 / p->speed;
        struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
        (void)nanosleep(&t, NULL);
        (void)fwrite(bytes.p, 1, bytes.n, stdout);
        (void)fflush(stdout);
        return;
    }
    AUTO_BUF struct buf line = BUF_INIT(REPLAY_OUTPUT_MAX);
    buf_append_str(&p->held, bytes);
    size_t n = whole_characters(buf_str(&p->held));
    buf_printf(&line, "[%.6f,\"o\",", (double)p->at_ms / 1000 / p->speed);
    buf_append_json_string(&line, str_n(buf_data(&p->held), n));
    buf_append_cstr(&line, "]\n");
    buf_consume(&p->held, n);
    (void)fwrite(buf_data(&line), 1, buf_len(&line), p->cast);
}

static void play_all(struct player *p, const struct replay_session *one, struct str bytes)
{
    const json_t *pace = json_object_get(data_of(one->exit), "pace");
    size_t n = json_array_size(pace);
    for (size_t i = 0; i + 1 < n && bytes.n && !is_interrupted; i += 2) {
        json_int_t ms = json_integer_value(json_array_get(pace, i)),
                   count = json_integer_value(json_array_get(pace, i + 1));
        size_t some = MIN(count > 0 ? (size_t)count : 0, bytes.n);
        play(p, ms > 0 ? (uint64_t)ms : 0, str_n(bytes.p, some));
        bytes = str_sub(bytes, some);
    }
    if (bytes.n && !is_interrupted)
        play(p, p->last_ms, bytes);
}

static void write_header(const struct player *p, const struct replay_session *one)
{
    const json_t *data = data_of(one->start);
    uint64_t cols = service_number(data, "cols"), rows = service_number(data, "rows");
    usec_t at = 0;
    (void)!clock_parse(str_of(service_text(one->start, "time")), &at);
    AUTO_JSON json_t *head =
        json_pack("{s:i,s:I,s:I,s:I,s:{s:s}}", "version", 2, "width", (json_int_t)(cols ? cols : PTY_COLS), "height",
                  (json_int_t)(rows ? rows : PTY_ROWS), "timestamp", (json_int_t)(at / USEC_PER_SEC), "env", "TERM",
                  "xterm-256color");
    AUTO_FREE char *text = json_dumps(head, JSON_COMPACT);
    (void)fprintf(p->cast, "%s\n", text);
}

static int replay(struct context *ctx, struct service *s, const char *id, const struct replay_session *one,
                  const char *cast, struct player *p)
{
    AUTO_BUF struct buf bytes = BUF_INIT(REPLAY_OUTPUT_MAX);
    if (!append_events(one, &bytes)) {
        buf_clear(&bytes);
        if (append_artefact(ctx, s, id, one, &bytes) < 0)
            return context_fail(ctx, STATUS_FAILED);
    }
    buf_init(&p->held, REPLAY_OUTPUT_MAX);
    if (cast && !(p->cast = strcmp(cast, "-") == 0 ? stdout : fopen(cast, "we"))) {
        (void)err_errno(&ctx->err, errno, "%s", cast);
        return context_fail(ctx, STATUS_FAILED);
    }
    if (cast)
        write_header(p, one);
    else
        (void)signal(SIGINT, on_interrupt);
    play_all(p, one, buf_str(&bytes));
    buf_fini(&p->held);
    bool ok = !p->cast || (fflush(p->cast) == 0 && !ferror(p->cast));
    if (p->cast && p->cast != stdout)
        ok = fclose(p->cast) == 0 && ok;
    if (!cast)
        (void)fputs("\x1b[0m\x1b[?25h\n", stdout); /* whatever it was left in: colours off, the cursor back */
    if (ok)
        return is_interrupted ? STATUS_SIGNAL + is_interrupted : STATUS_OK;
    (void)err_errno(&ctx->err, EIO, "%s", cast);
    return context_fail(ctx, STATUS_FAILED);
}

static bool parse_factor(const char *text, double most, double *ret)
{
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !(v > 0.001) || v > most)
        return false;
    *ret = v;
    return true;
}

static int replay_run(struct context *ctx)
{
    struct player p = {0};
    struct replay_session one = {0};
    const char *cast = NULL, *speed = "1", *idle = "5";
    double idle_s;
    uint64_t seq = 0;
    bool again = false, keeps = false, is_last = false;
    if (CONTEXT_READ(ctx, {"again", .on = &again}, {"keep", .on = &keeps}, {"cast", .text = &cast},
                     {"speed", .text = &speed}, {"idle", .text = &idle}, {"last", .on = &is_last}) < 0)
        return context_exit(ctx);
    if (!parse_factor(speed, 86400, &p.speed))
        return context_usage(ctx, "--speed %s: write a number such as 2 or 0.5", speed);
    if (!parse_factor(idle, 86400, &idle_s))
        return context_usage(ctx, "--idle %s: write seconds, such as 2 or 0.5", idle);
    p.idle_ms = (uint64_t)(idle_s * 1000);
    char *const *operands = ctx->argv + ctx->argi - is_last; /* behind the sandbox */
    int n = context_operands(ctx) + is_last;
    if (n < 1 || n > 2)
        return n ? context_usage(ctx, "one session at a time") : context_one_sandbox(ctx, 0);
    if ((again && (n == 2 || cast)) || (keeps && !again))
        return context_usage(ctx, again ? "--again takes no SEQ" : "--keep goes with --again");
    if (n == 2 && (str_to_u64(str_of(operands[1]), &seq) < 0 || !seq))
        return context_usage(ctx, "%s: write the number of an exec.start", operands[1]);
    AUTO_FREE char *id = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || (is_last ? service_newest(s, &id) : service_resolve_log(s, *operands, &id)) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (again)
        return again_run(ctx, s, id, keeps);
    int status =
        session_find(ctx, s, id, seq, &one) < 0 ? context_fail(ctx, STATUS_FAILED) : replay(ctx, s, id, &one, cast, &p);
    session_fini(&one);
    return status;
}

const struct command cmd_replay = {
    .name = "replay",
    .summary = "replay a terminal session",
    .text = &text_replay,
    .operands = "id",
    COMMAND_FLAGS(replay_flags),
    .run = replay_run,
};
