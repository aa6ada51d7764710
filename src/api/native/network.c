/* SPDX-License-Identifier: Apache-2.0 */
/* What a sandbox may reach: its policy, in the words of policy/policy.h, and what would become of a request. */
#include "sandbox/network/network.h"
#include "api/native/handlers.h"

void native_network_get(struct call *c)
{
    call_value(c, 200, json_incref((json_t *)network_policy(c->sandbox)));
}

static void on_set(void *ctx, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (!c)
        return;
    json_t *shown = json_copy((json_t *)network_policy(c->sandbox));
    json_t *warnings = network_warnings(network_policy(c->sandbox));
    if (warnings)
        (void)json_object_set_new(shown, "warnings", warnings);
    call_value(c, 200, shown);
}

void native_network_set(struct call *c)
{
    const char *otherwise = json_string_value(json_object_get(c->body, "default"));
    struct network_spec spec = {.policy = c->body, .allow_internet = otherwise && strcmp(otherwise, "allow") == 0};
    call_held(c, network_set(c->sandbox, &c->actor, &spec, on_set, call_hold(c), &c->err));
}

static void on_checked(void *ctx, const json_t *answer, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (!c)
        return;
    json_t *shown = json_copy((json_t *)answer);
    (void)json_object_del(shown, "op");
    (void)json_object_del(shown, "tag");
    call_value(c, 200, shown);
}

void native_network_check(struct call *c)
{
    struct str url = STR_NULL, method = STR("GET");
    if (!CALL_WANTS(c, JSON_NEED_STR("url", &url), JSON_WANT_STR("method", &method)))
        return;
    if (url.n > 8192 || !method.n || method.n > 32)
        call_refuse(c, ERR_INVALID_ARGUMENT, "\"url\" or \"method\" is too long");
    else if (memmem(url.p, url.n, "://", 3) && !str_starts(url, STR("http://")) && !str_starts(url, STR("https://")))
        call_refuse(c, ERR_INVALID_ARGUMENT, "the URL must begin with http:// or https://, or with the host");
    else
        call_held(c, network_check(c->sandbox, url, method, on_checked, call_hold(c), &c->err));
}
