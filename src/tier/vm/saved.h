/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A machine that stood still, in a directory: `machine` says what it was, `devices` is its monitor's own, `memory` is
 * as tier/vm/ram.h has it. What is read back may have been made by any monitor, of any time: it counts only for a
 * machine that is the same.
 */
#pragma once

#include "base/def.h"

#define SAVED_MACHINE "machine"
#define SAVED_DEVICES "devices"
#define SAVED_MEMORY "memory"

enum { SAVED_DEVICES_MAX = 4 << 20 };

struct saved_machine {
    char magic[8];
    char version[16]; /* of the monitor */
    char cpu[48];     /* of the host; emulated: "" */
    uint64_t memory_bytes;
    uint32_t cpus, n_layers, emulated, has_net;
};

void saved_describe(struct saved_machine *m); /* magic, and the cpu where it matters */

/* `devices` and `machine`, not synced. -EFBIG: more than a machine has. */
int saved_write(int dir_fd, const struct saved_machine *m, int devices_fd, off_t at, size_t bytes) WARN_UNUSED;

struct saved {
    int memory_fd, devices_fd; /* owned; read-only */
    char version[16];
};
/* -ENODATA: it is not whole; -EXDEV: it was another machine. version isn't looked at: who restores compares it. */
int saved_open(int dir_fd, const struct saved_machine *wanted, struct saved *ret_saved) WARN_UNUSED;
