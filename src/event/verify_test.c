/* SPDX-License-Identifier: Apache-2.0 */
#include "event/tail.h"
#include "event/test_log.h"
#include "event/test_replay.h"
#include "event/verify.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* The records and hashes of this test were computed by a script from the definition in chain.h. */
static const char *const golden[] = {
    "06439333276ab8937652a573e3d34139cd270ce75a8bddaece39e5923265590b",
    "45b16c858fe6740a5eeadd27e825a177a4481d1a12b763ed058fcd7595a43451",
};

static void hex_is(const unsigned char *hash, const char *want)
{
    AUTO_BUF struct buf hex = BUF_INIT(2 * EVENT_HASH_SIZE + 1);
    buf_append_hex(&hex, str_n(hash, EVENT_HASH_SIZE));
    buf_append_char(&hex, 0);
    assert_string_equal(buf_data(&hex), want);
}

static bool check_golden(const struct event *e, void *ctx)
{
    (void)ctx;
    hex_is(e->hash, golden[e->seq - 1]);
    return true;
}

static void test_golden_chain(void **state)
{
    struct test_log t = test_log_open(state);
    struct err err;
    struct event_draft draft = {
        .sandbox = "i0123456789abcdefghij",
        .kind = EVENT_SANDBOX_CREATE,
        .source = EVENT_CLIENT,
        .grade = EVENT_OBSERVED_HOST,
        .actor = STR("e2b:\"k\\y\"\n\x7f"),
        .time = 1790000000123456,
    };
    assert_int_equal(event_append(t.log, &draft, NULL, &err), 0);
    draft = (struct event_draft){
        .sandbox = "i0123456789abcdefghij",
        .kind = EVENT_EXEC_OUTPUT,
        .source = EVENT_AGENT,
        .grade = EVENT_CLAIMED,
        .actor = STR("\xc3\xa4"),
        .cause = 1,
        .data = STR(" {\"text\":\"\xc3\xbc\\n\", \"n\":-1.5e3} "),
        .time = 1790000000123457,
    };
    assert_int_equal(event_append(t.log, &draft, NULL, &err), 0);
    test_commit(&t);
    assert_int_equal(event_read(t.log, "i0123456789abcdefghij", 0, 10, check_golden, NULL, &err), 2);
    test_intact(&t, "i0123456789abcdefghij", 2);
    test_log_close(&t);
}

struct tampering {
    const char *sql;
    enum event_fault fault;
    uint64_t bad_seq;
};

/* On logs of ten events each: log 1 is that of i1, log 2 that of i2. */
static const struct tampering tamperings[] = {
    {"UPDATE events SET data = '{\"n\":99}' WHERE log = 1 AND seq = 5", EVENT_FAULT_HASH, 5},
    {"UPDATE events SET time = time + 1 WHERE log = 1 AND seq = 1", EVENT_FAULT_HASH, 1},
    {"UPDATE events SET kind = 'exec.exit' WHERE log = 1 AND seq = 10", EVENT_FAULT_HASH, 10},
    {"UPDATE events SET source = 'host' WHERE log = 1 AND seq = 6", EVENT_FAULT_HASH, 6},
    {"UPDATE events SET grade = 'observed-kernel' WHERE log = 1 AND seq = 7", EVENT_FAULT_HASH, 7},
    {"UPDATE events SET actor = 'cli:uid=0' WHERE log = 1 AND seq = 2", EVENT_FAULT_HASH, 2},
    {"UPDATE events SET cause = 1 WHERE log = 1 AND seq = 3", EVENT_FAULT_HASH, 3},
    {"UPDATE events SET hash = x'00' WHERE log = 1 AND seq = 4", EVENT_FAULT_HASH, 4},
    {"UPDATE events SET hash = zeroblob(32) WHERE log = 1 AND seq = 9", EVENT_FAULT_HASH, 9},
    {"UPDATE events SET data = printf('%.100000c', 'x'), hash = zeroblob(32) WHERE log = 1 AND seq = 8",
     EVENT_FAULT_HASH, 8},
    /* reordered */
    {"UPDATE events SET seq = CASE seq WHEN 4 THEN -5 ELSE -4 END WHERE log = 1 AND seq IN (4, 5);"
     "UPDATE events SET seq = -seq WHERE log = 1 AND seq < 0",
     EVENT_FAULT_HASH, 4},
    /* swapped with another sandbox's, chain and all */
    {"UPDATE events SET log = CASE log WHEN 1 THEN -2 ELSE -1 END; UPDATE events SET log = -log", EVENT_FAULT_HASH, 1},
    {"DELETE FROM events WHERE log = 1 AND seq = 1", EVENT_FAULT_GAP, 1},
    {"DELETE FROM events WHERE log = 1 AND seq = 5", EVENT_FAULT_GAP, 5},
    {"DELETE FROM events WHERE log = 1 AND seq IN (5, 6, 9)", EVENT_FAULT_GAP, 5},
    {"DELETE FROM events WHERE log = 1 AND seq = 10", EVENT_FAULT_TRUNCATED, 10},
    {"DELETE FROM events WHERE log = 1 AND seq > 7", EVENT_FAULT_TRUNCATED, 8},
    {"DELETE FROM events WHERE log = 1", EVENT_FAULT_TRUNCATED, 1},
    {"DELETE FROM events WHERE log = 1 AND seq > 7; UPDATE event_heads SET last_seq = 7 WHERE log = 1",
     EVENT_FAULT_HEAD, 7},
    {"UPDATE event_heads SET last_seq = 12 WHERE log = 1", EVENT_FAULT_TRUNCATED, 11},
    {"UPDATE event_heads SET last_hash = zeroblob(32) WHERE log = 1", EVENT_FAULT_HEAD, 10},
    {"UPDATE event_heads SET base_hash = x'01' WHERE log = 1", EVENT_FAULT_HASH, 1},
    {"INSERT INTO events SELECT log, 11, time, kind, source, grade, actor, cause, data, hash, cursor FROM events WHERE log = 1 AND seq = 10",
     EVENT_FAULT_EXTRA, 11},
    {"INSERT INTO events SELECT log, 20, time, kind, source, grade, actor, cause, data, hash, cursor FROM events WHERE log = 1 AND seq = 10",
     EVENT_FAULT_EXTRA, 20},
    {"INSERT INTO events SELECT log, 0, time, kind, source, grade, actor, cause, data, hash, cursor FROM events WHERE log = 1 AND seq = 1",
     EVENT_FAULT_EXTRA, 0},
};

static struct event_verdict verify(struct test_log *t, const char *sandbox)
{
    struct event_verdict v;
    struct err err;
    if (event_verify(t->log, sandbox, &v, &err) < 0)
        fail_msg("%s", err.msg);
    return v;
}

static void test_tampering(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(tamperings); i++) {
        const struct tampering *c = &tamperings[i];
        struct test_log t = test_log_open(state);
        test_append_n(&t, "i1", 10);
        test_append_n(&t, "i2", 10);
        test_commit(&t);
        test_intact(&t, "i1", 10);
        char sql[512];
        (void)snprintf(sql, sizeof(sql), "%s", c->sql);
        for (char *statement = sql, *rest; statement; statement = rest) {
            rest = strchr(statement, ';');
            if (rest)
                *rest++ = 0;
            test_sql(t.dir->db, "%s", statement);
        }
        for (int again = 0; again < 2; again++) { /* also after a restart, and on the log of a sandbox that is gone */
            struct event_verdict v = verify(&t, "i1");
            if (v.fault != c->fault || v.bad_seq != c->bad_seq)
                fail_msg("%s: %s at %llu: %s", c->sql, event_fault_name(v.fault), (unsigned long long)v.bad_seq,
                         v.detail);
            assert_true(strlen(v.detail) > 10);
            test_log_reopen(&t);
        }
        test_log_close(&t);
        test_sql(t.dir->db, "DELETE FROM events");
        test_sql(t.dir->db, "DELETE FROM event_heads");
        test_sql(t.dir->db, "DELETE FROM sqlite_sequence");
    }
}

static void test_tampering_after_pruning(void **state)
{
    struct test_log t = test_log_open(state);
    struct err err;
    test_append_n(&t, "i1", 10);
    test_commit(&t);
    test_sql(t.dir->db, "CREATE TABLE copies AS SELECT * FROM events");
    assert_int_equal(event_prune(t.log, "i1", 6, &err), 0);
    test_commit(&t);
    test_intact(&t, "i1", 11);
    struct event_verdict v = verify(&t, "i1");
    assert_int_equal(v.first, 6);
    assert_int_equal(v.checked, 6);
    test_sql(t.dir->db, "INSERT INTO events SELECT * FROM copies WHERE seq = 2");
    v = verify(&t, "i1");
    assert_int_equal(v.fault, EVENT_FAULT_EXTRA);
    assert_int_equal(v.bad_seq, 2);
    test_sql(t.dir->db, "DELETE FROM events WHERE seq IN (2, 6)");
    v = verify(&t, "i1");
    assert_int_equal(v.fault, EVENT_FAULT_GAP);
    assert_int_equal(v.bad_seq, 6);
    test_log_close(&t);
}

/* In the middle of a batch, and from another connection while batches go on, a good chain never looks bad. */
static void test_verify_while_writing(void **state)
{
    struct test_log t = test_log_open(state);
    struct store *reader = NULL;
    struct event_log *reader_log = NULL;
    struct err err;
    test_append_n(&t, "i1", 2);
    test_intact(&t, "i1", 2);
    test_commit(&t);
    assert_int_equal(store_open_reader(t.dir->db, &reader, &err), 0);
    assert_int_equal(event_log_open(reader, &reader_log, &err), 0);
    for (uint64_t i = 0; i < 20; i++) {
        struct event_verdict v;
        test_append_n(&t, "i1", 3);
        assert_int_equal(event_verify(reader_log, "i1", &v, &err), 0);
        assert_int_equal(v.fault, EVENT_INTACT);
        assert_int_equal(v.last, 2 + 3 * i);
        test_intact(&t, "i1", 2 + 3 * (i + 1));
        test_commit(&t);
    }
    event_log_close(reader_log);
    store_close(reader);
    test_log_close(&t);
}

static struct event_state replay(struct test_log *t, const char *sandbox)
{
    struct event_state s;
    struct err err;
    if (event_replay(t->log, sandbox, &s, &err) < 0)
        fail_msg("%s", err.msg);
    return s;
}

static void tell(struct test_log *t, const char *sandbox, int execs)
{
    (void)test_append(t, sandbox, EVENT_SANDBOX_CREATE, "");
    (void)test_append(t, sandbox, EVENT_SANDBOX_STARTED, "");
    for (int i = 0; i < execs; i++) {
        (void)test_append(t, sandbox, EVENT_EXEC_START, "{\"cmd\":\"ls\"}");
        (void)test_append(t, sandbox, EVENT_EXEC_STARTED, "{\"pid\":2}");
        (void)test_append(t, sandbox, EVENT_EXEC_OUTPUT, "{\"text\":\"x\"}");
        (void)test_append(t, sandbox, EVENT_EXEC_EXIT, "{\"code\":0}");
    }
    (void)test_append(t, sandbox, EVENT_FILE_WRITE, "{\"path\":\"/a\"}");
    (void)test_append(t, sandbox, EVENT_FILE_FAILED, "{\"errno\":13}");
    (void)test_append(t, sandbox, EVENT_NET_DENIED, "");
    (void)test_append(t, sandbox, EVENT_AGENT_VIOLATION, "");
}

static void test_replay(void **state)
{
    struct test_log t = test_log_open(state);
    tell(&t, "i1", 2500);
    tell(&t, "i2", 2500);
    test_commit(&t);
    struct event_state a = replay(&t, "i1"), again = replay(&t, "i1"), b = replay(&t, "i2");
    assert_string_equal(a.phase, "running");
    assert_true(a.complete);
    assert_int_equal(a.first, 1);
    assert_int_equal(a.last, 10006);
    assert_int_equal(a.actions, 2502);
    assert_int_equal(a.execs_started, 2500);
    assert_int_equal(a.execs_exited, 2500);
    assert_int_equal(a.execs_failed, 0);
    assert_int_equal(a.file_changes, 1);
    assert_int_equal(a.files_failed, 1);
    assert_int_equal(a.denied, 1);
    assert_int_equal(a.violations, 1);
    assert_string_equal(a.end_cause, "");
    assert_memory_equal(a.digest, again.digest, EVENT_HASH_SIZE);
    assert_memory_equal(a.digest, b.digest, EVENT_HASH_SIZE);

    (void)test_append(&t, "i1", EVENT_SANDBOX_KILL, "");
    test_commit(&t);
    assert_string_equal(replay(&t, "i1").phase, "stopping");
    (void)test_append(&t, "i1", EVENT_SANDBOX_ENDED, "{\"x\":{\"cause\":\"no\"},\"cause\":\"killed\"}");
    (void)test_append(&t, "i1", EVENT_SANDBOX_PAUSE, ""); /* refused: it had ended */
    test_commit(&t);
    a = replay(&t, "i1");
    assert_string_equal(a.phase, "ended");
    assert_string_equal(a.end_cause, "killed");
    assert_true(memcmp(a.digest, b.digest, EVENT_HASH_SIZE) != 0);

    struct err err;
    assert_int_equal(event_prune(t.log, "i2", 100, &err), 0);
    test_commit(&t);
    assert_false(replay(&t, "i2").complete);
    test_log_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, test_dir_teardown)
        TEST(test_golden_chain),         TEST(test_tampering), TEST(test_tampering_after_pruning),
        TEST(test_verify_while_writing), TEST(test_replay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
