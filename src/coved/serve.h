/* SPDX-License-Identifier: Apache-2.0 */
/* The service itself: sets up, runs until SIGTERM or SIGINT, takes everything down. */
#pragma once

#include "base/err.h"

struct config;

/* keeper_fd: the socket to the keeper (coved/workers/keeper.h). Returns the exit status for this process. */
int serve(const struct config *config, int keeper_fd, struct err *err) WARN_UNUSED;
