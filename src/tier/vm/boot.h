/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A boot is paid for once per layer and size: the first machine is saved as soon as its agent is there, before it is
 * anybody's, and later ones go on from that. In the pool, FILES_BOOTS/LAYER/KEY: a directory as in tier/vm/saved.h, and
 * the machine's disk. It goes with its layer, or when 8 other sizes of that were used since.
 */
#pragma once

#include "tier/vm/body.h"

enum { BOOT_PATH_MAX = 256 };

/* The directory that such a machine's would have. False: it is none of these. */
bool boot_path(const struct vm_order *o, const struct saved_machine *m, char ret_path[static BOOT_PATH_MAX]);

/*
 * A process with our rights that saves our machine, once, when it is sent a byte, and answers with one. -1: somebody
 * else does it, or it can't be done. The socket is owned; its end ends the process.
 */
int boot_saver(const struct vm_order *o, const char *path, int state_fd, uid_t uid);
