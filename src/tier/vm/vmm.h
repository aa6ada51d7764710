/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A virtual machine monitor, as far as another one would differ: its program, and its command line. It is executed in a jail (tier/vm/jail.h) where it finds
 * what struct vmm_spec names, and ends when its machine does.
 */
#pragma once

#include "base/def.h"

enum { VMM_LAYERS_MAX = 18, VMM_ARGUMENTS_MAX = 128, VMM_TEXT_MAX = 8192 };

/* Of the jail. */
#define VMM_KERNEL "/kernel"
#define VMM_INITRAMFS "/initramfs"
#define VMM_OWN "/own" /* the disk that is the machine's own; layers, topmost first: /l00, /l01 ... */

struct vmm_spec {
    uint64_t memory_bytes;
    uint32_t cpus, n_layers;
    uint32_t
        tsc_khz; /* of the processor's time stamps: emulated, a machine finds no reference for them. 0: not known */
    bool emulated;
    int wire_fd, console_fd; /* sockets: the stream of the port "cove"; what the kernel says */
    int net_fd;              /* a tap (kernel/netns.h); -1: no network */
};

struct vmm_command {
    char *argv[VMM_ARGUMENTS_MAX]; /* in `text` */
    size_t n;
    char text[VMM_TEXT_MAX];
    size_t used;
};
/* The next argument. */
void vmm_add(struct vmm_command *c, const char *fmt, ...) PRINTF_LIKE(2, 3);

struct vmm {
    const char *name, *program; /* absolute, below /usr */
    const char *package;        /* that has it */
    void (*command)(const struct vmm_spec *spec, struct vmm_command *ret_command);
};

extern const struct vmm vmm_qemu;
