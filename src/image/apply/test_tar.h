/* SPDX-License-Identifier: Apache-2.0 */
/* Tars for tests, entry by entry. */
#pragma once

#include "base/buf.h"

/* type: '0' file, '1' hard link, '2' link, '3' device, '5' directory, '6' pipe, or an extended header's. data: NULL for
 * none. */
void test_tar_add(struct buf *tar, char type, const char *name, const char *link, const char *data, unsigned mode);
void test_tar_end(struct buf *tar);
