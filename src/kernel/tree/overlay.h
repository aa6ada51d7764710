/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root file system of a sandbox: an overlay of read-only layers and one private upper directory, whose ownership on
 * disk is unshifted and which is seen through the sandbox's user namespace (idmapped layers, Linux 5.19).
 */
#pragma once

#include "base/def.h"

enum overlay_mode {
    OVERLAY_DETACHED, /* layers stay detached mounts (Linux 6.15); nothing is attached to our mount namespace */
    OVERLAY_ATTACHED, /* layers are attached for the time of the call below `scratch`, in our mount namespace, which must be private */
};

struct overlay {
    enum overlay_mode mode;
    const int *lower_fds; /* directories of the layers, topmost first; O_PATH descriptors in our mount namespace */
    size_t n_lower;
    int box_fd;          /* directory that holds u/ (upper) and w/ (work): one mount, as overlayfs asks */
    int userns_fd;       /* of the sandbox */
    uid_t base;          /* host id of its root */
    const char *scratch; /* OVERLAY_ATTACHED: a directory for mount points, one call's at a time */
    bool is_alone;       /* -EBUSY while another overlay, or its last process, has the upper directory */
};

enum { OVERLAY_LAYERS_MAX = 32 };

/* Mounts of the layers and of the box, of which the overlay has copies of. */
struct overlay_parts {
    int fds[OVERLAY_LAYERS_MAX + 1]; /* owned */
    size_t n;
};

/*
 * A detached overlay mount, nodev. On failure *ret_step, unless NULL, is what could not be done. Changes the working
 * directory and the calling thread's fsuid, fsgid and effective capabilities for its duration: overlayfs keeps the
 * credentials of its mounter, and these must own the upper directory as the sandbox's root sees it. Each detached mount
 * whose last descriptor is closed waits for all processors.
 * ret_parts, unless NULL, gets them (none of OVERLAY_ATTACHED) for whoever can attach them to what goes away anyway.
 */
int overlay_mount(const struct overlay *o, int *ret_fd, struct overlay_parts *ret_parts,
                  const char **ret_step) WARN_UNUSED;
void overlay_parts_close(struct overlay_parts *p);
