/* SPDX-License-Identifier: Apache-2.0 */
/* The network members of a request as a policy, and back. */
#pragma once

#include "api/kit/json_read.h"
#include "base/buf.h"
#include "sandbox/network/network.h"

struct network_body {
    struct network_spec spec; /* policy and fields are owned; NULL when nothing asks for them */
    bool private_traffic;
};

/*
 * network: {allowOut, denyOut, rules, ...}, NULL for none. kept: the fields of the sandbox's earlier requests that this
 * one can't change (allowPublicTraffic, maskRequestHost), NULL when it is being made. The policy is not checked as
 * such: whoever makes something of it does. ERR_INVALID_ARGUMENT, or ERR_UNIMPLEMENTED for what Cove does not have.
 */
int network_body_read(const json_t *network, bool allow_internet, const json_t *kept, struct network_body *ret_body,
                      struct err *err) WARN_UNUSED;
void network_body_fini(struct network_body *body);

/* maskRequestHost with its ${PORT} put in; false when there is none. */
bool network_mask_host(const json_t *fields, uint16_t port, struct buf *to);
