/* SPDX-License-Identifier: Apache-2.0 */
/* A change of the policy, from what a client asks for to what is in force and kept; the rules are in network.c. */
#include "base/mem.h"
#include "sandbox/network/network_internal.h"
#include "sandbox/network/network_life.h"
#include "sandbox/record/record.h"

enum { SEALED_MAX = 40 * 1024, LITERAL_MAX = 40 * 1024 };

struct change {
    struct network *network;
    json_t *policy, *fields;
    bool allow_internet, creates;
    uint64_t seq; /* its event */
    struct egress_call *call;
    struct policy_literal literal;
    network_fn done; /* NULL: creates */
    void *ctx;
};

static void change_free(struct change *ch)
{
    ch->network->change = NULL;
    egress_call_cancel(ch->call);
    json_decref(ch->policy);
    json_decref(ch->fields);
    mem_free(ch);
}

static void change_fails(struct change *ch, const struct err *err)
{
    struct network *n = ch->network;
    struct err why = *err;
    network_fn done = ch->done;
    void *ctx = ch->ctx;
    bool creates = ch->creates;
    uint64_t seq = ch->seq;
    change_free(ch);
    if (!network_closes(n)) {
        AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
        action_describe_error(&d, &why);
        action_observe(n->sb, seq, EVENT_NET_FAILED, EVENT_OBSERVED_HOST, event_data_end(&d));
    }
    if (!creates)
        network_push(n); /* whatever cove-egress made of it */
    if (!creates) {
        done(ctx, &why);
    } else {
        network_set_state(n, NETWORK_DOWN, why.msg);
        if (!n->has_rules && egress_link_is_up(network_link(n)))
            network_retry_later(n);
        start_done(n->sb, START_NETWORK, n->has_rules ? &why : NULL);
    }
}

static void on_ca_installed(void *ctx, const struct err *err)
{
    struct change *ch = ctx;
    struct network *n = ch->network;
    struct err why;
    network_fn done = ch->done;
    void *done_ctx = ch->ctx;
    change_free(ch);
    if (err)
        (void)err_set(&why, err->code, "the policy is in force, but its certificate is not in the sandbox: %.160s",
                      err->msg);
    network_ca_installed(n, err);
    done(done_ctx, err ? &why : NULL);
}

/* cove-egress has the policy of a change to a running sandbox. */
static void network_change_keep(struct change *ch)
{
    struct network *n = ch->network;
    struct sandbox *sb = n->sb;
    struct err err;
    json_t *policy = n->policy, *fields = n->fields;
    bool allow_internet = sb->info.allow_internet;
    n->policy = json_incref(ch->policy);
    n->fields = json_incref(ch->fields);
    sb->info.allow_internet = ch->allow_internet;
    rows_network(sb);
    if (keeper_commit(sb->core->keeper, &err) < 0) {
        json_decref(n->policy);
        json_decref(n->fields);
        n->policy = policy;
        n->fields = fields;
        sb->info.allow_internet = allow_internet;
        (void)err_prefix(&err, "keep the policy");
        change_fails(ch, &err);
        return;
    }
    json_decref(policy);
    json_decref(fields);
    if (n->ca_pem && !n->has_ca) {
        ca_install_cancel(TAKE_PTR(n->install));
        if (ca_install(sb, n->ca_pem, on_ca_installed, ch, &n->install, &err) < 0)
            on_ca_installed(ch, &err);
        return;
    }
    network_fn done = ch->done;
    void *ctx = ch->ctx;
    change_free(ch);
    done(ctx, NULL);
}

static void on_policy(void *ctx, const json_t *answer, const struct err *err)
{
    struct change *ch = ctx;
    struct network *n = ch->network;
    struct err local;
    bool has_new_ca = false;
    ch->call = NULL;
    if (answer && network_take_ca(n, answer, &has_new_ca, &local) < 0) {
        answer = NULL;
        err = &local;
    }
    if (!answer) {
        change_fails(ch, err);
        return;
    }
    network_set_state(n, NETWORK_UP, NULL);
    if (!ch->creates) {
        network_change_keep(ch);
        return;
    }
    bool is_sealed = n->policy != ch->policy;
    if (is_sealed) {
        json_decref(n->policy);
        n->policy = json_incref(ch->policy);
    }
    change_free(ch);
    if (is_sealed || has_new_ca)
        rows_network(n->sb);
    start_done(n->sb, START_NETWORK, NULL);
}

static int step(struct change *ch, struct err *err);

static void on_sealed(void *ctx, const json_t *answer, const struct err *err)
{
    struct change *ch = ctx;
    struct err local;
    const char *sealed = json_string_value(json_object_get(answer, "value"));
    size_t n = sealed ? strlen(sealed) : 0;
    ch->call = NULL;
    if (answer && (n == 0 || n > SEALED_MAX || memchr(sealed, '}', n))) {
        (void)err_set(&local, ERR_INTERNAL, "cove-egress answered with something that is not sealed");
        err = &local;
    }
    if (err) {
        change_fails(ch, err);
        return;
    }
    policy_literal_sealed(&ch->literal, str_n(sealed, n));
    if (step(ch, &local) < 0)
        change_fails(ch, &local);
}

/* Seals the next piece, or tells the policy. */
static int step(struct change *ch, struct err *err)
{
    struct network *n = ch->network;
    if (!policy_next_literal(ch->policy, &ch->literal))
        return egress_link_call(network_link(n), network_policy_message(n, ch->policy), "done", on_policy, ch,
                                &ch->call, err);
    AUTO_BUF struct buf text = BUF_INIT(LITERAL_MAX);
    policy_literal_text(&ch->literal, &text);
    json_t *value = json_stringn(buf_data(&text), buf_len(&text));
    mem_wipe(buf_data(&text), buf_len(&text));
    json_t *m = json_pack("{s:s,s:s,s:o}", "op", "seal", "id", network_sealed_for(n), "value", value);
    return egress_link_call(network_link(n), m, "sealed", on_sealed, ch, &ch->call, err);
}

/* Steals policy. */
static struct change *change_new(struct network *n, json_t *policy)
{
    struct change *ch = mem_new(struct change);
    ch->network = n;
    ch->policy = policy;
    n->change = ch;
    return ch;
}

int network_set(struct sandbox *sb, const struct actor *actor, const struct network_spec *spec, network_fn done,
                void *ctx, struct err *err)
{
    struct network *n = sb->network;
    uint64_t seq = 0;
    json_t *policy =
        spec->policy ? policy_normalise(spec->policy, err) : network_default(sb->core, spec->allow_internet);
    if (!policy)
        return -1;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    policy_describe(policy, &d);
    int r = sandbox_usable(sb, err);
    if (r == 0 && n->change)
        r = err_set(err, ERR_ABORTED, "another change of the sandbox's network is in progress");
    if (r == 0 && !egress_link_is_up(network_link(n)))
        r = network_unavailable(err);
    if (r == 0)
        r = action_begin(sb, actor, EVENT_NET_POLICY, event_data_end(&d), &seq, err);
    if (r < 0) {
        json_decref(policy);
        return -1;
    }
    struct change *ch = change_new(n, policy);
    ch->fields = json_deep_copy(spec->fields);
    ch->allow_internet = spec->allow_internet;
    ch->seq = seq;
    ch->done = done;
    ch->ctx = ctx;
    egress_call_cancel(TAKE_PTR(n->push));
    loop_alarm_clear(sb->core->loop, &n->retry);
    if (step(ch, err) < 0) {
        change_free(ch);
        network_push(n);
        return -1;
    }
    return 0;
}

/* ---- of a start ---- */

void change_begin_with(struct network *n, json_t *policy)
{
    (void)change_new(n, policy);
}

struct str network_describe(const struct sandbox *sb, struct event_data *d)
{
    const struct network *n = sb->network;
    if (!n->has_rules)
        return STR_NULL;
    policy_describe(n->change ? n->change->policy : n->policy, d);
    return event_data_end(d);
}

int network_begin(struct sandbox *sb, uint64_t seq, struct err *err)
{
    struct network *n = sb->network;
    if (n->is_over)
        n->state = NETWORK_UNKNOWN;
    else if (n->state != NETWORK_UNKNOWN)
        return 1; /* of a spare */
    n->is_over = false;
    struct change *ch = n->change ? n->change : change_new(n, json_incref(n->policy));
    ch->creates = true;
    ch->seq = seq;
    if (step(ch, err) == 0)
        return 0;
    change_free(ch);
    if (n->has_rules)
        return -1;
    network_set_state(n, NETWORK_DOWN, err->msg);
    return 1;
}

bool change_asks(const struct network *n)
{
    return n->change && n->change->call;
}

void change_cancel(struct network *n)
{
    struct change *ch = n->change;
    struct err why;
    if (!ch)
        return;
    network_fn done = ch->done;
    void *ctx = ch->ctx;
    change_free(ch);
    (void)err_set(&why, ERR_NOT_FOUND, "sandbox %s has ended", n->sb->info.id);
    if (done)
        done(ctx, &why);
}
