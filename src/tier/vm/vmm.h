/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A virtual machine monitor, as far as another one would differ: its program, and its command line. It is executed in a
 * jail (tier/vm/jail.h) where it finds what struct vmm_spec names, and ends when its machine does.
 */
#pragma once

#include "base/clock.h"

enum { VMM_LAYERS_MAX = 18, VMM_ARGUMENTS_MAX = 128, VMM_TEXT_MAX = 8192, VMM_WHY_MAX = 128, VMM_LINE_MAX = 16384 };

/* Of the jail. */
#define VMM_KERNEL "/kernel"
#define VMM_INITRAMFS "/initramfs"
#define VMM_MEMORY "/memory" /* isn't there: lent (tier/vm/lend.h) */
#define VMM_DEVICES "/dev/fdset/1"
#define VMM_OWN "/own" /* the disk that is the machine's own; layers, topmost first: /l00, /l01 ... */

struct vmm_spec {
    uint64_t memory_bytes;
    uint32_t cpus, n_layers;
    uint32_t
        tsc_khz; /* of the processor's time stamps: emulated, a machine finds no reference for them. 0: not known */
    bool emulated;
    int wire_fd, console_fd; /* sockets: the stream of the port "cove"; what the kernel says */
    int net_fd;              /* a tap (kernel/netns.h); -1: no network */
    int monitor_fd;          /* a socket, for orders */
    int devices_fd;          /* O_WRONLY: where VMM_SAVE puts the state of devices */
    int incoming_fd;         /* such a state, and the machine goes on from it once it is told to; -1: it begins */
};

/* Orders to a running monitor. */
enum vmm_order {
    VMM_HALT,  /* the machine stands still, and nothing of it is under way */
    VMM_SAVE,  /* devices without memory, into devices_fd at its offset; halted */
    VMM_RUN,   /* it goes on */
    VMM_AWAIT, /* until what came from incoming_fd is there */
    VMM_TAKE,  /* it has `given` open, until VMM_DROP */
    VMM_DROP,
};

struct vmm_monitor {
    int fd, given;
    char version[16]; /* "7.2": states are good for monitors of the same one; "": it has not spoken yet */
    char in[VMM_LINE_MAX];
    size_t n_in;
};

struct vmm_command {
    char *argv[VMM_ARGUMENTS_MAX]; /* in `text` */
    size_t n;
    char text[VMM_TEXT_MAX];
    size_t used;
};
struct vmm {
    const char *name, *program; /* absolute, below /usr */
    const char *package;        /* that has it */
    void (*command)(const struct vmm_spec *spec, struct vmm_command *ret_command);
    /* Waits for the answer. -EREMOTEIO: refused, -EPROTO: it speaks no sense, -ETIMEDOUT, another -errno; the reason is
     * in ret_why. */
    int (*ask)(struct vmm_monitor *m, enum vmm_order order, usec_t until, char ret_why[static VMM_WHY_MAX]);
};

extern const struct vmm vmm_qemu;
