/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of routes. A pattern is a path whose segments may be "{}", which match any one segment that is not empty. */
#pragma once

#include "base/def.h"
#include "base/str.h"
#include "http/message.h"

struct call;

enum { ROUTE_ARGS_MAX = 2 };

struct route {
    enum http_method method;
    const char *pattern;
    void (*handler)(struct call *c);
    const char *what; /* for handlers that serve several routes */
};

enum route_result { ROUTE_UNKNOWN, ROUTE_WRONG_METHOD, ROUTE_FOUND };

/* path is raw, and so are the arguments: decode them one by one. HEAD finds GET. */
enum route_result route_find(const struct route *routes, size_t n, enum http_method method, struct str path,
                             const struct route **ret_route, struct str ret_args[static ROUTE_ARGS_MAX]);
