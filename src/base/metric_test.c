/* SPDX-License-Identifier: Apache-2.0 */
#include "base/metric.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void both_formats(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(65536);
    (void)state;
    for (int is_open = 0; is_open < 2; is_open++) {
        struct metric_text t = {.to = &b, .is_openmetrics = is_open};
        buf_clear(&b);
        metric_family(&t, "cove_things", METRIC_COUNTER, "Things.");
        metric_put(&t, "", 3);
        metric_put(&t, "kind=\"a\"", UINT64_MAX);
        metric_family(&t, "cove_age_seconds", METRIC_GAUGE, "Age.");
        metric_put_usec(&t, "", 1000002);
        metric_end(&t);
        (void)buf_append_char(&b, 0);
        assert_string_equal(buf_data(&b),
                            is_open ? "# HELP cove_things Things.\n# TYPE cove_things counter\ncove_things_total 3\n"
                                      "cove_things_total{kind=\"a\"} 18446744073709551615\n# HELP cove_age_seconds "
                                      "Age.\n# TYPE cove_age_seconds gauge\ncove_age_seconds 1.000002\n# EOF\n"
                                    : "# HELP cove_things_total Things.\n# TYPE cove_things_total counter\n"
                                      "cove_things_total 3\ncove_things_total{kind=\"a\"} 18446744073709551615\n"
                                      "# HELP cove_age_seconds Age.\n# TYPE cove_age_seconds gauge\n"
                                      "cove_age_seconds 1.000002\n");
    }
}

static void buckets_are_cumulative(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(65536);
    struct metric_text t = {.to = &b};
    struct metric_histogram h = {0};
    (void)state;
    metric_observe(&h, 0);
    metric_observe(&h, 250); /* le: included */
    metric_observe(&h, 251);
    metric_observe(&h, 40 * USEC_PER_SEC);
    metric_family(&t, "cove_start_seconds", METRIC_HISTOGRAM, "Starts.");
    metric_put_histogram(&t, "way=\"cold\"", &h);
    (void)buf_append_char(&b, 0);
    const char *text = buf_data(&b);
    assert_non_null(strstr(text, "cove_start_seconds_bucket{way=\"cold\",le=\"0.00025\"} 2\n"));
    assert_non_null(strstr(text, "cove_start_seconds_bucket{way=\"cold\",le=\"0.0005\"} 3\n"));
    assert_non_null(strstr(text, "cove_start_seconds_bucket{way=\"cold\",le=\"30\"} 3\n"));
    assert_non_null(strstr(text, "cove_start_seconds_bucket{way=\"cold\",le=\"+Inf\"} 4\n"));
    assert_non_null(strstr(text, "cove_start_seconds_sum{way=\"cold\"} 40.000501\n"));
    assert_non_null(strstr(text, "cove_start_seconds_count{way=\"cold\"} 4\n"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_formats), cmocka_unit_test(buckets_are_cumulative)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
