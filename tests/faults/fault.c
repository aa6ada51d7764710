/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"

#ifdef COVE_FAULTS

#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { NAME_BYTES = 128 };

static int directory = -1;
static char *environment;

void fault_open(void)
{
    const char *path = getenv("COVE_FAULTS");
    if (!path || !*path || directory >= 0)
        return;
    directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    environment = mem_printf("COVE_FAULTS=%s", path);
}

char *fault_environment(void)
{
    return environment;
}

static bool taken(const char *name, const char *what)
{
    char file[NAME_BYTES];
    (void)snprintf(file, sizeof(file), "%s%s", name, what);
    return directory >= 0 && unlinkat(directory, file, 0) == 0;
}

void fault_point(const char *name)
{
    if (!taken(name, ""))
        return;
    (void)raise(SIGKILL); /* by tgkill(), which every filter on system calls allows */
    _exit(128 + SIGKILL); /* the first process of a namespace can't be killed from inside */
}

int fault_error(const char *name)
{
    fault_point(name);
    return taken(name, ".fail") ? -EIO : taken(name, ".full") ? -ENOSPC : 0;
}

#endif
