/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to build: names, and the JSON of what is to be done. What is taken holds what its steps need. */
#include "build/context.h"
#include "build/spec.h"
#include "template/name.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_ARENA struct arena a = ARENA_INIT;
    struct build_context context = {.n_envs = 0};
    char key[BUILD_KEY_LEN + 1] = "";
    struct template_name name;
    struct build_spec spec;
    struct err err;
    if (template_name_parse(str_n(data, size), &name, &err) == 0)
        assert(name.name[0] && name.tag[0] && strlen(name.space) <= TEMPLATE_NAME_MAX);
    json_t *json = size <= 1 << 16 ? json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (json_is_object(json) && build_spec_read(json, &build_spec_names, &a, &spec, &err) == 0) {
        for (size_t i = 0; i < spec.n_steps; i++) {
            const struct build_step *s = &spec.steps[i];
            assert(s->n_args >= 1 && build_step_text(s, &a, 100));
            build_key_add_step(key, s);
            for (size_t k = 0; s->type == BUILD_ENV && k + 1 < s->n_args; k += 2)
                if (build_context_set_expanded(&context, s->args[k], s->args[k + 1], &err) < 0)
                    break;
        }
    }
    json_decref(json);
    build_context_fini(&context);
    return 0;
}
