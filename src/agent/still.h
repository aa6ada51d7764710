/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All programs of a machine, but not its agent, stand still. They are in a control group of their own, or in one that a
 * program made below the root: each of these is frozen. What root there does to these groups is root's affair.
 */
#pragma once

#include "base/def.h"

void still_set(bool frozen);
