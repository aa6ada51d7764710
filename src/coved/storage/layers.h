/* SPDX-License-Identifier: Apache-2.0 */
/* The layers of the storage pool: how they are stacked, and who uses them. */
#pragma once

#include "base/err.h"
#include "coved/boxes/boxes.h"

struct pool_layers;

struct pool_layers *layers_new(struct pool *pool, struct boxes *boxes); /* all borrowed */
void layers_free(struct pool_layers *l);

int layers_each(struct pool_layers *l, void (*fn)(void *ctx, const struct sup_layer *layer), void *ctx,
                struct err *err) WARN_UNUSED;

/*
 * ERR_FAILED_PRECONDITION while another layer or a sandbox uses it directly; spare boxes that use it are ended.
 * ERR_NOT_FOUND.
 */
int layers_drop(struct pool_layers *l, const char *name, struct err *err) WARN_UNUSED;
