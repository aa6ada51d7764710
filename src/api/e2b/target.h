/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which port of which sandbox a request is for.
 *
 * A Host whose first label is "<port>-<id>" says it. Else the headers E2b-Sandbox-Id and E2b-Sandbox-Port do; they come
 * first when Host can't say it: localhost, an address, or "sandbox.<domain>". A request with neither is for the control
 * plane, and so is one for "api.<domain>", whatever its headers.
 *
 * In place of the id there may be the sandbox's port alias, which leads to what listens on its ports and to nothing
 * else.
 */
#pragma once

struct http_request;

#include "base/str.h"

enum target_kind {
    TARGET_CONTROL,
    TARGET_SANDBOX,
    TARGET_BAD, /* meant for a sandbox, and malformed: *ret_target has the problem */
};

struct e2b_target {
    struct str id; /* [a-z0-9]+, borrowed */
    uint16_t port;
    bool is_by_header; /* the Host did not say it */
    const char *problem;
};

/* p of a header that is absent is NULL. */
enum target_kind target_parse(struct str host, struct str id_header, struct str port_header,
                              struct e2b_target *ret_target);
enum target_kind target_of(const struct http_request *req, struct e2b_target *ret_target);
