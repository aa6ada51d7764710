/* SPDX-License-Identifier: Apache-2.0 */
/* How much DNS one sandbox may ask for. Internal to dns_server. */
#pragma once

#include "base/clock.h"
#include "base/map.h"

/* A bucket that holds `burst` tokens and gets `rate` a second; a zeroed one is full. */
struct dns_bucket {
    usec_t used; /* how much of it is missing, as the time that it takes to refill */
    usec_t at;
};
bool dns_bucket_take(struct dns_bucket *b, usec_t now, unsigned rate, unsigned burst);
bool dns_bucket_is_half_full(const struct dns_bucket *b, usec_t now, unsigned rate, unsigned burst);

/* Distinct names of the running minute. */
struct dns_names {
    usec_t since;
    struct map seen;   /* rule and name -> itself */
    struct map counts; /* rule -> names */
};

enum dns_names_verdict {
    DNS_NAMES_FINE,
    DNS_NAMES_OVER_NOW, /* the first that is too many, of this rule in this minute */
    DNS_NAMES_OVER,
};

/* A name that was counted in this minute is fine again. */
enum dns_names_verdict dns_names_count(struct dns_names *n, usec_t now, int rule, const char *name);
void dns_names_fini(struct dns_names *n);
