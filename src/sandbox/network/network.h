/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox may reach. Each has a policy (policy/policy.h), which is kept in its row and which cove-egress
 * enforces: it is told before anybody hears of the sandbox, and again whenever cove-egress is another one. Without
 * cove-egress nothing gets out of any sandbox.
 *
 * Values of "inject" headers are sealed by cove-egress before they are stored or can be read again: of a value
 * everything but ${secret:...}, ${sealed:...} and an authentication scheme in front of one. Nothing of them is ever in
 * an event.
 */
#pragma once

#include "base/json.h"
#include "sandbox/sandbox.h"

struct network_spec {
    const json_t *policy; /* NULL: all or nothing, by allow_internet */
    const json_t *fields; /* the façade's own words for it, kept and given back; no secret in them. NULL: none */
    bool allow_internet;  /* what the sandbox's info says */
};

/* The policy would be taken. ERR_INVALID_ARGUMENT says what is wrong and where. */
int network_check_policy(const json_t *policy, struct err *err) WARN_UNUSED;

/*
 * fn is called for what the policy denies from now on, limited like its events; NULL: stops. target: "name:port", or
 * the known part of it. closed_address: where the name leads, if that can't be reached by a rule about the name; NULL
 * otherwise.
 */
typedef void (*network_denied_fn)(void *ctx, const char *target, const char *reason, const char *closed_address);
void network_watch_denied(struct sandbox *sb, network_denied_fn fn, void *ctx);

/* policy_warnings() of it. New reference; NULL: none. */
json_t *network_warnings(const json_t *policy);

/* done comes once it is in force, kept, and its certificate, if it has one, is in the sandbox. */
typedef void (*network_fn)(void *ctx, const struct err *err);

/*
 * Replaces the policy; streams that are no longer allowed are cut. ERR_ABORTED: another change is under way.
 * ERR_UNAVAILABLE: cove-egress does not run. No cancel: a client that leaves gets its change.
 */
int network_set(struct sandbox *sb, const struct actor *actor, const struct network_spec *spec, network_fn done,
                void *ctx, struct err *err) WARN_UNUSED;

/* What would become of a request: {"verdict","rule","reason","addresses":[...],"intercepted","suggestion"?},
 * borrowed. */
typedef void (*network_check_fn)(void *ctx, const json_t *answer, const struct err *err);
int network_check(struct sandbox *sb, struct str url, struct str method, network_check_fn done, void *ctx,
                  struct err *err) WARN_UNUSED;

/* Borrowed. The policy in force, sealed; the façade's fields, NULL for none. */
const json_t *network_policy(const struct sandbox *sb);
const json_t *network_fields(const struct sandbox *sb);
bool network_is_up(const struct sandbox *sb); /* cove-egress has its policy */
