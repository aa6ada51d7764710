/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of docker create: what is taken never asks for more than a sandbox has, and its labels are whole. */
#include "api/docker/handlers.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    AUTO_JSON json_t *body = NULL;
    struct docker_making m = {.name = STR("x")};
    struct err err;

    if (json_read_object(str_n(data, size), false, &body, &err) < 0 || docker_making_read(body, &arena, &m, &err) < 0)
        return 0;
    const json_t *host = json_object_get(body, "HostConfig");
    static const char *const never[] = {"Privileged", "CapAdd", "Devices", "PidMode", "UsernsMode", "PortBindings"};
    for (size_t i = 0; i < ARRAY_SIZE(never); i++) {
        const json_t *asked = json_object_get(host, never[i]);
        assert(!json_is_true(asked) && !json_string_length(asked) && !json_is_string(json_array_get(asked, 0)));
    }
    assert(m.image.n && m.spec.template_ref.n && m.spec.n_mounts <= VOLUME_MOUNTS_MAX && m.n_labels >= 7);
    assert(str_is_of(m.image, "A-Za-z0-9_./:@-"));
    for (size_t i = 0; i < m.spec.n_mounts; i++)
        assert(m.mounts[i].is_host == str_starts(m.mounts[i].name, STR("/")));
    return 0;
}
