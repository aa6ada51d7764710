/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/target.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void goes_to(const char *host, const char *id_header, const char *port_header, const char *id, unsigned port)
{
    struct e2b_target target;
    assert_int_equal(target_parse(str_of(host), str_of(id_header), str_of(port_header), &target), TARGET_SANDBOX);
    assert_true(str_eqc(target.id, id));
    assert_int_equal(target.port, port);
}

static void is_refused(const char *host, const char *id_header, const char *port_header, const char *problem)
{
    struct e2b_target target;
    assert_int_equal(target_parse(str_of(host), str_of(id_header), str_of(port_header), &target), TARGET_BAD);
    assert_string_equal(target.problem, problem);
}

static void is_control(const char *host)
{
    struct e2b_target target;
    assert_int_equal(target_parse(str_of(host), STR_NULL, STR_NULL, &target), TARGET_CONTROL);
}

static void headers_route_where_the_host_can_not(void **state)
{
    (void)state;
    goes_to("127.0.0.1:7070", "iabc", "49983", "iabc", 49983);
    goes_to("localhost:7070", "iabc", "8000", "iabc", 8000);
    goes_to("[::1]:7070", "iabc", "8000", "iabc", 8000);
    goes_to("sandbox.example.com", "iabc", "8000", "iabc", 8000);
    goes_to("cove.internal:7070", "iabc", "8000", "iabc", 8000);
    goes_to("", "iabc", "8000", "iabc", 8000);
    goes_to("8000-iother.example.com", "iabc", "49983", "iother", 8000);
}

static void the_first_label_of_the_host_routes(void **state)
{
    (void)state;
    goes_to("49983-iabc.example.com", NULL, NULL, "iabc", 49983);
    goes_to("3000-iabc.localhost:8443", NULL, NULL, "iabc", 3000);
    goes_to("3000-iabc-6532622b.example.com", NULL, NULL, "iabc", 3000);
}

static void the_rest_is_the_control_plane(void **state)
{
    (void)state;
    is_control("127.0.0.1:7070");
    is_control("localhost");
    is_control("[::1]:7070");
    is_control("api.example.com");
    is_control("my-host.example.com");
    is_control("49983-iabc");
    is_control("");
    is_control("-iabc.example.com");
    struct e2b_target target;
    assert_int_equal(target_parse(STR("api.example.com"), STR("iabc"), STR("49983"), &target), TARGET_CONTROL);
}

static void what_is_malformed_is_refused(void **state)
{
    (void)state;
    is_refused("localhost", "iabc", NULL, "missing header");
    is_refused("localhost", NULL, "49983", "missing header");
    is_refused("localhost", "../etc", "49983", "Invalid sandbox ID");
    is_refused("localhost", "iABC", "49983", "Invalid sandbox ID");
    is_refused("localhost", "iabc-client", "49983", "Invalid sandbox ID");
    is_refused("localhost", "iabc", "x", "Invalid sandbox port");
    is_refused("localhost", "iabc", "0", "Invalid sandbox port");
    is_refused("localhost", "iabc", "65536", "Invalid sandbox port");
    is_refused("localhost", "iabc", "99999999999999999999", "Invalid sandbox port");
    is_refused("8000-.example.com", NULL, NULL, "Invalid sandbox ID");
    is_refused("80000-iabc.example.com", NULL, NULL, "Invalid sandbox port");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(headers_route_where_the_host_can_not),
        cmocka_unit_test(the_first_label_of_the_host_routes),
        cmocka_unit_test(the_rest_is_the_control_plane),
        cmocka_unit_test(what_is_malformed_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
