/* SPDX-License-Identifier: Apache-2.0 */
/* The body of a create request as what the core wants to know. */
#pragma once

#include "api/e2b/control/network_body.h"
#include "api/kit/json_read.h"
#include "sandbox/sandbox.h"

enum create_version {
    CREATE_V1,           /* 15 s unless told, a token unless "secure" is false */
    CREATE_V1_TOKENLESS, /* the same of a client that knows no tokens: one when "secure" is true */
    CREATE_V2,           /* 300 s unless told, always a token */
};

/*
 * ERR_INVALID_ARGUMENT for what is wrong, ERR_UNIMPLEMENTED for what would need something that Cove does not have yet:
 * nothing that a client asks for is silently left out. The spec points into body, arena and *ret_network, which the
 * caller ends with network_body_fini().
 */
int create_spec_read(const json_t *body, enum create_version version, uint64_t max_timeout_ms, struct arena *arena,
                     struct sandbox_spec *ret_spec, struct network_body *ret_network, struct err *err) WARN_UNUSED;

/* "[namespace/]name[:tag]", trimmed and lower-cased; the tag "default" is dropped. ERR_INVALID_ARGUMENT. */
int template_ref_read(struct str given, struct arena *arena, struct str *ret_ref, struct err *err) WARN_UNUSED;
