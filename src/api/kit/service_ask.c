/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/service_ask.h"
#include "sandbox/templates.h"

static void service_ask_done(void *ctx, const struct sandbox_service *s, const struct err *err)
{
    struct call *c = call_back(ctx, err);
    if (c) {
        const struct service_ask *a = container_of(c->pull, struct service_ask, pull);
        a->done(c, a, s);
    }
}

static void service_ask_step(struct call *c)
{
    const struct service_ask *a = container_of(c->pull, struct service_ask, pull);
    call_held(c, service_add(c->sandbox, &c->actor, &a->spec, service_ask_done, call_hold(c), &c->err));
}

static void service_ask_pulled(struct call *c, const struct pull *p, const char *why)
{
    struct service_ask *a = container_of(c->pull, struct service_ask, pull);
    a->spec.template_ref = str_of(p->name);
    if (why)
        call_refuse(c, ERR_FAILED_PRECONDITION, "%.300s", why);
    else
        call_step(c, service_ask_step);
}

static bool service_ask_ports(struct call *c, struct service_ask *a)
{
    JSON_FOREACH (port, a->ports) {
        json_int_t number = json_is_number(port) ? (json_int_t)json_number_value(port) : 0;
        if (number < 1 || number > UINT16_MAX || a->spec.n_ports == ARRAY_SIZE(a->numbers))
            return call_refuse(c, ERR_INVALID_ARGUMENT, "ports: at most %d numbers of ports", SERVICE_PORTS_MAX);
        a->numbers[a->spec.n_ports++] = (uint16_t)number;
    }
    a->spec.ports = a->numbers;
    return true;
}

void service_ask(struct call *c, struct service_ask *a)
{
    const char *image = a->pull.spec.image;
    const struct template *t;
    a->pull.done = service_ask_pulled;
    c->pull = &a->pull;
    a->spec.n_ports = 0;
    if (!service_ask_ports(c, a))
        return;
    if (image && core_template_find(call_core(c), c->actor.who.view, str_of(image), &t, &c->err) == 0) {
        a->spec.template_ref = str_of(image);
        image = NULL;
    }
    if (image && c->actor.who.sandbox)
        call_refuse(c, ERR_PERMISSION_DENIED, "this API key is for one sandbox, and no template is called '%.100s'",
                    image);
    else if (image)
        pull_start(c, &a->pull);
    else
        service_ask_step(c);
}
