/* SPDX-License-Identifier: Apache-2.0 */
/* Services beside a sandbox's programs. */
#include "api/kit/service_ask.h"
#include "api/native/handlers.h"

static void services_added(struct call *c, const struct service_ask *a UNUSED, const struct sandbox_service *s)
{
    call_value(c, 201, service_json(s));
}

void native_services_add(struct call *c)
{
    struct service_ask *a = arena_alloc(http_arena(c->req), sizeof(*a));
    struct str image = STR("");
    json_t *ports = NULL;
    *a = (struct service_ask){.pull.builder = native_of(c)->config.builder, .done = services_added};
    if (!CALL_WANTS(c, JSON_NEED_STR("name", &a->spec.name), JSON_WANT_STR("template", &a->spec.template_ref),
                    JSON_WANT_STR("image", &image), JSON_WANT_STR("command", &a->spec.command),
                    JSON_WANT_STR("ready", &a->spec.ready), JSON_WANT_ARRAY("ports", &ports),
                    JSON_WANT_PAIRS("env", &a->spec.envs, &a->spec.n_envs)))
        return;
    a->ports = ports;
    a->pull.spec.image = image.n ? image.p : NULL;
    if (!image.n == !a->spec.template_ref.n)
        call_refuse(c, ERR_INVALID_ARGUMENT, "exactly one of image and template is needed");
    else
        service_ask(c, a);
}

void native_services_list(struct call *c)
{
    call_value(c, 200, json_pack("{s:o}", "services", services_json(c->sandbox)));
}
