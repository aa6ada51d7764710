/* SPDX-License-Identifier: Apache-2.0 */
/* Platforms, and the configuration of an image. */
#include "base/mem.h"
#include "image/registry/manifest_internal.h"

#include <sys/utsname.h>

enum { CONFIG_JSON_MAX = 192 * 1024 }; /* of what is passed on: it must fit a line of job.h */

/* ---- platforms ---- */

static bool config_take_word(struct str part, char ret_word[static PLATFORM_PART_MAX])
{
    if (part.n == 0 || part.n >= PLATFORM_PART_MAX || !str_is_of(part, "a-z0-9_.-"))
        return false;
    memcpy(ret_word, part.p, part.n);
    ret_word[part.n] = '\0';
    return true;
}

int platform_parse(struct str text, struct platform *ret_platform, struct err *err)
{
    struct platform p = {.os = ""};
    struct str rest = text, os = STR_NULL, arch = STR_NULL, variant = STR_NULL;
    bool good = str_split(&rest, '/', &os) && str_split(&rest, '/', &arch) && config_take_word(os, p.os) &&
                config_take_word(arch, p.arch);
    if (good && str_split(&rest, '/', &variant))
        good = config_take_word(variant, p.variant) && !rest.p;
    if (!good)
        return err_set(err, ERR_INVALID_ARGUMENT, "a platform is os/architecture[/variant], like linux/amd64");
    *ret_platform = p;
    return 0;
}

void platform_of_machine(struct platform *ret_platform)
{
    static const char *const names[][2] = {
        {"x86_64", "amd64"}, {"aarch64", "arm64"}, {"i686", "386"}, {"armv7l", "arm"}, {"ppc64le", "ppc64le"}};
    struct utsname u;
    struct platform p = {.os = "linux"};
    if (uname(&u) < 0)
        memcpy(u.machine, "unknown", 8);
    (void)snprintf(p.arch, sizeof(p.arch), "%.31s", u.machine);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcmp(u.machine, names[i][0]) == 0)
            (void)snprintf(p.arch, sizeof(p.arch), "%s", names[i][1]);
    *ret_platform = p;
}

bool platform_matches(const struct platform *want, const struct platform *has)
{
    if (strcmp(want->os, has->os) != 0 || strcmp(want->arch, has->arch) != 0)
        return false;
    return !want->variant[0] || !has->variant[0] || strcmp(want->variant, has->variant) == 0;
}

/* ---- configurations ---- */

static void config_take_part(const json_t *json, const char *key, char ret_part[static PLATFORM_PART_MAX])
{
    (void)snprintf(ret_part, PLATFORM_PART_MAX, "%.31s",
                   json_is_string(json_object_get(json, key)) ? json_string_value(json_object_get(json, key)) : "");
}

static int take_diff_ids(const json_t *root, struct image_config *c, struct err *err)
{
    const json_t *rootfs = json_object_get(root, "rootfs"), *ids = json_object_get(rootfs, "diff_ids");
    const char *type = json_string_value(json_object_get(rootfs, "type"));
    if (!type || strcmp(type, "layers") != 0 || !json_is_array(ids) || json_array_size(ids) > MANIFEST_LAYERS_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "the image's configuration lists no layers: is it an image of a root file system?");
    c->diff_ids = mem_array(MAX(json_array_size(ids), 1), sizeof(*c->diff_ids));
    JSON_FOREACH (id, ids) {
        struct str text = json_str(id);
        if (!text.p || !digest_is(text))
            return err_set(err, ERR_INVALID_ARGUMENT, "the image's configuration has a layer without a sha256 digest");
        memcpy(c->diff_ids[c->n_layers++], text.p, text.n);
    }
    return 0;
}

static int put_string(struct buf *out, const char *key, const json_t *value)
{
    struct str text = json_is_string(value) ? json_str(value) : STR("");
    buf_printf(out, "\"%s\":", key);
    return buf_append_json_string(out, text);
}

/* A list of strings; null and absent are the empty list. */
static int put_list(struct buf *out, const char *key, const json_t *value, struct err *err)
{
    if (value && !json_is_null(value) && !json_is_array(value))
        return err_set(err, ERR_INVALID_ARGUMENT, "the image's configuration: %s is not a list", key);
    buf_printf(out, "\"%s\":[", key);
    JSON_FOREACH_AT (i, item, value) {
        if (!json_is_string(item))
            return err_set(err, ERR_INVALID_ARGUMENT, "the image's configuration: %s holds something that is not text",
                           key);
        if (i > 0)
            buf_append_char(out, ',');
        buf_append_json_string(out, json_str(item));
    }
    buf_append_char(out, ']');
    return 0;
}

static int put_config(const json_t *config, struct image_config *c, struct err *err)
{
    struct buf *out = &c->json;
    buf_append_char(out, '{');
    if (put_list(out, "env", json_object_get(config, "Env"), err) < 0)
        return -1;
    buf_append_char(out, ',');
    if (put_list(out, "cmd", json_object_get(config, "Cmd"), err) < 0)
        return -1;
    buf_append_char(out, ',');
    if (put_list(out, "entrypoint", json_object_get(config, "Entrypoint"), err) < 0)
        return -1;
    buf_append_char(out, ',');
    put_string(out, "workdir", json_object_get(config, "WorkingDir"));
    buf_append_char(out, ',');
    put_string(out, "user", json_object_get(config, "User"));
    buf_append_char(out, '}');
    return buf_error(out)
               ? err_set(err, ERR_OUT_OF_RANGE, "the image's configuration is larger than %d bytes", CONFIG_JSON_MAX)
               : 0;
}

int config_parse(struct str text, struct image_config *ret_config, struct err *err)
{
    struct image_config c = {.json = BUF_INIT(CONFIG_JSON_MAX)};
    json_t *json = manifest_load(text, "the image's configuration", err);
    if (!json)
        return -1;
    int r = take_diff_ids(json, &c, err);
    if (r == 0)
        r = put_config(json_object_get(json, "config"), &c, err);
    config_take_part(json, "os", c.platform.os);
    config_take_part(json, "architecture", c.platform.arch);
    config_take_part(json, "variant", c.platform.variant);
    json_decref(json);
    if (r < 0)
        config_fini(&c);
    else
        *ret_config = c;
    return r;
}

void config_fini(struct image_config *c)
{
    mem_free(TAKE_PTR(c->diff_ids));
    buf_fini(&c->json);
}
