/* SPDX-License-Identifier: Apache-2.0 */
/* Template files: what is taken is what the header promises. */
#include "template/template.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct template *t;
    struct err err;
    if (template_parse(str_n(data, size), &t, &err) < 0)
        return 0;
    if (!t->id || strlen(t->id) > TEMPLATE_NAME_MAX || strlen(t->layer) != TEMPLATE_LAYER_LEN ||
        t->n_aliases > TEMPLATE_ALIASES_MAX)
        abort();
    for (size_t i = 0; i < t->n_envs; i++)
        if (!strchr(t->envs[i], '=') || t->envs[i][0] == '=')
            abort();
    for (const char *p = t->id; *p; p++)
        if (*p == '/' || (unsigned char)*p <= ' ')
            abort();
    template_free(t);
    return 0;
}
