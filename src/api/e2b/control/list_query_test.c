/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/control/list_query.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void refused(const char *query, const char *because)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct list_query q;
    struct err err;
    assert_int_equal(list_query_parse(str_of(query), &arena, &q, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    if (!strstr(err.msg, because))
        fail_msg("\"%s\" does not say \"%s\"", err.msg, because);
}

static void queries_are_understood(void **state)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct list_query q;
    struct err err;
    (void)state;
    assert_int_equal(list_query_parse(STR(""), &arena, &q, &err), 0);
    assert_true(q.running && q.paused && !q.ascending && !q.has_cursor);
    assert_int_equal(q.limit, 100);
    assert_null(q.template.p);

    assert_int_equal(
        list_query_parse(STR("state=running&limit=7&order=asc&startedAfter=2026-01-01T00%3A00%3A00Z&template=Base&x=y"),
                         &arena, &q, &err),
        0);
    assert_true(q.running && !q.paused && q.ascending);
    assert_int_equal(q.limit, 7);
    assert_int_equal(q.started_after, 1767225600 * USEC_PER_SEC);
    assert_true(str_eqc(q.template, "base"));

    assert_int_equal(list_query_parse(STR("state=running,paused&limit=&nextToken="), &arena, &q, &err), 0);
    assert_true(q.running && q.paused && !q.has_cursor);

    /* As the SDKs send it: each side encoded twice, joined, and the whole encoded once more. */
    assert_int_equal(list_query_parse(STR("metadata=k%252520e%3Dv%252526%26b%3D"), &arena, &q, &err), 0);
    assert_int_equal(q.n_metadata, 2);
    assert_true(str_eqc(q.metadata[0].key, "k e"));
    assert_true(str_eqc(q.metadata[0].value, "v&"));
    assert_true(str_eqc(q.metadata[1].key, "b"));
    assert_true(str_eqc(q.metadata[1].value, ""));
}

static void malformed_ones_are_refused(void **state)
{
    (void)state;
    refused("limit=0", "limit");
    refused("limit=101", "limit");
    refused("limit=x", "limit");
    refused("state=dead", "state");
    refused("state=", "state");
    refused("order=up", "order");
    refused("startedAfter=yesterday", "startedAfter");
    refused("nextToken=junk", "Invalid next token");
    refused("order=asc&nextToken=MjAyNi0wMS0wMVQwMDowMDowMFpfX2lh", "Invalid next token");
    refused("metadata=", "Error parsing metadata");
    refused("metadata=novalue", "Error parsing metadata");
    refused("metadata=a%3Db%3Dc", "Error parsing metadata");
    refused("metadata=a%3D%2525zz", "Error parsing metadata");
    refused("template=base%3Av1", "Invalid template");
    refused("template=b%20c", "Invalid template");
    refused("limit=%zz", "limit");
}

static void filters_are_anded(void **state)
{
    const struct pair metadata[] = {{STR("a"), STR("1")}, {STR("b"), STR("2")}};
    struct sandbox_info info = {
        .id = "iabc",
        .state = SANDBOX_RUNNING,
        .template_id = "base-1",
        .template_alias = "base",
        .started = 1000,
        .metadata = metadata,
        .n_metadata = 2,
    };
    struct list_query q = {.running = true, .paused = true};
    (void)state;
    assert_true(list_query_matches(&q, &info));
    q.started_after = 1000;
    assert_true(list_query_matches(&q, &info));
    q.started_after = 1001;
    assert_false(list_query_matches(&q, &info));
    q.started_after = 0;

    q.template = STR("base");
    assert_true(list_query_matches(&q, &info));
    q.template = STR("base-1");
    assert_true(list_query_matches(&q, &info));
    q.template = STR("other");
    assert_false(list_query_matches(&q, &info));
    q.template = STR_NULL;

    q.metadata[0] = metadata[1];
    q.n_metadata = 1;
    assert_true(list_query_matches(&q, &info));
    q.metadata[1] = (struct pair){STR("a"), STR("2")};
    q.n_metadata = 2;
    assert_false(list_query_matches(&q, &info));
    q.n_metadata = 0;

    q.running = false;
    assert_false(list_query_matches(&q, &info));
    info.state = SANDBOX_PAUSING;
    assert_true(list_query_matches(&q, &info));
    info.state = SANDBOX_STOPPING;
    assert_false(list_query_matches(&q, &info));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queries_are_understood),
        cmocka_unit_test(malformed_ones_are_refused),
        cmocka_unit_test(filters_are_anded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
