/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

struct tier_host;
struct tier_nest;

int container_nest(const struct tier_host *host, const struct tier_nest *nest); /* tier.nest; in a job */
