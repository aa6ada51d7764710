/* SPDX-License-Identifier: Apache-2.0 */
/* Lines: Host, E2b-Sandbox-Id, E2b-Sandbox-Port, path. Where does the request go? */
#include "api/e2b/target.h"
#include "api/kit/route.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct route routes[] = {
    {HTTP_METHOD_GET, "/sandboxes", NULL, 0, NULL},
    {HTTP_METHOD_GET, "/sandboxes/{}", NULL, 0, NULL},
    {HTTP_METHOD_POST, "/sandboxes/{}/timeout", NULL, 0, NULL},
    {HTTP_METHOD_GET, "/templates/{}/builds/{}/status", NULL, 0, NULL},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = str_n(data, size), lines[4] = {0}, args[ROUTE_ARGS_MAX] = {0};
    const struct route *route = NULL;
    struct e2b_target target;

    for (size_t i = 0; i < ARRAY_SIZE(lines) && str_split(&rest, '\n', &lines[i]); i++)
        ;
    switch (target_parse(lines[0], lines[1], lines[2], &target)) {
    case TARGET_SANDBOX:
        assert(target.id.n && target.id.n <= 63 && target.port && !str_has_nul(target.id));
        break;
    case TARGET_BAD:
        assert(target.problem);
        break;
    case TARGET_CONTROL:
        break;
    }
    if (route_find(routes, ARRAY_SIZE(routes), HTTP_METHOD_GET, lines[3], &route, args, NULL) == ROUTE_FOUND)
        for (size_t i = 0; i < ROUTE_ARGS_MAX; i++)
            assert(!args[i].p || (args[i].n && !memchr(args[i].p, '/', args[i].n)));
    return 0;
}
