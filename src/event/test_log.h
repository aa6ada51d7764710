/* SPDX-License-Identifier: Apache-2.0 */
/* For the tests of the event log: a store with a log in the test's own directory, and appends that must work. */
#pragma once

#include "event/log.h"
#include "store/store.h"
#include "store/test_dir.h"

struct test_log {
    struct test_dir *dir;
    struct store *store;
    struct event_log *log;
};

struct test_log test_log_open(void **state);
void test_log_close(struct test_log *t); /* leaves t->dir */
void test_log_reopen(struct test_log *t);

uint64_t test_append(struct test_log *t, const char *sandbox, enum event_kind kind, const char *data);
void test_append_n(struct test_log *t, const char *sandbox, int n); /* exec.output, {"n":0} and so on */
void test_commit(struct test_log *t);

/* Asserts that the chain is intact and ends with `last`. */
void test_intact(struct test_log *t, const char *sandbox, uint64_t last);
