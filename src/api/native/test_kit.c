/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kit needs of a core, for tests of handlers that stand in for it: nothing here holds a sandbox. All of it is
 * weak: a test that is linked with
 * the core gets that.
 */
#include "sandbox/code/code.h"
#include "sandbox/exec/exec.h"
#include "sandbox/files/files.h"
#include "sandbox/hold.h"
#include "sandbox/quota.h"

#include <stdlib.h>

#pragma weak sandbox_ref
#pragma weak sandbox_unref
#pragma weak sandbox_watch_end
#pragma weak sandbox_unwatch
#pragma weak exec_call_cancel
#pragma weak file_call_cancel
#pragma weak exec_close
#pragma weak exec_ack
#pragma weak file_read_ack
#pragma weak code_leave
#pragma weak code_drained
#pragma weak code_make_cancel
#pragma weak file_write
#pragma weak file_write_data
#pragma weak file_write_eof
#pragma weak charge_release
#pragma weak holder_init
#pragma weak holder_fini
#pragma weak holder_waits

struct sandbox *sandbox_ref(struct sandbox *sb)
{
    return sb;
}

void sandbox_unref(struct sandbox *sb UNUSED)
{
}

void sandbox_watch_end(struct sandbox *sb UNUSED, struct sandbox_watch *w UNUSED)
{
    abort();
}

void sandbox_unwatch(struct sandbox_watch *w UNUSED)
{
    abort();
}

void exec_call_cancel(struct exec_call *call UNUSED)
{
    abort();
}

void file_call_cancel(struct file_call *call UNUSED)
{
    abort();
}

void exec_close(struct follow *f UNUSED)
{
    abort();
}

void exec_ack(struct follow *f UNUSED, size_t bytes UNUSED)
{
    abort();
}

void file_read_ack(struct file_call *call UNUSED, size_t bytes UNUSED)
{
    abort();
}

void code_leave(struct code_cell *cell)
{
    assert(!cell);
}

void code_drained(struct code_cell *cell UNUSED)
{
    abort();
}

void code_make_cancel(struct code_making *making)
{
    assert(!making);
}

int file_write(struct sandbox *sb UNUSED, const struct actor *actor UNUSED, struct str user UNUSED,
               struct str path UNUSED, const struct pair *metadata UNUSED, size_t n_metadata UNUSED,
               const struct file_write_ops *write_ops UNUSED, void *ctx UNUSED, struct file_call **ret_call UNUSED,
               struct err *err UNUSED)
{
    abort();
}

size_t file_write_data(struct file_call *call UNUSED, struct str bytes UNUSED)
{
    abort();
}

void file_write_eof(struct file_call *call UNUSED)
{
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

void holder_fini(struct holder *h UNUSED)
{
}

bool holder_waits(struct holder *h UNUSED)
{
    return false;
}
