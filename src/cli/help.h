/* SPDX-License-Identifier: Apache-2.0 */
/* Help texts, made from the tables of commands and flags. */
#pragma once

#include "cli/command.h"

void help_command(const struct command *command, FILE *out);
void help_exit_codes(FILE *out); /* of all commands, in one table */
void help_overview(const struct command *const *commands, FILE *out);
