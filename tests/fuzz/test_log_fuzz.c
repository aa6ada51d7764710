/* SPDX-License-Identifier: Apache-2.0 */
/* What tests print, which is whatever the patched code wants. A name that failed once is never one that passed. */
#include "cli/eval/test_log.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    json_t *results = json_object(), *again, *value;
    const char *name;

    test_log_read(results, str_n(data, n));
    again = json_deep_copy(results);
    test_log_read(again, str_n(data, n));
    json_object_foreach(results, name, value)
    {
        assert(json_is_boolean(value) && json_boolean_value(json_object_get(again, name)) <= json_boolean_value(value));
    }
    json_decref(again);
    json_decref(results);
    return 0;
}
