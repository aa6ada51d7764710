/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: a directory of their own that goes away with all that is in it, and raw SQL on a store's file. */
#pragma once

#include "base/def.h"

struct test_dir {
    char path[64];
    char db[96]; /* where the test's store goes */
};

int test_dir_setup(void **state); /* for cmocka: *state is a struct test_dir */
int test_dir_teardown(void **state);

/* Runs SQL through a connection of its own; asserts that it works. */
void test_sql(const char *db, const char *fmt, ...) PRINTF_LIKE(2, 3);
int64_t test_sql_number(const char *db, const char *fmt, ...) PRINTF_LIKE(2, 3);

/*
 * Runs fn in a child and asserts that it returns 0. For what changes the process: limits, mounts. Its asserts must not
 * be cmocka's: it returns __LINE__ where something is wrong. Returns false when fn returned TEST_DIR_SKIP.
 */
enum { TEST_DIR_SKIP = -77 };
bool test_in_child(int (*fn)(const struct test_dir *dir), const struct test_dir *dir);

/* Mounts a small tmpfs over the directory, in a mount namespace of the calling process. False when that is not allowed
 * here. */
bool test_dir_shrink(const struct test_dir *dir, const char *size);
