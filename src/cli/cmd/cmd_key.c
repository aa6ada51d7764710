/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/print.h"
#include "cli/things.h"
#include "config/config.h"
#include "config/units.h"
#include "http/url.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { KEY_MAX = 512, FLAG_NAME = 256, FLAG_SCOPE, FLAG_SANDBOX, FLAG_EXPIRES, FLAG_GRACE };

static const struct flag flags[] = {
    {FLAG_NAME, 0, "name", "NAME", "create: the key's name: letters, digits, '.', '_' and '-', up to 63."},
    {FLAG_SCOPE, 0, "scope", "SCOPE", "create: read, use, approve or admin. Default: use."},
    {FLAG_SANDBOX, 0, "sandbox", "ID", "create: a key for this sandbox alone; its scope is read or use."},
    {FLAG_EXPIRES, 0, "expires", "TIME",
     "create: how long the key is valid: 12h, 30d. Default: until it is "
     "revoked."},
    {FLAG_GRACE, 0, "grace", "TIME", "rotate: how long the old key continues to work. Default: 1d; 0: not at all."},
    {'q', 'q', "quiet", NULL, "ls: prints names only, one a line."},
};

/* ---- the one from the key file ---- */

static int print_own(const struct context *ctx, struct str key)
{
    AUTO_BUF struct buf b = BUF_INIT(8 * KEY_MAX);
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
    AUTO_BUF struct buf key = BUF_INIT(KEY_MAX);
    int r = fd_read_file(AT_FDCWD, path, &key);
    if (r < 0) {
        (void)err_errno(&ctx->err, r, "read the API key %s", path);
        (void)snprintf(ctx->hint, sizeof(ctx->hint), "%s",
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

static int call(struct context *ctx, struct service *s, const char *target, const json_t *body)
{
    AUTO_JSON json_t *answer = NULL;
    if (service_call(s, "POST", target, body, NULL, &answer) < 0)
        return context_fail(ctx, STATUS_FAILED);
    return print_new(ctx, answer);
}

static int cmd_key_create(struct context *ctx, json_t *body, const char *sandbox)
{
    AUTO_FREE char *id = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || (sandbox && service_resolve(s, sandbox, &id) < 0))
        return context_fail(ctx, STATUS_FAILED);
    if (id)
        (void)json_object_set_new(body, "sandbox", json_string(id));
    return call(ctx, s, "/cove/v1/keys", body);
}

static int cmd_key_rotate(struct context *ctx, const char *name, const json_t *body)
{
    AUTO_BUF struct buf target = BUF_INIT(4096);
    buf_append_cstr(&target, "/cove/v1/keys/");
    (void)url_encode(&target, str_of(name), true);
    buf_append_cstr(&target, "/rotate");
    buf_append_char(&target, '\0');
    AUTO(service_close) struct service *s = buf_error(&target) < 0 ? NULL : service_open(ctx);
    if (buf_error(&target) < 0)
        (void)err_set(&ctx->err, ERR_INVALID_ARGUMENT, "\"%.64s...\" is not the name of a key", name);
    return s ? call(ctx, s, buf_data(&target), body) : context_fail(ctx, STATUS_FAILED);
}

static const struct things_column columns[] = {{"NAME", "name", NULL},
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
    .columns = columns,
    .n_columns = ARRAY_SIZE(columns),
};

static int key_list(struct context *ctx, bool quiet)
{
    AUTO(service_close) struct service *s = service_open(ctx);
    return s ? things_list(ctx, s, &keys, "/cove/v1/keys", quiet) : context_fail(ctx, STATUS_FAILED);
}

static int read_time(struct context *ctx, json_t *body, const char *flag, const char *text)
{
    uint64_t ms;
    if (unit_parse_duration(str_of(text), &ms) < 0 || ms > INT64_MAX)
        return context_usage(ctx, "--%s %s: write a time such as 90s, 12h or 30d", flag, text);
    (void)json_object_set_new(body, strcmp(flag, "grace") == 0 ? "grace_ms" : "expires_ms",
                              json_integer((json_int_t)ms));
    return STATUS_OK;
}

static int key_run(struct context *ctx)
{
    AUTO_JSON json_t *body = json_object();
    const char *value, *sandbox = NULL;
    bool quiet = false;
    int flag, status = STATUS_OK;
    while ((flag = context_next_flag(ctx, &value)) > 0) {
        if (flag == FLAG_NAME || flag == FLAG_SCOPE)
            (void)json_object_set_new(body, flag == FLAG_NAME ? "name" : "scope", json_string(value));
        else if (flag == FLAG_EXPIRES || flag == FLAG_GRACE)
            status = read_time(ctx, body, flag == FLAG_GRACE ? "grace" : "expires", value);
        else if (flag == FLAG_SANDBOX)
            sandbox = value;
        else
            quiet = true;
        if (status != STATUS_OK)
            return status;
    }
    if (flag < 0)
        return context_exit(ctx);
    int n = context_operands(ctx) - 1;
    const char *what = n >= 0 ? ctx->argv[ctx->argi] : "";
    char *const *names = ctx->argv + ctx->argi + 1;
    if (context_check_form(ctx, what) != STATUS_OK)
        return STATUS_USAGE;
    if (n < 0)
        return own(ctx);
    if (strcmp(what, "create") == 0)
        return n == 0 && json_object_get(body, "name") ? cmd_key_create(ctx, body, sandbox)
                                                       : context_usage(ctx, "create takes --name, and no operand");
    if (strcmp(what, "ls") == 0)
        return n ? context_usage(ctx, "ls takes no operand") : key_list(ctx, quiet);
    if (strcmp(what, "rotate") == 0)
        return n == 1 ? cmd_key_rotate(ctx, names[0], body) : context_usage(ctx, "the key's name or id is missing");
    if (strcmp(what, "revoke") == 0)
        return n ? things_remove(ctx, &keys, names, n) : context_usage(ctx, "which key? give its name, or several");
    return context_usage(ctx, "there is create, ls, rotate and revoke, but no \"%.32s\"", what);
}

const struct command cmd_key = {
    .name = "key",
    .summary = "print, create, list, rotate and revoke API keys",
    .synopsis = "\ncreate --name NAME [OPTION]...\nls [-q]\nrotate NAME [--grace TIME]\nrevoke NAME...",
    .description =
        "Without an operand: prints the service's own key, which E2B SDKs take as E2B_API_KEY. It is made at the "
        "first start of the service and kept in the state directory; COVE_API_KEY overrides it, here and in the "
        "service. It is an administrator's key, and can't be revoked.\n\ncreate prints a new key, only once: the "
        "service keeps just a hash of it. It works at once. Its scope is read (look at things, read files and logs), "
        "use (everything except keys and rules), approve (use, and answer the guard's questions) or admin. A key for "
        "a sandbox can do nothing outside that sandbox.\n\nrotate prints a new key in place of an old one, which "
        "continues to work for a while (--grace). revoke removes keys: the next request with one is refused.\n\nls "
        "lists keys without showing them. With --tenant, create, ls, rotate and revoke apply to another tenant's "
        "keys.",
    .examples = "export E2B_API_KEY=$(cove key)\n"
                "cove key create --name ci --scope use --expires 30d\n"
                "cove key create --name dashboard --scope read\n"
                "cove key rotate ci --grace 1h\n"
                "cove key revoke ci dashboard",
    .operands = "=create ls rotate revoke",
    COMMAND_FLAGS(flags),
    .run = key_run,
};
