/* SPDX-License-Identifier: Apache-2.0 */
/* The service itself: sets up, runs until SIGTERM or SIGINT, takes everything down. */
#pragma once

#include "base/err.h"

struct config;

/* ready_fd: "ready\n" is written there once requests are answered; -1: nobody asked. */
int serve(const struct config *config, int ready_fd, struct err *err) WARN_UNUSED;
