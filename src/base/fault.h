/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Points at which a test makes a process of ours die, as by `kill -9` or a power cut at just that moment, or has a call
 * fail. What is installed holds no switch for them: there they do nothing (fault.c). `tools/compile faults` links the
 * same objects with tests/faults/fault.c instead, which has the switch.
 */
#pragma once

#include "base/def.h"

void fault_open(void); /* first thing of a program, before it loses sight of the file system */
void fault_point(const char *name);
int fault_error(const char *name); /* a point that can also fail: 0, -EIO or -ENOSPC */
char *fault_environment(void);     /* "COVE_FAULTS=..." for a child's environment, or NULL */
