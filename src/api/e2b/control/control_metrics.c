/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/control/control.h"
#include "api/e2b/control/sandbox_json.h"

enum { SANDBOXES_MAX = 100 };

/* Seconds since 1970 in a query parameter; answers and returns false when malformed. */
static bool get_time(struct call *c, const char *name, usec_t *ret_time)
{
    uint64_t seconds = 0;
    struct str value;
    int r = http_query_get(c->req, name, &value);
    if (r > 0 && value.n && (str_to_u64(value, &seconds) < 0 || seconds > UINT64_MAX / USEC_PER_SEC - 1))
        r = -EINVAL;
    if (r < 0)
        return call_fail(c, 400, "validation error: parameter \"%s\" in query has an error: an invalid integer", name);
    if (r > 0 && value.n)
        *ret_time = seconds * USEC_PER_SEC;
    return true;
}

void control_metrics(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(REPLY_MAX);
    const struct sandbox_sample *samples;
    usec_t start = 0, end = UINT64_MAX - USEC_PER_SEC;
    size_t n = 0;
    if (!get_time(c, "start", &start) || !get_time(c, "end", &end))
        return;
    if (start > end) {
        call_fail(c, 400, "Invalid time range for metrics");
        return;
    }
    samples = sandbox_samples(c->sandbox, &n);
    buf_append_char(&b, '[');
    for (size_t i = 0; i < n; i++) {
        /* The end is a whole second, and all of that second counts. */
        if (samples[i].at < start || samples[i].at >= end + USEC_PER_SEC)
            continue;
        json_put_comma(&b);
        sandbox_json_sample(&b, &samples[i]);
    }
    buf_append_char(&b, ']');
    call_json_buf(c, 200, &b);
}

void control_metrics_many(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(BODY_MAX);
    struct str ids, id;
    size_t count = 0;
    if (http_query_get(c->req, "sandbox_ids", &ids) != 1 || ids.n == 0) {
        call_fail(c, 400,
                  "validation error: parameter \"sandbox_ids\" in query has an error: value is required but missing");
        return;
    }
    buf_append_cstr(&b, "{\"sandboxes\":{");
    while (str_split(&ids, ',', &id)) {
        const struct sandbox_sample *samples;
        struct sandbox *sb;
        size_t n = 0;
        if (++count > SANDBOXES_MAX) {
            call_fail(c, 400, "Too many sandboxes requested, maximum is %d", SANDBOXES_MAX);
            return;
        }
        sb = access_find_sandbox(c, id);
        if (!sandbox_json_exists(sb))
            continue;
        samples = sandbox_samples(sb, &n);
        if (n == 0)
            continue;
        json_put_comma(&b);
        buf_printf(&b, "\"%s\":", sandbox_info(sb)->id);
        sandbox_json_sample(&b, &samples[n - 1]);
    }
    buf_append_cstr(&b, "}}");
    call_json_buf(c, 200, &b);
}
