/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/access.h"
#include "api/kit/call.h"
#include "policy/netaddr.h"
#include "sandbox/action.h"
#include "sandbox/key.h"
#include "sandbox/tenant.h"

#include <openssl/sha.h>

struct str access_key_given(const struct http_request *req)
{
    struct str key = http_header_get(req, "x-api-key"), bearer = http_header_get(req, "authorization");
    if (key.p || bearer.n < 7 || !str_eq_nocase(str_n(bearer.p, 7), STR("bearer ")))
        return key;
    return str_trim(str_sub(bearer, 7));
}

/* "name:80", "[::1]:80": without the port, in brackets or not. */
static struct str origin_host(struct str authority)
{
    ssize_t end = authority.n && authority.p[0] == '[' ? str_find_char(authority, ']') : str_find_char(authority, ':');
    if (authority.n && authority.p[0] == '[')
        return end < 0 ? STR_NULL : str_n(authority.p + 1, (size_t)end - 1);
    return end < 0 ? authority : str_n(authority.p, (size_t)end);
}

static bool origin_parse_addr(struct str host, struct netaddr *ret)
{
    return host.n && host.n < 64 && netaddr_parse(host, ret);
}

static bool origin_is_loopback(struct str host)
{
    struct netaddr addr;
    if (origin_parse_addr(host, &addr))
        return netaddr_class(&addr) == NET_LOOPBACK;
    return str_eq_nocase(host, STR("localhost")) ||
           (host.n > 10 && str_eq_nocase(str_sub(host, host.n - 10), STR(".localhost")));
}

static bool origin_is_under(struct str host, struct str domain)
{
    return str_eq_nocase(host, domain) || (host.n > domain.n && host.p[host.n - domain.n - 1] == '.' &&
                                           str_eq_nocase(str_sub(host, host.n - domain.n), domain));
}

/* A name that we don't know could be anybody's who makes it lead here: addresses and our own names can't. */
bool origin_is_good(struct str origin, struct str host, const char *domain)
{
    struct netaddr addr;
    struct str asked = origin_host(host);
    if (str_starts(origin, STR("http://")))
        origin = str_sub(origin, 7);
    else if (str_starts(origin, STR("https://")))
        origin = str_sub(origin, 8);
    else
        return false;
    origin = origin_host(origin);
    if (!origin.n || !asked.n)
        return false;
    bool is_ours = origin_is_loopback(asked) || origin_parse_addr(asked, &addr) ||
                   (domain && origin_is_under(asked, str_of(domain)));
    return is_ours && (origin_is_loopback(origin) || str_eq_nocase(origin, asked));
}

bool access_is_of_other_site(const struct core *core, const struct http_request *req)
{
    struct str site = http_header_get(req, "sec-fetch-site"), origin = http_header_get(req, "origin");
    if (site.n)
        return !str_eq_nocase(site, STR("same-origin")) && !str_eq_nocase(site, STR("none"));
    return origin.p && !origin_is_good(origin, http_header_get(req, "host"), core_config(core)->domain);
}

void access_as(struct call *c, const char *name, const struct principal *who)
{
    actor_take(&c->actor, http_arena(c->req), name, who);
}

void key_name(const char *prefix, struct str key, char ret_name[static KEY_NAME_MAX])
{
    unsigned char hash[SHA256_DIGEST_LENGTH];
    int n = snprintf(ret_name, KEY_NAME_MAX, "%.16s", prefix);
    if (key.n == 0)
        return;
    (void)SHA256((const unsigned char *)key.p, key.n, hash);
    (void)snprintf(ret_name + n, KEY_NAME_MAX - (size_t)n, ":%02x%02x%02x%02x", hash[0], hash[1], hash[2], hash[3]);
}

bool access_by_key(struct call *c, struct str key)
{
    const char *facade = c->facade->ops->name;
    struct principal who;
    char name[KEY_NAME_MAX];
    if (!key_authenticate(call_core(c), key, &who))
        return false;
    key_name(facade, key, name);
    access_as(c, who.key ? arena_printf(http_arena(c->req), "%s:%s", facade, who.key) : name, &who);
    return true;
}

static bool access_by_peer(struct call *c, uid_t owner, uid_t uid, struct str tenant)
{
    struct principal who = PRINCIPAL_OWNER;
    const char *facade = strcmp(c->facade->ops->name, "native") == 0 ? "cli" : c->facade->ops->name;
    const gid_t group = core_config(call_core(c))->group_gid;
    const char *name = arena_printf(http_arena(c->req), "%s:uid=%u", facade, (unsigned)uid);
    if (uid != 0 && uid != owner && group && group != (gid_t)-1 && http_peer_is_in(c->req, group)) {
        const struct actor cove = {.name = name, .who = who, .is_own = true};
        uint64_t number;
        if (!call_ok(c, tenant_of_uid(call_core(c), &cove, uid, &number, &c->err)))
            return false;
        if (tenant.p && (tenant_find(call_core(c), tenant, &who.tenant, &c->err) < 0 || who.tenant != number))
            return call_refuse(c, ERR_PERMISSION_DENIED, "uid %u acts in its own tenant, uid-%u", (unsigned)uid,
                               (unsigned)uid);
        who = (struct principal){.tenant = number, .view = number, .scope = SCOPE_ADMIN};
        access_as(c, name, &who);
        return true;
    }
    if (uid != 0 && uid != owner) {
        facade_note_refusal(c->facade, c->req, REFUSAL_WRONG_USER);
        return call_refuse(c, ERR_PERMISSION_DENIED,
                           "the service is for root, its owner (uid %u) and its group, not for uid %u", (unsigned)owner,
                           (unsigned)uid);
    }
    if (tenant.p) {
        if (!call_ok(c, tenant_find(call_core(c), tenant, &who.tenant, &c->err)))
            return false;
        who.view = who.tenant;
        who.scope = who.tenant == TENANT_DEFAULT ? SCOPE_OPERATOR : SCOPE_ADMIN;
    }
    access_as(c, name, &who);
    return true;
}

bool access_by_peer_or_key(struct call *c, uid_t owner)
{
    struct str tenant = http_header_get(c->req, ACCESS_TENANT_HEADER), given = access_key_given(c->req);
    struct http_peer peer;
    if (http_peer_get(c->req, &peer) < 0)
        return call_refuse(c, ERR_INTERNAL, "could not determine which user is connected");
    if (peer.is_unix)
        return access_by_peer(c, owner, peer.uid, tenant);
    if (!given.p || !access_by_key(c, given)) {
        facade_note_refusal(c->facade, c->req, given.p ? REFUSAL_WRONG_KEY : REFUSAL_NO_KEY);
        return call_refuse(c, ERR_UNAUTHENTICATED, given.p ? "the API key is wrong" : "an API key is needed");
    }
    if (!tenant.p)
        return true;
    return call_refuse(c, ERR_PERMISSION_DENIED,
                       "a key can only act in its own tenant: only the machine's owner can "
                       "name another");
}

static enum scope access_need(const struct route *route)
{
    if (route->flags & ROUTE_OPERATOR)
        return SCOPE_OPERATOR;
    if (route->flags & ROUTE_ADMIN)
        return SCOPE_ADMIN;
    if (route->flags & ROUTE_APPROVE)
        return SCOPE_APPROVE;
    if (route->flags & (ROUTE_READ | ROUTE_USE))
        return route->flags & ROUTE_USE ? SCOPE_USE : SCOPE_READ;
    return route->method == HTTP_METHOD_GET || route->method == HTTP_METHOD_HEAD ? SCOPE_READ : SCOPE_USE;
}

bool access_charge(struct call *c, uint64_t tenant)
{
    static const uint64_t one[QUOTA_CHARGED] = {[QUOTA_CONNECTIONS] = 1};
    return call_ok(c, charge_take(&c->charge, call_core(c), tenant, one, &c->err));
}

bool access_permitted(struct call *c)
{
    const struct principal *who = &c->actor.who;
    unsigned flags = c->route->flags;
    enum scope need = access_need(c->route);
    if (who->scope < need)
        return call_refuse(c, ERR_PERMISSION_DENIED,
                           need == SCOPE_OPERATOR ? "only administrators of the default tenant can do this"
                                                  : "this API key's scope is '%s', but this needs '%s'",
                           scope_name(who->scope), scope_name(need));
    if (who->sandbox && (!(flags & (ROUTE_SANDBOX | ROUTE_OF_SANDBOX)) || (flags & ROUTE_WIDE)))
        return call_refuse(c, ERR_PERMISSION_DENIED, "this API key is for sandbox %s alone", who->sandbox);
    return access_charge(c, who->tenant);
}

bool access_reaches(const struct principal *who, const struct sandbox *sb)
{
    const struct sandbox_info *info = sandbox_info(sb);
    return view_has(who->view, info->tenant) && (!who->sandbox || strcmp(who->sandbox, info->id) == 0);
}

struct sandbox *access_find_sandbox(const struct call *c, struct str id)
{
    struct sandbox *sb = sandbox_find(call_core(c), id);
    return sb && access_reaches(&c->actor.who, sb) ? sb : NULL;
}

struct access_walk {
    const struct principal *who;
    bool (*fn)(void *ctx, struct sandbox *sb);
    void *ctx;
};

static bool access_walk_one(void *ctx, struct sandbox *sb)
{
    const struct access_walk *w = ctx;
    return !access_reaches(w->who, sb) || w->fn(w->ctx, sb);
}

void access_each_sandbox(const struct call *c, bool (*fn)(void *ctx, struct sandbox *sb), void *ctx)
{
    struct access_walk walk = {&c->actor.who, fn, ctx};
    sandbox_each(call_core(c), access_walk_one, &walk);
}

bool access_has_log(const struct call *c, const char *id)
{
    const struct principal *who = &c->actor.who;
    uint64_t tenant;
    struct err ignored;
    if (who->view == TENANT_ANY)
        return true;
    if (strcmp(id, SERVICE_LOG_ID) == 0)
        return who->scope >= SCOPE_OPERATOR;
    if (str_starts(str_of(id), STR(SERVICE_LOG_ID)) && who->scope < SCOPE_ADMIN)
        return false;
    return tenant_of_log(call_core(c), id, &tenant, &ignored) == 0 && view_has(who->view, tenant) &&
           (!who->sandbox || strcmp(who->sandbox, id) == 0);
}
