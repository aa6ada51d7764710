/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sparse file as a block device. The device is the kernel's from the moment it is configured: it goes away by itself
 * when nothing has it open or mounted any more (autoclear), so a process that dies leaves none behind.
 *
 * The lock on the file belongs to its open file description, which the device holds on to: whoever gets the lock knows
 * that the last device is gone.
 */
#pragma once

#include "base/def.h"

enum { LOOPFILE_NAME_MAX = 32 };

/* Opens and locks the file; it is made when `make` says so. -EWOULDBLOCK while another has it, after wait_ms. */
int loopfile_open(const char *path, bool make, uint32_t wait_ms, int *ret_fd) WARN_UNUSED;

/* *ret_device: open for reading and writing. ret_name: "/dev/loop0". -EOPNOTSUPP: no loop devices here. */
int loopfile_attach(int file_fd, int *ret_device, char ret_name[static LOOPFILE_NAME_MAX]) WARN_UNUSED;

int loopfile_name(int device_fd, char ret_name[static LOOPFILE_NAME_MAX]) WARN_UNUSED; /* of one that is attached */

int loopfile_size(int file_fd, uint64_t *ret_bytes, uint64_t *ret_allocated) WARN_UNUSED;

/* Grows the file and its device; writes no byte. The file system on it must be told separately. */
int loopfile_grow(int file_fd, int device_fd, uint64_t bytes) WARN_UNUSED;

/* The disk under the file gives it these bytes now, which are read as before. */
int loopfile_back(int file_fd, uint64_t at, uint64_t bytes) WARN_UNUSED;
