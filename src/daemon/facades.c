/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/facades.h"
#include "api/kit/facade.h"

void facades_open(struct facades *f, const struct native_config *n, const char *domain, bool open_run_code)
{
    *f = (struct facades){
        .native = native_new(n),
        .e2b = e2b_new(
            &(struct e2b_config){.core = n->core, .builder = n->builder, .refusals = n->refusals, .domain = domain}),
        .opensandbox = opensandbox_new(
            &(struct opensandbox_config){.core = n->core, .builder = n->builder, .refusals = n->refusals}),
        .mcp = mcp_new(&(struct mcp_config){.core = n->core,
                                            .events = n->events,
                                            .builder = n->builder,
                                            .refusals = n->refusals,
                                            .owner_uid = n->owner_uid,
                                            .version = n->version}),
        .fusion = fusion_new(&(struct fusion_config){
            .core = n->core, .refusals = n->refusals, .owner_uid = n->owner_uid, .is_open = open_run_code}),
        .docker = docker_new(&(struct docker_config){.core = n->core,
                                                     .builder = n->builder,
                                                     .refusals = n->refusals,
                                                     .owner_uid = n->owner_uid,
                                                     .version = n->version}),
    };
}

bool facades_serve(void *facades, struct http_request *req)
{
    const struct facades *f = facades;
    /* Whatever is sent to a port of a sandbox is the sandbox's; then each API has its part of the address. */
    const struct claim claims[] = {
        {.fits = e2b_claims, .serve = e2b_serve_sandbox, .facade = f->e2b},
        {.prefix = NATIVE_PREFIX "/", .serve = native_serve, .facade = f->native},
        {.prefix = MCP_PATH, .serve = mcp_serve, .facade = f->mcp},
        {.fits = native_claims_metrics, .serve = native_serve, .facade = f->native},
        {.serve = fusion_serve, .facade = f->fusion},
        {.serve = docker_serve, .facade = f->docker},
        {.prefix = "/v1/", .serve = opensandbox_serve, .facade = f->opensandbox},
        {.serve = e2b_serve_api, .facade = f->e2b},
    };
    return claims_serve(claims, ARRAY_SIZE(claims), req);
}

void facades_free(struct facades *f)
{
    docker_free(f->docker);
    fusion_free(f->fusion);
    mcp_free(f->mcp);
    opensandbox_free(f->opensandbox);
    e2b_free(f->e2b);
    native_free(f->native);
}
