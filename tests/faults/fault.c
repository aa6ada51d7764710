/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The switch of base/fault.h, in place of base/fault.c. A test names a directory in COVE_FAULTS (every uid of ours must
 * be able to write in it) and puts an empty file there with the name of a point: the next process that comes to this
 * point removes the file and dies. A file "<point>.fail" makes the next call there fail with EIO instead,
 * "<point>.full" with ENOSPC.
 */
#include "base/fault.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { FAULT_NAME_BYTES = 128 };

static int fault_directory = -1;
static char *fault_variable;

void fault_open(void)
{
    const char *path = getenv("COVE_FAULTS");
    if (!path || !*path || fault_directory >= 0)
        return;
    fault_directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    fault_variable = mem_printf("COVE_FAULTS=%s", path);
}

char *fault_environment(void)
{
    return fault_variable;
}

static bool fault_taken(const char *name, const char *what)
{
    char file[FAULT_NAME_BYTES];
    (void)snprintf(file, sizeof(file), "%s%s", name, what);
    return fault_directory >= 0 && unlinkat(fault_directory, file, 0) == 0;
}

void fault_point(const char *name)
{
    if (!fault_taken(name, ""))
        return;
    (void)raise(SIGKILL); /* by tgkill(), which every filter on system calls allows */
    _exit(128 + SIGKILL); /* the first process of a namespace can't be killed from inside */
}

int fault_error(const char *name)
{
    fault_point(name);
    return fault_taken(name, ".fail") ? -EIO : fault_taken(name, ".full") ? -ENOSPC : 0;
}
