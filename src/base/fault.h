/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Points at which a test has a process of ours die, as by `kill -9` or a power cut at just that moment. Only in builds with -Dfaults=true; in all others a
 * point is nothing.
 *
 * A test names a directory in COVE_FAULTS (anybody may write in it) and puts an empty file there that is called as the point: whichever process comes by
 * next removes it and is gone. A file "<point>.fail" has the next call there fail with EIO instead, "<point>.full" with ENOSPC.
 */
#pragma once

#include "base/def.h"

#ifdef COVE_FAULTS

void fault_open(void); /* first thing of a program, before it loses sight of the directory */
void fault_point(const char *name);
int fault_error(const char *name); /* the same, and 0 or -errno */
char *fault_environment(void);     /* "COVE_FAULTS=..." for a child's environment, or NULL */

#else

static inline void fault_open(void)
{
}

static inline void fault_point(const char *name UNUSED)
{
}

static inline int fault_error(const char *name UNUSED)
{
    return 0;
}

static inline char *fault_environment(void)
{
    return NULL;
}

#endif
