/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Points at which a test makes a process of ours die, as by `kill -9` or a power cut at just that moment. Only in builds with -Dfaults=true; in all others the
 * points compile to nothing.
 *
 * A test names a directory in COVE_FAULTS (every uid of ours must be able to write in it) and puts an empty file there with the name of a point: the next
 * process that comes to this point removes the file and dies. A file "<point>.fail" makes the next call there fail with EIO instead, "<point>.full" with ENOSPC.
 */
#pragma once

#include "base/def.h"

#ifdef COVE_FAULTS

void fault_open(void); /* first thing of a program, before it loses sight of the directory */
void fault_point(const char *name);
int fault_error(const char *name); /* a point that can also fail: 0, -EIO or -ENOSPC */
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
