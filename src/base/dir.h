/* SPDX-License-Identifier: Apache-2.0 */
/* What a directory holds, but for "." and "..": AUTO(dir_close) DIR *dir = dir_open(at, "."); NULL: errno. */
#pragma once

#include "base/def.h"

#include <dirent.h>

DIR *dir_open(int at, const char *path);
DIR *dir_take(int fd); /* of this descriptor, which is taken; -1: the errno of who made it */

const struct dirent *dir_next(DIR *dir); /* NULL: that was all, or there is no directory */

void dir_close(DIR *dir);
DEFINE_AUTO(DIR *, dir_close)
