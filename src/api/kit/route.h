/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of routes. A pattern is a path whose segments may be "{}", which match any one segment that is not empty. */
#pragma once

#include "base/str.h"
#include "http/message.h"

struct call;

enum { ROUTE_ARGS_MAX = 2, ROUTE_ALLOW_MAX = 48 };

enum route_flags {
    ROUTE_BODY = 1,      /* has a JSON object as its body: c->body */
    ROUTE_BODY_MAY = 2,  /* the same; none counts as {} */
    ROUTE_SANDBOX = 4,   /* args[0] names a sandbox: c->sandbox */
    ROUTE_OPEN = 8,      /* wants no key: open to all, or the handler sees to it */
    ROUTE_ANY_TYPE = 16, /* its JSON need not say that it is: a token keeps pages out */
    /* What it needs (access.h), where that does not follow from the method. */
    ROUTE_READ = 32,
    ROUTE_USE = 64,
    ROUTE_ADMIN = 128,
    ROUTE_OPERATOR = 256,   /* is about the machine, or about all tenants */
    ROUTE_OF_SANDBOX = 512, /* args[0] names a sandbox, which the handler looks up itself: it may be gone */
    ROUTE_APPROVE = 2048,
    ROUTE_WIDE = 1024, /* reaches beyond the sandbox that it names: not for keys of one sandbox */
    ROUTE_LIST = 4096, /* has a JSON list as its body: c->body, NULL when what came is none (c->err) */
    ROUTE_OWN = 8192,  /* the first that means something to its façade alone */
};

typedef void route_handler(struct call *c);

struct route {
    enum http_method method;
    const char *pattern;
    route_handler *handler;
    unsigned flags;   /* enum route_flags */
    const char *what; /* for handlers that serve several routes */
};

enum route_result { ROUTE_UNKNOWN, ROUTE_WRONG_METHOD, ROUTE_FOUND };

/*
 * path is raw, and so are the arguments: decode them one by one. HEAD finds GET where there is no HEAD. *ret_allow: the
 * methods that the path has, for the header of that name; NULL: not asked for.
 */
enum route_result route_find(const struct route *routes, size_t n, enum http_method method, struct str path,
                             const struct route **ret_route, struct str ret_args[static ROUTE_ARGS_MAX],
                             char ret_allow[ROUTE_ALLOW_MAX]);
