/* SPDX-License-Identifier: Apache-2.0 */
/* What machines are made with that is the host's: a kernel, its modules and our agent as an initramfs, the programs. */
#pragma once

#include "base/clock.h"
#include "base/err.h"

struct guest_host {
    bool emulated;
    uint32_t tsc_khz;
    uint64_t id;                     /* another one for another kernel, other modules or another agent */
    int usr, kernel, kvm, initramfs; /* owned, or -1: mounts that are attached nowhere yet, and a file in memory */
    int tun;                         /* owned, or -1: /dev/net/tun, by O_PATH */
};

/*
 * dir: with `vmlinux` and `modules`. KVM counts only when a kernel speaks in it; without, may_emulate says whether
 * emulation will do. agent_fd -1: only looks. Waits for KVM a few seconds.
 */
int guest_host_open(const char *dir, bool may_emulate, int agent_fd, struct guest_host *ret_host,
                    struct err *err) WARN_UNUSED;
int guest_host_stage(struct guest_host *h) WARN_UNUSED; /* in the stage: shows it there, see tier/vm/body.h */

/* Starts a kernel without anything and waits until it speaks. */
int guest_host_try(const char *dir, bool kvm, usec_t *ret_took, struct err *err) WARN_UNUSED;
