/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How templates are built, and what sandboxes and builds may reach, as coved tells it in one argument: lines
 * `key=value`. Keys: concurrency, step-timeout-ms, timeout-ms, disk, disk-reserve (0: none), checkpoint
 * (guard/rules.h), alias (image=template), insecure; and, as the configuration has them, network.allow, network.deny,
 * builds.allow, builds.deny, mirrors.pip, mirrors.npm, mirrors.env (NAME=value). And what webhooks may reach beside
 * what is public: webhook (a target of struct policy).
 */
#pragma once

#include "base/arena.h"
#include "base/json.h"
#include "build/builder.h"
#include "config/config.h"

enum {
    BUILD_ALIASES_MAX = CONFIG_IMAGES_MAX,
    BUILD_INSECURE_MAX = CONFIG_IMAGES_MAX,
    BUILD_ENVS_MAX = CONFIG_RULES_MAX
};

/* Fills what the text says; lists and strings are in the arena, and both policies (`network`) the caller's to release.
 * *ret_policy: stays NULL without such a line. ERR_INVALID_ARGUMENT. */
int build_options_parse(struct str text, struct arena *arena, struct builder_config *config, struct core_config *core,
                        json_t **ret_policy, struct err *err) WARN_UNUSED;
