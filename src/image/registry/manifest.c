/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "image/registry/manifest_internal.h"

#define OCI_INDEX "application/vnd.oci.image.index.v1+json"
#define OCI_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define DOCKER_LIST "application/vnd.docker.distribution.manifest.list.v2+json"
#define DOCKER_MANIFEST "application/vnd.docker.distribution.manifest.v2+json"
#define DOCKER_SCHEMA1 "application/vnd.docker.distribution.manifest.v1"

const char manifest_accept[] = OCI_MANIFEST ", " OCI_INDEX ", " DOCKER_MANIFEST ", " DOCKER_LIST;

enum kind { KIND_UNKNOWN, KIND_INDEX, KIND_MANIFEST, KIND_OLD };

static enum kind kind_of(const char *media_type)
{
    if (!media_type)
        return KIND_UNKNOWN;
    if (strcmp(media_type, OCI_INDEX) == 0 || strcmp(media_type, DOCKER_LIST) == 0)
        return KIND_INDEX;
    if (strcmp(media_type, OCI_MANIFEST) == 0 || strcmp(media_type, DOCKER_MANIFEST) == 0)
        return KIND_MANIFEST;
    return strncmp(media_type, DOCKER_SCHEMA1, strlen(DOCKER_SCHEMA1)) == 0 ? KIND_OLD : KIND_UNKNOWN;
}

json_t *manifest_load(struct str text, const char *what, struct err *err)
{
    json_error_t error;
    if (text.n > MANIFEST_BYTES_MAX) {
        (void)err_set(err, ERR_OUT_OF_RANGE, "%s is larger than %d bytes", what, MANIFEST_BYTES_MAX);
        return NULL;
    }
    json_t *json = json_loadb(text.p ? text.p : "", text.n, JSON_REJECT_DUPLICATES, &error);
    if (!json)
        (void)err_set(err, ERR_INVALID_ARGUMENT, "%s is not valid JSON: %.100s", what, error.text);
    else if (!json_is_object(json) && !json_is_array(json))
        (void)err_set(err, ERR_INVALID_ARGUMENT, "%s is not a JSON object", what);
    else
        return json;
    json_decref(json);
    return NULL;
}

/* ---- descriptors ---- */

static const struct {
    const char *media_type;
    enum packing packing;
} layer_types[] = {
    {"application/vnd.oci.image.layer.v1.tar", PACKING_NONE},
    {"application/vnd.oci.image.layer.v1.tar+gzip", PACKING_GZIP},
    {"application/vnd.oci.image.layer.v1.tar+zstd", PACKING_ZSTD},
    {"application/vnd.oci.image.layer.nondistributable.v1.tar", PACKING_NONE},
    {"application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", PACKING_GZIP},
    {"application/vnd.oci.image.layer.nondistributable.v1.tar+zstd", PACKING_ZSTD},
    {"application/vnd.docker.image.rootfs.diff.tar", PACKING_NONE},
    {"application/vnd.docker.image.rootfs.diff.tar.gzip", PACKING_GZIP},
    {"application/vnd.docker.image.rootfs.diff.tar.zstd", PACKING_ZSTD},
};

static int take_blob(const json_t *json, const char *what, struct image_blob *ret_blob, struct err *err)
{
    const json_t *digest = json_object_get(json, "digest"), *size = json_object_get(json, "size");
    struct str text = json_str(digest);
    if (!text.p || !digest_is(text))
        return err_set(err, ERR_INVALID_ARGUMENT, "%s has no sha256 digest", what);
    if (!json_is_integer(size) || json_integer_value(size) < 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s has no size", what);
    memset(ret_blob, 0, sizeof(*ret_blob));
    memcpy(ret_blob->digest, text.p, text.n);
    ret_blob->size = (uint64_t)json_integer_value(size);
    return 0;
}

static int take_layer(const json_t *json, struct image_blob *ret_blob, struct err *err)
{
    const char *type = json_string_value(json_object_get(json, "mediaType"));
    if (take_blob(json, "a layer", ret_blob, err) < 0)
        return -1;
    for (size_t i = 0; type && i < ARRAY_SIZE(layer_types); i++)
        if (strcmp(type, layer_types[i].media_type) == 0) {
            ret_blob->packing = layer_types[i].packing;
            return 0;
        }
    return err_set(err, ERR_UNIMPLEMENTED,
                   "a layer of media type %.120s: only tar layers, plain, gzip or zstd, make a root file system",
                   type ? type : "(none)");
}

/* ---- the one of an index ---- */

static void manifest_take_part(const json_t *json, const char *key, char ret_part[static PLATFORM_PART_MAX])
{
    const char *text = json_string_value(json_object_get(json, key));
    size_t n = text ? strnlen(text, PLATFORM_PART_MAX - 1) : 0;
    memcpy(ret_part, text ? text : "", n);
    ret_part[n] = '\0';
}

static void take_platform(const json_t *json, struct platform *ret_platform)
{
    manifest_take_part(json, "os", ret_platform->os);
    manifest_take_part(json, "architecture", ret_platform->arch);
    manifest_take_part(json, "variant", ret_platform->variant);
}

static bool manifest_is_named(const json_t *entry, const char *ref)
{
    if (!ref || !ref[0])
        return true;
    const json_t *notes = json_object_get(entry, "annotations");
    const char *name = json_string_value(json_object_get(notes, "org.opencontainers.image.ref.name"));
    const char *full = json_string_value(json_object_get(notes, "io.containerd.image.name"));
    return (name && strcmp(name, ref) == 0) || (full && strcmp(full, ref) == 0);
}

/* How well an entry suits: 0 not at all. Entries that say nothing are taken when they are alone. */
static int suits(const json_t *entry, const struct platform *want, bool alone)
{
    const json_t *json = json_object_get(entry, "platform");
    struct platform has;
    if (!json_is_object(json))
        return alone ? 1 : 0;
    take_platform(json, &has);
    if (!platform_matches(want, &has))
        return 0;
    return strcmp(want->variant, has.variant) == 0 ? 3 : 2;
}

static const json_t *manifest_choose(const json_t *list, const struct platform *want, const char *ref, struct err *err)
{
    const json_t *best = NULL;
    int best_suits = 0, equals = 0;
    size_t named = 0;
    JSON_FOREACH (entry, list)
        named += manifest_is_named(entry, ref);
    JSON_FOREACH (entry, list) {
        if (!manifest_is_named(entry, ref))
            continue;
        enum kind kind = kind_of(json_string_value(json_object_get(entry, "mediaType")));
        int s = kind == KIND_OLD ? 0 : suits(entry, want, ref || named == 1);
        equals = s > best_suits ? 1 : equals + (s > 0 && s == best_suits);
        if (s > best_suits) {
            best = entry;
            best_suits = s;
        }
    }
    if (best && ref && equals > 1) {
        (void)err_set(err, ERR_INVALID_ARGUMENT, "the archive holds %d images that suit: say which with \"ref\"",
                      equals);
        return NULL;
    }
    if (!best)
        (void)err_set(err, ERR_NOT_FOUND,
                      "the image has nothing for %s/%s%s%s among its %zu manifests%s: ask for a platform that it has",
                      want->os, want->arch, want->variant[0] ? "/" : "", want->variant, json_array_size(list),
                      ref && ref[0] ? " of that name" : "");
    return best;
}

static int parse_index(const json_t *json, const struct platform *want, const char *ref, struct manifest *m,
                       struct err *err)
{
    const json_t *list = json_object_get(json, "manifests");
    if (!json_is_array(list) || json_array_size(list) > MANIFEST_ENTRIES_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "the image's index has no list of manifests, or one of more than %d",
                       MANIFEST_ENTRIES_MAX);
    const json_t *entry = manifest_choose(list, want, ref, err);
    m->is_index = true;
    if (!entry || take_blob(entry, "the manifest in the image's index", &m->config, err) < 0)
        return -1;
    return 0;
}

typedef int take_fn(const json_t *json, struct image_blob *ret_blob, struct err *err);

static int take_layers(const json_t *layers, const char *of, take_fn *take, struct manifest *m, struct err *err)
{
    if (!json_is_array(layers) || json_array_size(layers) > MANIFEST_LAYERS_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s has no list of layers, or one of more than %d", of,
                       MANIFEST_LAYERS_MAX);
    m->layers = mem_array(MAX(json_array_size(layers), 1), sizeof(*m->layers));
    JSON_FOREACH_AT (i, layer, layers) {
        if (take(layer, &m->layers[i], err) < 0)
            return -1;
        m->n_layers++;
    }
    return 0;
}

static int parse_manifest(const json_t *json, struct manifest *m, struct err *err)
{
    if (take_layers(json_object_get(json, "layers"), "the image's manifest", take_layer, m, err) < 0)
        return -1;
    return take_blob(json_object_get(json, "config"), "the image's configuration", &m->config, err);
}

/* Of what was parsed into m: the text, and what came of it. */
static int manifest_end(json_t *json, int r, struct manifest *m, struct manifest *ret_manifest)
{
    json_decref(json);
    if (r < 0)
        manifest_fini(m);
    else
        *ret_manifest = *m;
    return r;
}

static int image_manifest_parse(const json_t *json, const char *media_type, const struct platform *want,
                                const char *ref, struct manifest *m, struct err *err)
{
    const char *own = json_string_value(json_object_get(json, "mediaType"));
    enum kind said = kind_of(media_type), says = kind_of(own);
    bool index = json_object_get(json, "manifests") != NULL, image = json_object_get(json, "layers") != NULL;
    if (said == KIND_OLD || says == KIND_OLD || json_object_get(json, "fsLayers"))
        return err_set(err, ERR_UNIMPLEMENTED,
                       "the image has a manifest of Docker's schema 1: push it again with a current tool");
    if (index && image)
        return err_set(err, ERR_INVALID_ARGUMENT, "the image's manifest claims to be an index as well");
    if (said != KIND_UNKNOWN && own && strcmp(own, media_type) != 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "the image's manifest was sent as %.80s and calls itself %.80s",
                       media_type, own);
    enum kind kind = said != KIND_UNKNOWN ? said : says;
    if (kind == KIND_UNKNOWN)
        kind = index ? KIND_INDEX : KIND_MANIFEST;
    return kind == KIND_INDEX ? parse_index(json, want, ref, m, err) : parse_manifest(json, m, err);
}

int manifest_parse(struct str text, const char *media_type, const struct platform *want, const char *ref,
                   struct manifest *ret_manifest, struct err *err)
{
    struct manifest m = {.is_index = false};
    json_t *json = manifest_load(text, "the image's manifest", err);
    if (!json)
        return -1;
    return manifest_end(json, image_manifest_parse(json, media_type, want, ref, &m, err), &m, ret_manifest);
}

void manifest_fini(struct manifest *m)
{
    mem_free(TAKE_PTR(m->layers));
    m->n_layers = 0;
}

/* ---- docker-archive ---- */

static bool is_tagged(const json_t *image, const char *ref)
{
    if (!ref[0])
        return true;
    JSON_FOREACH (tag, json_object_get(image, "RepoTags"))
        if (json_is_string(tag) && strcmp(json_string_value(tag), ref) == 0)
            return true;
    return false;
}

static int manifest_take_name(const json_t *json, struct image_blob *blob, struct err *err)
{
    const char *name = json_string_value(json);
    size_t n = name ? strlen(name) : 0;
    if (n == 0 || n >= sizeof(blob->name))
        return err_set(err, ERR_INVALID_ARGUMENT, "the archive's manifest.json names no file where it should");
    memset(blob, 0, sizeof(*blob));
    memcpy(blob->name, name, n);
    blob->size = UINT64_MAX;
    blob->packing = PACKING_ANY;
    return 0;
}

static int parse_docker(const json_t *list, const char *ref, struct manifest *m, struct err *err)
{
    const json_t *image = NULL;
    size_t found = 0;
    JSON_FOREACH (entry, list)
        if (is_tagged(entry, ref)) {
            image = entry;
            found++;
        }
    if (found != 1)
        return err_set(err, found ? ERR_INVALID_ARGUMENT : ERR_NOT_FOUND,
                       "the archive holds %zu images%s: say which with \"ref\", as it is written in RepoTags", found,
                       ref && ref[0] ? " of that name" : "");
    if (take_layers(json_object_get(image, "Layers"), "the archive's manifest.json", manifest_take_name, m, err) < 0)
        return -1;
    return manifest_take_name(json_object_get(image, "Config"), &m->config, err);
}

int manifest_parse_docker(struct str text, const char *ref, struct manifest *ret_manifest, struct err *err)
{
    struct manifest m = {.is_index = false};
    json_t *json = manifest_load(text, "the archive's manifest.json", err);
    if (!json)
        return -1;
    return manifest_end(json, parse_docker(json, ref, &m, err), &m, ret_manifest);
}
