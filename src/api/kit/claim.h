/* SPDX-License-Identifier: Apache-2.0 */
/* Which façade a request is for: the first claim that fits and takes it. */
#pragma once

#include "http/request.h"

struct claim {
    const char *prefix;                           /* of the path; NULL: any */
    const char *header;                           /* that the request has; NULL: any */
    bool (*fits)(const struct http_request *req); /* by Host, or by more than one header; NULL: always */
    /* False, with nothing done: it was not for this façade after all. */
    bool (*serve)(void *facade, struct http_request *req);
    void *facade;
};

/* False: nobody took it, and nothing is answered. */
bool claims_serve(const struct claim *claims, size_t n, struct http_request *req);
