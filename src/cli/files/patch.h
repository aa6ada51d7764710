/* SPDX-License-Identifier: Apache-2.0 */
/* The difference between two contents of one path, as git writes it and `git apply` reads it. */
#pragma once

#include "base/buf.h"

/* A regular file or a symbolic link, whose content is what it points to. */
struct patch_side {
    bool exists, is_link, is_executable;
    struct str content;
};

/*
 * Appends the patch of `path`, which any bytes but NUL may be in; nothing when git would see no difference. Text
 * becomes hunks with three lines around each change, what holds a NUL in its first 8,000 bytes a binary patch. A file
 * that became a link, or the other way, is deleted and made. Errors stick to the buf.
 */
void patch_append(struct buf *b, struct str path, const struct patch_side *old, const struct patch_side *new);
