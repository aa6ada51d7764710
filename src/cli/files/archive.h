/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directory trees as tar streams, for cp. Blocking; each is run in a process of its own, beside the one that talks to
 * the service.
 */
#pragma once

#include "base/err.h"

/* Writes what is below `dir` to fd: files, directories, symlinks, with modes and times, owned by nobody in particular.
 * Sockets, devices are left out. */
int archive_pack(const char *dir, int fd, struct err *err) WARN_UNUSED;

/*
 * Unpacks a stream that may be hostile below `dir`, which exists: nothing is written outside of it, not by "..",
 * absolute names, links; no devices, no set-id bits, owned by us, with no more permissions than the umask leaves.
 * Existing files are replaced, existing directories stay as they are, `dir` itself too unless is_new. Reads the stream
 * to its end.
 */
int archive_unpack(int fd, const char *dir, bool is_new, struct err *err) WARN_UNUSED;
