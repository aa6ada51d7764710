/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/domain/vault_client.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/exec/terminal.h"
#include "cli/service.h"
#include "config/config.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ANSWER_S = 20 };

/* vault.sock beside cove.sock. NULL: ctx->err. */
static char *socket_path(struct context *ctx)
{
    const char *host = ctx->host && *ctx->host ? ctx->host : getenv("COVE_HOST");
    if (!host || !*host) {
        const struct config *config = context_config(ctx);
        return config ? mem_printf("%s/vault.sock", config->run_dir) : NULL;
    }
    const char *path = str_starts(str_of(host), STR("unix:")) ? host + 5 : host, *end = strrchr(path, '/');
    if (path[0] == '/')
        return mem_printf("%.*s/vault.sock", (int)(end - path), path);
    context_hint(ctx, "run this command there, without --host and COVE_HOST");
    (void)err_set(&ctx->err, ERR_INVALID_ARGUMENT,
                  "secrets are set on the machine that the service runs on, not remotely");
    return NULL;
}

static int unreachable(struct context *ctx, int r, const char *path)
{
    (void)err_set(&ctx->err, r == -EACCES || r == -EPERM ? ERR_PERMISSION_DENIED : ERR_UNAVAILABLE,
                  "cannot reach the vault at %s: %s", path, strerror(-r));
    context_hint(
        ctx, "%s",
        r == -EACCES || r == -EPERM
            ? "its socket is for root, the service's owner and its group: use sudo, or join the group"
        : r == -EAGAIN || r == -ETIMEDOUT
            ? "cove-egress, which keeps the secrets, does not answer; the service's log says what it is busy with"
            : "start the service with 'systemctl start cove', or 'make start' in the source directory; if it runs "
              "elsewhere, say where by COVE_RUN");
    return -1;
}

static int vault_client_dial(const char *path, int *ret_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct timeval patience = {.tv_sec = ANSWER_S};
    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, strlen(path) + 1);
    AUTO_CLOSE int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0 ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) < 0 ||
        connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return -errno;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

/* A vault that refuses a client answers and ends without having read all: what it said counts, not that sending
 * failed. */
static int exchange(int fd, struct str request, struct buf *answer)
{
    int sent = 0, r;
    while (request.n > 0 && sent == 0) {
        ssize_t n = send(fd, request.p, request.n, MSG_NOSIGNAL);
        if (n > 0)
            request = str_sub(request, (size_t)n);
        else if (errno != EINTR)
            sent = -errno;
    }
    r = sent == -EAGAIN ? sent : fd_read_all(fd, answer);
    if (r == -ECONNRESET && buf_len(answer) > 0)
        r = 0;
    return r < 0 ? r : buf_len(answer) > 0 ? 0 : sent < 0 ? sent : -EPIPE;
}

/* Secrets of other tenants than the default one are called "_tenant-<number>.<name>", or "_uid-<uid>.<name>". NULL: as
 * the vault knows who asks. */
static int tenant_prefix(struct context *ctx, char **ret_prefix)
{
    AUTO_JSON json_t *tenant = NULL;
    const char *name = ctx->tenant ? ctx->tenant : getenv("COVE_TENANT");
    *ret_prefix = NULL;
    if (!name || !*name)
        return 0;
    AUTO_FREE char *target = service_path(ctx, "/cove/v1/tenants/", name, "");
    if (!target)
        return -1;
    ctx->tenant = ""; /* tenants are none's */
    AUTO(service_close) struct service *s = service_open(ctx);
    int r = s ? service_call(s, "GET", target, NULL, NULL, &tenant) : -1;
    ctx->tenant = name;
    json_int_t number = json_integer_value(json_object_get(tenant, "number"));
    AUTO_FREE char *own = mem_printf("uid-%u", (unsigned)geteuid());
    if (r == 0 && strncmp(name, "uid-", 4) == 0)
        *ret_prefix = strcmp(name, own) == 0 ? NULL : mem_printf("_%s.", name);
    else if (r == 0 && number)
        *ret_prefix = mem_printf("_tenant-%" JSON_INTEGER_FORMAT ".", number);
    return r;
}

bool vault_own_name(const char *prefix, struct str *name)
{
    if (prefix && !str_starts(*name, str_of(prefix)))
        return false;
    *name = str_sub(*name, prefix ? strlen(prefix) : 0);
    return true;
}

static int vault_client_ask(struct context *ctx, const struct vault_request *request, struct buf *bytes,
                            struct vault_answer *ret_answer)
{
    AUTO_FREE char *path = socket_path(ctx);
    AUTO_CLOSE int fd = -1;
    AUTO_BUF struct buf message = BUF_INIT(VAULT_REQUEST_MAX);
    struct vault_answer answer = {0};
    if (!path)
        return -1;
    int r = vault_client_dial(path, &fd);
    if (r < 0)
        return unreachable(ctx, r, path);
    vault_request_append(&message, request);
    r = buf_error(&message);
    if (r == 0)
        r = exchange(fd, buf_str(&message), bytes);
    mem_wipe(message.data, message.cap);
    if (r < 0)
        return unreachable(ctx, r, path);
    if (vault_answer_parse(buf_str(bytes), &answer) < 0)
        return err_set(&ctx->err, ERR_INTERNAL, "%s does not answer as a vault does: is it another version?", path);
    if (answer.code != ERR_OK) {
        if (answer.code == ERR_PERMISSION_DENIED)
            context_hint(ctx, "use sudo, or be the service's owner");
        else if (answer.code == ERR_NOT_FOUND)
            context_hint(ctx, "'cove secret ls' lists those there are");
        return err_set(&ctx->err, answer.code, "%.*s", STR_ARG(answer.message));
    }
    *ret_answer = answer;
    return 0;
}

int vault_ask(struct context *ctx, const struct vault_request *request, struct buf *bytes,
              struct vault_answer *ret_answer, char **ret_prefix)
{
    AUTO_FREE char *prefix = NULL, *name = NULL;
    struct vault_request own = *request;
    if (tenant_prefix(ctx, &prefix) < 0)
        return -1;
    if (prefix && request->name.n) {
        name = mem_printf("%s%.*s", prefix, STR_ARG(request->name));
        own.name = str_of(name);
        if (own.name.n > VAULT_NAME_MAX)
            return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "a secret's name has 1 to %zu characters in this tenant",
                           VAULT_NAME_MAX - strlen(prefix));
    }
    if (vault_client_ask(ctx, &own, bytes, ret_answer) < 0)
        return -1;
    *ret_prefix = TAKE_PTR(prefix);
    return 0;
}

int vault_has(struct context *ctx, const char *name)
{
    AUTO_BUF struct buf bytes = BUF_INIT(VAULT_ANSWER_MAX);
    struct vault_answer all = {0};
    struct context scratch = {.host = ctx->host, .tenant = ctx->tenant, .config = ctx->config};
    AUTO_FREE char *prefix = NULL;
    struct str known;
    uint64_t at;
    int r = vault_ask(&scratch, &(struct vault_request){.op = VAULT_LIST}, &bytes, &all, &prefix);
    ctx->config = scratch.config;
    while (r == 0 && vault_answer_next(&all, &known, &at))
        r = vault_own_name(prefix, &known) && str_eqc(known, name);
    return r;
}

static void vault_warn(struct context *ctx, struct str name)
{
    AUTO_FREE char *text = mem_strndup(name.p, name.n);
    if (name.n && vault_has(ctx, text) == 0)
        terminal_line(stderr, "cove %s: there is no secret %s, which the policy names; 'cove secret set %s' makes it",
                      ctx->command->name, text, text);
}

/* In "Bearer ${secret:NAME}". */
static void vault_warn_value(struct context *ctx, const char *value)
{
    static const char mark[] = "${secret:";
    for (const char *at = value ? strstr(value, mark) : NULL; at; at = strstr(at, mark)) {
        at += strlen(mark);
        vault_warn(ctx, str_n(at, strcspn(at, "}")));
    }
}

static void vault_warn_policy(struct context *ctx, const json_t *policy)
{
    JSON_FOREACH (entry, json_object_get(policy, "inject")) {
        JSON_FOREACH (header, json_object_get(entry, "headers"))
            vault_warn_value(ctx, json_string_value(json_object_get(header, "value")));
        JSON_FOREACH (one, json_object_get(entry, "placeholders")) {
            vault_warn(ctx, json_str(json_object_get(one, "secret")));
            vault_warn_value(ctx, json_string_value(json_object_get(one, "value")));
        }
    }
}

int vault_check_names(struct context *ctx, const json_t *names, const json_t *policy)
{
    JSON_FOREACH_MEMBER (name, hosts, names) {
        if (vault_has(ctx, name))
            continue; /* or it can't be asked, from afar or by who isn't the owner: the service can't tell either */
        context_hint(ctx, "'cove secret set %.64s' makes it; 'cove secret ls' lists those there are", name);
        return err_set(&ctx->err, ERR_NOT_FOUND, "there is no secret %.64s", name);
    }
    vault_warn_policy(ctx, policy);
    return 0;
}
