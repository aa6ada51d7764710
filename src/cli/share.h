/* SPDX-License-Identifier: Apache-2.0 */
/* Directories that come with the program. */
#pragma once

#include "base/arena.h"

/*
 * Where `what` ("templates") is: what the variable says, or beside the source tree's build directory, or in share/cove
 * beside bin. That it is there is not checked.
 */
char *share_find(struct arena *a, const char *variable, const char *what);
