/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Somebody's own judge of actions. It gets, as a POST:
 *
 *   {"action": {"sandbox", "tenant", "kind", "actor", "data", "hold"}, "events": [the last ones of the log, as GET
 *   .../events has them]}
 *
 * and answers 200 with {"risk": "low" | "medium" | "high" | "unknown", "reason": TEXT}. The action is held meanwhile
 * (hold.h); analyser.by_risk says what the risk means, analyser.on_failure what it means that there is no such answer
 * in time. cove-egress carries it: this process has no sockets.
 */
#include "base/mem.h"
#include "sandbox/guard/guard_life.h"
#include "sandbox/hold.h"
#include "sandbox/network/network_internal.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"

enum { ANALYSER_REQUEST_MAX = 160 * 1024, REASON_MAX = 500 };

struct analysis {
    struct core *core;
    char hold[HOLD_ID_LEN + 1];
    struct egress_call *call;
};

static bool analyser_add_event(const struct event *e, void *ctx)
{
    struct buf *b = ctx;
    size_t before = buf_len(b);
    if (buf_data(b)[before - 1] == '}')
        (void)buf_append_char(b, ',');
    event_format_json(e, b);
    return true;
}

static void analyser_fails(struct analysis *a, const char *why)
{
    hold_analysed(a->core, str_of(a->hold), guard_analyser(a->core)->on_failure, RISK_UNKNOWN, why);
    mem_free(a);
}

static void analyser_on_answer(void *ctx, const json_t *answer, const struct err *err)
{
    struct analysis *a = ctx;
    const char *body = json_string_value(json_object_get(answer, "body"));
    json_t *judged = body ? json_loads(body, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const char *risk = json_string_value(json_object_get(judged, "risk"));
    const char *reason = json_string_value(json_object_get(judged, "reason"));
    AUTO_FREE char *text = mem_strndup(reason ? reason : "", reason ? strnlen(reason, REASON_MAX) : 0);
    json_int_t status = json_integer_value(json_object_get(answer, "status"));
    for (int r = RISK_LOW; risk && status == 200 && r < RISK_MAX; r++)
        if (strcmp(risk, guard_risk_name((enum guard_risk)r)) == 0) {
            json_decref(judged);
            hold_analysed(a->core, str_of(a->hold), guard_analyser(a->core)->by_risk[r], (enum guard_risk)r, text);
            mem_free(a);
            return;
        }
    json_decref(judged);
    analyser_fails(a, err ? err->msg : "the analyser's answer is not {\"risk\": ..., \"reason\": ...}");
}

void analyser_ask(struct core *core, const struct hold_info *info, uint64_t seq)
{
    const struct rules_analyser *by = guard_analyser(core);
    const struct guard_question *q = &info->question;
    AUTO_BUF struct buf b = BUF_INIT(ANALYSER_REQUEST_MAX);
    struct analysis *a = mem_new(struct analysis);
    struct err err;
    a->core = core;
    memcpy(a->hold, info->id, sizeof(a->hold));
    buf_printf(&b, "{\"action\":{\"sandbox\":\"%s\",\"tenant\":%llu,\"kind\":\"%s\",\"hold\":\"%s\",\"actor\":", q->id,
               (unsigned long long)q->tenant, event_kind_name(q->kind), info->id);
    buf_append_json_string(&b, q->actor);
    buf_append_cstr(&b, ",\"data\":");
    buf_append_str(&b, q->data);
    buf_append_cstr(&b, "},\"events\":[");
    if (by->events && event_read(core->config.events, q->id, seq > by->events ? seq - by->events : 1, by->events,
                                 analyser_add_event, &b, &err) < 0)
        core_unrecorded(core, &err);
    buf_append_cstr(&b, "]}");
    json_t *body = buf_error(&b) ? NULL : json_stringn(buf_data(&b), buf_len(&b));
    json_t *request = body ? json_pack("{s:s,s:s,s:I,s:o}", "op", "ask", "url", by->url, "timeout_ms",
                                       (json_int_t)by->timeout_ms, "body", body)
                           : NULL;
    if (!request)
        analyser_fails(a, "the action and its events are too long to be sent");
    else if (egress_link_call(core->networks->link, request, "asked", analyser_on_answer, a, &a->call, &err) < 0)
        analyser_fails(a, err.msg);
    else
        egress_call_wait(a->call, by->timeout_ms + 500);
}
