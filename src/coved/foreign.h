/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptors of somebody else's making. To close the last one of a socket can take as long as whoever made it likes
 * (SO_LINGER), and nothing tells before: in coved that must not happen. So a timer's signal cuts it short after 50 ms;
 * the file is gone all the same.
 *
 * Whatever may close some goes between foreign_begin() and foreign_end(), which do not nest: receiving messages,
 * closing a socket in which some may be left.
 */
#pragma once

#include "base/def.h"

void foreign_begin(void);
void foreign_end(void);
int foreign_close(int fd); /* fd_close() between the two */

/* How often it took too long and was cut short. */
unsigned foreign_cuts(void);

static inline UNUSED void foreign_close_auto_(int *fd)
{
    (void)foreign_close(*fd);
}
#define AUTO_FOREIGN __attribute__((cleanup(foreign_close_auto_)))
