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
#pragma weak code_leave
#pragma weak code_make_cancel
#pragma weak charge_release
#pragma weak charge_queue
#pragma weak holder_init
#pragma weak holder_fini
#pragma weak holder_waits

/* Nothing here comes to it. */
#define UNREACHED(function)                                                                                            \
    __attribute__((weak)) function                                                                                     \
    {                                                                                                                  \
        abort();                                                                                                       \
    }
UNREACHED(void sandbox_watch_end(struct sandbox *sb UNUSED, struct sandbox_watch *w UNUSED))
UNREACHED(void sandbox_unwatch(struct sandbox_watch *w UNUSED))
UNREACHED(void exec_call_cancel(struct exec_call *call UNUSED))
UNREACHED(void file_call_cancel(struct file_call *call UNUSED))
UNREACHED(int charge_memory(struct charge *charge UNUSED, size_t bytes UNUSED, struct err *err UNUSED))
UNREACHED(void exec_close(struct follow *f UNUSED))
UNREACHED(void exec_ack(struct follow *f UNUSED, size_t bytes UNUSED))
UNREACHED(void file_read_ack(struct file_call *call UNUSED, size_t bytes UNUSED))
UNREACHED(void code_drained(struct code_cell *cell UNUSED))
UNREACHED(int file_write(struct sandbox *sb UNUSED, const struct actor *actor UNUSED, struct str user UNUSED,
                         struct str path UNUSED, const struct pair *metadata UNUSED, size_t n_metadata UNUSED,
                         const struct file_write_ops *write_ops UNUSED, void *ctx UNUSED,
                         struct file_call **ret_call UNUSED, struct err *err UNUSED))
UNREACHED(size_t file_write_data(struct file_call *call UNUSED, struct str bytes UNUSED))
UNREACHED(void file_write_eof(struct file_call *call UNUSED))

struct sandbox *sandbox_ref(struct sandbox *sb)
{
    return sb;
}

void sandbox_unref(struct sandbox *sb UNUSED)
{
}

void code_leave(struct code_cell *cell)
{
    assert(!cell);
}

void code_make_cancel(struct code_making *making)
{
    assert(!making);
}

void charge_release(struct charge *charge)
{
    assert(!charge->core);
}

bool charge_queue(void *charge UNUSED, size_t before UNUSED, size_t now UNUSED)
{
    return true;
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
