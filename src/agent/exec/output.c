/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/exec/output.h"
#include "base/mem.h"

#include <string.h>

enum { SIZE_FIRST = 1024, GROWTH = 4, BITS = 64 };

void output_fini(struct output *o)
{
    MEM_FREE(o->ring, o->second);
    *o = (struct output){.head = o->head};
}

uint64_t output_tail(const struct output *o)
{
    return o->head > o->size ? o->head - o->size : 0;
}

/* The run of `n` bytes at offset `at` as pieces of the ring. */
static int pieces(const struct output *o, uint64_t at, size_t n, struct iovec ret_iov[2])
{
    size_t from = (size_t)(at & (o->size - 1)), first = MIN(n, o->size - from);
    ret_iov[0] = (struct iovec){o->ring + from, first};
    ret_iov[1] = (struct iovec){o->ring, n - first};
    return n > first ? 2 : 1;
}

static bool bit_get(const uint64_t *bits, size_t i)
{
    return bits[i / BITS] >> (i % BITS) & 1;
}

static void bits_set(uint64_t *bits, size_t from, size_t n, bool on)
{
    while (n) {
        size_t shift = from % BITS, count = MIN(n, BITS - shift);
        uint64_t mask = (count == BITS ? UINT64_MAX : (UINT64_C(1) << count) - 1) << shift;
        if (on)
            bits[from / BITS] |= mask;
        else
            bits[from / BITS] &= ~mask;
        from += count;
        n -= count;
    }
}

/* How many of the n bits from `from` on are as the first one. */
static size_t bits_run(const uint64_t *bits, size_t from, size_t n)
{
    uint64_t same = bit_get(bits, from) ? UINT64_MAX : 0;
    size_t run = 0;
    while (run < n) {
        size_t shift = (from + run) % BITS;
        uint64_t other = (bits[(from + run) / BITS] ^ same) >> shift;
        if (other)
            return MIN(n, run + (size_t)__builtin_ctzll(other));
        run += BITS - shift;
    }
    return n;
}

static void resize(struct output *o, size_t size)
{
    struct output to = {.head = o->head, .ring = mem_alloc(size), .size = size};
    if (o->second)
        to.second = mem_zalloc(size / 8);
    for (uint64_t at = output_tail(o); at < o->head;) {
        struct iovec from[2], into[2];
        bool second;
        (void)output_peek(o, at, (size_t)(o->head - at), from, &second);
        (void)pieces(&to, at, from[0].iov_len, into); /* a piece of the smaller ring is one of the larger */
        memcpy(into[0].iov_base, from[0].iov_base, from[0].iov_len);
        if (to.second)
            bits_set(to.second, (size_t)(at & (size - 1)), from[0].iov_len, second);
        at += from[0].iov_len;
    }
    output_fini(o);
    *o = to;
}

int output_reserve(struct output *o, size_t most, struct iovec ret_iov[2])
{
    size_t size = MAX(o->size, (size_t)SIZE_FIRST);
    most = MIN(most, (size_t)WIRE_WINDOW);
    /* Nothing is overwritten before the ring has its full size. Small outputs stay small: a read may be shorter than it
     * could be. */
    while (size < WIRE_WINDOW && size - MIN(o->head, (uint64_t)size) < MIN(most, size / 2))
        size *= GROWTH;
    if (size != o->size)
        resize(o, size);
    if (size < WIRE_WINDOW)
        most = MIN(most, size - (size_t)o->head);
    return pieces(o, o->head, most, ret_iov);
}

void output_commit(struct output *o, size_t n, bool second)
{
    assert(n <= o->size);
    if (second && !o->second)
        o->second = mem_zalloc(o->size / 8);
    if (o->second) {
        size_t from = (size_t)(o->head & (o->size - 1)), first = MIN(n, o->size - from);
        bits_set(o->second, from, first, second);
        bits_set(o->second, 0, n - first, second);
    }
    o->head += n;
}

int output_peek(const struct output *o, uint64_t from, size_t most, struct iovec ret_iov[2], bool *ret_second)
{
    assert(from >= output_tail(o) && from < o->head);
    size_t n = (size_t)MIN(o->head - from, (uint64_t)most), at = (size_t)(from & (o->size - 1)),
           first = MIN(n, o->size - at);
    *ret_second = false;
    if (o->second) {
        *ret_second = bit_get(o->second, at);
        size_t run = bits_run(o->second, at, first);
        if (run == first && n > first && bit_get(o->second, 0) == *ret_second)
            run += bits_run(o->second, 0, n - first);
        n = run;
    }
    return pieces(o, from, n, ret_iov);
}
