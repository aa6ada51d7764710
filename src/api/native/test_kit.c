/* SPDX-License-Identifier: Apache-2.0 */
/* What the kit needs of a core, for tests of handlers that stand in for it: nothing here holds a sandbox. */
#include "sandbox/exec/exec.h"
#include "sandbox/files/files.h"
#include "sandbox/hold.h"
#include "sandbox/quota.h"

#include <stdlib.h>

struct sandbox *sandbox_ref(struct sandbox *sb)
{
    return sb;
}

void sandbox_unref(struct sandbox *sb)
{
    (void)sb;
}

void sandbox_watch_end(struct sandbox *sb, struct sandbox_watch *w)
{
    (void)sb, (void)w;
    abort();
}

void sandbox_unwatch(struct sandbox_watch *w)
{
    (void)w;
    abort();
}

void exec_call_cancel(struct exec_call *call)
{
    (void)call;
    abort();
}

void file_call_cancel(struct file_call *call)
{
    (void)call;
    abort();
}

void charge_release(struct charge *charge)
{
    assert(!charge->core);
}

void holder_init(struct holder *h, void (*again)(struct holder *h))
{
    (void)h, (void)again;
}

void holder_fini(struct holder *h)
{
    (void)h;
}

bool holder_waits(struct holder *h)
{
    (void)h;
    return false;
}
