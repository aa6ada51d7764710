/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A policy, and behind each line's end one of: name, address, port (decimal), method, path of what is asked. What was
 * taken comes back as itself, what is not public needs a network that says so, and a suggestion that is taken helps.
 */
#include "base/mem.h"
#include "policy/policy.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct policy *parse_again(const json_t *json)
{
    struct policy *p = NULL;
    struct err err;

    if (policy_parse(json, &p, &err) < 0)
        abort();
    return p;
}

static void check_text(const char *text, size_t room)
{
    if (!memchr(text, 0, room))
        abort();
}

static void take(const struct policy *p, const struct policy_query *q, const char *suggestion)
{
    json_t *json = policy_json(p), *rule = json_loads(suggestion, JSON_REJECT_DUPLICATES, NULL);
    struct policy_answer answer;
    struct policy *better = NULL;
    struct err err;

    if (!rule || json_array_insert_new(json_object_get(json, "rules"), 0, rule) < 0)
        abort();
    if (policy_parse(json, &better, &err) == 0) { /* there may be too many now */
        policy_judge(better, q, &answer);
        if (answer.verdict != POLICY_ALLOW || answer.rule != 0)
            abort();
    } else if (json_array_size(json_object_get(json, "rules")) <= POLICY_RULES_MAX &&
               json_dumpb(json, NULL, 0, JSON_COMPACT) <= POLICY_JSON_MAX) {
        abort();
    }
    policy_unref(better);
    json_decref(json);
}

/* Where the request doesn't matter it is the same; what is allowed then is so whatever is asked. */
static void check_worst(const struct policy *p, const struct policy_query *q, enum policy_verdict verdict)
{
    struct policy_answer worst, seen;
    struct policy_query request = *q;

    policy_judge_worst(p, q, &worst);
    if (worst.verdict == POLICY_NEEDS_REQUEST || (verdict != POLICY_NEEDS_REQUEST && worst.verdict != verdict))
        abort();
    request.method = "POST";
    request.path = STR("/a");
    policy_judge(p, &request, &seen);
    if (!q->method && !q->path.p && worst.verdict == POLICY_ALLOW && seen.verdict != POLICY_ALLOW)
        abort();
}

/* What is allowed whatever the name is allowed with this one, and without any. */
static void check_any_name(const struct policy *p, const struct policy_query *q)
{
    struct policy_query unnamed = *q;
    struct policy_answer any, worst;

    unnamed.name = NULL;
    policy_judge_any_name(p, &unnamed, &any);
    policy_judge_worst(p, q, &worst);
    if (any.verdict == POLICY_NEEDS_REQUEST || (any.verdict == POLICY_ALLOW && worst.verdict != POLICY_ALLOW))
        abort();
    policy_judge_worst(p, &unnamed, &worst);
    if (any.verdict == POLICY_ALLOW && worst.verdict != POLICY_ALLOW)
        abort();
}

static void count(void *ctx, const struct policy_inject *in)
{
    *(size_t *)ctx += in->n_headers + in->n_placeholders;
}

static void ask(const struct policy *p, struct str rest)
{
    struct str name = STR_NULL, address = STR_NULL, port = STR_NULL, method = STR_NULL, path = STR_NULL;
    char normal[HOSTNAME_MAX + 1];
    struct policy_query q = {0};
    struct policy_answer answer;
    AUTO_FREE char *method_text = NULL;
    uint64_t number = 0;
    size_t n_injected = 0;

    (void)(str_split(&rest, '\n', &name) && str_split(&rest, '\n', &address) && str_split(&rest, '\n', &port) &&
           str_split(&rest, '\n', &method) && str_split(&rest, '\n', &path));
    if (name.n > 0 && hostname_normalise(name, normal))
        q.name = normal;
    (void)netaddr_parse(address, &q.addr);
    if (str_to_u64(port, &number) == 0)
        q.port = (uint16_t)number;
    if (method.n > 0 && !str_has_nul(method))
        q.method = method_text = mem_strndup(method.p, method.n);
    if (path.n > 0)
        q.path = path;
    for (int is_host = 0; is_host < 2; is_host++) {
        q.is_host = is_host;
        policy_judge(p, &q, &answer);
        check_text(answer.reason, sizeof(answer.reason));
        check_text(answer.suggestion, sizeof(answer.suggestion));
        if (answer.verdict != POLICY_DENY && answer.rule < 0 && q.addr.family != 0 &&
            (is_host || netaddr_class(&q.addr) != NET_PUBLIC))
            abort();
        if (answer.verdict != POLICY_DENY && answer.suggestion[0])
            abort();
        if (answer.suggestion[0])
            take(p, &q, answer.suggestion);
        if (q.addr.family != 0 && q.port != 0)
            check_worst(p, &q, answer.verdict);
        if (q.addr.family != 0 && q.port != 0)
            check_any_name(p, &q);
    }
    policy_each_inject(p, &q, count, &n_injected);
    if (q.name) {
        policy_judge_name(p, q.name, &answer);
        if (policy_intercepts(p, q.name, q.port) && !policy_intercepts_anything(p))
            abort();
    }
    if (n_injected > 0 && (!q.name || !policy_intercepts(p, q.name, q.port)))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = str_n(data, size), text;
    struct policy *p = NULL, *again;
    json_t *json, *normal, *same;
    struct err err = {0};

    if (!str_split(&rest, '\n', &text))
        return 0;
    json = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    if (!json)
        return 0;
    if (policy_parse(json, &p, &err) == 0) {
        normal = policy_json(p);
        again = parse_again(normal);
        same = policy_json(again);
        if (!json_equal(normal, same))
            abort();
        ask(p, rest);
        json_decref(normal);
        json_decref(same);
        policy_unref(again);
        policy_unref(p);
    } else if (err.code != ERR_INVALID_ARGUMENT || err.msg[0] == '\0') {
        abort();
    }
    json_decref(json);
    return 0;
}
