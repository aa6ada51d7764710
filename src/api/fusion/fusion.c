/* SPDX-License-Identifier: Apache-2.0 */
#include "api/fusion/fusion.h"
#include "api/fusion/handlers.h"
#include "base/mem.h"
#include "http/client/connect.h"

#include <unistd.h>

enum { SLOTS_PER_CPU = 4 };

/* ---- who asks ---- */

/* The password of "Authorization: Basic", or its user name when there is none. */
static struct str fusion_basic(struct call *c)
{
    struct str given = http_header_get(c->req, "authorization");
    AUTO_BUF struct buf b = BUF_INIT(4096);
    if (given.n < 6 || !str_eq_nocase(str_n(given.p, 6), STR("basic ")) ||
        buf_append_unbase64(&b, str_trim(str_sub(given, 6))) < 0)
        return STR_NULL;
    struct str text = buf_str(&b);
    ssize_t colon = str_find_char(text, ':');
    if (colon >= 0)
        text = (size_t)colon + 1 < text.n ? str_sub(text, (size_t)colon + 1) : str_n(text.p, (size_t)colon);
    return arena_str(http_arena(c->req), text);
}

static bool fusion_authenticate(struct call *c)
{
    struct str key = access_key_given(c->req);
    struct http_peer peer;
    if (http_peer_get(c->req, &peer) == 0 && peer.is_unix)
        return access_by_peer_or_key(c, fusion_of(c)->owner_uid);
    key = key.p ? key : fusion_basic(c);
    /* Whatever name leads a page here, what it sends has an origin. */
    if (!key.p && fusion_of(c)->is_open && !http_header_get(c->req, "origin").p) {
        access_as(c, "run-code:open",
                  &(struct principal){.tenant = TENANT_DEFAULT, .view = TENANT_DEFAULT, .scope = SCOPE_USE});
        return true;
    }
    if (key.n && access_by_key(c, key))
        return true;
    facade_note_refusal(c->facade, c->req, key.n ? REFUSAL_WRONG_KEY : REFUSAL_NO_KEY);
    call_refuse(c, ERR_UNAUTHENTICATED,
                "%s: send it as X-API-KEY, or in the address as http://x:KEY@host; 'cove key' prints it",
                key.n ? "the API key is wrong" : "an API key is needed");
    return false;
}

/* ---- answers ---- */

static int fusion_status(const struct call *c UNUSED, struct err *err)
{
    return err->code == ERR_INVALID_ARGUMENT ? 422 : connect_status(err->code);
}

static void fusion_error(struct buf *b, int status, enum err_code code UNUSED, struct str message,
                         const char *hint UNUSED)
{
    buf_append_cstr(b, status == 422 ? "{\"detail\":[{\"type\":\"value_error\",\"loc\":[\"body\"],\"msg\":"
                                     : "{\"detail\":");
    buf_append_json_string(b, message);
    buf_append_cstr(b, status == 422 ? "}]}" : "}");
}

static const struct facade_ops ops = {
    .name = "run-code",
    .body_max = FUSION_BODY_MAX,
    .body_error = "",
    .wants_json_type = true,
    .method_error = "Method Not Allowed",
    .method_error_status = 405,
    .authenticate = fusion_authenticate,
    .append_error = fusion_error,
    .status_of = fusion_status,
};

/* ---- running ---- */

static void fusion_ping(struct call *c)
{
    call_json(c, 200, STR("\"pong\""));
}

static void fusion_ran(struct call *c, struct fusion_run *r)
{
    AUTO_BUF struct buf b = BUF_INIT(FUSION_ANSWER_MAX);
    fusion_run_append(&b, r, FUSION_ESCAPED_MAX);
    call_json_buf(c, 200, &b);
}

static void fusion_run(struct call *c)
{
    struct fusion_run *r = arena_alloc(http_arena(c->req), sizeof(*r));
    *r = (struct fusion_run){.done = fusion_ran};
    if (fusion_run_read(c, c->body, c->route->what != NULL, r))
        fusion_run_start(c, r);
}

const struct route fusion_routes[] = {
    {HTTP_METHOD_POST, "/run_code", fusion_run, ROUTE_BODY | ROUTE_WIDE, NULL},
    {HTTP_METHOD_POST, "/run_jupyter", fusion_run, ROUTE_BODY | ROUTE_WIDE, "cells"},
    {HTTP_METHOD_GET, "/v1/ping", fusion_ping, ROUTE_OPEN, NULL},
    {HTTP_METHOD_GET, "/list_datasets", fusion_list_datasets, 0, NULL},
    {HTTP_METHOD_POST, "/list_ids", fusion_list_ids, ROUTE_BODY | ROUTE_READ, NULL},
    {HTTP_METHOD_POST, "/get_prompts", fusion_prompts, ROUTE_BODY | ROUTE_READ, NULL},
    {HTTP_METHOD_POST, "/get_prompt_by_id", fusion_prompt, ROUTE_BODY | ROUTE_READ, NULL},
    {HTTP_METHOD_POST, "/submit", fusion_submit, ROUTE_BODY | ROUTE_WIDE, NULL},
    {HTTP_METHOD_POST, "/get_metrics", fusion_metrics, ROUTE_BODY | ROUTE_READ, NULL},
    {HTTP_METHOD_POST, "/get_metrics_function", fusion_metrics_function, ROUTE_BODY | ROUTE_READ, NULL},
};
const size_t fusion_n_routes = ARRAY_SIZE(fusion_routes);

bool fusion_serve(void *fusion, struct http_request *req)
{
    struct fusion *f = fusion;
    return facade_serve(&f->facade, fusion_routes, fusion_n_routes, req);
}

struct fusion *fusion_new(const struct fusion_config *config)
{
    struct fusion *f = mem_new(struct fusion);
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    f->is_open = config->is_open;
    f->owner_uid = config->owner_uid;
    f->slots = (unsigned)MAX(cpus, 1L) * SLOTS_PER_CPU;
    list_init(&f->waiting);
    list_init(&f->busy);
    facade_init(&f->facade, &ops, config->core, config->refusals);
    return f;
}

void fusion_free(struct fusion *f)
{
    if (!f)
        return;
    facade_fini(&f->facade);
    mem_free(f);
}
