/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/dns/names.h"
#include "base/list.h"
#include "base/map.h"
#include "base/mem.h"

struct known_name {
    char *text; /* owned */
    usec_t until;
};

struct known_address {
    struct list node; /* of names.recent */
    struct netaddr addr;
    struct known_name names[NAMES_PER_ADDRESS_MAX]; /* the one that was answered last first */
    size_t n;                                       /* at least 1 between calls */
};

struct names {
    struct map by_addr; /* owns struct known_address */
    struct list recent; /* the address that was used last first */
    usec_t (*clock)(void);
};

static_assert(sizeof(struct netaddr) == 17, "an address is a key: no padding in it");

static struct str names_key_of(const struct netaddr *addr)
{
    return str_n(addr, sizeof(*addr));
}

struct names *names_new(void)
{
    struct names *m = mem_new(struct names);
    m->by_addr = MAP_INIT;
    list_init(&m->recent);
    m->clock = clock_mono;
    return m;
}

static void names_forget(struct names *m, struct known_address *a)
{
    for (size_t i = 0; i < a->n; i++)
        mem_free(a->names[i].text);
    list_remove(&a->node);
    (void)map_del(&m->by_addr, names_key_of(&a->addr));
    mem_free(a);
}

void names_free(struct names *m)
{
    if (!m)
        return;
    LIST_FOREACH (struct known_address, a, &m->recent, node)
        names_forget(m, a);
    map_fini(&m->by_addr);
    mem_free(m);
}

static void drop_expired(struct known_address *a, usec_t now)
{
    size_t kept = 0;
    for (size_t i = 0; i < a->n; i++) {
        if (a->names[i].until > now)
            a->names[kept++] = a->names[i];
        else
            mem_free(a->names[i].text);
    }
    a->n = kept;
}

/* NULL: nothing is known of it, not any more. */
static struct known_address *names_find(struct names *m, const struct netaddr *addr)
{
    struct known_address *a = map_get(&m->by_addr, names_key_of(addr));
    if (!a)
        return NULL;
    drop_expired(a, m->clock());
    if (a->n == 0) {
        names_forget(m, a);
        return NULL;
    }
    list_remove(&a->node);
    list_prepend(&m->recent, &a->node);
    return a;
}

static struct known_address *names_make(struct names *m, const struct netaddr *addr)
{
    struct known_address *a;
    if (map_count(&m->by_addr) >= NAMES_ADDRESSES_MAX)
        names_forget(m, container_of(m->recent.prev, struct known_address, node));
    a = mem_new(struct known_address);
    a->addr = *addr;
    (void)map_put(&m->by_addr, names_key_of(addr), a);
    list_prepend(&m->recent, &a->node);
    return a;
}

void names_add(struct names *m, const struct netaddr *addr, const char *name, uint32_t ttl_s)
{
    struct known_address *a = names_find(m, addr);
    uint32_t kept_s = MIN(ttl_s, (uint32_t)NAMES_TTL_MAX_S) + NAMES_KEPT_S;
    struct known_name added = {.until = m->clock() + kept_s * USEC_PER_SEC};
    size_t at = 0;
    assert(addr->family != 0 && strlen(name) <= HOSTNAME_MAX);
    if (!a)
        a = names_make(m, addr);
    while (at < a->n && strcmp(a->names[at].text, name) != 0)
        at++;
    if (at < a->n) {
        added.text = a->names[at].text;
        added.until = MAX(added.until, a->names[at].until);
    } else {
        added.text = mem_strdup(name);
        if (a->n == NAMES_PER_ADDRESS_MAX)
            mem_free(a->names[--at].text);
        else
            a->n++;
    }
    memmove(a->names + 1, a->names, at * sizeof(a->names[0]));
    a->names[0] = added;
}

bool names_has(struct names *m, const struct netaddr *addr, const char *name)
{
    struct known_address *a = names_find(m, addr);
    for (size_t i = 0; a && i < a->n; i++)
        if (strcmp(a->names[i].text, name) == 0)
            return true;
    return false;
}

void names_each_of(struct names *m, const struct netaddr *addr, bool (*fn)(void *ctx, const char *name), void *ctx)
{
    struct known_address *a = names_find(m, addr);
    for (size_t i = 0; a && i < a->n; i++)
        if (!fn(ctx, a->names[i].text))
            return;
}

size_t names_count(const struct names *m)
{
    return map_count(&m->by_addr);
}

void names_set_clock(struct names *m, usec_t (*clock)(void))
{
    m->clock = clock;
}
