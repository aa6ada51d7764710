/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/dns/dns_limit.h"
#include "egress/dns/dns_server.h"

static usec_t missing(const struct dns_bucket *b, usec_t now)
{
    usec_t refilled = now > b->at ? now - b->at : 0;
    return b->used > refilled ? b->used - refilled : 0;
}

bool dns_bucket_take(struct dns_bucket *b, usec_t now, unsigned rate, unsigned burst)
{
    usec_t one = USEC_PER_SEC / rate, used = missing(b, now);
    bool has = used + one <= one * burst;
    *b = (struct dns_bucket){has ? used + one : used, now};
    return has;
}

bool dns_bucket_is_half_full(const struct dns_bucket *b, usec_t now, unsigned rate, unsigned burst)
{
    return missing(b, now) <= USEC_PER_SEC / rate * burst / 2;
}

void dns_names_fini(struct dns_names *n)
{
    map_fini(&n->seen);
    map_fini(&n->counts);
    *n = (struct dns_names){.seen = MAP_INIT, .counts = MAP_INIT};
}

enum dns_names_verdict dns_names_count(struct dns_names *n, usec_t now, int rule, const char *name)
{
    char key[sizeof(rule) + HOSTNAME_MAX + 1];
    size_t size = strlen(name);
    assert(size <= HOSTNAME_MAX);
    if (now - n->since >= 60 * USEC_PER_SEC) {
        dns_names_fini(n);
        n->since = now;
    }
    memcpy(key, &rule, sizeof(rule));
    memcpy(key + sizeof(rule), name, size + 1);
    struct str whole = str_n(key, sizeof(rule) + size);
    if (map_get(&n->seen, whole))
        return DNS_NAMES_FINE;
    uint64_t id = (uint32_t)rule;
    uintptr_t count = (uintptr_t)map_get_u64(&n->counts, id);
    if (count > DNS_SERVER_NAMES_MAX)
        return DNS_NAMES_OVER;
    bool full = map_count(&n->seen) >= DNS_SERVER_NAMES_ALL_MAX;
    count = full ? DNS_SERVER_NAMES_MAX + 1 : count + 1;
    (void)map_put_u64(&n->counts, id, (void *)count); /* policies have a bounded number of rules */
    if (count > DNS_SERVER_NAMES_MAX)
        return DNS_NAMES_OVER_NOW;
    (void)map_put(&n->seen, whole, n);
    return DNS_NAMES_FINE;
}
