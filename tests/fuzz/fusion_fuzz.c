/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of models: the first line is a language, the rest an answer, whose program is compared with it as an
 * output. */
#include "api/fusion/handlers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct str rest = str_n(data, size), language = STR("");

    (void)str_split(&rest, '\n', &language);
    struct str code = fusion_extract(&arena, rest, language);
    assert(code.n <= rest.n + 1);
    assert(fusion_same_output(rest, rest));
    (void)fusion_same_output(code, rest);
    return 0;
}
