/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/events.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"
#include "cli/things.h"
#include "config/yaml.h"

#include <unistd.h>

/* ---- rules ---- */

static const struct flag guard_flags[] = {
    {0, "of-tenant", NULL, "show, set, rm: the rules of the tenant in which you act."},
    {0, "template", "REF", "show, set, rm: the rules of your tenant's sandboxes of this template."},
};

struct guard_options {
    const char *template;
    bool tenant;
    int words_behind;  /* "--"; -1: there is none */
    struct service *s; /* both by guard_open() */
    char *target;      /* where the rules are */
};

/* The rules of a sandbox, which this operand may name, of a template, the tenant or the service. */
static int guard_open(struct context *ctx, struct guard_options *o, int operand)
{
    const char *sandbox = context_operands(ctx) > operand ? ctx->argv[ctx->argi + operand] : NULL;
    AUTO_FREE char *id = NULL;
    o->s = service_open(ctx);
    if (o->s && (!sandbox || service_resolve(o->s, sandbox, &id) == 0))
        o->target = o->template ? service_path(ctx, "/cove/v1/guard/templates/", o->template, "")
                    : id        ? service_target(id, "/guard")
                                : mem_printf("/cove/v1/guard%s", o->tenant ? "/tenant" : "");
    return o->target ? 0 : -1;
}

/* "rules[3].argv: ..." becomes "FILE:LINE: rules[3].argv: ...". */
static int guard_refused(struct context *ctx, const char *path)
{
    char place[96], before[sizeof(ctx->err.msg)];
    size_t n = strcspn(ctx->err.msg, ":");
    if (ctx->err.code != ERR_INVALID_ARGUMENT || n >= sizeof(place))
        return context_fail(ctx, STATUS_FAILED);
    (void)snprintf(place, sizeof(place), "%.*s", (int)n, ctx->err.msg);
    size_t line = yaml_line(path, place);
    (void)snprintf(before, sizeof(before), "%s", ctx->err.msg);
    if (line)
        (void)err_set(&ctx->err, ERR_INVALID_ARGUMENT, "%.96s:%zu: %s", path, line, before);
    return context_fail(ctx, STATUS_USAGE);
}

static int guard_show(struct context *ctx, void *options)
{
    struct guard_options *o = options;
    AUTO_JSON json_t *rules = NULL;
    if (guard_open(ctx, o, 0) < 0 || service_call(o->s, "GET", o->target, NULL, NULL, &rules) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (ctx->json) {
        print_json(rules);
        return STATUS_OK;
    }
    if (json_object_size(rules) == 0 && isatty(STDERR_FILENO))
        (void)fputs("there are no rules here: everything is allowed that other levels allow\n", stderr);
    AUTO_FREE char *text = json_dumps(rules, JSON_INDENT(2));
    print_line(text);
    return STATUS_OK;
}

static int guard_set(struct context *ctx, void *options)
{
    struct guard_options *o = options;
    const char *path = ctx->argv[ctx->argi];
    AUTO_JSON json_t *rules = NULL;
    if (guard_open(ctx, o, 1) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (yaml_read(path, &rules, &ctx->err) < 0)
        return context_fail(ctx, STATUS_USAGE);
    if (!json_is_object(rules))
        return context_usage(ctx, "%s: write a mapping: rails, rules, by_risk, otherwise", path);
    return service_call(o->s, "PUT", o->target, rules, "setting the rules", NULL) < 0 ? guard_refused(ctx, path)
                                                                                      : STATUS_OK;
}

static int guard_remove(struct context *ctx, void *options)
{
    struct guard_options *o = options;
    return guard_open(ctx, o, 0) < 0 || service_call(o->s, "DELETE", o->target, NULL, NULL, NULL) < 0
               ? context_fail(ctx, STATUS_FAILED)
               : STATUS_OK;
}

static int guard_rails(struct context *ctx, void *options UNUSED)
{
    static const struct things_column columns[] = {
        {"NAME", "name", NULL}, {"RISK", "risk", NULL}, {"ABOUT", "about", NULL}};
    AUTO_JSON json_t *answer = NULL;
    if (service_ask(ctx, "GET", "/cove/v1/guard/rails", NULL, NULL, &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (!ctx->json)
        return things_table(ctx, json_object_get(answer, "rails"), columns, ARRAY_SIZE(columns));
    print_json(answer);
    return STATUS_OK;
}

/* Without a sandbox: in one without rules of its own. */
static int guard_test(struct context *ctx, void *options)
{
    struct guard_options *o = options;
    const int n = context_operands(ctx), behind = o->words_behind < 0 ? n : o->words_behind;
    AUTO_FREE char *id = NULL, *target = NULL;
    AUTO_JSON json_t *answer = NULL, *words = json_array(), *body = json_pack("{s:O}", "argv", words);
    if (n > behind + 1 || !behind)
        return context_usage(ctx, "one sandbox, then -- and the command");
    for (int i = ctx->argc - behind; i < ctx->argc; i++)
        if (json_array_append_new(words, json_string(ctx->argv[i])) < 0)
            return context_usage(ctx, "the command must be UTF-8");
    o->s = service_open(ctx);
    if (!o->s || (n > behind && service_resolve(o->s, ctx->argv[ctx->argi], &id) < 0))
        return context_fail(ctx, STATUS_COVE);
    target = id ? service_target(id, "/guard/test") : mem_strdup("/cove/v1/guard/test");
    if (service_call(o->s, "POST", target, body, NULL, &answer) < 0)
        return context_fail(ctx, STATUS_COVE);
    const char *verdict = things_text(answer, "verdict");
    if (ctx->json)
        print_json(answer);
    else
        terminal_line(stdout, "%s  rule %s, risk %s%s", verdict, things_text(answer, "rule"),
                      things_text(answer, "risk"),
                      json_is_true(json_object_get(answer, "analysed")) ? "; the analyser is asked" : "");
    return strcmp(verdict, "allow") == 0 ? STATUS_OK : STATUS_FAILED;
}

static int guard_run(struct context *ctx)
{
    static const struct command_form forms[] = {
        {"show", guard_show, 0, 1, "one sandbox, --template or --of-tenant"},
        {"set", guard_set, 1, 2, "set takes a file (\"-\" is standard input), and one sandbox at most"},
        {"rm", guard_remove, 0, 1, "one sandbox, --template or --of-tenant"},
        {"test", guard_test, 1, FORM_MANY, "the command is missing: cove guard test [ID] -- COMMAND..."},
        {"rails", guard_rails, 0, 0, "rails takes no operand"}};
    struct guard_options o = {.words_behind = context_words_behind(ctx)};
    if (CONTEXT_READ(ctx, {"template", .text = &o.template}, {"of-tenant", .on = &o.tenant}) < 0)
        return context_exit(ctx);
    const int n = context_operands(ctx), own = n && strcmp(ctx->argv[ctx->argi], "set") == 0 ? 2 : 1;
    if ((n > own) + (o.template != NULL) + o.tenant > 1)
        return context_usage(ctx, "one sandbox, --template or --of-tenant");
    int status = context_form(ctx, forms, ARRAY_SIZE(forms), &o);
    service_close(o.s);
    mem_free(o.target);
    return status;
}

const struct command cmd_guard = {
    .name = "guard",
    .summary = "show, set and test rules for what agents may do",
    .text = &text_guard,
    .operands = "=show set rm test rails|id",
    COMMAND_FLAGS(guard_flags),
    .run = guard_run,
};

/* ---- approvals ---- */

static const struct flag approvals_flags[] = {
    {'f', "follow", NULL, "Follows new questions and answers."},
    {'q', "quiet", NULL, "Prints ids only, one a line."},
};

/* What is to be done, on a line: a command's words, or the data. */
static void approvals_add_action(struct table *t, const json_t *one, const char *name)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    const json_t *action = json_object_get(one, name), *args = json_object_get(action, "args");
    AUTO_FREE char *text = NULL;
    buf_append_cstr(&b, things_text(action, "cmd"));
    JSON_FOREACH (word, args)
        buf_printf(&b, " %s", json_string_value(word) ? json_string_value(word) : "");
    if (!args) {
        buf_clear(&b);
        text = json_dumps(action, JSON_COMPACT);
        buf_append_cstr(&b, text ? text : "");
    }
    table_add_cut(t, buf_str(&b), isatty(STDOUT_FILENO) == 1 ? 100 : SIZE_MAX);
}

static const struct things_column approvals_columns[] = {{"ID", "id", NULL},
                                                         {"ON", "on", NULL},
                                                         {"ACTION", "kind", NULL},
                                                         {"BY", "actor", NULL},
                                                         {"RULE", "rule", NULL},
                                                         {"RISK", "risk", NULL},
                                                         {"ENDS IN", "until", things_until},
                                                         {"WHAT", "action", approvals_add_action}};

static const struct things approvals = {
    .one = "approval",
    .all = "approvals",
    .name = "id",
    .how_made = "nothing waits for an answer",
    .how_free = "",
    .remove = "",
    .columns = approvals_columns,
    .n_columns = ARRAY_SIZE(approvals_columns),
};

static int approvals_run(struct context *ctx)
{
    bool quiet = false, follows = false;
    if (CONTEXT_READ(ctx, {"quiet", .on = &quiet}, {"follow", .on = &follows}) < 0)
        return context_exit(ctx);
    if (context_operands(ctx))
        return context_usage(ctx, "it takes no operand; 'cove approve' answers");
    int status = things_list(ctx, &approvals, "/cove/v1/approvals", quiet);
    if (status != STATUS_OK || !follows)
        return status;
    (void)fflush(stdout);
    AUTO(service_close) struct service *s = service_open(ctx);
    return s ? events_print(ctx, s, "/cove/v1/events?follow=1&last=0&kind=guard.&from=", 0,
                            &(struct events_printed){.follows = true, .has_inside = true})
             : context_fail(ctx, STATUS_FAILED);
}

const struct command cmd_approvals = {
    .name = "approvals",
    .summary = "list the actions that wait for approval",
    .text = &text_approvals,
    .operands = "",
    COMMAND_FLAGS(approvals_flags),
    .run = approvals_run,
};

static const struct flag answer_flags[] = {
    {0, "always", NULL, "Adds a rule for exactly this command or file, in this sandbox, to the rules that asked."},
};

static int answer_run(struct context *ctx, bool allow)
{
    bool always = false;
    int status = STATUS_OK;
    if (CONTEXT_READ(ctx, {"always", .on = &always}) < 0)
        return context_exit(ctx);
    if (context_operands(ctx) < 1)
        return context_usage(ctx, "the id is missing; 'cove approvals' lists them");
    AUTO_JSON json_t *body = json_pack("{s:b,s:b}", "allow", allow, "always", always);
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s)
        return context_fail(ctx, STATUS_FAILED);
    for (int i = ctx->argi; i < ctx->argc; i++) {
        AUTO_FREE char *target = service_path(ctx, "/cove/v1/approvals/", ctx->argv[i], "");
        if (!target || service_call(s, "POST", target, body, NULL, NULL) < 0)
            status = context_fail(ctx, STATUS_FAILED);
    }
    return status;
}

static int approve_run(struct context *ctx)
{
    return answer_run(ctx, true);
}

static int deny_run(struct context *ctx)
{
    return answer_run(ctx, false);
}

const struct command cmd_approve = {
    .name = "approve",
    .summary = "approve a waiting action",
    .text = &text_approve,
    .operands = "",
    COMMAND_FLAGS(answer_flags),
    .run = approve_run,
};

const struct command cmd_deny = {
    .name = "deny",
    .summary = "deny a waiting action",
    .text = &text_deny,
    .operands = "",
    COMMAND_FLAGS(answer_flags),
    .run = deny_run,
};
