/* SPDX-License-Identifier: Apache-2.0 */
/* What people type who know docker, and what the same is called here. */
#pragma once

#include "cli/command.h"

/* What to type instead of this command, which there isn't; NULL: nothing comes to mind. */
const char *habit_of_command(const char *name);

/* Is `word` a slip for this name? A letter more, less, another or swapped with the next one; two of these in words of
 * six and more. */
bool habit_is_slip(struct str word, const char *name);

/* The same of an option as it was written ("--name=x", "-d"). */
const char *habit_of_option(const struct command *command, const char *option);
