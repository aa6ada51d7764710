/* SPDX-License-Identifier: Apache-2.0 */
/* What a client says of its credential vault: credentials and bindings, checked. Private to src/api/opensandbox. */
#pragma once

#include "api/opensandbox/handlers.h"

#define VAULT_STORE_HOST "credential-vault.invalid" /* where values stand that no binding uses: no host of anybody */
enum { VAULT_NAME_MAX = 63, VAULT_VALUE_MAX = 8192, VAULT_PLACEHOLDER_MAX = 512 };

/* ret_value, made with 2 * VAULT_VALUE_MAX: the value as a policy has it, so that nothing in it is a reference to a
 * secret. */
int vault_read_value(const json_t *one, struct str *ret_name, struct buf *ret_value, struct err *err) WARN_UNUSED;

/* values: an object with the names of all credentials. A binding has no member that is not known, so that no value can
 * hide in it. */
int vault_check_binding(const json_t *values, const json_t *policy, const json_t *one, struct str *ret_name,
                        struct err *err) WARN_UNUSED;

/* What is kept of a checked one: with what its "match" leaves out. Ports that are the schemes' own go without
 * saying. */
json_t *vault_row(const json_t *binding, int64_t revision);

const char *vault_used(const json_t *binding, size_t i); /* the names of its credentials; NULL: no more */
bool vault_collide(const json_t *a, const json_t *b);    /* two bindings may match the same request */
