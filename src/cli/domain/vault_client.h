/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the vault of the service on this machine (wire/vault.h). */
#pragma once

#include "base/json.h"
#include "cli/command.h"
#include "wire/vault.h"

/*
 * *bytes keeps what *ret_answer borrows. -1: ctx->err and hint. The request's name is the tenant's own; what the
 * vault's names of that tenant begin with is *ret_prefix (NULL: nothing; mem_free()), and vault_own_name() takes it off
 * a name of the answer, or says that it is another tenant's.
 */
int vault_ask(struct context *ctx, const struct vault_request *request, struct buf *bytes,
              struct vault_answer *ret_answer, char **ret_prefix) WARN_UNUSED;
bool vault_own_name(const char *prefix, struct str *name);

/* Is there a secret of this name? 1, 0; -1: the vault can't be asked. ctx->err stays. */
int vault_has(struct context *ctx, const char *name) WARN_UNUSED;

/* Is there a secret for each key of the object? -1: ctx->err says which there is not. For those that the policy injects
 * a line on stderr does. A vault that can't be asked is taken to have them all. */
int vault_check_names(struct context *ctx, const json_t *names, const json_t *policy) WARN_UNUSED;
