/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/files_call.h"
#include "api/e2b/envd/envd.h"
#include "api/e2b/target.h"
#include "sandbox/key.h"
#include "sandbox/life/pause.h"

/* A signature that was right, and has expired, is nobody's attempt. */
static void note_refusal(struct call *c, const struct files_query *query, enum files_operation operation)
{
    struct str token = str_of(sandbox_info(c->sandbox)->access_token);
    bool has_header = http_header_get(c->req, "x-access-token").n;
    if (!has_header && !query->signature.p)
        facade_note_refusal(c->facade, c->req, REFUSAL_NO_TOKEN);
    else if (has_header || !files_query_signed_by(query, operation, token))
        facade_note_refusal(c->facade, c->req, REFUSAL_WRONG_TOKEN);
}

bool files_begin(struct call *c, enum files_operation operation, struct files_query *ret_query)
{
    const struct sandbox_info *info = sandbox_info(c->sandbox);
    const char *refused;
    struct err err;
    if (files_query_parse(http_query(c->req), http_arena(c->req), ret_query, &err) < 0) {
        call_respond(c, 400, "text/plain; charset=utf-8", str_of(err.msg));
        return false;
    }
    refused = files_query_refused(ret_query, operation, str_of(info->access_token),
                                  http_header_get(c->req, "x-access-token"), clock_real());
    if (refused) {
        note_refusal(c, ret_query, operation);
        return call_fail(c, 401, "%s", refused);
    }
    c->user = ret_query->user;
    if (info->access_token && !http_header_get(c->req, "x-access-token").n)
        c->actor.name = "e2b:signature";
    return true;
}

static enum files_operation operation_of(const struct http_request *req)
{
    return http_method(req) == HTTP_METHOD_POST ? FILES_WRITE : FILES_READ;
}

bool files_is_signed(struct http_request *req, const struct sandbox_info *info)
{
    struct files_query query;
    struct err err;
    return files_query_parse(http_query(req), http_arena(req), &query, &err) == 0 && query.signature.p &&
           !files_query_refused(&query, operation_of(req), str_of(info->access_token), STR_NULL, clock_real());
}

/* ---- which sandbox? ---- */

struct search {
    struct files_query query;
    const struct signer *signer;
    struct str header;
    struct sandbox *found;
};

static bool try_sandbox(void *ctx, struct sandbox *sb)
{
    const struct sandbox_info *info = sandbox_info(sb);
    struct search *s = ctx;
    struct str token = str_of(info->access_token);
    if (!sandbox_can_wake(sb) || !token.p)
        return true;
    if (s->header.n ? str_eq_secret(s->header, token) : signer_matches(s->signer, token, s->query.signature))
        s->found = sb;
    return !s->found;
}

static struct sandbox *search(struct e2b *e2b, struct http_request *req, struct search *s)
{
    const struct signature what = files_query_signed(&s->query, operation_of(req));
    AUTO(signer_free) struct signer *signer = signer_new(&what);
    s->signer = signer;
    sandbox_each(e2b->facade.core, try_sandbox, s);
    s->signer = NULL;
    return s->found;
}

static bool has_token(void *ctx, struct sandbox *sb)
{
    struct search *s = ctx;
    struct str token = str_of(sandbox_info(sb)->access_token);
    if (token.p && str_eq_secret(s->header, token))
        s->found = sb;
    return !s->found;
}

struct sandbox *envd_find_by_token(struct e2b *e2b, struct http_request *req)
{
    struct search s = {.header = http_header_get(req, "x-access-token")};
    sandbox_each(e2b->facade.core, has_token, &s);
    if (s.found)
        return s.found;
    facade_note_refusal(&e2b->facade, req, REFUSAL_WRONG_TOKEN);
    http_respond_error(req, 401, "no sandbox has this access token");
    return NULL;
}

struct sandbox *envd_find_by_signature(struct e2b *e2b, struct http_request *req)
{
    struct search s = {.header = http_header_get(req, "x-access-token")};
    struct str key = access_key_given(req);
    struct principal who;
    struct err err;
    if (files_query_parse(http_query(req), http_arena(req), &s.query, &err) < 0) {
        http_respond(req, 400, &HTTP_HEADER("content-type", "text/plain; charset=utf-8"), 1, str_of(err.msg));
        return NULL;
    }
    if (s.header.n || s.query.signature.p) {
        if (!search(e2b, req, &s)) {
            facade_note_refusal(&e2b->facade, req, REFUSAL_WRONG_TOKEN);
            http_respond_error(req, 401, s.header.n ? "no sandbox has this access token" : "invalid signature");
        }
        return s.found;
    }
    if (!key_authenticate(e2b->facade.core, key, &who)) {
        facade_note_refusal(&e2b->facade, req, key.p ? REFUSAL_WRONG_KEY : REFUSAL_NO_TOKEN);
        http_respond_error(req, 401, "a signature, an access token or the API key is needed");
        return NULL;
    }
    if (who.scope < SCOPE_USE && operation_of(req) == FILES_WRITE) {
        http_respond_error(req, 403, "this API key can only read");
        return NULL;
    }
    s.found = sandbox_only(e2b->facade.core, &who);
    if (!s.found || !sandbox_can_wake(s.found)) {
        s.found = NULL;
        http_respond_error(req, 400, "no sandbox is named: send E2b-Sandbox-Id and E2b-Sandbox-Port, or sign the URL");
    }
    return s.found;
}
