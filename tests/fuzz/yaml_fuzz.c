/* SPDX-License-Identifier: Apache-2.0 */
/* Files that people write policies in. What is taken can be written as JSON. */
#include "base/mem.h"
#include "config/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_t *json;
    struct err err;

    if (yaml_parse("fuzz", str_n(data, size), &json, &err) < 0) {
        assert(err.code == ERR_INVALID_ARGUMENT && err.msg[0]);
        return 0;
    }
    char *text = json_dumps(json, JSON_ENCODE_ANY);
    assert(text);
    mem_free(text);
    json_decref(json);
    return 0;
}
