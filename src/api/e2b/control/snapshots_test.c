/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/test_e2b.h"

#include <stdio.h>

static const char *target_of(const struct sandbox *sb, const char *verb)
{
    static char target[128];
    snprintf(target, sizeof(target), "/sandboxes/%s/%s", sandbox_info(sb)->id, verb);
    return target;
}

static void snapshots_have_names_and_are_listed_in_pages(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), head = BUF_INIT(1 << 16);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, false), *other = facade_sandbox(f, false);
    char target[256], token[128] = "";
    const char *at;
    assert_int_equal(facade_json(f, "POST", target_of(sb, "snapshots"), "", &b), 201);
    assert_has(&b, ":default\",\"names\":[]}");
    assert_int_equal(facade_json(f, "POST", target_of(sb, "snapshots"), "{\"name\":\"Mine:v1\"}", &b), 201);
    assert_is(&b, "{\"snapshotID\":\"local/mine:v1\",\"names\":[\"local/mine\"]}");
    assert_int_equal(facade_json(f, "POST", target_of(other, "snapshots"), "{\"name\":\"mine\"}", &b), 201);
    assert_is(&b, "{\"snapshotID\":\"local/mine:default\",\"names\":[\"local/mine\"]}");
    assert_int_equal(facade_json(f, "POST", target_of(sb, "snapshots"), "{\"name\":\"not a name\"}", &b), 400);
    assert_int_equal(facade_json(f, "POST", target_of(sb, "snapshots"), "{\"name\":1}", &b), 400);
    assert_int_equal(facade_json(f, "POST", "/sandboxes/inothing/snapshots", "{}", &b), 404);

    assert_int_equal(facade_json(f, "GET", "/snapshots?name=mine", NULL, &b), 200);
    assert_is(&b, "[{\"snapshotID\":\"local/mine:default\",\"names\":[\"local/mine\"]},"
                  "{\"snapshotID\":\"local/mine:v1\",\"names\":[\"local/mine\"]}]");
    assert_int_equal(facade_json(f, "GET", "/snapshots?name=local%2Fmine:v1", NULL, &b), 200);
    assert_is(&b, "[{\"snapshotID\":\"local/mine:v1\",\"names\":[\"local/mine\"]}]");
    assert_int_equal(facade_json(f, "GET", "/snapshots?name=mine:default", NULL, &b), 200);
    assert_is(&b, "[{\"snapshotID\":\"local/mine:default\",\"names\":[\"local/mine\"]}]");
    assert_int_equal(facade_json(f, "GET", "/snapshots?name=other%2Fmine", NULL, &b), 200);
    assert_is(&b, "[]");
    assert_int_equal(facade_json(f, "GET", "/snapshots?name=nothing", NULL, &b), 200);
    assert_is(&b, "[]");
    assert_int_equal(facade_json(f, "GET", "/snapshots?name=no%20name", NULL, &b), 400);
    assert_int_equal(facade_json(f, "GET", "/snapshots?limit=101", NULL, &b), 400);
    assert_int_equal(facade_json(f, "GET", "/snapshots?nextToken=x", NULL, &b), 400);
    snprintf(target, sizeof(target), "/snapshots?sandboxID=%s", sandbox_info(other)->id);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
    assert_is(&b, "[{\"snapshotID\":\"local/mine:default\",\"names\":[\"local/mine\"]}]");

    for (int i = 0; i < 3; i++) {
        snprintf(target, sizeof(target), "/snapshots?limit=1&nextToken=%s", token);
        assert_int_equal(facade_call(f, "GET", target, "X-API-KEY: " TEST_KEY "\r\n", STR_NULL, &head, &b), 200);
        assert_has(&b, i == 0 ? "mine:default" : i == 1 ? "mine:v1" : "\"names\":[]");
        at = strstr(buf_data(&head), "x-next-token: ");
        assert_int_equal(at != NULL, i < 2);
        if (at)
            snprintf(token, sizeof(token), "%.*s", (int)strcspn(at + 14, "\r"), at + 14);
    }

    assert_int_equal(facade_json(f, "POST", "/v2/sandboxes", "{\"templateID\":\"local/mine:v1\"}", &b), 201);

    /* An id is one snapshot, whatever else has its name; only what is made from that one keeps it. */
    assert_int_equal(facade_json(f, "POST", target_of(sb, "snapshots"), "{\"name\":\"mine:v2\"}", &b), 201);
    assert_int_equal(facade_json(f, "DELETE", "/templates/local%2Fmine:v1", NULL, &b), 400);
    assert_int_equal(facade_json(f, "DELETE", "/templates/local%2Fmine:default", NULL, &b), 204);
    assert_int_equal(facade_json(f, "DELETE", "/templates/local%2Fmine%3Adefault", NULL, &b), 404);
    assert_int_equal(facade_json(f, "DELETE", "/templates/local%2Fmine%3Av2", NULL, &b), 204);
    assert_int_equal(facade_json(f, "GET", "/snapshots?name=mine", NULL, &b), 200);
    assert_is(&b, "[{\"snapshotID\":\"local/mine:v1\",\"names\":[\"local/mine\"]}]");
}

static void forks_are_told_one_by_one(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    struct sandbox *sb = facade_sandbox(f, true);
    size_t n = 0;
    assert_int_equal(facade_json(f, "POST", target_of(sb, "fork"), "{\"count\":3,\"timeout\":60}", &b), 201);
    for (const char *p = buf_data(&b); (p = strstr(p, "{\"sandbox\":{\"sandboxID\":\"")); p++)
        n++;
    assert_int_equal(n, 3);
    assert_int_equal(facade_json(f, "POST", target_of(sb, "fork"), "", &b), 201);
    assert_int_equal(facade_json(f, "POST", target_of(sb, "fork"), "{\"count\":0}", &b), 400);
    assert_int_equal(facade_json(f, "POST", target_of(sb, "fork"), "{\"count\":1001}", &b), 400);
    assert_int_equal(facade_json(f, "POST", target_of(sb, "fork"), "{\"timeout\":0}", &b), 400);
    assert_int_equal(facade_json(f, "POST", "/sandboxes/inothing/fork", "{}", &b), 404);

    f->w->create_error = ERR_RESOURCE_EXHAUSTED;
    assert_int_equal(facade_json(f, "POST", target_of(sb, "fork"), "{\"count\":2}", &b), 201);
    assert_has(&b, "[{\"error\":{\"code\":429,\"message\":\"");
    f->w->create_error = ERR_OK;

    assert_int_equal(facade_json(f, "POST", target_of(sb, "pause"), "{}", &b), 204);
    assert_int_equal(facade_json(f, "POST", target_of(sb, "fork"), "{}", &b), 409);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(snapshots_have_names_and_are_listed_in_pages, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(forks_are_told_one_by_one, facade_setup, facade_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
