/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/route.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static const struct route routes[] = {
    {HTTP_METHOD_GET, "/sandboxes", NULL, 0, "list"},
    {HTTP_METHOD_POST, "/sandboxes", NULL, 0, "create"},
    {HTTP_METHOD_GET, "/sandboxes/metrics", NULL, 0, "all metrics"},
    {HTTP_METHOD_GET, "/sandboxes/{}", NULL, 0, "get"},
    {HTTP_METHOD_POST, "/sandboxes/{}/timeout", NULL, 0, "timeout"},
    {HTTP_METHOD_GET, "/templates/{}/builds/{}/status", NULL, 0, "status"},
};

static const char *find(enum http_method method, const char *path, struct str *args, enum route_result expected)
{
    const struct route *route = NULL;
    assert_int_equal(route_find(routes, ARRAY_SIZE(routes), method, str_of(path), &route, args, NULL), expected);
    return route ? route->what : NULL;
}

static void paths_find_their_routes(void **state)
{
    struct str args[ROUTE_ARGS_MAX];
    (void)state;
    assert_string_equal(find(HTTP_METHOD_GET, "/sandboxes", args, ROUTE_FOUND), "list");
    assert_string_equal(find(HTTP_METHOD_HEAD, "/sandboxes", args, ROUTE_FOUND), "list");
    assert_string_equal(find(HTTP_METHOD_POST, "/sandboxes", args, ROUTE_FOUND), "create");
    assert_string_equal(find(HTTP_METHOD_GET, "/sandboxes/metrics", args, ROUTE_FOUND), "all metrics");
    assert_string_equal(find(HTTP_METHOD_GET, "/sandboxes/iabc", args, ROUTE_FOUND), "get");
    assert_true(str_eqc(args[0], "iabc"));
    assert_string_equal(find(HTTP_METHOD_GET, "/templates/a%2Fb/builds/2/status", args, ROUTE_FOUND), "status");
    assert_true(str_eqc(args[0], "a%2Fb"));
    assert_true(str_eqc(args[1], "2"));
}

static void other_paths_and_methods_do_not(void **state)
{
    struct str args[ROUTE_ARGS_MAX];
    (void)state;
    find(HTTP_METHOD_DELETE, "/sandboxes", args, ROUTE_WRONG_METHOD);
    find(HTTP_METHOD_OTHER, "/sandboxes/iabc", args, ROUTE_WRONG_METHOD);
    find(HTTP_METHOD_GET, "/sandboxes/", args, ROUTE_UNKNOWN);
    find(HTTP_METHOD_GET, "/sandboxes/a/b", args, ROUTE_UNKNOWN);
    find(HTTP_METHOD_GET, "/sandboxes//timeout", args, ROUTE_UNKNOWN);
    find(HTTP_METHOD_GET, "/sandbox", args, ROUTE_UNKNOWN);
    find(HTTP_METHOD_GET, "", args, ROUTE_UNKNOWN);
    find(HTTP_METHOD_GET, NULL, args, ROUTE_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_find_their_routes),
        cmocka_unit_test(other_paths_and_methods_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
