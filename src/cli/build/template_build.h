/* SPDX-License-Identifier: Apache-2.0 */
/* `cove template build`: reads a Dockerfile, sends files, begins the build and follows its log. */
#pragma once

#include "cli/command.h"
#include "cli/net_flags.h"

struct service;

struct template_build_options {
    const char *
        file; /* NULL: Dockerfile in the context; if something else says what to begin with, only one in a context that was named */
    const char *context; /* directory */
    const char *name;    /* NULL: the directory's */
    const char *from_image, *from_template, *from_oci;
    const char *start_cmd, *ready_cmd; /* NULL: the Dockerfile's, none */
    const char *tags[64], *build_args[128];
    size_t n_tags, n_build_args;
    struct net_flags net;
    uint64_t cpu_milli, memory_bytes;
    const char *registry_user; /* its password comes on stdin; NULL: none */
    const char *docker_config; /* "": the one that Docker uses; NULL: not asked for */
    bool names_context, registry_password_stdin;
    const char *tier; /* NULL: the service's */
    bool no_cache, no_memory, quiet;
    bool is_docker; /* asked for as Docker's command: hints are in its words */
};

/* An exit code. */
int template_build_run(struct context *ctx, struct template_build_options *options);

/* Calls `make`, what is written to stdout meanwhile going to stderr. What it returns. */
int template_build_aside(struct context *ctx, int (*make)(struct context *ctx, void *arg), void *arg);

/*
 * The same for a template that isn't there yet, and is told to be made. A snapshot of that name is somebody's: it does
 * if may_be_snapshot. -1: ctx->err.
 */
int template_build_first(struct context *ctx, struct service *s, const char *name, bool may_be_snapshot,
                         int (*make)(struct context *ctx, void *arg), void *arg) WARN_UNUSED;
