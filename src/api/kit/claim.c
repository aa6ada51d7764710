/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/claim.h"

static bool claim_fits(const struct claim *c, const struct http_request *req)
{
    return (!c->prefix || str_starts(http_raw_path(req), str_of(c->prefix))) &&
           (!c->header || http_header_get(req, c->header).p) && (!c->fits || c->fits(req));
}

bool claims_serve(const struct claim *claims, size_t n, struct http_request *req)
{
    for (size_t i = 0; i < n; i++)
        if (claim_fits(&claims[i], req) && claims[i].serve(claims[i].facade, req))
            return true;
    return false;
}
