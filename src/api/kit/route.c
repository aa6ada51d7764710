/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/route.h"

static bool route_matches(const char *pattern, struct str path, struct str *ret_args)
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

static const struct route *route_of_method(const struct route *routes, size_t n, enum http_method method,
                                           struct str path, struct str args[static ROUTE_ARGS_MAX])
{
    for (size_t i = 0; i < n; i++)
        if (routes[i].method == method && route_matches(routes[i].pattern, path, args))
            return &routes[i];
    return NULL;
}

enum route_result route_find(const struct route *routes, size_t n, enum http_method method, struct str path,
                             const struct route **ret_route, struct str ret_args[static ROUTE_ARGS_MAX],
                             char ret_allow[ROUTE_ALLOW_MAX])
{
    static const struct {
        enum http_method method;
        const char *name;
    } methods[] = {{HTTP_METHOD_GET, "GET"}, {HTTP_METHOD_HEAD, "HEAD"},   {HTTP_METHOD_POST, "POST"},
                   {HTTP_METHOD_PUT, "PUT"}, {HTTP_METHOD_PATCH, "PATCH"}, {HTTP_METHOD_DELETE, "DELETE"}};
    struct str args[ROUTE_ARGS_MAX] = {0};
    const struct route *route;
    size_t used = 0;
    if (!path.p)
        return ROUTE_UNKNOWN;
    route = route_of_method(routes, n, method, path, args);
    if (!route && method == HTTP_METHOD_HEAD)
        route = route_of_method(routes, n, HTTP_METHOD_GET, path, args);
    if (route) {
        *ret_route = route;
        memcpy(ret_args, args, sizeof(args));
        return ROUTE_FOUND;
    }
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        bool has = route_of_method(routes, n, methods[i].method, path, args) ||
                   (methods[i].method == HTTP_METHOD_HEAD && route_of_method(routes, n, HTTP_METHOD_GET, path, args));
        if (has && ret_allow)
            (void)snprintf(ret_allow + used, ROUTE_ALLOW_MAX - used, "%s%s", used ? ", " : "", methods[i].name);
        used += has ? strlen(methods[i].name) + (used ? 2 : 0) : 0;
    }
    return used ? ROUTE_WRONG_METHOD : ROUTE_UNKNOWN;
}
