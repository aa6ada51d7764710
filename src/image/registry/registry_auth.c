/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"
#include "base/mem.h"
#include "image/registry/registry_internal.h"

void registry_set_authorization(struct registry *r, const char *scheme, const char *value)
{
    if (r->authorization)
        mem_wipe(r->authorization, strlen(r->authorization));
    mem_free(r->authorization);
    r->authorization = mem_printf("%s %s", scheme, value);
}

/* ---- what is not told ---- */

enum { SECRET_LEAST = 4, SECRET_LOOK = 24 }; /* messages are cut: the beginning of a long one is enough */

static bool holds(const struct buf *texts, size_t n_texts, struct str secret)
{
    char look[SECRET_LOOK + 1];
    size_t n = MIN(secret.n, (size_t)SECRET_LOOK);
    bool found = false;
    if (n < SECRET_LEAST)
        return false;
    memcpy(look, secret.p, n);
    look[n] = '\0';
    for (size_t i = 0; i < n_texts; i++)
        found = found || strcasestr(buf_data(&texts[i]), look); /* names of hosts lose their case */
    mem_wipe(look, sizeof(look));
    return found;
}

static bool holds_base64(const struct buf *texts, size_t n_texts, const char *secret)
{
    AUTO_BUF struct buf b = BUF_INIT(16384);
    buf_append_base64(&b, str_of(secret));
    struct str s = buf_str(&b);
    while (s.p && s.n > 0 && s.p[s.n - 1] == '=')
        s.n--;
    bool found = holds(texts, n_texts, s);
    if (s.n > 0)
        mem_wipe(buf_data(&b), buf_len(&b));
    return found;
}

static void append_unescaped(struct buf *b, const char *text)
{
    for (const char *p = text; *p; p++) {
        int high = *p == '%' ? str_hex_value(p[1]) : -1, low = high < 0 ? -1 : str_hex_value(p[2]);
        int c = low < 0 ? *p : high << 4 | low;
        buf_append_char(b, (char)(c ? c : ' '));
        p += low < 0 ? 0 : 2;
    }
}

bool registry_is_told(const struct registry *r, const char *text)
{
    struct buf texts[2] = {BUF_INIT(4096), BUF_INIT(4096)}; /* as it is, and unescaped */
    const char *const secrets[] = {r->config.password, r->config.token};
    const char *value = r->authorization ? strchr(r->authorization, ' ') : NULL;
    AUTO_FREE char *pair =
        r->config.username && r->config.password ? mem_printf("%s:%s", r->config.username, r->config.password) : NULL;
    buf_append_cstr(&texts[0], text);
    append_unescaped(&texts[1], text);
    buf_append_char(&texts[0], '\0');
    buf_append_char(&texts[1], '\0');
    bool told = buf_error(&texts[0]) || buf_error(&texts[1]);
    for (size_t i = 0; i < ARRAY_SIZE(secrets) && !told; i++)
        told = secrets[i] && (holds(texts, 2, str_of(secrets[i])) || holds_base64(texts, 2, secrets[i]));
    told = told || (value && holds(texts, 2, str_of(value + 1))) || (pair && holds_base64(texts, 2, pair));
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        if (told && buf_len(&texts[i]) > 0)
            mem_wipe(buf_data(&texts[i]), buf_len(&texts[i]));
        buf_fini(&texts[i]);
    }
    if (pair)
        mem_wipe(pair, strlen(pair));
    return told;
}

void registry_withhold(const struct registry *r, struct err *err)
{
    if (registry_is_secretive(r) && registry_is_told(r, err->msg))
        (void)err_set(err, err->code, "%.80s fails, and its message contains the credentials: not shown",
                      r->config.ref->host);
}

/* ---- credentials ---- */

static char *basic(const struct registry *r)
{
    AUTO_BUF struct buf pair = BUF_INIT(8192), text = BUF_INIT(16384);
    buf_printf(&pair, "%s:%s", r->config.username, r->config.password);
    buf_append_base64(&text, buf_str(&pair));
    char *value = buf_error(&pair) ? NULL : buf_take(&text);
    if (buf_len(&pair) > 0)
        mem_wipe(buf_data(&pair), buf_len(&pair));
    return value;
}

static int need_credentials(const struct registry *r, struct err *err)
{
    if (r->config.username || r->config.token)
        return err_set(err, ERR_UNAUTHENTICATED, "%.80s refuses these credentials for %.100s", r->host,
                       r->config.ref->path);
    return err_set(err, ERR_UNAUTHENTICATED,
                   "%.80s: %.100s does not exist or wants credentials: check the name, or give \"auth\"", r->host,
                   r->config.ref->path);
}

/* ---- token services ---- */

static void append_escaped(struct buf *out, const char *key, const char *value)
{
    struct str url = buf_str(out);
    buf_append_char(out, str_find_char(url, '?') < 0 ? '?' : '&');
    buf_printf(out, "%s=", key);
    for (const unsigned char *p = (const unsigned char *)value; *p; p++) {
        if (str_set_has("A-Za-z0-9._~:/-", (char)*p))
            buf_append_char(out, (char)*p);
        else
            buf_printf(out, "%%%02X", *p);
    }
}

static int registry_auth_keep(void *ctx, const void *p, size_t n, struct err *err)
{
    return buf_append(ctx, p, n) < 0
               ? err_set(err, ERR_OUT_OF_RANGE, "a token of more than %d bytes", REGISTRY_TOKEN_MAX)
               : 0;
}

static bool registry_auth_is_token(struct str token)
{
    return token.n > 0 && str_is_of(token, "!-~");
}

/* With credentials not as the registry calls it, which may have written them into the URL. */
static const char *service_name(const struct registry *r, const struct challenge *c)
{
    return registry_is_secretive(r) ? r->host : c->realm;
}

static int registry_auth_take_token(struct registry *r, const struct challenge *c, struct str body, struct err *err)
{
    json_t *json = json_loadb(body.p ? body.p : "", body.n, 0, NULL);
    const json_t *token = json_object_get(json, "token");
    if (!json_is_string(token))
        token = json_object_get(json, "access_token");
    bool good = json_is_string(token) && registry_auth_is_token(json_str(token));
    if (good)
        registry_set_authorization(r, "Bearer", json_string_value(token));
    json_decref(json);
    return good ? 0
                : err_set(err, ERR_UNAVAILABLE, "the token service %.120s answers without a token", service_name(r, c));
}

static int ask_for_token(struct registry *r, const struct challenge *c, const char *authorization, struct err *err)
{
    AUTO_BUF struct buf url = BUF_INIT(HTTP_URL_MAX), body = BUF_INIT(REGISTRY_TOKEN_MAX);
    struct http_answer answer;
    AUTO_FREE char *scope = c->scope[0] ? mem_strdup(c->scope) : mem_printf("repository:%s:pull", r->config.ref->path);
    buf_append_cstr(&url, c->realm);
    if (c->service[0])
        append_escaped(&url, "service", c->service);
    append_escaped(&url, "scope", scope);
    AUTO_FREE char *text = buf_take(&url);
    if (!text)
        return err_set(err, ERR_INVALID_ARGUMENT, "%.80s names a token service with too long a URL", r->host);
    const struct registry_request q = {.url = text,
                                       .authorization = authorization,
                                       .max_bytes = REGISTRY_TOKEN_MAX,
                                       .body = registry_auth_keep,
                                       .ctx = &body};
    if (http_get(r->config.http, &q, &answer, err) < 0)
        return err_prefix(err, "ask the registry's token service");
    int status = answer.status;
    char reason[REGISTRY_REASON_MAX];
    registry_reason(r, &answer.reason, reason);
    http_answer_fini(&answer);
    int result;
    if (status == 200)
        result = registry_auth_take_token(r, c, buf_str(&body), err);
    else if (status == 401 || status == 403)
        result = need_credentials(r, err);
    else
        result = err_set(err, ERR_UNAVAILABLE, "the token service %.80s answers %d%s%s", service_name(r, c), status,
                         reason[0] ? ": " : "", reason);
    if (buf_len(&body) > 0)
        mem_wipe(buf_data(&body), buf_len(&body));
    return result;
}

int registry_authenticate(struct registry *r, const struct challenge *c, struct err *err)
{
    AUTO_FREE char *value = r->config.username ? basic(r) : NULL;
    int result;
    if (r->config.username && !value)
        return err_set(err, ERR_INVALID_ARGUMENT, "user name and password are too long");
    if (r->config.token || c->scheme == CHALLENGE_NONE || (c->scheme == CHALLENGE_BASIC && !value)) {
        result = need_credentials(r, err);
    } else if (c->scheme == CHALLENGE_BASIC) {
        registry_set_authorization(r, "Basic", value);
        result = 0;
    } else {
        AUTO_FREE char *header = value ? mem_printf("Basic %s", value) : NULL;
        result = ask_for_token(r, c, header, err);
        if (header)
            mem_wipe(header, strlen(header));
    }
    if (value)
        mem_wipe(value, strlen(value));
    return result;
}
