/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last WIRE_WINDOW bytes of a process's output, of both its channels in one sequence: byte number n (counted from
 * the start of the process) lies at n modulo the ring's size, and a bit beside it says which channel it came by. The
 * ring grows with what is written.
 */
#pragma once

#include "wire/proto.h"

#include <sys/uio.h>

struct output {
    uint64_t head; /* bytes so far */
    char *ring;    /* `size` bytes, a power of two up to WIRE_WINDOW; NULL until the first write */
    size_t size;
    uint64_t *second; /* one bit for each byte of the ring: of the second channel. NULL while there was none */
};

void output_fini(struct output *o);

uint64_t output_tail(const struct output *o); /* the oldest byte that is kept */

/* Room for up to `most` bytes at the head (some of the oldest go): fills 1 or 2 iovecs, returns how many. */
int output_reserve(struct output *o, size_t most, struct iovec ret_iov[2]);
void output_commit(struct output *o, size_t n, bool second);

/* Up to `most` bytes from offset `from` (tail <= from < head) that came by one channel; returns how many iovecs. */
int output_peek(const struct output *o, uint64_t from, size_t most, struct iovec ret_iov[2], bool *ret_second);
