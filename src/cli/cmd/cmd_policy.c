/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/domain/vault_client.h"
#include "cli/exec/alive.h"
#include "cli/exec/terminal.h"
#include "cli/net_flags.h"
#include "cli/print.h"
#include "cli/service.h"
#include "cli/things.h"
#include "policy/presets.h"

#include <unistd.h>

static const struct flag policy_flags[] = {
    NET_FLAGS,
    {0, "method", "METHOD", "check: the request's method. Default: GET."},
    {0, "replace", NULL, "set: even if that removes secrets that are injected now."},
    {'q', "quiet", NULL, "set, allow, deny: prints nothing on success."},
};

/* ---- show ---- */

static void append_list(struct buf *b, const char *name, const json_t *list, const char *member)
{
    JSON_FOREACH_AT (i, one, list) {
        const json_t *value = member ? json_object_get(one, member) : one;
        AUTO_FREE char *text = json_is_string(value) ? NULL : json_dumps(value, JSON_ENCODE_ANY);
        buf_printf(b, "%s%s", i ? "," : name, text ? text : json_string_value(value));
    }
}

static void append_placeholders(struct buf *b, const json_t *list)
{
    JSON_FOREACH_AT (i, one, list) {
        buf_printf(b, "%s%s", i ? "," : "  secrets ", service_text(one, "secret"));
        append_list(b, " in ", json_object_get(one, "headers"), NULL);
    }
}

static void append_scope(struct buf *b, const json_t *rule)
{
    append_list(b, "  ports ", json_object_get(rule, "ports"), NULL);
    append_list(b, "  methods ", json_object_get(rule, "methods"), NULL);
    if (*service_text(rule, "path"))
        buf_printf(b, "  path %s", service_text(rule, "path"));
}

static const char *otherwise(const json_t *policy)
{
    return *service_text(policy, "default") ? service_text(policy, "default") : "deny";
}

static void print_policy(const json_t *policy)
{
    AUTO_BUF struct buf b = BUF_INIT(4 << 20);
    JSON_FOREACH_AT (i, one, json_object_get(policy, "rules")) {
        bool allows = json_object_get(one, "allow") != NULL;
        buf_printf(&b, "%4zu  %-5s  %s", i, allows ? "allow" : "deny", service_text(one, allows ? "allow" : "deny"));
        append_scope(&b, one);
        if (*service_text(one, "ech"))
            buf_printf(&b, "  ech %s", service_text(one, "ech"));
        buf_append_char(&b, '\n');
    }
    const char *rest_is = strcmp(otherwise(policy), "allow") == 0 ? "allow  (every public address)" : "deny";
    buf_printf(&b, "else  %s%s\n", rest_is,
               json_array_size(json_object_get(policy, "rules")) || *rest_is == 'a' ? "" : "  (no network)");
    JSON_FOREACH (one, json_object_get(policy, "inject")) {
        buf_printf(&b, "into requests to %s", service_text(one, "host"));
        append_scope(&b, one);
        append_list(&b, "  headers ", json_object_get(one, "headers"), "name");
        append_placeholders(&b, json_object_get(one, "placeholders"));
        buf_append_char(&b, '\n');
    }
    print_lines(buf_str(&b));
}

struct policy_options {
    struct net_flags net;
    const char *method;
    bool quiet, replaces;
    struct service *s; /* these three by policy_open() */
    char *id, *target; /* the sandbox, and the route of its policy */
};

/* The sandbox that the first operand names, and its policy, where that is asked for. */
static int policy_open(struct context *ctx, struct policy_options *o, json_t **ret_policy)
{
    o->s = service_open(ctx);
    if (!o->s || service_resolve(o->s, ctx->argv[ctx->argi], &o->id) < 0 || alive_check(ctx, o->s, o->id, true) < 0)
        return -1;
    o->target = service_target(o->id, "/network");
    return ret_policy ? service_call(o->s, "GET", o->target, NULL, NULL, ret_policy) : 0;
}

static int policy_show(struct context *ctx, void *options)
{
    AUTO_JSON json_t *policy = NULL;
    if (policy_open(ctx, options, &policy) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (ctx->json)
        print_json(policy);
    else
        print_policy(policy);
    return STATUS_OK;
}

/* ---- set ---- */

static int policy_put(struct context *ctx, const struct policy_options *o, const json_t *policy)
{
    AUTO_JSON json_t *now = NULL;
    if (service_call(o->s, "PUT", o->target, policy, "setting the policy", &now) < 0)
        return context_fail(ctx, STATUS_FAILED);
    size_t n = json_array_size(json_object_get(now, "rules"));
    JSON_FOREACH (warning, json_object_get(now, "warnings"))
        terminal_line(stderr, "cove: warning: %s", json_string_value(warning));
    if (ctx->json)
        print_json(now);
    else if (!o->quiet)
        terminal_line(stdout, "%s: %zu rule%s, else %s", o->id, n, n == 1 ? "" : "s", otherwise(now));
    return STATUS_OK;
}

/* The first host whose requests get something injected now and would not any more; NULL: none. */
static const char *dropped_host(const json_t *before, const json_t *after)
{
    JSON_FOREACH (one, json_object_get(before, "inject")) {
        bool is_kept = false;
        JSON_FOREACH (other, json_object_get(after, "inject"))
            is_kept = is_kept || strcmp(service_text(one, "host"), service_text(other, "host")) == 0;
        if (!is_kept)
            return service_text(one, "host");
    }
    return NULL;
}

static int policy_set(struct context *ctx, void *options)
{
    struct policy_options *o = options;
    AUTO_JSON json_t *policy = NULL, *env = NULL, *before = NULL;
    if (context_operands(ctx) == 2 && o->net.policy_file)
        return context_usage(ctx, "%s: too many operands", ctx->argv[ctx->argi + 1]);
    if (context_operands(ctx) == 2)
        o->net.policy_file = ctx->argv[ctx->argi + 1];
    if (net_flags_policy(ctx, &o->net, &env, &policy) < 0)
        return context_fail(ctx, STATUS_USAGE);
    if (!policy)
        return context_usage(ctx, "the policy is missing: a file, or --net, --allow and --deny");
    if (vault_check_names(ctx, NULL, policy) < 0 || policy_open(ctx, o, o->replaces ? NULL : &before) < 0)
        return context_fail(ctx, STATUS_FAILED);
    const char *host = dropped_host(before, policy);
    if (!host)
        return policy_put(ctx, o, policy);
    (void)err_set(&ctx->err, ERR_FAILED_PRECONDITION,
                  "this policy would no longer inject secrets into requests to %.100s", host);
    context_hint(ctx, "add a rule with 'cove policy allow' or 'deny'; --replace sets it all the same");
    return context_fail(ctx, STATUS_FAILED);
}

/* One rule more, in front of all others, so that it decides. */
static int policy_add(struct context *ctx, struct policy_options *o, const char *verdict)
{
    AUTO_JSON json_t *policy = NULL;
    if (policy_open(ctx, o, &policy) < 0)
        return context_fail(ctx, STATUS_FAILED);
    json_t *rules = json_setdefault(policy, "rules", json_array());
    for (int i = ctx->argc - 1; i > ctx->argi; i--) {
        json_t *rule = net_flags_rule(verdict, str_of(ctx->argv[i]));
        if (!rule || json_array_insert_new(rules, 0, rule) < 0)
            return context_usage(ctx, "%s: not a name, *.name, an address or a network, with or without ports",
                                 ctx->argv[i]);
    }
    return policy_put(ctx, o, policy);
}

static int policy_allow(struct context *ctx, void *options)
{
    return policy_add(ctx, options, "allow");
}

static int policy_deny(struct context *ctx, void *options)
{
    return policy_add(ctx, options, "deny");
}

/* ---- check ---- */

static void print_verdict(const json_t *answer, const char *url)
{
    terminal_line(stdout, "%s  %s: %s", service_text(answer, "verdict"), url, service_text(answer, "reason"));
    JSON_FOREACH (one, json_object_get(answer, "addresses"))
        terminal_line(stdout, "  %s  %s  %s", service_text(one, "address"), service_text(one, "verdict"),
                      service_text(one, "reason"));
    if (json_is_true(json_object_get(answer, "intercepted")))
        (void)puts("  its TLS is opened on the way, with the sandbox's own certificate");
    if (*service_text(answer, "suggestion")) {
        AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
        net_flags_suggest(&b, service_text(answer, "suggestion"));
        terminal_line(stdout, "  %.*s", STR_ARG(buf_str(&b)));
    }
}

static int policy_check(struct context *ctx, void *options)
{
    struct policy_options *o = options;
    const char *url = ctx->argv[ctx->argi + 1];
    AUTO_JSON json_t *question = json_pack("{s:s,s:s}", "url", url, "method", o->method), *answer = NULL;
    if (!question)
        return context_usage(ctx, "the URL and the method must be UTF-8");
    if (policy_open(ctx, o, NULL) < 0)
        return context_fail(ctx, STATUS_COVE);
    AUTO_FREE char *target = service_target(o->id, "/network/check");
    if (service_call(o->s, "POST", target, question, "looking it up", &answer) < 0) {
        if (ctx->err.code == ERR_INVALID_ARGUMENT && !*ctx->hint)
            context_hint(ctx, "write what a program would ask for: https://example.com/path");
        return context_fail(ctx, ctx->err.code == ERR_INVALID_ARGUMENT ? STATUS_USAGE : STATUS_COVE);
    }
    if (ctx->json)
        print_json(answer);
    else
        print_verdict(answer, url);
    return strcmp(service_text(answer, "verdict"), "allow") == 0 ? STATUS_OK : STATUS_FAILED;
}

/* ---- presets ---- */

static void policy_words(struct table *t, const json_t *one, const char *name)
{
    AUTO_BUF struct buf b = BUF_INIT(4096);
    JSON_FOREACH_AT (i, word, json_object_get(one, name)) {
        if (json_is_string(word))
            buf_printf(&b, "%s%s", i ? " " : "", json_string_value(word));
        else
            buf_printf(&b, "%s%" JSON_INTEGER_FORMAT, i ? "," : "", json_integer_value(word));
    }
    table_add(t, buf_str(&b));
}

static int policy_presets(struct context *ctx, void *options UNUSED)
{
    static const struct things_column columns[] = {{"NAME", "name", NULL},
                                                   {"PORTS", "ports", policy_words},
                                                   {"WHAT", "about", NULL},
                                                   {"HOSTS", "hosts", policy_words}};
    AUTO_JSON json_t *all = json_array();
    for (size_t i = 0; i < presets_n; i++) {
        const struct preset *p = &presets[i];
        json_t *hosts = json_array(), *ports = json_array();
        for (size_t k = 0; k < ARRAY_SIZE(p->hosts) && p->hosts[k]; k++)
            (void)json_array_append_new(hosts, json_string(p->hosts[k]));
        for (size_t k = 0; k < ARRAY_SIZE(p->ports) && p->ports[k]; k++)
            (void)json_array_append_new(ports, json_integer(p->ports[k]));
        (void)json_array_append_new(
            all, json_pack("{s:s,s:s,s:o,s:o}", "name", p->name, "about", p->about, "hosts", hosts, "ports", ports));
    }
    return things_table(ctx, all, columns, ARRAY_SIZE(columns));
}

/* ---- all ---- */

static int policy_read(struct context *ctx, struct policy_options *o)
{
    static const struct command_form forms[] = {
        {"show", policy_show, 1, 1, NULL},
        {"set", policy_set, 1, 2, NULL},
        {"allow", policy_allow, 2, FORM_MANY, "the target is missing: a name, *.name, an address or a network"},
        {"deny", policy_deny, 2, FORM_MANY, "the target is missing: a name, *.name, an address or a network"},
        {"check", policy_check, 2, 2, "check takes a sandbox's id and a URL"},
        {"presets", policy_presets, 0, 0, "presets takes no operand"}};
    if (CONTEXT_READ(ctx, {"replace", .on = &o->replaces}, {"method", .text = &o->method}, {"quiet", .on = &o->quiet},
                     {"", .take = net_flags_take, .arg = &o->net}) < 0)
        return context_exit(ctx);
    const bool has_rules = o->net.otherwise || o->net.policy_file || o->net.rules;
    if (has_rules && context_operands(ctx) && strcmp(ctx->argv[ctx->argi], "set") != 0)
        return context_usage(ctx, "--net, --allow, --deny and --policy are for set");
    return context_form(ctx, forms, ARRAY_SIZE(forms), o);
}

static int policy_run(struct context *ctx)
{
    struct policy_options o = {.method = "GET"};
    int status = policy_read(ctx, &o);
    net_flags_fini(&o.net);
    service_close(o.s);
    MEM_FREE(o.id, o.target);
    return status;
}

const struct command cmd_policy = {
    .name = "policy",
    .summary = "show, set and check what a sandbox may reach",
    .text = &text_policy,
    .operands = "=show set allow deny check presets|id",
    COMMAND_FLAGS(policy_flags),
    .run = policy_run,
};
