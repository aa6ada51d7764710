/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of a request by which servers take it for another one: for another method, another path, or that of another
 * host. One table for HTTP/1 and HTTP/2, for heads and trailers.
 *
 * Names are compared as CGI (RFC 3875, section 4.1.18), WSGI, PHP and lighttpd make them: letters have no case, and all
 * that is neither letter nor digit is one and the same character. To such a server "X_HTTP_Method.Override" is
 * X-HTTP-Method-Override.
 */
#pragma once

#include "base/str.h"

enum override_kind {
    OVERRIDE_NONE,
    OVERRIDE_METHOD, /* its value is the request's method to some: both must be allowed */
    OVERRIDE_PATH,   /* the same, of a path */
    OVERRIDE_ORIGIN, /* what proxies say of a request that came to them; no client needs it, and its value alone is no request that could be judged */
};

enum override_kind override_of(struct str name);
