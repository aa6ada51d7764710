/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Services beside a sandbox's own programs: a nest (nest.h) whose root is another template's, in which one program
 * runs. It shares the sandbox's network, limits, record and life. Its files are kept, cloned and forked with the
 * sandbox's; its processes end with a pause without memory, or with this worker, and start again on these files.
 */
#pragma once

#include "base/json.h"
#include "sandbox/sandbox.h"

struct sandbox_service;

enum { SERVICES_MAX = 8, SERVICE_PORTS_MAX = 16, SERVICE_NAME_MAX = 32 };

/* Strings are borrowed during service_add(). */
struct service_spec {
    struct str name;         /* [a-z0-9-], not "localhost": what it is called inside */
    struct str template_ref; /* as in struct sandbox_spec */
    struct str command;      /* for sh; "": the image's, else the template's start command */
    struct str ready;        /* for sh, inside it: tried until it succeeds; "": none */
    const struct pair *envs; /* on top of the template's */
    size_t n_envs;
    const uint16_t *ports; /* it is ready when somebody listens at each */
    size_t n_ports;
};

typedef void (*service_fn)(void *ctx, const struct sandbox_service *s, const struct err *err);

/*
 * done: it is ready, or (err) it is gone again: its program ended, or was not ready in time. The action is
 * sandbox.nest, then exec.start, about which nobody is asked any more. ERR_UNIMPLEMENTED: not in the sandbox's tier.
 * ERR_NOT_FOUND, ERR_ALREADY_EXISTS (one that has exited makes room), ERR_FAILED_PRECONDITION (no command is known),
 * ERR_RESOURCE_EXHAUSTED.
 */
int service_add(struct sandbox *sb, const struct actor *actor, const struct service_spec *spec, service_fn done,
                void *ctx, struct err *err) WARN_UNUSED;
/* {"name","template","command"?,"ports","state","exit_code"?,"error"?}; state: "starting", "running", "exited",
 * "stopped". */
json_t *service_json(const struct sandbox_service *s);
json_t *services_json(const struct sandbox *sb);

/* ---- for src/sandbox ---- */

void services_start(struct sandbox *sb); /* it runs: those that are stopped */
void services_stop(struct sandbox *sb);  /* its processes are gone */
void services_free(struct sandbox *sb);
json_t *services_row(const struct sandbox *sb); /* NULL: there are none */
void services_fill(struct sandbox *sb, const json_t *row);
void services_each_layer(const struct sandbox *sb, void (*fn)(void *ctx, const char *layer), void *ctx);
