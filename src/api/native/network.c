/* SPDX-License-Identifier: Apache-2.0 */
/* What a sandbox may reach: its policy, in the words of policy/policy.h, and what would become of a request. */
#include "sandbox/network.h"
#include "api/json_read.h"
#include "api/native/call.h"
#include "base/mem.h"

enum { ANSWER_MAX = 4 << 20 };

static void answer_json(struct call *c, const json_t *json)
{
    AUTO_BUF struct buf b = BUF_INIT(ANSWER_MAX);
    AUTO_FREE char *text = json_dumps(json, JSON_COMPACT);
    buf_append_cstr(&b, text ? text : "{}");
    native_json(c, 200, &b);
}

void native_network_get(struct call *c)
{
    struct sandbox *sb = native_sandbox(c);
    if (sb)
        answer_json(c, network_policy(sb));
}

/* ---- set ---- */

struct setting {
    struct wait *wait;
    struct sandbox *sb; /* a reference */
};

static void answer_set(struct call *c, const json_t *policy)
{
    AUTO_JSON json_t *shown = json_copy((json_t *)policy);
    json_t *warnings = network_warnings(policy);
    if (warnings)
        (void)json_object_set_new(shown, "warnings", warnings);
    answer_json(c, shown);
}

static void on_set(void *ctx, const struct err *err)
{
    struct setting *s = ctx;
    struct call *c = native_wait_take(s->wait);
    if (c && err)
        native_error(c, err);
    else if (c)
        answer_set(c, network_policy(s->sb));
    sandbox_unref(s->sb);
    mem_free(s);
}

static void set_body(struct http_request *req, int error, struct str body, void *ctx)
{
    (void)req;
    struct call *c = ctx;
    AUTO_JSON json_t *json = NULL;
    struct err err;
    if (!native_read_object(c, error, body, &json))
        return;
    struct sandbox *sb = native_sandbox(c);
    if (!sb)
        return;
    const char *otherwise = json_string_value(json_object_get(json, "default"));
    struct network_spec spec = {.policy = json, .allow_internet = otherwise && strcmp(otherwise, "allow") == 0};
    struct setting *s = mem_new(struct setting);
    s->sb = sandbox_ref(sb);
    s->wait = native_wait_new(c);
    if (network_set(sb, &c->actor, &spec, on_set, s, &err) < 0)
        on_set(s, &err);
}

void native_network_set(struct call *c)
{
    http_read_body(c->req, NATIVE_BODY_MAX, set_body, c);
}

/* ---- check ---- */

static void on_checked(void *ctx, const json_t *answer, const struct err *err)
{
    struct call *c = native_wait_take(ctx);
    if (!c)
        return;
    if (err) {
        native_error(c, err);
        return;
    }
    AUTO_JSON json_t *shown = json_copy((json_t *)answer);
    (void)json_object_del(shown, "op");
    (void)json_object_del(shown, "tag");
    answer_json(c, shown);
}

static void check_body(struct http_request *req, int error, struct str body, void *ctx)
{
    (void)req;
    static const char *const known[] = {"url", "method"};
    struct call *c = ctx;
    AUTO_JSON json_t *json = NULL;
    struct str url = STR_NULL, method = STR("GET");
    struct err err;
    if (!native_read_object(c, error, body, &json))
        return;
    struct sandbox *sb = native_sandbox(c);
    if (!sb)
        return;
    if (json_only(json, known, ARRAY_SIZE(known), &err) < 0 || json_get_str(json, "url", &url, &err) < 0 ||
        json_get_str(json, "method", &method, &err) < 0) {
        native_error(c, &err);
        return;
    }
    if (!url.n || url.n > 8192 || !method.n || method.n > 32) {
        native_refuse(c, ERR_INVALID_ARGUMENT, "\"url\" is missing, or it or \"method\" is too long");
        return;
    }
    if (memmem(url.p, url.n, "://", 3) && !str_starts(url, STR("http://")) && !str_starts(url, STR("https://"))) {
        native_refuse(c, ERR_INVALID_ARGUMENT, "the URL must begin with http:// or https://, or with the host");
        return;
    }
    struct wait *w = native_wait_new(c);
    if (network_check(sb, url, method, on_checked, w, &err) < 0)
        on_checked(w, NULL, &err);
}

void native_network_check(struct call *c)
{
    http_read_body(c->req, NATIVE_BODY_MAX, check_body, c);
}
