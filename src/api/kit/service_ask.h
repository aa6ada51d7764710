/* SPDX-License-Identifier: Apache-2.0 */
/* A service (sandbox/service.h) for c->sandbox, of a template or of an image, which is pulled if there is none. */
#pragma once

#include "api/kit/pull.h"
#include "sandbox/service.h"

/* In the call's arena. */
struct service_ask {
    struct pull pull; /* its builder; its image, or NULL: spec.template_ref */
    struct service_spec spec;
    const json_t *ports; /* numbers; NULL: none */
    uint16_t numbers[SERVICE_PORTS_MAX];
    void (*done)(struct call *c, const struct service_ask *a, const struct sandbox_service *s);
};

/* done comes once it is ready; anything else is answered. */
void service_ask(struct call *c, struct service_ask *a);
