/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine can enforce, measured (kernel/probe.h), as a table or as JSON on stdout. */
#pragma once

#include "base/err.h"

struct config;

/* 0: sandboxes can be made; 1: something that they need failed. */
int doctor(const struct config *config, bool json);
