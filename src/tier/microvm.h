/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tier `microvm`: a virtual machine with a kernel of its own (tier/vm), in which cove-agent is the first process.
 * What it needs of the host is looked for once, by probe(), while the host's files can be seen: a monitor, KVM that
 * works (or leave to emulate), a kernel with its modules, the programs that make disks.
 */
#pragma once

#include "base/err.h"

/* Of the service's configuration, before the tiers are probed. guest: the directory with `vmlinux` and `modules`;
 * borrowed. */
void microvm_configure(const char *guest, bool may_emulate);
