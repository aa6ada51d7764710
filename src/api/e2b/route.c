/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/route.h"

static bool matches(const char *pattern, struct str path, struct str *ret_args)
{
    const char *p = path.p, *end = path.p + path.n;
    size_t args = 0;

    while (*pattern) {
        if (pattern[0] == '{' && pattern[1] == '}') {
            const char *from = p;

            while (p < end && *p != '/')
                p++;
            if (p == from || args == ROUTE_ARGS_MAX)
                return false;
            ret_args[args++] = str_n(from, (size_t)(p - from));
            pattern += 2;
        } else {
            if (p == end || *p != *pattern)
                return false;
            p++;
            pattern++;
        }
    }
    return p == end;
}

enum route_result route_find(const struct route *routes, size_t n, enum http_method method, struct str path,
                             const struct route **ret_route, struct str ret_args[static ROUTE_ARGS_MAX])
{
    enum route_result result = ROUTE_UNKNOWN;
    struct str args[ROUTE_ARGS_MAX] = {0};

    if (method == HTTP_METHOD_HEAD)
        method = HTTP_METHOD_GET;
    for (size_t i = 0; path.p && i < n; i++) {
        if (!matches(routes[i].pattern, path, args))
            continue;
        if (routes[i].method == method) {
            *ret_route = &routes[i];
            for (size_t k = 0; k < ROUTE_ARGS_MAX; k++)
                ret_args[k] = args[k];
            return ROUTE_FOUND;
        }
        result = ROUTE_WRONG_METHOD;
    }
    return result;
}
