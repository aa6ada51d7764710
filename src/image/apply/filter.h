/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls of the two halves, as allow-lists; all else is refused with EPERM, foreign ABIs with ENOSYS. Neither
 * starts a process or a thread, executes a file, or makes memory executable. Both need no_new_privs or CAP_SYS_ADMIN.
 */
#pragma once

#include "base/def.h"

int filter_load_fetch(void) WARN_UNUSED;  /* descriptors that it has, sockets of the internet; it opens no file */
int filter_load_unpack(void) WARN_UNUSED; /* files; no socket but those it has */
