/* SPDX-License-Identifier: Apache-2.0 */
#include "event/test_log.h"
#include "event/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

struct test_log test_log_open(void **state)
{
    struct test_log t = {.dir = *state};
    struct err err;
    if (store_open(t.dir->db, &t.store, &err) < 0 || event_log_open(t.store, &t.log, &err) < 0)
        fail_msg("%s", err.msg);
    return t;
}

void test_log_close(struct test_log *t)
{
    event_log_close(t->log);
    store_close(t->store);
}

void test_log_reopen(struct test_log *t)
{
    void *dir = t->dir;
    test_log_close(t);
    *t = test_log_open(&dir);
}

uint64_t test_append(struct test_log *t, const char *sandbox, enum event_kind kind, const char *data)
{
    struct event_draft draft = {
        .sandbox = sandbox,
        .kind = kind,
        .source = EVENT_CLIENT,
        .grade = EVENT_OBSERVED_HOST,
        .actor = STR("api"),
        .data = str_of(data),
    };
    uint64_t seq = 0;
    struct err err;
    if (event_append(t->log, &draft, &seq, &err) < 0)
        fail_msg("%s", err.msg);
    return seq;
}

void test_append_n(struct test_log *t, const char *sandbox, int n)
{
    for (int i = 0; i < n; i++) {
        char data[32];
        (void)snprintf(data, sizeof(data), "{\"n\":%d}", i);
        (void)test_append(t, sandbox, EVENT_EXEC_OUTPUT, data);
    }
}

void test_commit(struct test_log *t)
{
    struct err err;
    if (store_commit(t->store, &err) < 0)
        fail_msg("%s", err.msg);
}

void test_intact(struct test_log *t, const char *sandbox, uint64_t last)
{
    struct event_verdict v;
    struct err err;
    if (event_verify(t->log, sandbox, &v, &err) < 0)
        fail_msg("%s", err.msg);
    if (v.fault != EVENT_INTACT || v.last != last)
        fail_msg("%s: %s, last %llu", sandbox, v.detail, (unsigned long long)v.last);
}
