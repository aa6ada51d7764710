/* SPDX-License-Identifier: Apache-2.0 */
/* What doctor says of storage: the kind of pool that this machine has or would get, measured on a small one of its
 * own. */
#pragma once

#include "kernel/probe.h"

struct config;

struct doctor_storage {
    struct probe_result pool, limits;
};

void doctor_storage(const struct config *config, struct doctor_storage *ret_rows);
