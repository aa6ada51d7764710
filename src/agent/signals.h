/* SPDX-License-Identifier: Apache-2.0 */
/* Ignored signals survive exec: those that the process which started us ignored must not reach the programs of a sandbox. */
#pragma once

#include <signal.h>

/* None is ignored any more. Handlers stay: they end with exec. Async-signal-safe. */
void signals_unignore(void);
