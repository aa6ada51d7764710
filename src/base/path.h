/* SPDX-License-Identifier: Apache-2.0 */
/* Paths as text. Nothing here touches a file system. */
#pragma once

#include "base/str.h"

enum { PATH_TEXT_MAX = 4096 }; /* with the NUL, as the kernel counts */

/*
 * Lexically cleans an absolute or relative path into ret_path: doubled slashes, "." and ".." go ("/.." is "/"), no
 * trailing slash. -EINVAL for a NUL byte or an empty path, -ENAMETOOLONG when it does not fit. Symlinks are not looked
 * at.
 */
int path_clean(struct str path, char ret_path[static PATH_TEXT_MAX]) WARN_UNUSED;

/* base/rest cleaned; an absolute `rest` replaces base. */
int path_join(struct str base, struct str rest, char ret_path[static PATH_TEXT_MAX]) WARN_UNUSED;

bool path_is_below(struct str path, struct str directory); /* or it; both clean and absolute */
struct str path_base(struct str path);                     /* last component; "/" for the root */
struct str path_dir(struct str path);                      /* all before it; "/" or "." when there is none */
