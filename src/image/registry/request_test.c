/* SPDX-License-Identifier: Apache-2.0 */
#include "image/options.h"
#include "image/registry/request.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void test_requests(void **state)
{
    (void)state;
    struct job_request q;
    struct err err;
    assert_int_equal(
        job_request_parse(
            STR("{\"image\":\"ghcr.io/a/b:1\",\"platform\":\"linux/arm64\",\"auth\":{\"username\":\"u\",\"password\":\"p\"},"
                "\"insecure\":[\"10.0.0.1:5000\",\"https://h.local\"]}"),
            &q, &err),
        0);
    assert_string_equal(q.image.host, "ghcr.io");
    assert_string_equal(q.platform.arch, "arm64");
    assert_string_equal(q.username, "u");
    assert_null(q.token);
    const struct http_host *h = http_hosts_find(&q.hosts, "10.0.0.1", 5000);
    assert_true(h && h->plain);
    assert_null(http_hosts_find(&q.hosts, "10.0.0.1", 5001));
    h = http_hosts_find(&q.hosts, "h.local", 443);
    assert_true(h && !h->plain);
    job_request_fini(&q);
    assert_int_equal(job_request_parse(STR("{\"archive\":true,\"ref\":\"x:1\"}"), &q, &err), 0);
    assert_true(q.archive);
    assert_string_equal(q.ref, "x:1");
    assert_int_equal(q.archive_fd, -1);
    job_request_fini(&q);
}

static void test_urls(void **state)
{
    (void)state;
    char host[REFERENCE_HOST_MAX];
    static const char *const good[][2] = {
        {"https://A.example/x", "a.example"},
        {"https://a:443/", "a"},
        {"http://a:80", "a"},
        {"https://a:80/x?y#z", "a:80"},
        {"http://[::1]:5000/", "[::1]:5000"},
        {"https://1.2.3.4", "1.2.3.4"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        assert_true(http_url_host(good[i][0], host));
        assert_string_equal(host, good[i][1]);
    }
    static const char *const bad[] = {"",
                                      "a",
                                      "/x",
                                      "ftp://a/",
                                      "file:///etc/passwd",
                                      "https://u@a/",
                                      "https://u:p@a/",
                                      "https://",

                                      "https://a:0/",
                                      "https://a:99999/",
                                      "https://a b/",
                                      "https://a%00b/",
                                      "gopher://a",
                                      "https://a\r\nHost: b/"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (http_url_host(bad[i], host))
            fail_msg("%s: %s", bad[i], host);
}

static void test_options(void **state)
{
    (void)state;
    struct image_options o;
    struct err err;
    char *argv[] = {"cove-image", "--root-fd",     "3", "--job-fd", "4", "--uid", "70000", "--ids-base",
                    "131072",     "--max-entries", "5", "--ca",     "x"};
    assert_int_equal(image_options_parse((int)ARRAY_SIZE(argv), argv, &o, &err), 0);
    assert_int_equal(o.ids_base, 131072);
    assert_int_equal(o.max_entries, 5);
    assert_string_equal(o.ca, "x");
    assert_int_equal(image_options_parse((int)ARRAY_SIZE(argv) - 1, argv, &o, &err), -1);
    argv[6] = "0"; /* root */
    assert_int_equal(image_options_parse((int)ARRAY_SIZE(argv), argv, &o, &err), -1);
    assert_int_equal(image_options_parse(3, argv, &o, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_urls),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests_name("image/request", tests, NULL, NULL);
}
