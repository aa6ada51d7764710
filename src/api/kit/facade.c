/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/facade.h"
#include "api/kit/call.h"

void facade_init(struct facade *f, const struct facade_ops *ops, struct core *core, struct refusals *refusals)
{
    *f = (struct facade){.ops = ops, .core = core, .refusals = refusals};
    slices_init(&f->slices, core_loop(core));
    timers_init(&f->timers, core_loop(core));
}

void facade_fini(struct facade *f)
{
    timers_fini(&f->timers);
    slices_fini(&f->slices);
}

bool facade_owns_key(struct str key)
{
    static const char *const prefixes[] = {"cove.mcp/", "opensandbox.io/"};
    for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
        if (str_starts(key, str_of(prefixes[i])))
            return true;
    return false;
}

json_t *facade_metadata(const struct sandbox_info *info)
{
    json_t *all = json_object();
    for (size_t i = 0; i < info->n_metadata; i++)
        if (!facade_owns_key(info->metadata[i].key))
            (void)json_object_setn_new(all, info->metadata[i].key.p, info->metadata[i].key.n,
                                       call_text(info->metadata[i].value));
    return all;
}

void facade_drain(struct map *m, void (*free_value)(void *value))
{
    for (void *value; (value = map_any(m));)
        free_value(value);
    map_fini(m);
}

void facade_note_refusal(struct facade *f, const struct http_request *req, enum refusal why)
{
    struct http_peer peer;
    if (http_peer_get(req, &peer) == 0)
        refusals_note(f->refusals, f->ops->name, why, &peer);
}

bool facade_serve(struct facade *f, const struct route *routes, size_t n, struct http_request *req)
{
    return facade_serve_at(f, routes, n, http_raw_path(req), req);
}

bool facade_serve_at(struct facade *f, const struct route *routes, size_t n, struct str path, struct http_request *req)
{
    struct str args[ROUTE_ARGS_MAX] = {0};
    const struct route *route = NULL;
    char allow[ROUTE_ALLOW_MAX];
    enum route_result found = route_find(routes, n, http_method(req), path, &route, args, allow);
    struct call *c;
    if (found == ROUTE_UNKNOWN || (found == ROUTE_WRONG_METHOD && !f->ops->method_error))
        return false;
    if (f->ops->preflight && f->ops->preflight(f, req))
        return true;
    c = call_new(f, req, NULL);
    if (found == ROUTE_WRONG_METHOD) {
        http_add_header(req, STR("allow"), str_of(allow));
        call_fail(c, f->ops->method_error_status, "%s", f->ops->method_error);
        return true;
    }
    c->route = route;
    if ((route->flags & ROUTE_OPEN) || (f->ops->authenticate(c) && access_permitted(c)))
        call_run(c, route, args);
    return true;
}

static bool claim_fits(const struct claim *c, const struct http_request *req)
{
    return (!c->prefix || str_starts(http_raw_path(req), str_of(c->prefix))) &&
           (!c->header || http_header_get(req, c->header).p) && (!c->fits || c->fits(req));
}

bool claims_serve(const struct claim *claims, size_t n, struct http_request *req)
{
    for (size_t i = 0; i < n; i++)
        if (claim_fits(&claims[i], req) && claims[i].serve(claims[i].facade, req))
            return true;
    return false;
}
