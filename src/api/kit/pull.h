/* SPDX-License-Identifier: Apache-2.0 */
/* A template of an image: the one called like it (http/client/docker_names.h), or it is built. A call's steps. */
#pragma once

#include "api/kit/call.h"
#include "build/builder.h"

/* In the call's arena; c->pull points to it. */
struct pull {
    struct builder *builder; /* NULL: none can be built */
    struct build_spec spec;  /* its image and what the registry wants to know */
    const char *name, *build;
    /* The build waits or runs; NULL: nobody is told. */
    void (*begun)(struct call *c, const struct pull *p);
    /* why NULL: the template p->name is there. */
    void (*done)(struct call *c, const struct pull *p, const char *why);
};

/* Not found, and can't be built: answered. */
void pull_start(struct call *c, struct pull *p);
