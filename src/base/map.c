/* SPDX-License-Identifier: Apache-2.0 */
#include "base/map.h"
#include "base/id.h"
#include "base/mem.h"

/* Open addressing, linear probing, deletion by shifting back: no tombstones, load at most 3/4. */
struct map_slot {
    void *value; /* NULL: free */
    char *key;   /* owned; NULL for number keys */
    uint64_t n;  /* length of key, or the number */
    uint64_t hash;
};

static uint64_t secret[2];

#define ROTL(x, b) (((x) << (b)) | ((x) >> (64 - (b))))
#define SIPROUND                                                                                                       \
    do {                                                                                                               \
        v0 += v1, v1 = ROTL(v1, 13), v1 ^= v0, v0 = ROTL(v0, 32);                                                      \
        v2 += v3, v3 = ROTL(v3, 16), v3 ^= v2;                                                                         \
        v0 += v3, v3 = ROTL(v3, 21), v3 ^= v0;                                                                         \
        v2 += v1, v1 = ROTL(v1, 17), v1 ^= v2, v2 = ROTL(v2, 32);                                                      \
    } while (0)

/* SipHash (Aumasson, Bernstein 2012) with one compression and three finalisation rounds. */
static uint64_t siphash(const void *data, size_t n)
{
    if (!secret[0])
        id_random_bytes(secret, sizeof(secret));
    uint64_t v0 = secret[0] ^ 0x736f6d6570736575ULL, v1 = secret[1] ^ 0x646f72616e646f6dULL;
    uint64_t v2 = secret[0] ^ 0x6c7967656e657261ULL, v3 = secret[1] ^ 0x7465646279746573ULL;
    assert(data || n == 0);
    const unsigned char *p = data;
    uint64_t m, last = (uint64_t)n << 56;
    size_t left = n;
    for (; left >= 8; left -= 8, p += 8) {
        memcpy(&m, p, 8);
        v3 ^= m;
        SIPROUND;
        v0 ^= m;
    }
    for (size_t i = 0; i < left; i++)
        last |= (uint64_t)p[i] << (8 * i);
    v3 ^= last;
    SIPROUND;
    v0 ^= last;
    v2 ^= 0xff;
    SIPROUND;
    SIPROUND;
    SIPROUND;
    return v0 ^ v1 ^ v2 ^ v3;
}

struct map_probe {
    const char *key;
    uint64_t n, hash;
};

static struct map_probe probe_bytes(struct str key)
{
    return (struct map_probe){key.p ? key.p : "", key.n, siphash(key.p, key.n)};
}

static struct map_probe probe_u64(uint64_t key)
{
    return (struct map_probe){NULL, key, siphash(&key, sizeof(key))};
}

static bool matches(const struct map_slot *s, const struct map_probe *k)
{
    if (s->hash != k->hash || s->n != k->n || !s->key != !k->key)
        return false;
    return !k->key || k->n == 0 || memcmp(s->key, k->key, k->n) == 0;
}

static struct map_slot *map_find(const struct map *m, const struct map_probe *k)
{
    if (!m->cap)
        return NULL;
    for (size_t i = k->hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        struct map_slot *s = &m->slots[i];
        if (!s->value)
            return NULL;
        if (matches(s, k))
            return s;
    }
}

static void place(struct map *m, struct map_slot slot)
{
    size_t i = slot.hash & (m->cap - 1);
    while (m->slots[i].value)
        i = (i + 1) & (m->cap - 1);
    m->slots[i] = slot;
}

static void grow(struct map *m)
{
    struct map old = *m;
    m->cap = old.cap ? old.cap * 2 : 16;
    m->slots = mem_array(m->cap, sizeof(*m->slots));
    for (size_t i = 0; i < old.cap; i++)
        if (old.slots[i].value)
            place(m, old.slots[i]);
    mem_free(old.slots);
}

static void *base_map_put(struct map *m, const struct map_probe *k, void *value)
{
    assert(value);
    struct map_slot *s = map_find(m, k);
    if (s) {
        void *old = s->value;
        s->value = value;
        return old;
    }
    if ((m->count + 1) * 4 > m->cap * 3)
        grow(m);
    place(m, (struct map_slot){value, k->key ? mem_dup(k->key, k->n) : NULL, k->n, k->hash});
    m->count++;
    return NULL;
}

static void *del(struct map *m, const struct map_probe *k)
{
    struct map_slot *s = map_find(m, k);
    if (!s)
        return NULL;
    void *value = s->value;
    mem_free(s->key);
    m->count--;
    size_t hole = (size_t)(s - m->slots), mask = m->cap - 1;
    for (size_t i = (hole + 1) & mask; m->slots[i].value; i = (i + 1) & mask) {
        size_t home = m->slots[i].hash & mask;
        /* Move i into the hole unless its home lies cyclically in (hole, i]. */
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            m->slots[hole] = m->slots[i];
            hole = i;
        }
    }
    m->slots[hole] = (struct map_slot){0};
    return value;
}

void map_fini(struct map *m)
{
    for (size_t i = 0; i < m->cap; i++)
        mem_free(m->slots[i].key);
    mem_free(m->slots);
    *m = MAP_INIT;
}

void *map_get(const struct map *m, struct str key)
{
    struct map_probe k = probe_bytes(key);
    struct map_slot *s = map_find(m, &k);
    return s ? s->value : NULL;
}

void *map_put(struct map *m, struct str key, void *value)
{
    struct map_probe k = probe_bytes(key);
    return base_map_put(m, &k, value);
}

void *map_del(struct map *m, struct str key)
{
    struct map_probe k = probe_bytes(key);
    return del(m, &k);
}

void *map_get_u64(const struct map *m, uint64_t key)
{
    struct map_probe k = probe_u64(key);
    struct map_slot *s = map_find(m, &k);
    return s ? s->value : NULL;
}

void *map_put_u64(struct map *m, uint64_t key, void *value)
{
    struct map_probe k = probe_u64(key);
    return base_map_put(m, &k, value);
}

void *map_del_u64(struct map *m, uint64_t key)
{
    struct map_probe k = probe_u64(key);
    return del(m, &k);
}

void *map_next(const struct map *m, size_t *it)
{
    while (*it < m->cap) {
        void *v = m->slots[(*it)++].value;
        if (v)
            return v;
    }
    return NULL;
}
