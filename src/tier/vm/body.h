/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of a microVM box: the process that coved has as its first one. It makes what the machine stands on, starts
 * the monitor in a jail, gives up all that it may, and then passes the wire on (tier/vm/relay.h). What it knows of a
 * machine comes from vm_order; of the host it has nothing but what the stage shows.
 */
#pragma once

#include "kernel/pool/pool.h"
#include "tier/tier.h"
#include "tier/vm/saved.h"
#include "tier/vm/vmm.h"

struct cgroup_door;
struct jail;

/* Where the stage shows what is the same for all machines. */
#define VM_STAGE "/machine"
#define VM_STAGE_USR VM_STAGE "/usr"
#define VM_STAGE_KERNEL VM_STAGE "/kernel"
#define VM_STAGE_INITRAMFS VM_STAGE "/initramfs"
#define VM_STAGE_KVM VM_STAGE "/kvm"

/* TIER_DRESS; with a descriptor: the directory (tier/vm/saved.h) of the machine that goes on in it. */
struct vm_order {
    char what;
    char name[TIER_NAME_MAX];
    char path[128]; /* of the box, in the pool */
    uint64_t memory_bytes, disk_bytes;
    uint64_t guest; /* of whose kernel, modules and agent: another one for others */
    uint32_t cpus, pids, tsc_khz;
    bool emulated, is_ahead;
    bool
        awaits; /* its monitor starts, and waits for another order, with memory: the disk is the topmost layer's of that one's chain */
    struct pool_chain chain;
};

/* Shared with coved: of what it asks and whether that is done. */
struct vm_state {
    uint32_t asked;   /* coved: so often it wanted what was written on the disk */
    uint32_t settled; /* the body: so often it is; as much as `asked` when it is done */
    uint32_t failed;  /* the body: the number of one that could not be done */
    uint32_t held;    /* coved: the control group was told to stand still */
};

/* Behind that, at VM_DEVICES_AT: the machine as it was when it was halted last, its devices' state at
 * VM_DEVICES_DATA. */
struct vm_devices {
    uint64_t bytes;
    struct saved_machine machine;
};
enum { VM_DEVICES_AT = 4096, VM_DEVICES_DATA = 8192 };

/* To the body, beside CONTROL_SESSION; one byte. */
enum {
    VM_SETTLE = 'F', /* it stands still, its files on its disk, its devices' state in vm_devices */
    VM_TAKE = 'T',   /* with a descriptor: its monitor has that until it goes on */
    VM_GO = 'G',     /* and goes on */
};

/* Never returns. tap_fd: the machine's network, or -1. uid: the first of two that are nobody else's, the monitor's and
 * our own. */
NORETURN void vm_body(int sock, int state_fd, int tap_fd, const struct cgroup_door *door, uid_t uid);

/*
 * Makes what of a machine's disks isn't there; its own begins as the one in `like`, or NULL; empty if the order awaits
 * another. Returns how many layers it has; -errno: what failed is in *ret_step.
 */
int vm_disks(const struct vm_order *order, const char *like, uid_t uid, struct jail *jail,
             const char **ret_step) WARN_UNUSED;
uint32_t vm_disks_layers(const struct vm_order *order);
bool vm_disks_are_new(const struct vm_order *order); /* nothing but its layers' images counts */
int vm_disk_copy(const char *from, const char *to) WARN_UNUSED;
/* The empty one becomes what the topmost layer's is, in place. -EXDEV: that is of another size. */
int vm_disk_fill(const struct vm_order *order) WARN_UNUSED;
