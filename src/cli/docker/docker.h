/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cove docker`: the verbs of Docker's command line that agents and their frameworks call, onto the native API. A container is a sandbox with the labels
 * docker.image, docker.name, docker.command and perhaps docker.rm; others are not seen. An image is a template of the same name, in which everything but
 * letters, digits, - and _ is a - (docker_template()). What can't be done is refused by its name.
 */
#pragma once

#include "cli/build/template_build.h"
#include "cli/service.h"

enum { DOCKER_FAILED = 1, DOCKER_USAGE = 125, DOCKER_LIST_MAX = 32 };

struct docker {
    struct context *ctx;
    struct service *s;
    const char *verb;
    bool detach, interactive, tty, removes, all, quiet, follow, force, no_cache, internal, has_no_network;
    const char *name, *entrypoint, *cwd, *user, *format, *file, *tier, *pull;
    const char *volumes[DOCKER_LIST_MAX], *build_args[DOCKER_LIST_MAX], *tags[DOCKER_LIST_MAX],
        *filters[DOCKER_LIST_MAX];
    size_t n_volumes, n_build_args, n_tags, n_filters;
    json_t *env, *labels;
    uint64_t memory_bytes;
    uint32_t cpu_milli;
    char **operands; /* NULL-terminated */
    int n;
};

/* The verbs: exit codes. */
int docker_run(struct docker *d);
int docker_exec(struct docker *d);
int docker_ps(struct docker *d);
int docker_images(struct docker *d);
int docker_inspect(struct docker *d);
int docker_logs(struct docker *d);

/* Says ctx->err as Docker does. Returns `status`. */
int docker_fail(struct docker *d, int status);
int docker_refuse(struct docker *d, const char *fmt, ...) PRINTF_LIKE(2, 3); /* DOCKER_USAGE */

/* Free with mem_free(). */
char *docker_template(const char *image);

/* All containers; those of one name or id. New references. -1: ctx->err. */
int docker_containers(struct docker *d, json_t **ret_array) WARN_UNUSED;
int docker_find(struct docker *d, const char *text, json_t **ret_sandbox) WARN_UNUSED;
const char *docker_label(const json_t *sandbox, const char *name);         /* "": there is none */
int docker_pull_image(struct docker *d, const char *image, bool is_quiet); /* an exit code */
