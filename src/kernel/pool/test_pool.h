/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: a pool of a kind that lies in a directory, looked at from outside. */
#pragma once

#include "base/def.h"
#include "kernel/pool/pool.h"

#define TEST_BASE "layer-0000000000000000base"
#define TEST_SECOND "layer-00000000000000second"
#define TEST_THIRD "layer-000000000000000third"

struct test_pool {
    char top[160];
    enum pool_kind kind;
    struct pool *pool;
};

bool test_pool_open(struct test_pool *p, const char *below, enum pool_kind kind);
int test_pool_close(struct test_pool *p); /* deletes all of it */

/* For tests that are run on each kind in turn: *state is their struct test_pool. */
int test_pool_set_up(void **state);
int test_pool_tear_down(void **state);
/* Runs the tests on each kind of pool. at_limit: what who reaches a limit is told there; 0: it has none. How many
 * failed. */
int test_pool_on_each(int (*run)(const char *name, int at_limit));

void test_pool_write(int at, const char *path, const char *text);
/* One with a file "of" that has its name. below: NULL, or the chain that it stands on. */
void test_pool_layer(struct test_pool *p, const char *name, const struct pool_chain *below);
bool test_pool_has(const struct test_pool *p, const char *pattern);                    /* of glob(7), below the pool */
bool test_pool_reads(const struct test_pool *p, const char *path, const char *wanted); /* the file has this text */
int test_pool_upper(const struct test_pool *p, const char *box);                       /* opens it; -1 */
