/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/domain/secret_input.h"
#include "cli/domain/vault_client.h"
#include "cli/print.h"
#include "cli/things.h"

#include <sys/prctl.h>
#include <unistd.h>

static const struct flag secret_flags[] = {
    {'f', "file", "FILE", "set: reads the value from this file and not from stdin."},
    {'q', "quiet", NULL, "set: prints nothing on success."},
};

/* The vault judges the name; here is only said what would not even fit into a request. */
static int check_name(struct context *ctx, const char *name)
{
    if (strchr(name, '='))
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT,
                       "a secret's name has no '='; its value comes from stdin or --file, never from the command line");
    if (*name && strlen(name) <= VAULT_NAME_MAX)
        return 0;
    return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "a secret's name must have 1 to %d characters", VAULT_NAME_MAX);
}

/* ---- what can be done ---- */

struct secret_options {
    const char *file;
    bool quiet;
};

static int secret_set(struct context *ctx, void *options)
{
    const struct secret_options *o = options;
    const char *name = ctx->argv[ctx->argi];
    AUTO_SECRET_INPUT struct secret_input value = {NULL, 0};
    AUTO_BUF struct buf bytes = BUF_INIT(VAULT_ANSWER_MAX);
    struct vault_answer answer = {0};
    if (check_name(ctx, name) < 0 || secret_input_read(ctx, name, o->file, &value) < 0)
        return context_fail(ctx, STATUS_FAILED);
    AUTO_FREE char *prefix = NULL;
    struct vault_request request = {VAULT_SET, str_of(name), str_n(value.bytes, value.n)};
    if (vault_ask(ctx, &request, &bytes, &answer, &prefix) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (ctx->json) {
        AUTO_JSON json_t *said = json_pack("{s:s}", "set", name);
        print_json(said);
    } else if (!o->quiet) {
        (void)printf("%s is set\n", name);
    }
    return STATUS_OK;
}

static int secret_remove_one(struct context *ctx, void *arg UNUSED, const char *name)
{
    AUTO_BUF struct buf bytes = BUF_INIT(VAULT_ANSWER_MAX);
    struct vault_answer answer = {0};
    AUTO_FREE char *prefix = NULL;
    const struct vault_request request = {VAULT_REMOVE, str_of(name), STR_NULL};
    return check_name(ctx, name) < 0 || vault_ask(ctx, &request, &bytes, &answer, &prefix) < 0 ? -1 : 0;
}

static int secret_remove(struct context *ctx, void *options UNUSED)
{
    return things_each(ctx, "removed", secret_remove_one, NULL);
}

static int secret_list(struct context *ctx, void *options UNUSED)
{
    static const struct things_column columns[] = {{"NAME", "name", NULL}, {"AGE", "set_at", things_ago}};
    AUTO_BUF struct buf bytes = BUF_INIT(VAULT_ANSWER_MAX);
    AUTO_JSON json_t *all = json_array();
    struct vault_answer answer = {0};
    char when[CLOCK_TEXT_MAX];
    struct str name;
    uint64_t at;
    AUTO_FREE char *prefix = NULL;
    if (vault_ask(ctx, &(struct vault_request){.op = VAULT_LIST}, &bytes, &answer, &prefix) < 0)
        return context_fail(ctx, STATUS_FAILED);
    while (vault_answer_next(&answer, &name, &at)) {
        if (!vault_own_name(prefix, &name))
            continue;
        clock_format(at, 6, when);
        (void)json_array_append_new(all, json_pack("{s:s%,s:s}", "name", name.p, name.n, "set_at", when));
    }
    if (!ctx->json && !json_array_size(all) && isatty(STDOUT_FILENO))
        (void)fputs("there are no secrets yet; 'cove secret set NAME' sets one\n", stderr);
    return things_table(ctx, all, columns, ARRAY_SIZE(columns));
}

static int secret_run(struct context *ctx)
{
    static const struct command_form forms[] = {
        {"set", secret_set, 1, 1, "set takes one name; the value comes from stdin, never from the command line"},
        {"ls", secret_list, 0, 0, "ls takes no name"},
        {"rm", secret_remove, 1, FORM_MANY, "the secret's name is missing"}};
    struct secret_options o = {0};
    if (CONTEXT_READ(ctx, {"file", .text = &o.file}, {"quiet", .on = &o.quiet}) < 0)
        return context_exit(ctx);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    return context_form(ctx, forms, ARRAY_SIZE(forms), &o);
}

const struct command cmd_secret = {
    .name = "secret",
    .summary = "set, list and remove secrets",
    .text = &text_secret,
    .operands = "=set ls rm",
    COMMAND_FLAGS(secret_flags),
    .run = secret_run,
};
