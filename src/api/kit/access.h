/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may do what: the one place for all façades. A façade finds out who asks and says so by one of access_by_key() and
 * access_as(); the kit then holds what the route needs against the scope (access_permitted()), and what the request
 * names against the tenant (the look-ups below).
 *
 *  1. A route needs SCOPE_READ when its method is GET or HEAD, else SCOPE_USE, unless its flags say something else.
 *  2. What belongs to another tenant is not found. So is, for a key of one sandbox, every other sandbox.
 *  3. A key of one sandbox is good for routes that name a sandbox in args[0], but for those that reach beyond it
 *     (ROUTE_WIDE).
 */
#pragma once

#include "api/kit/facade.h"
#include "sandbox/sandbox.h"

/* From the header X-API-KEY, or else Authorization: Bearer. p NULL: none. */
struct str access_key_given(const struct http_request *req);

/*
 * What a client with this API key is called in logs: "native:6b86b273", the first 8 hex digits of the key's SHA-256.
 * Tells keys apart and gives away nothing of a key that can't be guessed anyway; whoever has the key can find its name
 * out. prefix: up to 16 bytes. Without a key the name is the prefix alone.
 */
enum { KEY_NAME_MAX = 32 };
void key_name(const char *prefix, struct str key, char ret_name[static KEY_NAME_MAX]);

/* May a page of this Origin talk to the server that it calls `host`? domain: ours; NULL: none. */
bool origin_is_good(struct str origin, struct str host, const char *domain);

/*
 * Was it sent by a page of another site, by the browser's own word? Another port of a sandbox is "same-site". To a name
 * over plain HTTP, which may be a stranger's that leads here, browsers say no more than the Origin.
 */
bool access_is_of_other_site(const struct core *core, const struct http_request *req);

/* False: nobody has such a key, and nothing is answered. */
bool access_by_key(struct call *c, struct str key);
/*
 * For façades of our own: over the unix socket root and the service's owner, who see all, or act as an administrator of
 * the tenant that they name (ACCESS_TENANT_HEADER), and members of the service's group, as administrators of their own
 * (tenant_of_uid()); over TCP who has a key. False: answered.
 */
#define ACCESS_TENANT_HEADER "x-cove-tenant"
bool access_by_peer_or_key(struct call *c, uid_t owner);
/* name: for the record. The principal's strings are copied. */
void access_as(struct call *c, const char *name, const struct principal *who);

/* Of the call's route. False: answered. */
bool access_permitted(struct call *c);
/* One more request of the tenant is under way, until the call is over. False: answered. */
bool access_charge(struct call *c, uint64_t tenant);

static inline bool access_may_use(const struct principal *who)
{
    return who->scope >= SCOPE_USE;
}

/* Is the sandbox among what there is for it? */
bool access_reaches(const struct principal *who, const struct sandbox *sb);
/* As sandbox_find() and sandbox_each(), of those that there are for who asks. */
struct sandbox *access_find_sandbox(const struct call *c, struct str id);
void access_each_sandbox(const struct call *c, bool (*fn)(void *ctx, struct sandbox *sb), void *ctx);
/* May who asks read the log under this id, of what is there or was? */
bool access_has_log(const struct call *c, const char *id);
