/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `cove template add`: the recipes that come with Cove. A recipe is a directory of its own with a Dockerfile, a
 * README.md and a file `recipe`, lines "key: value": `version` (a number; what is built of it has the tag vN),
 * `summary`, and any number of `alias`, names that the template has as well.
 */
#pragma once

#include "cli/build/template_build.h"

/* In COVE_TEMPLATES, in the source tree that the program was built in, or where it was installed. An exit code. */
int template_add_run(struct context *ctx, const char *name, const struct template_build_options *options);
int template_add_list(struct context *ctx);
