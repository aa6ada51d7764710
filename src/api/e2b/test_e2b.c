/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/test_e2b.h"
#include "base/mem.h"
#include "sandbox/key.h"

#include <stdio.h>
#include <string.h>

int facade_setup(void **state)
{
    struct test_facade *f = facade_open();
    struct e2b *e2b = e2b_new(&(struct e2b_config){.core = f->w->core, .domain = "sandboxes.test"});
    assert_non_null(e2b);
    key_set_builtin(f->w->core, STR(TEST_KEY));
    facade_claim(f, &(struct claim){.fits = e2b_claims, .serve = e2b_serve_sandbox, .facade = e2b});
    facade_claim(f, &(struct claim){.serve = e2b_serve_api, .facade = e2b});
    *state = f;
    return 0;
}

static void free_e2b(void *facade)
{
    e2b_free(facade);
}

int facade_teardown(void **state)
{
    return facade_close(*state, free_e2b);
}

const char *facade_headers(const struct sandbox *sb, unsigned port)
{
    static char text[512];
    const struct sandbox_info *info = sandbox_info(sb);
    snprintf(text, sizeof(text), "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: %u\r\n%s%s%s", info->id, port,
             info->access_token ? "X-Access-Token: " : "", info->access_token ? info->access_token : "",
             info->access_token ? "\r\n" : "");
    return text;
}

int facade_json(struct test_facade *f, const char *method, const char *target, const char *body, struct buf *ret_body)
{
    return facade_call(f, method, target, "X-API-KEY: " TEST_KEY "\r\nContent-Type: application/json\r\n", str_of(body),
                       NULL, ret_body);
}

void facade_envelope(struct buf *b, struct str message)
{
    uint8_t head[5] = {0, (uint8_t)(message.n >> 24), (uint8_t)(message.n >> 16), (uint8_t)(message.n >> 8),
                       (uint8_t)message.n};
    buf_append(b, head, sizeof(head));
    buf_append_str(b, message);
}

int facade_stream(struct test_facade *f, struct sandbox *sb, const char *method, const char *message,
                  struct buf *ret_body)
{
    AUTO_BUF struct buf headers = BUF_INIT(1024), body = BUF_INIT(1 << 20);
    buf_printf(&headers, "%sContent-Type: application/connect+json\r\n%c", facade_headers(sb, 49983), 0);
    facade_envelope(&body, str_of(message));
    return facade_call(f, "POST", method, buf_data(&headers), buf_str(&body), NULL, ret_body);
}

void facade_messages(struct buf *body, struct buf *ret_lines)
{
    struct str in = buf_str(body);
    buf_clear(ret_lines);
    while (in.n) {
        const uint8_t *p = (const uint8_t *)in.p;
        size_t n;
        assert_true(in.n >= 5);
        n = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
        assert_true(in.n >= 5 + n);
        buf_printf(ret_lines, "%u %.*s\n", p[0], (int)n, in.p + 5);
        in = str_sub(in, 5 + n);
    }
}
