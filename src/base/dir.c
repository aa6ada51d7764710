/* SPDX-License-Identifier: Apache-2.0 */
#include "base/dir.h"
#include "base/fd.h"

#include <fcntl.h>

DIR *dir_take(int fd)
{
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir)
        (void)fd_close(fd);
    return dir;
}

DIR *dir_open(int at, const char *path)
{
    return dir_take(openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

const struct dirent *dir_next(DIR *dir)
{
    const struct dirent *e = dir ? readdir(dir) : NULL;
    while (e && (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0))
        e = readdir(dir);
    return e;
}

void dir_close(DIR *dir)
{
    if (dir)
        (void)closedir(dir);
}
