/* SPDX-License-Identifier: Apache-2.0 */
/* Relays a request to a port inside a sandbox, HTTP and WebSocket, for façades. */
#pragma once

#include "api/kit/facade.h"
#include "http/request.h"
#include "sandbox/sandbox.h"

enum { PORT_DROPS_MAX = 4 };

/* Why the port does not answer. */
enum port_trouble { PORT_ASLEEP, PORT_CLOSED, PORT_BUSY, PORT_DENIED, PORT_BAD_ANSWER };

/* What is a façade's own in it. Static. */
struct port_way {
    const struct actor *actor;
    /* headers of the façade's that the program does not get; what opens us it never gets */
    const char *drop[PORT_DROPS_MAX];
    const char *const *hide; /* headers of the program's that its client does not get, NULL-terminated; may be NULL */
    void (*refuse)(struct http_request *req, const struct sandbox_info *info, uint16_t port, enum port_trouble why);
};

/* target: the path that the program sees, p NULL: as it came; host: its Host, p NULL: as it came. */
void port_relay(struct facade *f, const struct port_way *way, struct http_request *req, struct sandbox *sb,
                uint16_t port, struct str target, struct str host);
