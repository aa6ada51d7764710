/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/share.h"

#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

char *share_find(struct arena *a, const char *variable, const char *what)
{
    const char *set = getenv(variable);
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (set && *set)
        return arena_printf(a, "%s", set);
    if (n < 0)
        return arena_printf(a, "/usr/local/share/cove/%s", what);
    self[n] = '\0';
    char *slash = strrchr(self, '/');
    *slash = '\0';
    /* build/cove, then PREFIX/bin/cove. */
    char *beside = arena_printf(a, "%s/../%s", self, what);
    return access(beside, R_OK) == 0 ? beside : arena_printf(a, "%s/../share/cove/%s", self, what);
}
