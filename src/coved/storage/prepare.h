/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The base template: a Debian file system made by mmdebstrap, stored once in the pool as a read-only layer under the
 * SHA-256 of the tar stream that it came as, and described in <state>/templates/base.conf. A layer is unpacked beside
 * its place and renamed into it when it is whole; base.conf is written last. Both make a half-built one impossible to
 * find.
 */
#pragma once

#include "base/err.h"

struct config;

/*
 * Nothing to do when the recipe is the one that base.conf was made with, and its layer is there. Shows progress on
 * stderr. from: NULL, or another state directory, whose pool is one of plain directories: its base template is copied
 * instead of built.
 */
int prepare_base_template(const struct config *config, bool force, const char *from, struct err *err) WARN_UNUSED;
