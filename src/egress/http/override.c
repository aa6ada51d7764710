/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/http/override.h"

enum { NAME_MAX_KNOWN = 32 };

/* Folded. One that ends in "-" is all names that begin so. */
static const struct {
    const char *name;
    enum override_kind kind;
} overrides[] = {
    /* Frameworks, for clients that can send GET and POST alone: Google, Microsoft (OData), IBM; Rack, Symfony, Express,
     * ASP.NET. */
    {"http-method-override", OVERRIDE_METHOD},
    {"method-override", OVERRIDE_METHOD},
    {"x-http-method", OVERRIDE_METHOD},
    {"x-http-method-override", OVERRIDE_METHOD},
    {"x-method-override", OVERRIDE_METHOD},
    /* Proxies that ask another server whether a request is allowed, and servers that go by what they were asked:
     * ingress-nginx, Envoy. */
    {"x-envoy-original-method", OVERRIDE_METHOD},
    {"x-original-method", OVERRIDE_METHOD},
    /* IIS's rewriting and what came after it (Symfony, Laminas), Azure's front ends (Nitro, SvelteKit), ingress-nginx,
     * Envoy, Next.js. */
    {"x-envoy-original-path", OVERRIDE_PATH},
    {"x-invoke-path", OVERRIDE_PATH},
    {"x-matched-path", OVERRIDE_PATH},
    {"x-ms-original-url", OVERRIDE_PATH},
    {"x-original-path", OVERRIDE_PATH},
    {"x-original-uri", OVERRIDE_PATH},
    {"x-original-url", OVERRIDE_PATH},
    {"x-request-uri", OVERRIDE_PATH},
    {"x-rewrite-uri", OVERRIDE_PATH},
    {"x-rewrite-url", OVERRIDE_PATH},
    {"x-waws-unencoded-url", OVERRIDE_PATH},
    /* RFC 7239 and its elder brothers; where an application is mounted (gunicorn, Flask behind a proxy). */
    {"forwarded", OVERRIDE_ORIGIN},
    {"x-forwarded", OVERRIDE_ORIGIN},
    {"x-forwarded-", OVERRIDE_ORIGIN},
    {"x-envoy-original-host", OVERRIDE_ORIGIN},
    {"x-host", OVERRIDE_ORIGIN},
    {"x-host-override", OVERRIDE_ORIGIN},
    {"x-http-host-override", OVERRIDE_ORIGIN},
    {"x-original-host", OVERRIDE_ORIGIN},
    {"path-info", OVERRIDE_ORIGIN},
    {"script-name", OVERRIDE_ORIGIN},
    {"x-script-name", OVERRIDE_ORIGIN},
};

enum override_kind override_of(struct str name)
{
    char folded[NAME_MAX_KNOWN] = {0};
    size_t n = MIN(name.n, sizeof(folded)); /* no known name is as long, and those of a prefix are known by it */

    for (size_t i = 0; i < n; i++) {
        char c = str_lower(name.p[i]);
        folded[i] = str_set_has("a-z0-9", c) ? c : '-';
    }
    for (size_t i = 0; i < ARRAY_SIZE(overrides); i++) {
        const char *known = overrides[i].name;
        size_t length = strlen(known);
        bool is_prefix = known[length - 1] == '-';
        if ((is_prefix ? n > length : n == length) && memcmp(folded, known, length) == 0)
            return overrides[i].kind;
    }
    return OVERRIDE_NONE;
}
