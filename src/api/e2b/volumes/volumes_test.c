/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/test_e2b.h"

#include <stdio.h>

static char id[64], token[64];

static void member(const struct buf *body, const char *name, char *ret, size_t size)
{
    char wanted[64];
    const char *at;
    size_t n;
    n = (size_t)snprintf(wanted, sizeof(wanted), "\"%s\":\"", name);
    at = memmem(buf_data(body), buf_len(body), wanted, n);
    assert_non_null(at);
    snprintf(ret, size, "%.*s", (int)strcspn(at + n, "\""), at + n);
}

static void make(struct test_facade *f, struct buf *b)
{
    assert_int_equal(facade_json(f, "POST", "/volumes", "{\"name\":\"data\"}", b), 201);
    member(b, "volumeID", id, sizeof(id));
    member(b, "token", token, sizeof(token));
}

/* To the content, with this token. */
static int content(struct test_facade *f, const char *method, const char *rest, const char *bearer, const char *body,
                   struct buf *b)
{
    char target[256], headers[256];
    snprintf(target, sizeof(target), "/volumecontent/%s/%s", id, rest);
    snprintf(headers, sizeof(headers), "Authorization: Bearer %s\r\nContent-Type: application/json\r\n", bearer);
    return facade_call(f, method, target, headers, str_of(body), NULL, b);
}

static void volumes_are_made_listed_mounted_and_dropped(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    char target[128], sandbox[64];
    make(f, &b);
    assert_has(&b, "\"name\":\"data\",\"token\":\"");
    assert_int_equal(facade_json(f, "POST", "/volumes", "{\"name\":\"data\"}", &b), 409);
    assert_int_equal(facade_json(f, "POST", "/volumes", "{\"name\":\"no name\"}", &b), 400);
    assert_int_equal(facade_json(f, "POST", "/volumes", "{}", &b), 400);
    assert_int_equal(facade_json(f, "GET", "/volumes", NULL, &b), 200);
    assert_has(&b, "\"name\":\"data\"}]");
    assert_null(memmem(buf_data(&b), buf_len(&b), token, strlen(token)));
    snprintf(target, sizeof(target), "/volumes/%s", id);
    assert_int_equal(facade_json(f, "GET", target, NULL, &b), 200);
    assert_has(&b, token);
    assert_int_equal(facade_json(f, "GET", "/volumes/nothing", NULL, &b), 404);
    assert_int_equal(facade_json(f, "DELETE", "/volumes/nothing", NULL, &b), 404);

    assert_int_equal(facade_json(f, "POST", "/v2/sandboxes",
                                 "{\"templateID\":\"base\",\"volumeMounts\":[{\"name\":\"nothing\",\"path\":\"/v\"}]}",
                                 &b),
                     400);
    assert_has(&b, "volume 'nothing' not found");
    assert_int_equal(facade_json(f, "POST", "/v2/sandboxes",
                                 "{\"templateID\":\"base\",\"volumeMounts\":[{\"name\":\"data\",\"path\":\"/v\"}]}",
                                 &b),
                     201);
    member(&b, "sandboxID", sandbox, sizeof(sandbox));
    assert_int_equal(facade_json(f, "GET", "/v2/sandboxes", NULL, &b), 200);
    assert_has(&b, "\"volumeMounts\":[{\"name\":\"data\",\"path\":\"/v\"}]");
    assert_int_equal(facade_json(f, "DELETE", target, NULL, &b), 409);
    snprintf(target, sizeof(target), "/sandboxes/%s", sandbox);
    assert_int_equal(facade_json(f, "DELETE", target, NULL, &b), 204);
    snprintf(target, sizeof(target), "/volumes/%s", id);
    assert_int_equal(facade_json(f, "DELETE", target, NULL, &b), 204);
    assert_int_equal(facade_json(f, "DELETE", target, NULL, &b), 404);
}

static void content_is_for_who_has_the_token(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    make(f, &b);
    assert_int_equal(content(f, "GET", "path?path=/", "wrong", NULL, &b), 401);
    assert_int_equal(content(f, "GET", "path?path=/", TEST_KEY, NULL, &b), 401);
    assert_int_equal(content(f, "GET", "path?path=/", "", NULL, &b), 401);
    assert_int_equal(content(f, "GET", "path", token, NULL, &b), 400);
    assert_int_equal(content(f, "GET", "path?path=%00", token, NULL, &b), 400);
    assert_int_equal(content(f, "GET", "dir?path=/&depth=x", token, NULL, &b), 400);
    assert_int_equal(content(f, "POST", "dir?path=/d&mode=99999", token, "", &b), 400);
    assert_int_equal(content(f, "POST", "path?path=/d", token, "", &b), 405);
    assert_int_equal(content(f, "GET", "nothing?path=/d", token, NULL, &b), 404);
    assert_int_equal(content(f, "PATCH", "path?path=/d", token, "{\"mode\":-1}", &b), 400);
    assert_int_equal(facade_json(f, "GET", "/v2/sandboxes", NULL, &b), 200);
    assert_is(&b, "[]");
}

static void files_go_in_and_come_out(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct test_facade *f = *state;
    make(f, &b);
    assert_int_equal(content(f, "GET", "file?path=/f", token, NULL, &b), 404);
    assert_int_equal(content(f, "PUT", "file?path=/f", token, "what is kept", &b), 201);
    assert_has(&b, "\"type\":\"file\",\"path\":\"/f\",\"size\":12");
    assert_int_equal(content(f, "PUT", "file?path=/f", token, "again", &b), 409);
    assert_int_equal(content(f, "PUT", "file?path=f&force=true", token, "again", &b), 201);
    assert_int_equal(content(f, "GET", "file?path=/f", token, NULL, &b), 200);
    assert_is(&b, "again");
    /* None of it is a sandbox to anybody, however long it lives. */
    assert_int_equal(facade_json(f, "GET", "/v2/sandboxes", NULL, &b), 200);
    assert_is(&b, "[]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(volumes_are_made_listed_mounted_and_dropped, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(content_is_for_who_has_the_token, facade_setup, facade_teardown),
        cmocka_unit_test_setup_teardown(files_go_in_and_come_out, facade_setup, facade_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
