/* SPDX-License-Identifier: Apache-2.0 */
/* Dockerfiles: what is taken has steps that are whole. */
#include "cli/build/dockerfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_ARENA struct arena a = ARENA_INIT;
    static const char *const given[] = {"A=1", "B"};
    struct dockerfile f;
    struct err err;
    if (size > 1 << 14 || dockerfile_parse("f", str_n(data, size), given, 2, &a, &f, &err) < 0)
        return 0;
    assert(f.image && f.n_steps >= 2 && f.n_steps <= DOCKERFILE_STEPS_MAX);
    for (size_t i = 0; i < f.n_steps; i++)
        for (size_t k = 0; k < f.steps[i].n_args; k++)
            assert(f.steps[i].args[k]);
    return 0;
}
