/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/domain/secret_input.h"
#include "cli/domain/vault_client.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"
#include "cli/service.h"
#include "cli/things.h"

#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

static const struct flag flags[] = {
    {'f', 'f', "file", "FILE", "set: reads the value from this file and not from stdin."},
    {'q', 'q', "quiet", NULL, "set: prints nothing on success."},
};

/* The vault judges the name; here is only said what would not even fit into a request. */
static int check_name(struct context *ctx, const char *name)
{
    if (*name && strlen(name) <= VAULT_NAME_MAX)
        return 0;
    return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "a secret's name must have 1 to %d characters", VAULT_NAME_MAX);
}

/* ---- what can be done ---- */

static int secret_set(struct context *ctx, const char *name, const char *file, bool quiet)
{
    AUTO_SECRET_INPUT struct secret_input value = {NULL, 0};
    AUTO_BUF struct buf bytes = BUF_INIT(VAULT_ANSWER_MAX);
    struct vault_answer answer = {0};
    if (check_name(ctx, name) < 0 || secret_input_read(ctx, name, file, &value) < 0)
        return context_fail(ctx, STATUS_FAILED);
    AUTO_FREE char *prefix = NULL;
    struct vault_request request = {VAULT_SET, str_of(name), str_n(value.bytes, value.n)};
    if (vault_ask(ctx, &request, &bytes, &answer, &prefix) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (ctx->json) {
        AUTO_JSON json_t *said = json_pack("{s:s}", "set", name);
        print_json(said);
    } else if (!quiet) {
        (void)printf("%s is set\n", name);
    }
    return STATUS_OK;
}

static int remove_all(struct context *ctx, char *const *names, size_t n)
{
    int status = STATUS_OK;
    AUTO_JSON json_t *removed = json_array();
    for (size_t i = 0; i < n; i++) {
        AUTO_BUF struct buf bytes = BUF_INIT(VAULT_ANSWER_MAX);
        struct vault_answer answer = {0};
        AUTO_FREE char *prefix = NULL;
        *ctx->hint = '\0';
        if (check_name(ctx, names[i]) < 0 ||
            vault_ask(ctx, &(struct vault_request){VAULT_REMOVE, str_of(names[i]), STR_NULL}, &bytes, &answer,
                      &prefix) < 0) {
            status = context_fail(ctx, STATUS_FAILED);
            continue;
        }
        (void)json_array_append_new(removed, json_string(names[i]));
        if (!ctx->json)
            (void)printf("%s\n", names[i]);
    }
    if (ctx->json) {
        AUTO_JSON json_t *said = json_pack("{s:O}", "removed", removed);
        print_json(said);
    }
    return status;
}

static void secret_add_row(struct table *t, struct str name, uint64_t at)
{
    usec_t now = clock_real();
    table_add(t, name);
    things_add_distance(t, now - MIN(at, now));
}

static int secret_list(struct context *ctx)
{
    AUTO_BUF struct buf bytes = BUF_INIT(VAULT_ANSWER_MAX);
    struct vault_answer answer = {0};
    struct str name;
    uint64_t at;
    AUTO_FREE char *prefix = NULL;
    if (vault_ask(ctx, &(struct vault_request){.op = VAULT_LIST}, &bytes, &answer, &prefix) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (ctx->json) {
        AUTO_JSON json_t *all = json_array();
        char when[CLOCK_TEXT_MAX];
        while (vault_answer_next(&answer, &name, &at)) {
            if (!vault_own_name(prefix, &name))
                continue;
            clock_format(at, 6, when);
            (void)json_array_append_new(all, json_pack("{s:s%,s:s}", "name", name.p, name.n, "set_at", when));
        }
        print_json(all);
        return STATUS_OK;
    }
    if (answer.count == 0) {
        if (isatty(STDOUT_FILENO))
            (void)fputs("there are no secrets yet; 'cove secret set NAME' sets one\n", stderr);
        return STATUS_OK;
    }
    struct table t;
    table_init(&t, 2);
    table_add(&t, STR("NAME"));
    table_add(&t, STR("SET SINCE"));
    while (vault_answer_next(&answer, &name, &at))
        if (vault_own_name(prefix, &name))
            secret_add_row(&t, name, at);
    table_print(&t, stdout);
    table_fini(&t);
    return STATUS_OK;
}

static int secret_run(struct context *ctx)
{
    const char *value, *file = NULL;
    bool quiet = false;
    int flag;
    while ((flag = context_next_flag(ctx, &value)) > 0) {
        if (flag == 'q')
            quiet = true;
        else
            file = value;
    }
    if (flag < 0)
        return context_exit(ctx);
    int n = context_operands(ctx) - 1;
    const char *what = n >= 0 ? ctx->argv[ctx->argi] : "";
    char *const *names = ctx->argv + ctx->argi + 1;
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (*what && context_check_form(ctx, what) != STATUS_OK)
        return STATUS_USAGE;
    if (strcmp(what, "set") == 0 && n == 1)
        return secret_set(ctx, names[0], file, quiet);
    if (strcmp(what, "set") == 0)
        return context_usage(ctx, n ? "set takes one name; the value comes from stdin, never from the command line"
                                    : "which secret? give its name");
    if (strcmp(what, "ls") == 0)
        return n ? context_usage(ctx, "ls takes no name") : secret_list(ctx);
    if (strcmp(what, "rm") == 0)
        return n ? remove_all(ctx, names, (size_t)n) : context_usage(ctx, "the secret's name is missing");
    return context_usage(ctx, *what ? "there is set, ls and rm, but no \"%.32s\"" : "what to do? set, ls or rm%s",
                         what);
}

const struct command cmd_secret = {
    .name = "secret",
    .summary = "set, list and remove secrets",
    .synopsis = "set NAME [-f FILE] [-q]\nls\nrm NAME...",
    .description =
        "Stores credentials for requests that sandboxes make. No sandbox ever holds one: a network policy names a "
        "secret, as in \"Bearer ${secret:NAME}\", and cove-egress puts its value into requests to the policy's hosts "
        "on their way out.\n\nset reads the value from stdin or from FILE; at a terminal it asks for it without "
        "showing it. One line break at the end is dropped. An existing secret gets the new value, which is used from "
        "the next request on. A name is a letter or _, then letters, digits, _, . and -, up to 64; a value has 1 to "
        "16384 bytes, without line breaks.\n\nls shows the names and when each was set. Values can't be read "
        "back.\n\nrm removes secrets and prints the name of each; requests that need one of them are then refused. "
        "If one can't be removed, the others still are.\n\nSecrets are stored in the state directory, encrypted with "
        "a key beside them (egress/vault.key, for cove-egress only). Only root and the service's owner can use this "
        "command, and only on the service's machine.",
    .exit_status = " 0  it worked\n 1  it did not; stderr says why\n 2  the command line is wrong",
    .examples = "cove secret set GITHUB_TOKEN\n"
                "gh auth token | cove secret set GITHUB_TOKEN\n"
                "cove secret set OPENAI_API_KEY --file key.txt\n"
                "cove secret ls --json",
    .operands = "=set ls rm",
    COMMAND_FLAGS(flags),
    .run = secret_run,
};
