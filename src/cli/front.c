/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cove, as it is called: a static program that executes the one that does the work, which stands beside it. Loading the
 * libraries of the service's command line takes longer than all that `cove here` does.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    const int is_here = argc > 1 && strcmp(argv[1], "here") == 0;
    const char *name = is_here ? "cove-here" : "cove-cli";
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
    char *slash = n > 0 ? memrchr(path, '/', (size_t)n) : NULL;
    if (slash && (size_t)(slash - path) + 1 + strlen(name) < sizeof(path)) {
        memcpy(slash + 1, name, strlen(name) + 1);
        (void)execv(path, argv + is_here);
    } else {
        errno = ENOENT;
    }
    (void)dprintf(STDERR_FILENO, "cove: %s: %s\n", name, strerror(errno));
    return 125;
}
