/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of MCP: the first line is an Origin, the second a Host, the third a domain of ours, the rest a value that may
 * be encoded. */
#include "api/kit/access.h"
#include "api/mcp/handlers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct str rest = str_n(data, size), origin = STR_NULL, host = STR_NULL, domain = STR_NULL, value;

    (void)str_split(&rest, '\n', &origin);
    (void)str_split(&rest, '\n', &host);
    (void)str_split(&rest, '\n', &domain);
    const char *name = domain.n && !str_has_nul(domain) ? arena_str(&arena, domain).p : NULL;
    if (origin_is_good(origin, host, name)) /* nobody's name but ours */
        assert(str_starts(origin, STR("http")) && host.n);
    if (rpc_decode_header(rest, &arena, &value))
        assert(value.n <= rest.n);
    return 0;
}
