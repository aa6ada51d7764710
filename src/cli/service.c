/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/service.h"
#include "base/buf.h"
#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"
#include "cli/exec/terminal.h"
#include "config/config.h"
#include "http/url.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

enum {
    CONNECT_MS = 5000,
    ANSWER_MS = 330000, /* the guard holds an action for up to five minutes */
    WAITS_MS = 10000,   /* then a person is told why that may be */
    SERVICE_ANSWER_MAX = 64 << 20,
    SERVICE_LINE_MAX_BYTES = 4 << 20,
    SERVICE_KEY_MAX = 512,
    SERVICE_TARGET_MAX = 4096,
    SANDBOXES_MAX = 1000000
};

struct service {
    struct context *ctx;
    struct http_client *client;
    char *endpoint;
    char *key; /* NULL over the unix socket */
    bool is_local;
    struct buf line; /* what was read of a stream and not handed out, behind the line that was last */
    size_t line_used;
    json_t *object; /* that line */
};

static int broken_connection(struct context *ctx, const char *endpoint, bool is_local, int error)
{
    (void)err_set(&ctx->err, error == -EACCES ? ERR_PERMISSION_DENIED : ERR_UNAVAILABLE,
                  "cannot reach the service at %s: %s", endpoint, strerror(-error));
    if (error == -EINVAL)
        (void)err_set(&ctx->err, ERR_INVALID_ARGUMENT,
                      "\"%s\" is not the address of a service; write unix:/path, host:port or https://host", endpoint);
    else if (error == -EKEYREJECTED)
        (void)err_set(&ctx->err, ERR_PERMISSION_DENIED,
                      "the service at %s shows a certificate that is not trusted here, or is for another name",
                      endpoint);
    else if (error == -EPROTO)
        (void)err_set(&ctx->err, ERR_UNAVAILABLE, "%s does not speak TLS; use http:// for a connection without it",
                      endpoint);
    if (error == -EKEYREJECTED)
        context_hint(ctx,
                     "SSL_CERT_FILE names a file of certificates to trust; 'cove domain trust' prints the service's");
    else if (is_local && error == -EACCES)
        context_hint(ctx,
                     "its socket is for root and the service's owner: use sudo, or set COVE_HOST and COVE_API_KEY");
    else if (is_local)
        context_hint(
            ctx, "start it with 'systemctl start cove', or 'make start' in the source directory; if it runs elsewhere, "
                 "say where by COVE_HOST or COVE_RUN");
    else
        context_hint(ctx, "check that it runs there and that name and port are right (--host, COVE_HOST)");
    return -1;
}

/* Is it this machine, as far as its name alone says? */
static bool is_loopback(const char *endpoint)
{
    const char *slashes = strstr(endpoint, "://"), *host = slashes ? slashes + 3 : endpoint;
    struct str name = str_n(host, strcspn(host, ":/"));
    return str_starts(name, STR("127.")) || str_eqc(name, "localhost") || str_ends(name, STR(".localhost")) ||
           str_starts(str_of(host), STR("[::1]"));
}

/* COVE_API_KEY, else the key of the service on this machine when it may be read: for this machine alone. */
static char *find_key(struct context *ctx, const char *endpoint)
{
    const char *given = getenv("COVE_API_KEY");
    if (given && *given)
        return mem_strdup(given);
    if (!is_loopback(endpoint))
        return NULL;
    const struct config *config = context_config(ctx);
    if (!config)
        return NULL;
    AUTO_FREE char *path = mem_printf("%s/key", config->state_dir);
    AUTO_BUF struct buf b = BUF_INIT(SERVICE_KEY_MAX);
    if (fd_read_file(AT_FDCWD, path, &b) < 0)
        return NULL;
    while (buf_len(&b) > 0 && buf_data(&b)[buf_len(&b) - 1] == '\n')
        b.end--;
    return buf_take(&b);
}

struct service *service_open(struct context *ctx)
{
    AUTO(service_close) struct service *s = mem_new(struct service);
    s->ctx = ctx;
    buf_init(&s->line, SERVICE_LINE_MAX_BYTES);
    if (!ctx->host || !*ctx->host)
        ctx->host = getenv("COVE_HOST");
    if (ctx->host && *ctx->host) {
        s->endpoint = mem_strdup(ctx->host);
        s->is_local = str_starts(str_of(ctx->host), STR("unix:")) || ctx->host[0] == '/';
    } else {
        const struct config *config = context_config(ctx);
        if (!config)
            return NULL;
        s->endpoint = mem_printf("unix:%s/cove.sock", config->run_dir);
        s->is_local = true;
    }
    if (!ctx->tenant)
        ctx->tenant = getenv("COVE_TENANT");
    if (!s->is_local)
        s->key = find_key(ctx, s->endpoint);
    int r = http_client_open(s->endpoint, CONNECT_MS, &s->client);
    if (r < 0) {
        (void)broken_connection(ctx, s->endpoint, s->is_local, r);
        return NULL;
    }
    http_client_timeout(s->client, ANSWER_MS);
    return TAKE_PTR(s);
}

void service_close(struct service *s)
{
    if (!s)
        return;
    http_client_free(s->client);
    buf_fini(&s->line);
    json_decref(s->object);
    if (s->key)
        mem_wipe(s->key, strlen(s->key));
    MEM_FREE(s->key, s->endpoint, s);
}

struct http_client *service_client(struct service *s)
{
    return s->client;
}

int service_broken(struct service *s, int error, const char *doing)
{
    struct context *ctx = s->ctx;
    if (error == -EACCES || error == -ENOENT || error == -ECONNREFUSED || error == -EHOSTUNREACH ||
        error == -EKEYREJECTED)
        return broken_connection(ctx, s->endpoint, s->is_local, error);
    if (error == -ETIMEDOUT) {
        context_hint(ctx, "its log may say what it is busy with");
        return err_set(&ctx->err, ERR_DEADLINE_EXCEEDED, "%s: the service at %s does not answer", doing, s->endpoint);
    }
    context_hint(ctx, "sandboxes live on when the service restarts: try again");
    return err_set(&ctx->err, ERR_UNAVAILABLE, "%s: the connection to the service at %s broke (%s)", doing, s->endpoint,
                   strerror(-error));
}

const char *service_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

unsigned long long service_number(const json_t *object, const char *name)
{
    json_int_t number = json_integer_value(json_object_get(object, name));
    return number > 0 ? (unsigned long long)number : 0;
}

/* Waits until the answer begins, with a line for the person when that takes long. */
static void wait_answer(struct service *s, const char *what)
{
    struct terminal_progress p;
    progress_start(&p, !what || s->ctx->json);
    struct pollfd pfd = {.fd = http_client_fd(s->client), .events = POLLIN};
    for (int ms = 0; ms < ANSWER_MS && !http_client_pending(s->client) && poll(&pfd, 1, 250) == 0; ms += 250) {
        if (p.is_on)
            progress_show(&p, "%s, %d s", what, (ms + 250) / 1000);
        if (ms + 250 != WAITS_MS)
            continue;
        progress_end(&p);
        (void)fputs("still waiting; if a rule of the guard asks, 'cove approvals' lists the question\n", stderr);
    }
    progress_end(&p);
}

/* What to do next, where the service says what is wrong alone: it knows nothing of this command. */
static const char *advice(const struct service *s, enum err_code code, struct str message)
{
    if (code == ERR_UNAUTHENTICATED)
        return "set COVE_API_KEY to what 'cove key' prints on the machine that the service runs on";
    if (str_eqc(message, "template 'base' not found"))
        return "it is made by 'coved prepare' while the service is down ('systemctl restart cove', or 'make stop' and "
               "'make start'); 'cove template ls' lists others";
    if (*s->ctx->hint)
        return NULL;
    if (code == ERR_PERMISSION_DENIED && s->is_local && str_starts(message, STR("the service is for root, ")))
        return "use sudo, join its group ('cove', unless the configuration names another), or set COVE_HOST and "
               "COVE_API_KEY";
    if (code == ERR_PERMISSION_DENIED && s->is_local && str_starts(message, STR("only administrators of ")))
        return "use sudo, or set COVE_HOST and COVE_API_KEY";
    if (str_starts(message, STR("the timeout is longer than ")))
        return "limits.timeout in the service's configuration allows more";
    if (str_starts(message, STR("there is no sandbox ")))
        return "'cove ls' lists those there are";
    if (str_starts(message, STR("template '")) && str_ends(message, STR("' not found")))
        return "'cove template ls' and 'cove snapshot ls' list those there are";
    if (str_starts(message, STR("invalid template ID: ")) || str_starts(message, STR("invalid namespace: ")) ||
        str_starts(message, STR("invalid tag: ")))
        return "a name is [NAMESPACE/]NAME[:TAG], of lower case letters, digits, _ and -, in the tag also '.'";
    if (!str_starts(message, STR("sandbox ")))
        return NULL;
    return str_ends(message, STR(" has no event log"))
               ? "'cove ls' lists those there are; one that has ended needs its whole id"
               : NULL;
}

/* Of "sandbox ID is paused" and the like: what to type. */
static void advise_of_state(struct context *ctx, struct str message)
{
    struct str rest = message, word = STR(""), id = STR("");
    bool is_one = str_split(&rest, ' ', &word) && str_eqc(word, "sandbox") && str_split(&rest, ' ', &id);
    if (is_one && str_eqc(rest, "is paused"))
        context_hint(ctx, "'cove resume %.*s' continues it", STR_ARG_MAX(id, 64));
    else if (is_one && str_eqc(rest, "has ended"))
        context_hint(ctx, "its log is still there: 'cove logs %.*s'", STR_ARG_MAX(id, 64));
}

enum err_code service_error_code(const json_t *error, enum err_code otherwise)
{
    const char *code = service_text(error, "code");
    for (int c = ERR_CANCELED; c < ERR_CODE_MAX; c++)
        if (strcmp(err_code_name((enum err_code)c), code) == 0)
            return (enum err_code)c;
    return otherwise;
}

/* An answer of 400 and up: {"error":{...}} of the native API, or {"code":n,"message":""} of the server itself. */
static int refused(struct service *s, const json_t *answer)
{
    struct context *ctx = s->ctx;
    const json_t *error = json_object_get(answer, "error");
    const char *message = service_text(error ? error : answer, "message");
    int status = http_client_status(s->client);
    enum err_code found = service_error_code(error, status == 404 ? ERR_NOT_FOUND : ERR_UNKNOWN);
    context_hint(ctx, "%s", service_text(error, "hint"));
    const char *hint = advice(s, found, str_of(message));
    if (hint)
        context_hint(ctx, "%s", hint);
    else if (!*ctx->hint)
        advise_of_state(ctx, str_of(message));
    if (!*message)
        return err_set(&ctx->err, found, "the service at %s answered %d %s; is it a Cove?", s->endpoint, status,
                       http_status_text(status));
    return err_set(&ctx->err, found, "%s", message);
}

static int read_answer(struct service *s, json_t **ret_json)
{
    AUTO_BUF struct buf b = BUF_INIT(SERVICE_ANSWER_MAX);
    int status = http_client_status(s->client);
    int r = http_client_read_all(s->client, &b);
    if (r < 0)
        return service_broken(s, r, "read the answer");
    json_error_t why;
    AUTO_JSON json_t *json = buf_len(&b) ? json_loadb(buf_data(&b), buf_len(&b), JSON_ALLOW_NUL, &why) : NULL;
    if (status >= 400)
        return refused(s, json);
    if (ret_json && !json_is_object(json))
        return err_set(&s->ctx->err, ERR_INTERNAL,
                       "the service at %s answered with something that is not a JSON object; is it a Cove?",
                       s->endpoint);
    if (ret_json)
        *ret_json = TAKE_PTR(json);
    return 0;
}

/* The headers of every request; *auth is what "authorization" borrows. */
static size_t request_headers(struct service *s, struct http_header headers[static 4], char **auth, bool has_json)
{
    size_t n = 0;
    if (s->key) {
        *auth = mem_printf("Bearer %s", s->key);
        headers[n++] = HTTP_HEADER_STR("authorization", str_of(*auth));
    }
    if (s->ctx->tenant && *s->ctx->tenant)
        headers[n++] = HTTP_HEADER_STR("x-cove-tenant", str_of(s->ctx->tenant));
    if (has_json)
        headers[n++] = HTTP_JSON;
    return n;
}

int service_send(struct service *s, const char *method, const char *target, const struct http_header *more,
                 size_t n_more, struct str body)
{
    AUTO_FREE char *auth = NULL;
    struct http_header headers[16];
    size_t n = request_headers(s, headers, &auth, body.n > 0);
    assert(n + n_more <= ARRAY_SIZE(headers));
    for (size_t i = 0; i < n_more; i++)
        headers[n++] = more[i];
    buf_clear(&s->line);
    s->line_used = 0;
    int r = http_client_send(s->client, method, target, headers, n, body);
    return r < 0 ? service_broken(s, r, "send the request") : 0;
}

static int service_receive(struct service *s, const char *what)
{
    wait_answer(s, what);
    int r = http_client_receive(s->client);
    return r < 0 ? service_broken(s, r, what ? what : "wait for the answer") : 0;
}

int service_call(struct service *s, const char *method, const char *target, const json_t *body, const char *what,
                 json_t **ret_json)
{
    AUTO_FREE char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    return service_send(s, method, target, NULL, 0, str_of(text)) < 0 ? -1 : service_answer(s, what, ret_json);
}

int service_stream(struct service *s, const char *method, const char *target)
{
    if (service_send(s, method, target, NULL, 0, STR_NULL) < 0 || service_receive(s, NULL) < 0)
        return -1;
    return http_client_status(s->client) >= 400 ? read_answer(s, NULL) : 0;
}

int service_begin(struct service *s, const char *method, const char *target, int64_t content_length)
{
    AUTO_FREE char *auth = NULL;
    struct http_header headers[4];
    size_t n = request_headers(s, headers, &auth, false);
    int r = http_client_begin(s->client, method, target, headers, n, content_length);
    return r < 0 ? service_broken(s, r, "send the request") : 0;
}

int service_answer(struct service *s, const char *what, json_t **ret_json)
{
    return service_receive(s, what) < 0 ? -1 : read_answer(s, ret_json);
}

int service_upgrade(struct service *s, const char *target, const json_t *body, const char *protocol)
{
    AUTO_FREE char *text = json_dumps(body, JSON_COMPACT);
    const struct http_header upgrade = HTTP_HEADER_STR("upgrade", str_of(protocol));
    if (service_send(s, "POST", target, &upgrade, 1, str_of(text)) < 0 ||
        service_receive(s, "starting the command") < 0)
        return -1;
    if (http_client_status(s->client) == 101)
        return 0;
    if (read_answer(s, NULL) < 0)
        return -1;
    return err_set(&s->ctx->err, ERR_INTERNAL, "the service at %s does not speak %s; is it another version?",
                   s->endpoint, protocol);
}

struct str service_line(const struct service *s)
{
    return str_n(buf_data(&s->line), s->line_used - 1);
}

/* 1: there is another line; 0 at the end, -1. */
static int service_read_line(struct service *s)
{
    buf_consume(&s->line, s->line_used);
    s->line_used = 0;
    for (;;) {
        ssize_t end = str_find_char(buf_str(&s->line), '\n');
        s->line_used = (size_t)(end + 1);
        if (end >= 0)
            return 1;
        char *room = buf_reserve(&s->line, 16 * 1024);
        if (!room)
            return err_set(&s->ctx->err, ERR_INTERNAL, "the service sent a line that is too long");
        ssize_t n = http_client_read(s->client, room, 16 * 1024);
        if (n < 0)
            return service_broken(s, (int)n, "read the answer");
        if (n == 0)
            return 0;
        buf_commit(&s->line, (size_t)n);
    }
}

/* NUL is allowed because what commands write is in it. */
int service_object(struct service *s, json_t **ret_object)
{
    int r = service_read_line(s);
    if (r <= 0)
        return r;
    json_decref(s->object);
    s->object = json_loadb(service_line(s).p, service_line(s).n, JSON_ALLOW_NUL, NULL);
    const json_t *error = json_object_get(s->object, "error");
    if (!json_is_object(s->object))
        return err_set(&s->ctx->err, ERR_INTERNAL,
                       "the service at %s sent a line that is not a JSON object; is it a Cove?", s->endpoint);
    if (error) {
        context_hint(s->ctx, "%s", service_text(error, "hint"));
        return err_set(&s->ctx->err, service_error_code(error, ERR_UNKNOWN), "%s", service_text(error, "message"));
    }
    *ret_object = s->object;
    return 1;
}

char *service_target(const char *id, const char *fmt, ...)
{
    char suffix[8192]; /* an encoded path of 4,095 bytes may be longer: callers build those themselves */
    FORMAT_ARGS(suffix, fmt);
    return mem_printf("/cove/v1/sandboxes/%s%s", id, suffix);
}

int service_id(struct context *ctx, const json_t *sandbox, char **ret_id)
{
    const char *id = service_text(sandbox, "id");
    if (!id_is_sandbox(str_of(id)))
        return err_set(&ctx->err, ERR_INTERNAL, "the service answered without a sandbox's id");
    *ret_id = mem_strdup(id);
    return 0;
}

int service_remove(struct service *s, const char *id, const char *what)
{
    AUTO_FREE char *target = service_target(id, "%s", "");
    return service_call(s, "DELETE", target, NULL, what, NULL);
}

static void service_aside(struct context *ctx, const char *method, const char *id, const char *suffix,
                          const json_t *body, json_t **ret_json)
{
    struct context scratch = *ctx;
    AUTO(service_close) struct service *s = service_open(&scratch);
    AUTO_FREE char *target = service_target(id, "%s", suffix);
    int ignored UNUSED = s ? service_call(s, method, target, body, NULL, ret_json) : -1;
    ctx->config = scratch.config;
}

json_t *service_look_aside(struct context *ctx, const char *id)
{
    json_t *sandbox = NULL;
    service_aside(ctx, "GET", id, "", NULL, &sandbox);
    return sandbox;
}

void service_remove_aside(struct context *ctx, const char *id)
{
    service_aside(ctx, "DELETE", id, "", NULL, NULL);
}

void service_extend_aside(struct context *ctx, const char *id, uint64_t ms)
{
    AUTO_JSON json_t *body = json_pack("{s:I,s:b}", "timeout_ms", (json_int_t)ms, "extend_only", 1);
    service_aside(ctx, "POST", id, "/timeout", body, NULL);
}

char *service_files(const char *id, const char *route, const char *path, const char *user)
{
    AUTO_BUF struct buf b = BUF_INIT(64 * 1024);
    buf_printf(&b, "/cove/v1/sandboxes/%s/%s?path=", id, route);
    (void)url_encode(&b, str_of(path), true);
    buf_append_cstr(&b, user ? "&user=" : "");
    (void)url_encode(&b, str_of(user), true);
    return buf_take(&b);
}

int service_put(struct service *s, const char *target, struct str body)
{
    if (service_begin(s, "PUT", target, (int64_t)body.n) < 0)
        return -1;
    int r = http_client_write(s->client, body);
    int ignored UNUSED = http_client_end(s->client); /* the answer says why */
    return r < 0 && r != -EPIPE ? service_broken(s, r, "send a file") : service_answer(s, NULL, NULL);
}

char *service_path(struct context *ctx, const char *before, const char *name, const char *behind)
{
    AUTO_BUF struct buf b = BUF_INIT(SERVICE_TARGET_MAX);
    buf_append_cstr(&b, before);
    (void)url_encode(&b, str_of(name), true);
    buf_append_cstr(&b, behind);
    if (buf_error(&b) == 0)
        return buf_take(&b);
    (void)err_set(&ctx->err, ERR_INVALID_ARGUMENT, "\"%.64s...\" is too long for a name", name);
    return NULL;
}

static int service_list(struct service *s, const char *query, json_t **ret_array)
{
    AUTO_JSON json_t *all = json_array();
    AUTO_FREE char *target = mem_printf("/cove/v1/sandboxes?%s", query);
    while (target) {
        AUTO_JSON json_t *page = NULL;
        if (service_call(s, "GET", target, NULL, "listing sandboxes", &page) < 0)
            return -1;
        const json_t *some = json_object_get(page, "sandboxes");
        const char *next = json_string_value(json_object_get(page, "next"));
        if (next && (!json_array_size(some) || next[strspn(next, "abcdefghijklmnopqrstuvwxyz0123456789-")] ||
                     json_array_size(all) > SANDBOXES_MAX))
            return err_set(&s->ctx->err, ERR_INTERNAL, "the service at %s lists sandboxes without end; is it a Cove?",
                           s->endpoint);
        (void)json_array_extend(all, (json_t *)some);
        mem_free(target);
        target = next ? mem_printf("/cove/v1/sandboxes?%s&after=%.64s", query, next) : NULL;
    }
    *ret_array = TAKE_PTR(all);
    return 0;
}

int service_sandboxes(struct service *s, json_t **ret_array)
{
    return service_list(s, "", ret_array);
}

int service_own_sandboxes(struct service *s, json_t **ret_array)
{
    return service_list(s, "own=true", ret_array);
}

int service_ended(struct service *s, json_t **ret_array)
{
    AUTO_JSON json_t *answer = NULL;
    if (service_call(s, "GET", "/cove/v1/sandboxes?state=ended", NULL, "listing sandboxes", &answer) < 0)
        return -1;
    json_t *all = json_object_get(answer, "sandboxes");
    *ret_array = json_is_array(all) ? json_incref(all) : json_array();
    return 0;
}

/* The ids that begin so, newest first. */
static json_t *service_candidates(const json_t *all, const char *text)
{
    json_t *found = json_array();
    JSON_FOREACH (one, all) {
        const char *id = service_text(one, "id");
        if (id_is_sandbox(str_of(id)) && strncmp(id, text, strlen(text)) == 0)
            (void)json_array_append_new(found, json_string(id));
    }
    return found;
}

/*
 * What a person calls a sandbox: an environment's name, a container's, the label "name". Only of those of one's own
 * tenant, for others may label theirs as they like. An environment's forks have its labels: the oldest is it.
 */
static int service_named(struct service *s, const char *text, json_t **ret_found)
{
    static const char *const labels[] = {"cove.env", "docker.name", "name"};
    AUTO_JSON json_t *all = NULL, *found = json_array();
    const char *common = NULL;
    if (service_own_sandboxes(s, &all) < 0)
        return -1;
    JSON_FOREACH (one, all) {
        const json_t *metadata = json_object_get(one, "metadata");
        const char *id = service_text(one, "id"), *in = service_text(metadata, "cove.common");
        size_t i = 0;
        while (i < ARRAY_SIZE(labels) && strcmp(service_text(metadata, labels[i]), text) != 0)
            i++;
        if (i == ARRAY_SIZE(labels) || !id_is_sandbox(str_of(id)))
            continue;
        if (i == 0 && common && strcmp(in, common) == 0)
            (void)json_array_clear(found);
        common = i == 0 && !json_array_size(found) ? in : NULL;
        (void)json_array_append_new(found, json_string(id));
    }
    *ret_found = TAKE_PTR(found);
    return 0;
}

static int service_refuse_several(struct service *s, const char *text, const char *what, const json_t *found)
{
    enum { SHOWN = 6 };
    AUTO_BUF struct buf b = BUF_INIT(512);
    for (size_t i = 0; i < MIN(json_array_size(found), (size_t)SHOWN); i++)
        buf_printf(&b, "%s%s", i ? ", " : "", json_string_value(json_array_get(found, i)));
    return err_set(&s->ctx->err, ERR_INVALID_ARGUMENT, "%zu sandboxes %s %s: %.*s%s", json_array_size(found), what,
                   text, STR_ARG(buf_str(&b)), json_array_size(found) > SHOWN ? ", ..." : "");
}

static int service_find(struct service *s, const char *text, bool may_have_ended, char **ret_id)
{
    enum { NAME_MOST = 128 };
    AUTO_JSON json_t *all = NULL, *ended = NULL;
    const char *what = "begin with";
    size_t n = strlen(text);
    if (id_is_sandbox(str_of(text))) {
        *ret_id = mem_strdup(text);
        return 0;
    }
    if (n == 0 || n > NAME_MOST) {
        context_hint(s->ctx, "'cove ls' lists those that run");
        return err_set(&s->ctx->err, ERR_INVALID_ARGUMENT, "\"%.64s\" is not the id of a sandbox", text);
    }
    if (service_sandboxes(s, &all) < 0)
        return -1;
    AUTO_JSON json_t *found = service_candidates(all, text);
    if (json_array_size(found) == 0) {
        json_decref(found);
        found = NULL;
        what = "are called";
        if (service_named(s, text, &found) < 0)
            return -1;
    }
    if (json_array_size(found) == 0 && may_have_ended) {
        if (service_ended(s, &ended) < 0)
            return -1;
        json_decref(found);
        found = service_candidates(ended, text);
        what = "begin with";
    }
    if (json_array_size(found) > 1)
        return service_refuse_several(s, text, what, found);
    if (json_array_size(found) == 0) {
        context_hint(s->ctx, "'cove ls' lists those that run");
        return err_set(&s->ctx->err, ERR_NOT_FOUND, "there is no sandbox %s", text);
    }
    *ret_id = mem_strdup(json_string_value(json_array_get(found, 0)));
    return 0;
}

int service_resolve(struct service *s, const char *text, char **ret_id)
{
    return service_find(s, text, false, ret_id);
}

int service_resolve_log(struct service *s, const char *text, char **ret_id)
{
    return service_find(s, text, true, ret_id);
}

int service_ask(struct context *ctx, const char *method, const char *target, const json_t *body, const char *what,
                json_t **ret_json)
{
    AUTO(service_close) struct service *s = target ? service_open(ctx) : NULL;
    return s ? service_call(s, method, target, body, what, ret_json) : -1;
}

int service_ask_sandbox(struct context *ctx, const char *method, const char *suffix, const json_t *body,
                        const char *what, char **ret_id, json_t **ret_json)
{
    AUTO_FREE char *id = NULL;
    AUTO(service_close) struct service *s = service_open(ctx);
    if (!s || service_resolve(s, ctx->argv[ctx->argi], &id) < 0)
        return -1;
    AUTO_FREE char *target = service_target(id, "%s", suffix);
    int r = service_call(s, method, target, body, what, ret_json);
    if (r == 0 && ret_id)
        *ret_id = TAKE_PTR(id);
    return r;
}

/* Times are RFC 3339 in UTC, of one length: they compare as text. */
int service_newest(struct service *s, char **ret_id)
{
    AUTO_JSON json_t *all = NULL, *ended = NULL;
    const char *newest = "", *id = NULL;
    if (service_sandboxes(s, &all) < 0 || service_ended(s, &ended) < 0)
        return -1;
    (void)json_array_extend(all, ended);
    JSON_FOREACH (one, all) {
        if (!id_is_sandbox(str_of(service_text(one, "id"))) || strcmp(service_text(one, "started_at"), newest) <= 0)
            continue;
        id = service_text(one, "id");
        newest = service_text(one, "started_at");
    }
    if (!id)
        return err_set(&s->ctx->err, ERR_NOT_FOUND, "no sandbox has been created yet");
    *ret_id = mem_strdup(id);
    return 0;
}
