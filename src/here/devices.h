/* SPDX-License-Identifier: Apache-2.0 */
/* A box's /dev: null, zero, full, random, urandom, tty, terminals of its own, and shared memory. */
#pragma once

#include "base/def.h"

enum { DEVICES_N = 6 };

/* Borrows the machine's nodes, as long as they can be seen. */
int devices_open(int nodes[static DEVICES_N]) WARN_UNUSED;

/* Mounts all of it on a directory; closes the nodes. */
int devices_mount(int nodes[static DEVICES_N], const char *where) WARN_UNUSED;

int devices_touch(int directory, const char *path, mode_t mode, const char *content) WARN_UNUSED; /* a new file */
