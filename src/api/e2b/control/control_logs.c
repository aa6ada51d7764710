/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/control/control.h"
#include "api/e2b/control/sandbox_json.h"
#include "base/mem.h"

enum {
    LINES_MAX = 1000,  /* of an answer */
    SCAN_MAX = 100000, /* of the log, for those that match */
    SEARCH_MAX = 256,
    STEP = 50, /* events between two looks at the clock */
};

#define WEEK (7 * 24 * 3600 * USEC_PER_SEC)

static const char *const levels[] = {"debug", "info", "warn", "error"};

struct line {
    usec_t at;
    const char *level;
    char *logger, *message; /* owned */
};

/* The lines that fit the request, in the order in which they are told. */
struct logs_lines {
    struct line *all;
    size_t limit, n;
    bool newest;
    usec_t until;
    size_t level; /* least */
    struct str search;
};

/* One request, in its arena. */
struct control_reading {
    struct sandbox_log_walk walk;
    struct logs_lines lines;
    usec_t from;
    bool is_v2;
};

static size_t level_number(struct str name)
{
    for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
        if (str_eqc(name, levels[i]))
            return i;
    return 1;
}

static void line_fini(struct line *line)
{
    MEM_FREE(line->logger, line->message);
}

static bool control_logs_collect(void *ctx, usec_t at, const char *level, const char *logger, const char *message)
{
    struct logs_lines *lines = ctx;
    if (level_number(str_of(level)) < lines->level ||
        (lines->search.n && !memmem(message, strlen(message), lines->search.p, lines->search.n)))
        return true;
    lines->all[lines->n++] =
        (struct line){at, levels[level_number(str_of(level))], mem_strdup(logger), mem_strdup(message)};
    return lines->n < lines->limit;
}

/* {"timestamp":…,"level":…,"message":…,"fields":{…}} */
static json_t *logs_entry(const struct line *line)
{
    return json_pack("{s:o,s:s,s:o,s:{s:o}}", "timestamp", sandbox_json_time(line->at), "level", line->level, "message",
                     call_cstr(line->message), "fields", "logger", call_cstr(line->logger));
}

/* {"timestamp":…,"line":"<the entry as one JSON text>"} */
static json_t *logs_line(const struct line *line)
{
    AUTO_JSON json_t *entry =
        json_pack("{s:o,s:s,s:o,s:o}", "timestamp", sandbox_json_time(line->at), "level", line->level, "logger",
                  call_cstr(line->logger), "message", call_cstr(line->message));
    AUTO_FREE char *text = json_dumps(entry, JSON_COMPACT);
    return json_pack("{s:o,s:s}", "timestamp", sandbox_json_time(line->at), "line", text);
}

static json_t *logs_all(const struct logs_lines *lines, json_t *(*one)(const struct line *line))
{
    json_t *all = json_array();
    for (size_t i = 0; i < lines->n; i++)
        (void)json_array_append_new(all, one(&lines->all[i]));
    return all;
}

/* A number in a query parameter: false after answering when it is malformed or above max. */
static bool control_logs_number(struct call *c, const char *name, uint64_t max, uint64_t *ret_number)
{
    struct str value;
    int r = http_query_get(c->req, name, &value);
    if (r > 0 && value.n) {
        r = str_to_u64(value, ret_number);
        if (r == 0 && *ret_number > max)
            r = -ERANGE;
    }
    if (r >= 0)
        return true;
    return call_fail(c, 400, "validation error: parameter \"%s\" in query has an error: must be an integer up to %llu",
                     name, (unsigned long long)max);
}

static void control_logs_answer(struct call *c)
{
    const struct control_reading *r = c->state;
    json_t *entries = logs_all(&r->lines, logs_entry);
    call_value(c, 200,
               r->is_v2 ? json_pack("{s:o}", "logs", entries)
                        : json_pack("{s:o,s:o}", "logs", logs_all(&r->lines, logs_line), "logEntries", entries));
}

static void read_more(struct call *c)
{
    struct control_reading *r = c->state;
    usec_t until = clock_mono() + SLICE_USEC;
    int more = 1;
    for (int steps = 0; more > 0 && steps < SLICE_STEPS; steps += STEP) {
        more = sandbox_log_walk_next(&r->walk, STEP, control_logs_collect, &r->lines, &c->err);
        if (clock_mono() >= until)
            break;
    }
    if (more > 0)
        call_later(c, read_more);
    else if (call_ok(c, more))
        control_logs_answer(c);
}

/* Answered, or its client has left. */
static void control_logs_cleanup(struct call *c)
{
    struct control_reading *r = c->state;
    for (size_t i = 0; i < r->lines.n; i++)
        line_fini(&r->lines.all[i]);
    mem_free(r->lines.all);
}

static void read_log(struct call *c, const struct control_reading *wish)
{
    struct control_reading *r = call_state(c, sizeof(*r), control_logs_cleanup);
    struct str id = str_of(sandbox_info(c->sandbox)->id);
    size_t scan = wish->lines.level || wish->lines.search.n ? SCAN_MAX : wish->lines.limit;
    *r = *wish;
    r->lines.all = mem_array(r->lines.limit + 1, sizeof(struct line));
    if (r->lines.limit == 0)
        control_logs_answer(c);
    else if (call_ok(c, r->lines.newest ? sandbox_log_walk_init_back(&r->walk, call_core(c), id, r->from,
                                                                     r->lines.until, scan, &c->err)
                                        : sandbox_log_walk_init(&r->walk, call_core(c), id, r->from, scan, &c->err)))
        read_more(c);
}

void control_logs(struct call *c)
{
    uint64_t limit = LINES_MAX, start_ms = (clock_real() - WEEK) / USEC_PER_MS;
    struct control_reading r = {0};
    if (!control_logs_number(c, "start", INT64_MAX / USEC_PER_SEC, &start_ms) ||
        !control_logs_number(c, "limit", INT32_MAX, &limit))
        return;
    r.lines.limit = MIN(limit, (uint64_t)LINES_MAX);
    r.from = start_ms * USEC_PER_MS;
    read_log(c, &r);
}

void control_logs_v2(struct call *c)
{
    uint64_t limit = LINES_MAX, cursor_ms = 0;
    struct control_reading r = {.is_v2 = true, .lines.newest = true};
    struct logs_lines *lines = &r.lines;
    struct str value;
    if (!control_logs_number(c, "cursor", INT64_MAX / USEC_PER_SEC, &cursor_ms) ||
        !control_logs_number(c, "limit", LINES_MAX, &limit))
        return;
    if (http_query_get(c->req, "direction", &value) == 1 && value.n) {
        lines->newest = !str_eq(value, STR("forward"));
        if (lines->newest && !str_eq(value, STR("backward"))) {
            call_fail(c, 400,
                      "validation error: parameter \"direction\" in query has an error: "
                      "value is not one of the allowed values [\"forward\",\"backward\"]");
            return;
        }
    }
    if (http_query_get(c->req, "level", &value) == 1)
        lines->level = level_number(value);
    if (http_query_get(c->req, "search", &value) == 1)
        lines->search = value.n > SEARCH_MAX ? str_n(value.p, SEARCH_MAX) : value;
    lines->limit = (size_t)limit;

    if (lines->newest) {
        lines->until = cursor_ms ? cursor_ms * USEC_PER_MS : clock_real();
        r.from = lines->until > WEEK ? lines->until - WEEK : 0;
    } else {
        r.from = cursor_ms ? cursor_ms * USEC_PER_MS : clock_real() - WEEK;
    }
    read_log(c, &r);
}
