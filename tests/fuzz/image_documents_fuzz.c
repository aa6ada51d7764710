/* SPDX-License-Identifier: Apache-2.0 */
/* The first byte chooses the reader: a manifest or index, the same in an archive, docker-archive's list, a
 * configuration, a job's request. */
#include "base/mem.h"
#include "image/registry/manifest.h"
#include "image/registry/request.h"

#include <jansson.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_blob(const struct image_blob *b)
{
    if (!b->digest[0] == !b->name[0] || (b->digest[0] && !digest_is(str_of(b->digest))) ||
        !memchr(b->name, 0, sizeof(b->name)))
        abort();
}

static void check_manifest(struct manifest *m)
{
    check_blob(&m->config);
    if (m->n_layers > MANIFEST_LAYERS_MAX || (m->is_index && m->n_layers > 0))
        abort();
    for (size_t i = 0; i < m->n_layers; i++)
        check_blob(&m->layers[i]);
    manifest_fini(m);
}

static void check_config(struct image_config *c)
{
    json_t *json = json_loadb(buf_data(&c->json), buf_len(&c->json), 0, NULL);
    if (!json_is_array(json_object_get(json, "env")) || !json_is_string(json_object_get(json, "user")))
        abort();
    for (size_t i = 0; i < c->n_layers; i++)
        if (!digest_is(str_of(c->diff_ids[i])))
            abort();
    json_decref(json);
    config_fini(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct platform want = {.os = "linux", .arch = "amd64"};
    static const char *const types[] = {NULL, "application/vnd.oci.image.index.v1+json",
                                        "application/vnd.oci.image.manifest.v1+json"};
    struct manifest m;
    struct image_config c;
    struct job_request q;
    struct err err = {.code = ERR_OK};
    if (size == 0)
        return 0;
    struct str text = str_n(data + 1, size - 1);
    int r;
    if (data[0] == 'c') {
        r = config_parse(text, &c, &err);
        if (r == 0)
            check_config(&c);
    } else if (data[0] == 'q') {
        r = job_request_parse(text, &q, &err);
        if (r == 0)
            job_request_fini(&q);
    } else {
        r = data[0] == 'd' ? manifest_parse_docker(text, "", &m, &err)
                           : manifest_parse(text, types[data[0] % 3], &want, data[0] & 16 ? "" : NULL, &m, &err);
        if (r == 0)
            check_manifest(&m);
    }
    if (r < 0 && (err.code == ERR_OK || !err.msg[0]))
        abort();
    return 0;
}
