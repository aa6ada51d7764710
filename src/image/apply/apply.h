/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applies the layers of an image, tar streams from the bottom up, onto one directory: the result is what a container
 * would see, as plain files.
 *
 *  1. Nothing outside of the directory is ever read, made or changed: each path is walked by openat2() with the
 *     directory as its root, so that links in it, absolute ones and those through "..", lead back into it. Names with
 *     ".." are refused. It holds without a jail; the program has one on top.
 *  2. Whiteouts hide what layers below brought, never what their own layer brings, wherever in it they stand.
 *  3. Devices, sockets and extended attributes but user.* and security.capability are left out, with a warning;
 *     user.overlay.* too, which would be a hidden command to overlayfs.
 *  4. Bounded: bytes written, entries (made parents count), the length of names, memory.
 *
 * Codes of errors: ERR_INVALID_ARGUMENT (the layer is bad), ERR_OUT_OF_RANGE (a limit), ERR_RESOURCE_EXHAUSTED (disk or
 * quota full), else ours.
 */
#pragma once

#include "base/err.h"

struct apply;

struct apply_config {
    int root_fd;        /* O_RDONLY directory; borrowed */
    uint64_t max_bytes; /* of all files' contents and attributes */
    uint64_t max_entries;
    void (*warn)(void *ctx, const char *text);
    void *ctx;
};

struct apply *apply_new(const struct apply_config *config);
void apply_free(struct apply *a);
DEFINE_AUTO(struct apply *, apply_free)

/* More of the stream: *ret_p is valid until the next call. 0 at its end; -errno ends the layer with an error. */
typedef ssize_t (*apply_read_fn)(void *ctx, const void **ret_p);

int apply_layer(struct apply *a, apply_read_fn read, void *ctx, struct err *err) WARN_UNUSED;

uint64_t apply_bytes(const struct apply *a);   /* of files' contents and attributes, all layers */
uint64_t apply_entries(const struct apply *a); /* of all layers */
