/* SPDX-License-Identifier: Apache-2.0 */
/*
 * request_grant: a person is asked, by the client (elicitation), and says yes; or nothing changes.
 *
 *  1. The client is who carries the answer, and who vouches for it that a person gave it: it could as well use its key
 *     for the native API. A key of one sandbox can't ask. Whoever wants the question elsewhere has the guard ask about
 *     net.policy.
 *  2. In the session era the question is a request on the stream of the call, which waits for GRANT_MS. In the
 *     stateless era the call ends with the question, and comes again with the answer and a state that only we can have
 *     made: for this key, this sandbox, these arguments, until then.
 */
#include "api/mcp/handlers.h"
#include "base/char.h"
#include "base/id.h"
#include "base/mem.h"
#include "sandbox/network/network.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>

enum { GRANT_MS = 300 * 1000, HOSTS_MAX = 32, PORTS_MAX = 16, REASON_MAX = 400, STATE_MAX = 96 };

struct grant {
    const struct str *hosts;
    size_t n_hosts;
    json_t *ports; /* borrowed; NULL: all */
    struct str reason;
};

static bool grant_read(struct call *c, struct grant *g)
{
    if (!TOOL_WANTS(c, JSON_WANT_STRS("hosts", &g->hosts, &g->n_hosts), JSON_WANT_ARRAY("ports", &g->ports),
                    JSON_NEED_STR("reason", &g->reason)))
        return false;
    if (g->n_hosts && g->n_hosts <= HOSTS_MAX && json_array_size(g->ports) <= PORTS_MAX)
        return true; /* no more than a person is shown */
    call_refuse(c, ERR_INVALID_ARGUMENT, "hosts: 1 to %d; ports: up to %d", HOSTS_MAX, PORTS_MAX);
    return false;
}

/* In front of the rules that there are. */
static json_t *grant_policy(const struct call *c, const struct grant *g)
{
    json_t *policy = json_copy((json_t *)network_policy(c->sandbox)), *rules = json_array();
    for (size_t i = 0; i < g->n_hosts; i++) {
        json_t *rule = json_pack("{s:o}", "allow", call_text(g->hosts[i]));
        if (json_array_size(g->ports))
            (void)json_object_set(rule, "ports", g->ports);
        (void)json_array_append_new(rules, rule);
    }
    (void)json_array_extend(rules, json_object_get(policy, "rules"));
    (void)json_object_set_new(policy, "rules", rules);
    return policy;
}

/* ---- once allowed ---- */

static void grant_done(void *ctx, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c)
        tool_result(c, json_pack("{s:b,s:O}", "granted", 1, "policy", network_policy(c->sandbox)), STR_NULL);
}

static void grant_set(struct call *c)
{
    struct grant g = {.n_hosts = 0};
    if (!grant_read(c, &g))
        return;
    AUTO_JSON json_t *policy = grant_policy(c, &g);
    struct network_spec spec = {.policy = policy, .allow_internet = sandbox_info(c->sandbox)->allow_internet};
    call_held(c, network_set(c->sandbox, &c->actor, &spec, grant_done, call_hold(c), &c->err));
}

/* What the client says that the person said. */
static void grant_decide(struct call *c, const json_t *answer)
{
    const char *action = json_string_value(json_object_get(answer, "action"));
    mcp_call_of(c)->until = 0;
    const bool is_accepted = action && strcmp(action, "accept") == 0; /* the form, in which it is said */
    if (is_accepted && json_is_true(json_object_get(json_object_get(answer, "content"), "allow")))
        call_step(c, grant_set);
    else
        call_refuse(c, ERR_PERMISSION_DENIED, "the person declined it (%.20s)",
                    is_accepted ? "not allowed"
                    : action    ? action
                                : "no answer");
}

/* ---- the question ---- */

/* Nothing in it ends the quotation, shows nothing, or moves what is shown. */
static void append_plain(struct buf *b, struct str s)
{
    while (s.n) {
        const char *from = s.p;
        const uint32_t c = char_take(&s);
        if (c < ' ' || (c >= 0x7f && c < 0xa0) || c == '"' || char_is_hidden(c))
            (void)buf_append_char(b, c == '"' ? '\'' : ' ');
        else
            (void)buf_append(b, from, (size_t)(s.p - from));
    }
}

static json_t *grant_question(const struct call *c, const struct grant *g)
{
    AUTO_BUF struct buf b = BUF_INIT(16384);
    buf_printf(&b, "An agent asks that sandbox %s may reach ", sandbox_info(c->sandbox)->id);
    for (size_t i = 0; i < g->n_hosts; i++) {
        (void)buf_append_cstr(&b, i ? ", " : "");
        append_plain(&b, str_n(g->hosts[i].p, MIN(g->hosts[i].n, (size_t)253)));
    }
    AUTO_FREE char *ports = json_array_size(g->ports) ? json_dumps(g->ports, JSON_COMPACT) : NULL;
    buf_printf(&b, " on %s%s. It says why: \"", ports ? "ports " : "every port", ports ? ports : "");
    append_plain(&b, mcp_cut(g->reason, REASON_MAX));
    (void)buf_append_cstr(&b, "\"");
    return json_pack("{s:s,s:o,s:{s:s,s:{s:{s:s,s:s,s:b}},s:[s]}}", "mode", "form", "message", call_text(buf_str(&b)),
                     "requestedSchema", "type", "object", "properties", "allow", "type", "boolean", "title", "Allow it",
                     "default", 0, "required", "allow");
}

/* ---- the stateless era ---- */

static void grant_sign(const struct call *c, uint64_t until, char ret_state[static STATE_MAX])
{
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    AUTO_FREE char *args = json_dumps(mcp_call_of(c)->args, JSON_COMPACT | JSON_SORT_KEYS);
    AUTO_FREE char *text = mem_printf("%llu|%llu|%s|%s", (unsigned long long)until,
                                      (unsigned long long)c->actor.who.tenant, c->actor.name, args ? args : "");
    (void)HMAC(EVP_sha256(), mcp_of(c)->secret, sizeof(mcp_of(c)->secret), (const unsigned char *)text, strlen(text),
               mac, &n);
    int at = snprintf(ret_state, STATE_MAX, "%llu.", (unsigned long long)until);
    str_hex(mac, 32, ret_state + at);
}

static bool grant_is_ours(const struct call *c, struct str given)
{
    struct str rest = given, until;
    char state[STATE_MAX];
    uint64_t at;
    if (!str_split(&rest, '.', &until) || str_to_u64(until, &at) < 0 || at < clock_real())
        return false;
    grant_sign(c, at, state);
    return str_eq_secret(given, str_of(state));
}

static void grant_ask_stateless(struct call *c, const struct grant *g)
{
    const struct mcp_call *m = mcp_call_of(c);
    const json_t *state = json_object_get(m->params, "requestState"),
                 *given = json_object_get(m->params, "inputResponses");
    char signed_state[STATE_MAX];
    if (json_object_get(given, "grant") && json_is_string(state)) {
        if (grant_is_ours(c, json_str(state)))
            grant_decide(c, json_object_get(given, "grant"));
        else
            rpc_error(c, 400, RPC_PARAMS, NULL, "requestState isn't of this question, or is too old: ask again");
        return;
    }
    if (!json_object_get(m->capabilities, "elicitation")) {
        rpc_error(c, 400, RPC_CAPABILITY, json_pack("{s:{s:{}}}", "requiredCapabilities", "elicitation"),
                  "this client can't ask a person. A person can: cove policy allow %s %.*s",
                  sandbox_info(c->sandbox)->id, STR_ARG_MAX(g->hosts[0], 253));
        return;
    }
    grant_sign(c, clock_real() + GRANT_MS * USEC_PER_MS, signed_state);
    rpc_result(c,
               json_pack("{s:s,s:{s:{s:s,s:o}},s:s}", "resultType", "input_required", "inputRequests", "grant",
                         "method", "elicitation/create", "params", grant_question(c, g), "requestState", signed_state));
}

/* ---- the session era ---- */

static void grant_ask(struct call *c, const struct grant *g)
{
    struct mcp_call *m = mcp_call_of(c);
    if (!m->session || !m->session->can_ask) {
        call_refuse(c, ERR_FAILED_PRECONDITION,
                    "this client can't ask a person. A person can: cove policy allow %s %.*s",
                    sandbox_info(c->sandbox)->id, STR_ARG_MAX(g->hosts[0], 100));
        return;
    }
    id_token(m->ask, MCP_ID_LEN);
    m->until = clock_mono() + GRANT_MS * USEC_PER_MS;
    json_t *question = grant_question(c, g);
    if (strcmp(m->session->version, "2025-06-18") == 0)
        (void)json_object_del(question, "mode");
    rpc_message(c, json_pack("{s:s,s:s,s:s,s:o}", "jsonrpc", "2.0", "id", m->ask, "method", "elicitation/create",
                             "params", question));
}

static bool grant_waits(const struct call *c, const void *id)
{
    return mcp_call_of(c)->ask[0] && str_eqc(str_of(mcp_call_of(c)->ask), id);
}

bool grant_answered(struct call *c, const json_t *message)
{
    const char *id = json_string_value(json_object_get(message, "id"));
    struct call *asked = id ? mcp_session_call(mcp_call_of(c)->session, grant_waits, id) : NULL;
    if (!asked)
        return false;
    mcp_call_of(asked)->ask[0] = 0;
    grant_decide(asked, json_object_get(message, "result"));
    return true;
}

void grant_tool(struct call *c)
{
    struct grant g = {.n_hosts = 0};
    if (!grant_read(c, &g))
        return;
    AUTO_JSON json_t *policy = grant_policy(c, &g);
    if (!call_ok(c, network_check_policy(policy, &c->err)))
        return;
    if (mcp_call_of(c)->is_modern)
        grant_ask_stateless(c, &g);
    else
        grant_ask(c, &g);
}
