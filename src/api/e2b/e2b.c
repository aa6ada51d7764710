/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/e2b.h"

#include "api/e2b/call.h"
#include "api/e2b/control.h"
#include "api/e2b/envd.h"
#include "api/e2b/port_proxy.h"
#include "api/e2b/proxy_error.h"
#include "api/e2b/sandbox_json.h"
#include "api/e2b/target.h"
#include "api/e2b/volume_content.h"
#include "base/mem.h"
#include "base/path.h"

struct e2b *e2b_new(const struct e2b_config *config)
{
    struct e2b *e2b = mem_new(struct e2b);

    e2b->core = config->core;
    e2b->builder = config->builder;
    e2b->refusals = config->refusals;
    e2b->api_key = mem_strndup(config->api_key.p ? config->api_key.p : "", config->api_key.n);
    e2b->domain = mem_strdup(config->domain);
    key_name("e2b", str_of(e2b->api_key), e2b->control_actor);
    list_init(&e2b->creations);
    buf_init(&e2b->scratch, 2 * WIRE_PAYLOAD_MAX);
    slices_init(&e2b->slices, core_loop(config->core));
    if (timers_init(&e2b->timers, core_loop(config->core)) < 0) {
        e2b_free(e2b);
        return NULL;
    }
    return e2b;
}

void e2b_free(struct e2b *e2b)
{
    if (!e2b)
        return;
    envd_watchers_free(e2b);
    map_fini(&e2b->traffic);
    control_creations_free(e2b);
    timers_fini(&e2b->timers);
    slices_fini(&e2b->slices);
    buf_fini(&e2b->scratch);
    mem_wipe(e2b->api_key, strlen(e2b->api_key));
    mem_free(e2b->api_key);
    mem_free(e2b->domain);
    mem_free(e2b);
}

void e2b_note_refusal(struct e2b *e2b, const struct http_request *req, enum refusal why)
{
    struct http_peer peer;

    if (http_peer_get(req, &peer) == 0)
        refusals_note(e2b->refusals, "e2b", why, &peer);
}

bool e2b_key_is(const struct e2b *e2b, struct str given)
{
    return e2b->api_key[0] && str_eq_secret(given, str_of(e2b->api_key));
}

struct str e2b_key_given(const struct http_request *req)
{
    struct str key = http_header_get(req, "x-api-key"), bearer = http_header_get(req, "authorization");

    if (key.p || bearer.n < 7 || !str_eq_nocase(str_n(bearer.p, 7), STR("bearer ")))
        return key;
    return str_trim(str_sub(bearer, 7));
}

bool e2b_claims(struct http_request *req)
{
    struct target target;

    return target_of(req, &target) != TARGET_CONTROL;
}

static bool is_internal(struct http_request *req)
{
    struct str path = http_path(req);
    char clean[PATH_TEXT_MAX];

    return path.n && path_clean(path, clean) >= 0 && envd_is_internal(str_of(clean));
}

static void handle_sandbox(struct e2b *e2b, struct http_request *req, const struct target *target)
{
    struct sandbox *sb;
    bool by_alias;

    if (target->port == ENVD_PORT && is_internal(req)) {
        proxy_error_internal_route(req, http_raw_path(req));
        return;
    }
    by_alias = id_is_port_alias(target->id);
    sb = by_alias ? sandbox_find_by_port_alias(e2b->core, target->id) : sandbox_find(e2b->core, target->id);
    if (!sandbox_json_exists(sb))
        proxy_error_not_found(req, target->id);
    else if (target->port != ENVD_PORT)
        port_proxy_handle(e2b, req, sb, target->port);
    else if (by_alias)
        proxy_error_port_closed(req, target->id, ENVD_PORT);
    else
        envd_handle(e2b, req, sb);
}

bool e2b_handle(struct e2b *e2b, struct http_request *req)
{
    struct target target;

    switch (target_of(req, &target)) {
    case TARGET_SANDBOX:
        handle_sandbox(e2b, req, &target);
        return true;
    case TARGET_BAD:
        proxy_error_bad_target(req, target.problem);
        return true;
    case TARGET_CONTROL:
        break;
    }
    if (str_eq(http_raw_path(req), STR("/files"))) {
        envd_handle_files(e2b, req);
        return true;
    }
    return volume_content_handle(e2b, req) || control_handle(e2b, req);
}
