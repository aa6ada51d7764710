/* SPDX-License-Identifier: Apache-2.0 */
/* A settings file of cove here. What is taken has rules that are a policy; what isn't says why. */
#include "here/settings.h"
#include "policy/policy.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct settings *s = NULL;
    struct policy *p = NULL;
    struct err err = {0};
    if (settings_parse((const char *)data, size, &s, &err) < 0) {
        if (err.code == ERR_OK || !err.msg[0])
            abort();
        return 0;
    }
    json_t *policy = json_pack("{s:O}", "rules", s->rules);
    if (policy_parse(policy, &p, &err) < 0)
        abort();
    policy_unref(p);
    json_decref(policy);
    settings_free(s);
    return 0;
}
