/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies under /v1/sandboxes/{id}/proxy/{port}: execd, the egress service, and the ports of programs; and where
 * /endpoints/{port} sends clients.
 *
 *  1. Nothing is looked at before proxied_open() has said who asks: by the API key; by the sandbox's token, in the
 *     header that the answer of /endpoints carries; or by a signed endpoint, whose {id} is "{id}-{port}-{expiry in base
 *     36}-{signature}". Ports of programs are open to all unless the sandbox has secure access.
 *  2. The signature is an HMAC by the sandbox's access token, of this id, port and expiry: nothing else is opened by
 *     it, and nobody needs to remember it.
 *  3. Whoever was let in to do more than read wakes a paused sandbox that traffic resumes, and extends the life of one
 *     that asked for that.
 */
#include "api/kit/wake.h"
#include "api/opensandbox/handlers.h"
#include "base/id.h"
#include "sandbox/key.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdlib.h>

#define SIGNED_DOMAIN "opensandbox endpoint\n"
enum { SIGNATURE_LEN = 32, EXPIRY_MAX = 8, SIGNED_TEXT_MAX = 128 };

/* ---- the path ---- */

static bool proxy_number(struct str text, uint64_t *ret_port)
{
    return str_to_u64(text, ret_port) == 0 && *ret_port > 0 && *ret_port <= UINT16_MAX;
}

bool proxy_parse(struct str path, struct proxied *p)
{
    struct str id, word, port;
    if (!str_starts(path, STR("/v1/sandboxes/")))
        return false;
    path = str_sub(path, strlen("/v1/sandboxes/"));
    if (!str_split(&path, '/', &id) || !str_split(&path, '/', &word) || !str_eqc(word, "proxy"))
        return false;
    port = str_before(path, '/');
    *p = (struct proxied){.rest = port.n < path.n ? str_sub(path, port.n) : STR("/"), .ticket = id};
    (void)str_split(&p->ticket, '-', &p->id);
    return proxy_number(port, &p->port);
}

/* ---- signatures ---- */

static void proxy_sign(const struct sandbox_info *i, uint64_t port, struct str expiry, char *to)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    char text[SIGNED_TEXT_MAX];
    unsigned n = 0;
    int length = snprintf(text, sizeof(text), SIGNED_DOMAIN "%s\n%llu\n%.*s\n", i->id, (unsigned long long)port,
                          STR_ARG_MAX(expiry, EXPIRY_MAX));
    const unsigned char *ok = HMAC(EVP_sha256(), i->access_token, (int)strlen(i->access_token),
                                   (const unsigned char *)text, (size_t)length, digest, &n);
    assert(ok && n * 2 >= SIGNATURE_LEN);
    str_hex(digest, SIGNATURE_LEN / 2, to);
}

static void proxy_base36(uint64_t n, char to[static 16])
{
    char digits[16];
    size_t k = 0;
    do
        digits[k++] = "0123456789abcdefghijklmnopqrstuvwxyz"[n % 36];
    while ((n /= 36) && k < sizeof(digits) - 1);
    for (size_t i = 0; i < k; i++)
        to[i] = digits[k - 1 - i];
    to[k] = 0;
}

void proxy_ticket(const struct sandbox_info *i, uint64_t port, uint64_t expires, char to[static PROXY_TICKET_MAX])
{
    char expiry[16], signature[SIGNATURE_LEN + 1];
    proxy_base36(expires, expiry);
    proxy_sign(i, port, str_of(expiry), signature);
    (void)snprintf(to, PROXY_TICKET_MAX, "-%llu-%s-%s", (unsigned long long)port, expiry, signature);
}

const char *proxy_check_ticket(const struct sandbox_info *i, uint64_t port, struct str ticket)
{
    char signature[SIGNATURE_LEN + 1], text[EXPIRY_MAX + 1];
    struct str number, expiry;
    uint64_t of;
    if (!i->access_token || !str_split(&ticket, '-', &number) || !str_split(&ticket, '-', &expiry) ||
        str_to_u64(number, &of) < 0 || of != port || !expiry.n || expiry.n > EXPIRY_MAX || ticket.n != SIGNATURE_LEN)
        return "the endpoint's signature is not valid";
    proxy_sign(i, port, expiry, signature);
    if (!str_eq_secret(ticket, str_of(signature)))
        return "the endpoint's signature is not valid";
    memcpy(text, expiry.p, expiry.n);
    text[expiry.n] = 0;
    return strtoull(text, NULL, 36) * USEC_PER_SEC < clock_real() ? "the endpoint has expired" : NULL;
}

/* ---- who asks ---- */

static const char *proxy_header(uint64_t port)
{
    return port == OPENSANDBOX_EXECD_PORT    ? "x-execd-access-token"
           : port == OPENSANDBOX_EGRESS_PORT ? "opensandbox-egress-auth"
                                             : "opensandbox-secure-access";
}

/*
 * Of a sandbox without a token, the id is enough for commands and files; not for its policy, and not for a page that
 * learnt it.
 */
static bool proxy_is_open(const struct core *core, const struct http_request *req, const struct proxied *p,
                          const struct sandbox_info *i)
{
    return !i->secure && p->port == OPENSANDBOX_EXECD_PORT && !access_is_of_other_site(core, req);
}

static void proxied_open(struct opensandbox *o, const struct http_request *req, struct proxied *p)
{
    struct str key = http_header_get(req, "open-sandbox-api-key");
    struct str given = http_header_get(req, proxy_header(p->port));
    struct sandbox *sb = id_is_sandbox(p->id) ? sandbox_find(o->lifecycle.core, p->id) : NULL;
    const struct sandbox_info *i = sb ? sandbox_info(sb) : NULL;
    p->why = "send the headers that GET /v1/sandboxes/{id}/endpoints/{port} answers with";
    p->refusal = given.n ? REFUSAL_WRONG_TOKEN : REFUSAL_NO_TOKEN;
    bool is_program = p->port != OPENSANDBOX_EXECD_PORT && p->port != OPENSANDBOX_EGRESS_PORT;
    /* What a request does to a program its method doesn't tell. */
    p->by_key =
        key.n && key_authenticate(o->lifecycle.core, key, &p->who) && (!is_program || p->who.scope >= SCOPE_USE);
    if (p->by_key) {
        p->sb = i && access_reaches(&p->who, sb) ? sb : NULL;
        p->why = NULL;
        return;
    }
    const char *promised = i ? NULL : pending_token(o, p->id);
    p->who.scope = SCOPE_USE;
    if (promised && given.n && str_eq_secret(given, str_of(promised))) {
        p->why = NULL;
        p->who.tenant = p->who.view = pending_tenant(o, p->id);
    }
    if (!i)
        return;
    const char *token = is_program ? i->traffic_token : i->access_token;
    if (p->ticket.p)
        p->why = proxy_check_ticket(i, p->port, p->ticket);
    else if (token ? given.n && str_eq_secret(given, str_of(token))
                   : is_program || proxy_is_open(o->lifecycle.core, req, p, i))
        p->why = NULL;
    p->who = (struct principal){.tenant = i->tenant, .view = i->tenant, .scope = SCOPE_USE};
    p->sb = sb;
}

bool proxy_authenticate(struct call *c)
{
    const struct proxied *p = opensandbox_of(c)->proxied;
    if (p->why) {
        facade_note_refusal(c->facade, c->req, p->refusal);
        call_refuse(c, ERR_UNAUTHENTICATED, "%s", p->why);
    } else if (p->by_key) {
        return access_by_key(c, http_header_get(c->req, "open-sandbox-api-key"));
    } else {
        access_as(c, "opensandbox:token", &p->who);
    }
    return !p->why;
}

struct sandbox *proxy_find_sandbox(struct call *c)
{
    struct proxied p;
    return proxy_parse(http_raw_path(c->req), &p) ? opensandbox_find(c, p.id) : NULL;
}

/* ---- ports of programs ---- */

static const struct actor proxy_actor = {.name = "opensandbox:traffic"};

static void proxy_refuse(struct http_request *req, const struct sandbox_info *info, uint16_t port,
                         enum port_trouble why)
{
    static const struct {
        int status;
        const char *code, *message;
    } answers[] = {
        [PORT_ASLEEP] = {409, "SANDBOX::INVALID_STATE", "the sandbox does not run"},
        [PORT_CLOSED] = {502, "SANDBOX::PORT_CLOSED", "nothing listens on this port"},
        [PORT_BUSY] = {429, "SANDBOX::LIMIT_REACHED", "the sandbox has too many open connections"},
        [PORT_DENIED] = {403, "SANDBOX::FORBIDDEN", "connections to this port are not allowed"},
        [PORT_BAD_ANSWER] = {502, "SANDBOX::BAD_ANSWER", "the program on this port gave no valid answer"},
    };
    AUTO_BUF struct buf b = BUF_INIT(1024);
    buf_printf(&b, "{\"code\":\"%s\",\"message\":\"sandbox %s, port %u: %s\"}", answers[why].code, info->id, port,
               answers[why].message);
    http_respond(req, answers[why].status, &HTTP_HEADER("content-type", "application/json"), 1, buf_str(&b));
}

/* What a program here may not decide for the whole origin, which is ours and all other sandboxes', and for long after
 * it has ended. */
static const char *const proxy_of_origin[] = {"alt-svc",
                                              "clear-site-data",
                                              "nel",
                                              "report-to",
                                              "reporting-endpoints",
                                              "service-worker-allowed",
                                              "strict-transport-security",
                                              NULL};

static const struct port_way proxy_way = {
    &proxy_actor,
    {"open-sandbox-api-key", "opensandbox-secure-access", "x-execd-access-token", "opensandbox-egress-auth"},
    proxy_of_origin,
    proxy_refuse};

static void proxy_to_program(struct opensandbox *o, struct http_request *req, const struct proxied *p, uint16_t port,
                             struct str path)
{
    struct str query = http_query(req);
    const char *target = arena_printf(http_arena(req), "%.*s%s%.*s", STR_ARG(path), query.n ? "?" : "", STR_ARG(query));
    port_relay(&o->lifecycle, &proxy_way, req, p->sb, port, str_of(target), STR_NULL);
}

/* ---- all of them ---- */

/* At most ten times in that span: each is an action, and told. */
static void proxy_renew(const struct proxied *p)
{
    const struct sandbox_info *i = sandbox_info(p->sb);
    struct str text = sandbox_label(p->sb, STR(OPENSANDBOX_RESERVED RENEW_KEY));
    usec_t now = clock_real();
    const struct actor actor = {.name = "opensandbox:access", .who = p->who};
    uint64_t seconds;
    struct err err;
    if (text.p && i->end_at && str_to_u64(text, &seconds) == 0 && i->end_at < now + seconds * USEC_PER_SEC / 10 * 9)
        (void)!sandbox_set_timeout(p->sb, &actor, seconds * 1000, true, &err);
}

static void proxy_awake(void *ctx, struct http_request *req, struct sandbox *sb UNUSED, uint16_t port UNUSED)
{
    if (!proxy_serve(ctx, req))
        (void)http_respond_error(req, 404, "there is no such route");
}

/* "/proxy/{port}[/...]" of execd. */
static bool proxy_of_execd(struct str path, uint64_t *ret_port, struct str *ret_rest)
{
    if (!str_starts(path, STR("/proxy/")))
        return false;
    path = str_sub(path, strlen("/proxy/"));
    struct str port = str_before(path, '/');
    *ret_rest = port.n < path.n ? str_sub(path, port.n) : STR("/");
    return proxy_number(port, ret_port);
}

static void proxy_dispatch(struct opensandbox *o, struct http_request *req, const struct proxied *p)
{
    static const struct {
        uint16_t port;
        const struct route *const routes;
        const size_t *n;
    } tables[] = {{OPENSANDBOX_EGRESS_PORT, egress_routes, &egress_n_routes},
                  {OPENSANDBOX_EXECD_PORT, command_routes, &command_n_routes},
                  {OPENSANDBOX_EXECD_PORT, code_routes, &code_n_routes},
                  {OPENSANDBOX_EXECD_PORT, file_routes, &file_n_routes}};
    struct facade *f = p->port == OPENSANDBOX_EGRESS_PORT ? &o->egress : &o->execd;
    struct str rest;
    uint64_t port;
    for (size_t i = 0; i < ARRAY_SIZE(tables); i++)
        if (tables[i].port == p->port && facade_serve_at(f, tables[i].routes, *tables[i].n, p->rest, req))
            return;
    rest = p->port == OPENSANDBOX_EXECD_PORT ? isolated_rest(p->rest, &rest) : STR_NULL;
    if (rest.p && facade_serve_at(f, file_routes, file_n_routes, rest, req))
        return;
    if (p->port == OPENSANDBOX_EXECD_PORT && p->sb && !p->why && proxy_of_execd(p->rest, &port, &rest))
        proxy_to_program(o, req, p, (uint16_t)port, rest);
    else
        call_fail(call_new(f, req, NULL), p->why ? 401 : 501, "%s",
                  p->why ? p->why : "this part of the API isn't there");
}

bool proxy_serve(struct opensandbox *o, struct http_request *req)
{
    struct proxied p;
    if (!proxy_parse(http_raw_path(req), &p))
        return false;
    proxied_open(o, req, &p);
    bool is_program = p.port != OPENSANDBOX_EXECD_PORT && p.port != OPENSANDBOX_EGRESS_PORT;
    bool lives = p.sb && !sandbox_info(p.sb)->hidden && sandbox_info(p.sb)->state < SANDBOX_STOPPING;
    if (lives && !p.why && p.who.scope >= SCOPE_USE) {
        if (sandbox_info(p.sb)->state != SANDBOX_RUNNING && sandbox_info(p.sb)->auto_resume &&
            !wake_first(&proxy_way, o, req, p.sb, (uint16_t)p.port, true, proxy_awake))
            return true;
        proxy_renew(&p);
    }
    o->proxied = &p;
    if (!is_program) {
        proxy_dispatch(o, req, &p);
    } else if (p.why) {
        facade_note_refusal(&o->lifecycle, req, p.refusal);
        call_refuse(call_new(&o->lifecycle, req, NULL), ERR_UNAUTHENTICATED, "%s", p.why);
    } else if (!lives || sandbox_info(p.sb)->state != SANDBOX_RUNNING) {
        call_fail(call_new(&o->lifecycle, req, NULL), lives ? 409 : 404, "sandbox %.*s %s", STR_ARG_MAX(p.id, 64),
                  lives ? "does not run" : "is not there");
    } else {
        proxy_to_program(o, req, &p, (uint16_t)p.port, p.rest);
    }
    o->proxied = NULL;
    return true;
}

/* ---- where they are ---- */

/* host/v1/sandboxes/{id}/proxy/{port}: without a scheme, ends in its port, and leads back here. */
void proxy_endpoint(struct call *c)
{
    static const struct sandbox_info nothing;
    const char *promised = c->sandbox ? NULL : pending_token(lifecycle_of(c), c->args[0]);
    const struct sandbox_info *i = c->sandbox ? sandbox_info(c->sandbox) : &nothing;
    const char *token = promised ? promised : i->access_token;
    struct str host = http_header_get(c->req, "host"), until;
    char ticket[PROXY_TICKET_MAX] = "";
    uint64_t port, expires;
    bool by_proxy, is_signed = http_query_get(c->req, "expires", &until) != 0;
    if (!proxy_number(c->args[1], &port)) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "a port is a number from 1 to 65535");
        return;
    }
    if (call_query_bool(c, "use_server_proxy", &by_proxy) < 0 || call_query_u64(c, "expires", &expires) < 0)
        return;
    if (!host.n) {
        call_refuse(c, ERR_INVALID_ARGUMENT, "the request has no Host");
        return;
    }
    if (is_signed && (expires * USEC_PER_SEC <= clock_real() || expires >> 40 || promised || !token)) {
        call_refuse(c, ERR_INVALID_ARGUMENT,
                    token ? "'expires' must be a time in the future, in seconds since 1970"
                          : "this sandbox has no token to sign with");
        return;
    }
    if (is_signed)
        proxy_ticket(i, port, expires, ticket);
    json_t *answer = json_pack("{s:o}", "endpoint",
                               json_sprintf("%.*s/v1/sandboxes/%s%s/proxy/%llu", STR_ARG(host),
                                            promised ? c->args[0].p : i->id, ticket, (unsigned long long)port)),
           *headers = json_object();
    bool is_program = port != OPENSANDBOX_EXECD_PORT && port != OPENSANDBOX_EGRESS_PORT;
    if (!is_signed && !is_program && token)
        (void)json_object_set_new(headers,
                                  port == OPENSANDBOX_EXECD_PORT ? "X-EXECD-ACCESS-TOKEN" : "OPENSANDBOX-EGRESS-AUTH",
                                  json_string(token));
    if (!is_signed && i->traffic_token)
        (void)json_object_set_new(headers, "OpenSandbox-Secure-Access", json_string(i->traffic_token));
    if (json_object_size(headers))
        (void)json_object_set(answer, "headers", headers);
    json_decref(headers);
    call_value(c, 200, answer);
}
