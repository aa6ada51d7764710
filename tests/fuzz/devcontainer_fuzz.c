/* SPDX-License-Identifier: Apache-2.0 */
/* devcontainer.json: what is taken has one of image and build, and texts where texts are meant. */
#include "cli/env/devcontainer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_JSON json_t *o = NULL;
    json_t *one;
    struct err err;
    size_t i;
    if (devcontainer_parse(str_n(data, size), "/top", &o, &err) < 0)
        return 0;
    assert(!json_object_get(o, "image") != !json_object_get(o, "build"));
    json_array_foreach(json_object_get(o, "setup"), i, one)
    {
        assert(json_string_length(one) && strlen(json_string_value(one)) == json_string_length(one));
    }
    return 0;
}
