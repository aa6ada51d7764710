/* SPDX-License-Identifier: Apache-2.0 */
/* Completion scripts for shells, made from the tables of commands and flags. */
#pragma once

#include "base/buf.h"
#include "cli/command.h"

/* shell: "bash", "zsh", "fish"; -EINVAL for another. */
int completion_write(const char *shell, const struct command *const *commands, struct buf *b) WARN_UNUSED;
