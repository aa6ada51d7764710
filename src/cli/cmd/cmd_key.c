/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/print.h"
#include "cli/things.h"
#include "config/config.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

enum { KEY_BYTES_MAX = 512 };

static const struct flag key_flags[] = {
    {0, "name", "NAME", "create: the key's name: letters, digits, '.', '_' and '-', up to 63."},
    {0, "scope", "SCOPE", "create: read, use, approve or admin. Default: use."},
    {0, "sandbox", "ID", "create: a key for this sandbox alone; its scope is read or use."},
    {0, "expires", "TIME", "create: how long the key is valid: 12h, 30d. Default: until it is revoked."},
    {0, "grace", "TIME", "rotate: how long the old key continues to work. Default: 1d; 0: not at all."},
    {'q', "quiet", NULL, "ls: prints names only, one a line."},
};

/* ---- the one from the key file ---- */

static int print_own(const struct context *ctx, struct str key)
{
    AUTO_BUF struct buf b = BUF_INIT(8 * KEY_BYTES_MAX);
    if (ctx->json) {
        buf_append_cstr(&b, "{\"key\":");
        buf_append_json_string(&b, key);
        buf_append_char(&b, '}');
    } else {
        buf_append_str(&b, key);
    }
    buf_append_char(&b, '\n');
    (void)fwrite(buf_data(&b), 1, buf_len(&b), stdout);
    return STATUS_OK;
}

static int own(struct context *ctx)
{
    if (ctx->host || ctx->tenant)
        return context_usage(ctx, "this key is read from the machine's own file: there is no --%s",
                             ctx->host ? "host" : "tenant");
    const char *given = getenv("COVE_API_KEY");
    if (given && *given)
        return print_own(ctx, str_of(given));
    const struct config *config = context_config(ctx);
    if (!config)
        return context_fail(ctx, STATUS_FAILED);
    AUTO_FREE char *path = mem_printf("%s/key", config->state_dir);
    AUTO_BUF struct buf key = BUF_INIT(KEY_BYTES_MAX);
    int r = fd_read_file(AT_FDCWD, path, &key);
    if (r < 0) {
        (void)err_errno(&ctx->err, r, "read the API key %s", path);
        context_hint(ctx, "%s",
                     r == -ENOENT
                         ? "it is made when the service starts for the first time: 'systemctl start cove', or 'make "
                           "start' in the source directory"
                     : r == -EACCES ? "it is for root: use sudo"
                                    : "");
        return context_fail(ctx, STATUS_FAILED);
    }
    struct str line = STR_NULL, rest = buf_str(&key);
    (void)str_split(&rest, '\n', &line);
    return print_own(ctx, line);
}

/* ---- the others ---- */

/* The key alone on stdout, where a script takes it from. */
static int print_new(const struct context *ctx, const json_t *answer)
{
    if (ctx->json) {
        print_json(answer);
        return STATUS_OK;
    }
    print_line(things_text(answer, "key"));
    if (isatty(STDERR_FILENO))
        (void)fputs("keep it: it is shown this once\n", stderr);
    return STATUS_OK;
}

struct key_options {
    json_t *body;
    const char *sandbox;
    bool quiet;
};

static int key_call(struct context *ctx, struct service *s, const char *target, const json_t *body)
{
    AUTO_JSON json_t *answer = NULL;
    return !s || !target || service_call(s, "POST", target, body, NULL, &answer) < 0 ? context_fail(ctx, STATUS_FAILED)
                                                                                     : print_new(ctx, answer);
}

static int cmd_key_create(struct context *ctx, void *options)
{
    struct key_options *o = options;
    AUTO_FREE char *id = NULL;
    if (!json_object_get(o->body, "name"))
        return context_usage(ctx, "create takes --name, and no operand");
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || (o->sandbox && service_resolve(s, o->sandbox, &id) < 0))
        return context_fail(ctx, STATUS_FAILED);
    if (id)
        (void)json_object_set_new(o->body, "sandbox", json_string(id));
    return key_call(ctx, s, "/cove/v1/keys", o->body);
}

static int cmd_key_rotate(struct context *ctx, void *options)
{
    const struct key_options *o = options;
    AUTO_FREE char *target = service_path(ctx, "/cove/v1/keys/", ctx->argv[ctx->argi], "/rotate");
    AUTO(service_close) struct service *s = target ? service_open(ctx) : NULL;
    return key_call(ctx, s, target, o->body);
}

static const struct things_column key_columns[] = {{"NAME", "name", NULL},
                                                   {"ID", "id", NULL},
                                                   {"SCOPE", "scope", NULL},
                                                   {"SANDBOX", "sandbox", NULL},
                                                   {"TENANT", "tenant", NULL},
                                                   {"AGE", "created_at", things_ago},
                                                   {"EXPIRES IN", "expires_at", things_until}};

static const struct things keys = {
    .one = "key",
    .all = "keys",
    .name = "name",
    .how_made = "'cove key create' makes one; the one that 'cove key' prints is not listed",
    .how_free = "",
    .remove = "/cove/v1/keys/",
    .columns = key_columns,
    .n_columns = ARRAY_SIZE(key_columns),
};

static int key_list(struct context *ctx, void *options)
{
    const struct key_options *o = options;
    return things_list(ctx, &keys, "/cove/v1/keys", o->quiet);
}

static int key_revoke(struct context *ctx, void *options UNUSED)
{
    return things_remove(ctx, &keys);
}

static int key_run(struct context *ctx)
{
    static const struct command_form forms[] = {
        {"create", cmd_key_create, 0, 0, "create takes --name, and no operand"},
        {"ls", key_list, 0, 0, "ls takes no operand"},
        {"rotate", cmd_key_rotate, 1, 1, "the key's name or id is missing"},
        {"revoke", key_revoke, 1, FORM_MANY, "which key? give its name, or several"}};
    static const char time[] = "a time such as 90s, 12h or 30d";
    AUTO_JSON json_t *body = json_object();
    struct key_options o = {.body = body};
    const struct flag_into into[] = {
        {"name", .json = body},
        {"scope", .json = body},
        {"expires", .json = body, .member = "expires_ms", .kind = FLAG_TIME, .wanted = time},
        {"grace", .json = body, .member = "grace_ms", .kind = FLAG_TIME, .wanted = time},
        {"sandbox", .text = &o.sandbox},
        {"quiet", .on = &o.quiet},
        {.name = NULL}};
    if (context_read(ctx, into) < 0)
        return context_exit(ctx);
    if (context_operands(ctx))
        return context_form(ctx, forms, ARRAY_SIZE(forms), &o);
    return context_check_form(ctx, "") == STATUS_OK ? own(ctx) : STATUS_USAGE;
}

const struct command cmd_key = {
    .name = "key",
    .summary = "print, create, list, rotate and revoke API keys",
    .text = &text_key,
    .operands = "=create ls rotate revoke",
    COMMAND_FLAGS(key_flags),
    .run = key_run,
};
