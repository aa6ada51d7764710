/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names for hosts that go together: "@npm" as the target of a rule stands for all of them, at the ports they are used
 * with unless the rule names others. A policy keeps the hosts, not the name: what it allows does not change when this
 * list does.
 */
#pragma once

#include "base/str.h"

struct preset {
    const char *name, *about;
    const char *hosts[12];         /* NULL behind the last */
    const unsigned short ports[2]; /* 0: there is no such */
};
extern const struct preset presets[];
extern const size_t presets_n;

/* "@npm"; NULL: there is none. */
const struct preset *preset_find(struct str name);
