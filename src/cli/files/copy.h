/* SPDX-License-Identifier: Apache-2.0 */
/* Copying between this machine and a sandbox. */
#pragma once

#include "cli/service.h"

/* One side of cp: "ID:path" or a path here; "-" here is stdin or stdout. */
struct copy_place {
    bool is_remote;
    char *id; /* as written, owned; NULL here */
    const char *path;
};
void place_parse(const char *text, struct copy_place *ret_place);
void place_fini(struct copy_place *p);

/* No directory could be called as it is: "", ".", "..", "/". Of "tree/." the content is meant, and said to be. */
bool place_has_no_name(const struct copy_place *p);

struct copy {
    struct context *ctx;
    struct service *service;
    const char *id;   /* the sandbox's, whole */
    const char *user; /* NULL: default */
    uint64_t bytes;   /* out: of file contents */
};

/* 0, or -1 with ctx->err. */
int copy_to_sandbox(struct copy *c, const char *from, const char *to) WARN_UNUSED;
int copy_from_sandbox(struct copy *c, const char *from, const char *to) WARN_UNUSED;
