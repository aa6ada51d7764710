/* SPDX-License-Identifier: Apache-2.0 */
/* Ignored signals and the mask survive exec: whoever began us may have left any, and no program in a sandbox shall notice. */
#pragma once

#include <signal.h>

/* None is ignored any more. Handlers stay: they end with exec. Async-signal-safe. */
void signals_unignore(void);
