/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the agent answers itself, over HTTP on a port of 127.0.0.1: a table that the host gives it (WIRE_ANSWERS). It is
 * for programs that expect a daemon of that kind beside them, and holds nothing that is not every process's of the
 * sandbox anyway.
 */
#pragma once

#include "agent/loop.h"
#include "base/str.h"

struct agent;

struct answers {
    struct loop_io listener; /* fd -1: there is no table, or its port was taken */
    struct list clients;
    size_t n_clients;
    char *table; /* owned: the request of WIRE_ANSWERS from its list on */
    struct str list;
    uint32_t n;
    uint16_t port;
    uint64_t cpu_busy, cpu_all; /* of the last figures */
};

void answers_init(struct agent *a);
void answers_fini(struct agent *a);

enum { ANSWERS_FIGURES = 10 };

/* Appends text with each $0 to $9 replaced by that figure; any other $ stays. */
struct buf;
void answers_format(struct buf *b, struct str text, const double figures[static ANSWERS_FIGURES]);

/*
 * The answer to what a client has sent: 0 while its request is not complete, else 1, with all of it appended. n at most
 * what a client may send; a request that is larger, or none, is refused.
 */
enum { ANSWERS_REQUEST_MAX = 4096 };
int answers_to(struct answers *table, struct str request, struct buf *b) WARN_UNUSED;
