/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cove docker`: the verbs of Docker's command line that agents and their frameworks call, onto the native API. What a
 * container and an image are says
 * http/client/docker_names.h. What can't be done is refused by its name.
 */
#pragma once

#include "cli/build/template_build.h"
#include "cli/service.h"
#include "http/client/docker_names.h"

#include <limits.h>

enum { DOCKER_FAILED = 1, DOCKER_USAGE = 125, DOCKER_LIST_MAX = 32 };

struct docker {
    struct context *ctx;
    struct service *s;
    const char *verb;
    bool detach, interactive, tty, removes, all, quiet, follow, force, no_cache, internal, has_no_network, images;
    const char *name, *entrypoint, *cwd, *user, *format, *file, *tier, *pull, *project, *status;
    const char *volumes[DOCKER_LIST_MAX], *build_args[DOCKER_LIST_MAX], *tags[DOCKER_LIST_MAX],
        *filters[DOCKER_LIST_MAX];
    size_t n_volumes, n_build_args, n_tags, n_filters;
    json_t *env, *labels;
    uint64_t memory_bytes;
    uint32_t cpu_milli;
    char **operands; /* NULL-terminated */
    int n;
    json_t *compose;      /* the file, when it was read */
    char place[PATH_MAX]; /* its directory */
};

/* Labels of a container that compose made. */
#define COMPOSE_PROJECT "com.docker.compose.project"
#define COMPOSE_SERVICE "com.docker.compose.service"
#define COMPOSE_FILE COMPOSE_PROJECT ".config_files"

/* A command line of docker: argv[0] is the verb, NULL-terminated. An exit code. */
int docker_do(struct context *ctx, int argc, char **argv);

/* The verbs: exit codes. */
typedef int docker_verb(struct docker *d);
docker_verb docker_run, docker_cp, docker_exec, docker_ps, docker_images, docker_inspect, docker_logs;
docker_verb docker_compose_build, docker_compose_config, docker_compose_cp, docker_compose_down, docker_compose_exec,
    docker_compose_ls, docker_compose_ps, docker_compose_pull, docker_compose_up;

/* Says ctx->err as Docker does. Returns `status`. */
int docker_fail(struct docker *d, int status);
int docker_refuse(struct docker *d, const char *fmt, ...) PRINTF_LIKE(2, 3); /* DOCKER_USAGE */

/* All containers; those of one name or id. New references. -1: ctx->err. */
int docker_containers(struct docker *d, json_t **ret_array) WARN_UNUSED;
int docker_find(struct docker *d, const char *text, json_t **ret_sandbox) WARN_UNUSED;
bool docker_is_up(struct docker *d, const json_t *sandbox); /* its own command runs */
bool docker_has_image(struct docker *d, const char *image);
bool docker_is_remote(const char *text); /* NAME:PATH */

/*
 * Of the container's own command, as the record has it: prints the output, says how it ended (-1: not yet). -1:
 * ctx->err.
 */
int docker_record(struct docker *d, const json_t *sandbox, bool prints, int *ret_status) WARN_UNUSED;

/* By --format. An exit code. */
int docker_print(struct docker *d, const json_t *object);

const char *docker_label(const json_t *sandbox, const char *name);         /* "": there is none */
int docker_pull_image(struct docker *d, const char *image, bool is_quiet); /* an exit code */
