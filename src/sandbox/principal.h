/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who asks. A principal acts in one tenant: what it makes belongs to that one, names mean that one's things, and what
 * belongs to another one does not exist for it. The only exception is the machine's owner at the local socket, who
 * reaches everything by id.
 */
#pragma once

#include "store/tenant_rows.h"

/* What a key may do. Each includes those above it; SCOPE_OPERATOR is what an administrator of the default tenant
 * has. */
enum scope { SCOPE_NONE, SCOPE_READ, SCOPE_USE, SCOPE_APPROVE, SCOPE_ADMIN, SCOPE_OPERATOR };

struct principal {
    uint64_t tenant;
    uint64_t view; /* whose things it can see: its tenant's, or TENANT_ANY */
    enum scope scope;
    const char *key;     /* its id; NULL: none, or the one from the key file */
    const char *name;    /* of the key; NULL: none */
    const char *sandbox; /* confined to this one; NULL: to none */
};

/* The machine's owner, and Cove itself where it looks for things of all tenants. */
#define PRINCIPAL_OWNER ((struct principal){.view = TENANT_ANY, .scope = SCOPE_OPERATOR})
