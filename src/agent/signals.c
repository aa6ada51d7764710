/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/signals.h"

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SIGNALS = 64 };

/* The C library refuses to touch the two that it keeps for itself (32 and 33), which can be ignored all the same: the kernel is asked. */
void signals_unignore(void)
{
    struct { /* as the kernel has it on x86-64 and arm64 */
        uintptr_t handler;
        unsigned long flags;
        uintptr_t restorer;
        uint64_t mask;
    } have, none = {.handler = (uintptr_t)SIG_DFL};
    for (int i = 1; i <= SIGNALS; i++)
        if (syscall(SYS_rt_sigaction, i, NULL, &have, sizeof(have.mask)) == 0 && have.handler == (uintptr_t)SIG_IGN)
            (void)syscall(SYS_rt_sigaction, i, &none, NULL, sizeof(none.mask));
}
