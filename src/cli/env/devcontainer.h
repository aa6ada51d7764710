/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devcontainer.json of a commit (.devcontainer/devcontainer.json or .devcontainer.json), where there is no
 * .cove/env.yaml: which image or Dockerfile the template is made from, what is set up in the copy, variables, the user,
 * ports. What it asks for besides that is refused by name, never left out: features, mounts, arguments of docker,
 * commands on this machine.
 */
#pragma once

#include "base/json.h"
#include "cli/env/repo.h"
#include "cli/service.h"

#define DEVCONTAINER_PREFIX "devcontainer-" /* of the names of templates that are built so */

enum { DEVCONTAINER_MAX = 256 * 1024 };

/*
 * JSON with comments and commas behind the last. *ret_object: "image" or "build" {"dockerfile", "context", "args"},
 * "setup" [] in the order that these commands have, "env" {}, "ports" [], and "user" if there is one.
 * ${localWorkspaceFolder} and ${containerWorkspaceFolder} are `top`, with Basename its last name.
 * ERR_INVALID_ARGUMENT, ERR_UNIMPLEMENTED.
 */
int devcontainer_parse(struct str text, const char *top, json_t **ret_object, struct err *err) WARN_UNUSED;

/* Adds it to `spec`; *ret_setup as settings_read() has it. 0 as well when there is none. */
int devcontainer_read(struct repo *r, const char *commit, json_t *spec, json_t **ret_setup) WARN_UNUSED;

/* Builds the template of that name if it is of such a file and not there; what that writes goes to stderr. */
int devcontainer_prepare(struct repo *r, struct service *s, const char *commit, const char *template) WARN_UNUSED;
