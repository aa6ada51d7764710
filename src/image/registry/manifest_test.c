/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "image/registry/manifest.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define A "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define B "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define OCI_INDEX "application/vnd.oci.image.index.v1+json"
#define OCI_MANIFEST "application/vnd.oci.image.manifest.v1+json"
#define LAYER(type) "{\"mediaType\":\"application/vnd.oci.image.layer.v1.tar" type "\",\"digest\":\"" B "\",\"size\":5}"
#define IMAGE(layers) "{\"config\":{\"digest\":\"" A "\",\"size\":7},\"layers\":[" layers "]}"
#define ENTRY(digest, arch, more)                                                                                      \
    "{\"digest\":\"" digest "\",\"size\":3,\"platform\":{\"os\":\"linux\",\"architecture\":\"" arch "\"" more "}}"
#define LIST(entries) "{\"manifests\":[" entries "]}"

static const struct platform amd64 = {.os = "linux", .arch = "amd64"};

static int parse(const char *json, const char *type, const char *ref, struct manifest *m)
{
    struct err err = {.code = ERR_OK};
    if (manifest_parse(str_of(json), type, &amd64, ref, m, &err) == 0)
        return ERR_OK;
    assert_int_not_equal(err.msg[0], '\0');
    return (int)err.code;
}

static void test_manifests(void **state)
{
    (void)state;
    struct manifest m;
    assert_int_equal(parse(IMAGE(LAYER("") "," LAYER("+gzip") "," LAYER("+zstd")), OCI_MANIFEST, NULL, &m), ERR_OK);
    assert_false(m.is_index);
    assert_string_equal(m.config.digest, A);
    assert_int_equal(m.config.size, 7);
    assert_int_equal(m.n_layers, 3);
    assert_int_equal(m.layers[0].packing, PACKING_NONE);
    assert_int_equal(m.layers[1].packing, PACKING_GZIP);
    assert_int_equal(m.layers[2].packing, PACKING_ZSTD);
    manifest_fini(&m);
    assert_int_equal(parse(IMAGE(""), NULL, NULL, &m), ERR_OK);
    assert_int_equal(m.n_layers, 0);
    manifest_fini(&m);
    assert_int_equal(parse(IMAGE(LAYER("+lzma")), NULL, NULL, &m), ERR_UNIMPLEMENTED);
    assert_int_equal(parse("{\"layers\":[]}", NULL, NULL, &m), ERR_INVALID_ARGUMENT);
    assert_int_equal(parse("[]", NULL, NULL, &m), ERR_INVALID_ARGUMENT);
    assert_int_equal(parse("", NULL, NULL, &m), ERR_INVALID_ARGUMENT);
    assert_int_equal(parse(IMAGE("1"), NULL, NULL, &m), ERR_INVALID_ARGUMENT);
    assert_int_equal(parse(IMAGE(""), OCI_INDEX, NULL, &m), ERR_INVALID_ARGUMENT);
    assert_int_equal(parse("{\"mediaType\":\"" OCI_INDEX "\",\"layers\":[]}", OCI_MANIFEST, NULL, &m),
                     ERR_INVALID_ARGUMENT);
    assert_int_equal(parse("{\"manifests\":[],\"layers\":[]}", NULL, NULL, &m), ERR_INVALID_ARGUMENT);
}

static void test_indexes(void **state)
{
    (void)state;
    struct manifest m;
    assert_int_equal(parse(LIST(ENTRY(A, "arm64", "") "," ENTRY(B, "amd64", "")), NULL, NULL, &m), ERR_OK);
    assert_true(m.is_index);
    assert_string_equal(m.config.digest, B);
    assert_int_equal(parse(LIST(ENTRY(A, "amd64", ",\"variant\":\"v3\"") "," ENTRY(B, "amd64", "")), NULL, NULL, &m),
                     ERR_OK);
    assert_string_equal(m.config.digest, B); /* who asks for no variant gets the plain one first */
    assert_int_equal(parse(LIST(ENTRY(A, "arm64", "")), NULL, NULL, &m), ERR_NOT_FOUND);
    assert_int_equal(parse(LIST(""), NULL, NULL, &m), ERR_NOT_FOUND);
    assert_int_equal(parse(LIST("{\"digest\":\"" A "\",\"size\":1}"), NULL, NULL, &m), ERR_OK);
    assert_int_equal(parse("{\"manifests\":{}}", NULL, NULL, &m), ERR_INVALID_ARGUMENT);
    assert_int_equal(parse(LIST("{\"size\":1}"), NULL, NULL, &m), ERR_INVALID_ARGUMENT);
}

#define NAMED(digest, name)                                                                                            \
    "{\"digest\":\"" digest "\",\"size\":1,\"annotations\":{\"org.opencontainers.image.ref.name\":\"" name "\"}}"

static void test_indexes_of_archives(void **state)
{
    (void)state;
    struct manifest m;
    assert_int_equal(parse(LIST(NAMED(A, "x")), NULL, "", &m), ERR_OK);
    assert_int_equal(parse(LIST(NAMED(A, "x") "," NAMED(B, "y")), NULL, "", &m), ERR_INVALID_ARGUMENT);
    assert_int_equal(parse(LIST(NAMED(A, "x") "," NAMED(B, "y")), NULL, "y", &m), ERR_OK);
    assert_string_equal(m.config.digest, B);
    assert_int_equal(parse(LIST(NAMED(A, "x")), NULL, "z", &m), ERR_NOT_FOUND);
}

static void test_docker_archives(void **state)
{
    (void)state;
    struct manifest m;
    struct err err;
    const char *two =
        "[{\"Config\":\"a.json\",\"RepoTags\":[\"x:1\"],\"Layers\":[\"l1\",\"l2\"]},{\"Config\":\"b.json\",\"RepoTags\":null,\"Layers\":[]}]";
    assert_int_equal(manifest_parse_docker(str_of(two), "", &m, &err), -1);
    assert_int_equal(manifest_parse_docker(str_of(two), "x:1", &m, &err), 0);
    assert_string_equal(m.config.name, "a.json");
    assert_int_equal(m.n_layers, 2);
    assert_string_equal(m.layers[1].name, "l2");
    manifest_fini(&m);
    assert_int_equal(manifest_parse_docker(STR("[]"), "", &m, &err), -1);
    assert_int_equal(manifest_parse_docker(STR("{}"), "", &m, &err), -1);
    assert_int_equal(manifest_parse_docker(STR("[{\"Config\":1,\"Layers\":[]}]"), "", &m, &err), -1);
    assert_int_equal(manifest_parse_docker(STR("[{\"Config\":\"c\",\"Layers\":[1]}]"), "", &m, &err), -1);
}

static void test_platforms(void **state)
{
    (void)state;
    struct platform p;
    struct err err;
    assert_int_equal(platform_parse(STR("linux/arm/v7"), &p, &err), 0);
    assert_string_equal(p.variant, "v7");
    static const char *const bad[] = {"",
                                      "linux",
                                      "linux/",
                                      "/amd64",
                                      "linux/amd64/",
                                      "linux/arm/v7/x",
                                      "Linux/amd64",
                                      "linux/a b",
                                      "linux/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(platform_parse(str_of(bad[i]), &p, &err), -1);
    platform_of_machine(&p);
    assert_string_equal(p.os, "linux");
}

static void test_configurations(void **state)
{
    (void)state;
    struct image_config c;
    struct err err;
    assert_int_equal(
        config_parse(
            STR("{\"os\":\"linux\",\"architecture\":\"amd64\",\"config\":{\"Env\":[\"A=\\\"\"],\"Cmd\":null,\"User\":\"u\"},"
                "\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"" A "\"]}}"),
            &c, &err),
        0);
    assert_int_equal(c.n_layers, 1);
    assert_string_equal(c.diff_ids[0], A);
    assert_string_equal(c.platform.arch, "amd64");
    assert_true(str_eqc(buf_str(&c.json),
                        "{\"env\":[\"A=\\\"\"],\"cmd\":[],\"entrypoint\":[],\"workdir\":\"\",\"user\":\"u\"}"));
    config_fini(&c);
    assert_int_equal(
        config_parse(STR("{\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[]},\"config\":{\"Env\":{}}}"), &c, &err), -1);
    assert_int_equal(config_parse(STR("{\"rootfs\":{\"type\":\"tree\",\"diff_ids\":[]}}"), &c, &err), -1);
    assert_int_equal(config_parse(STR("{}"), &c, &err), -1);
    assert_int_equal(config_parse(STR("{\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"x\"]}}"), &c, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_manifests),           cmocka_unit_test(test_indexes),
        cmocka_unit_test(test_indexes_of_archives), cmocka_unit_test(test_docker_archives),
        cmocka_unit_test(test_platforms),           cmocka_unit_test(test_configurations),
    };
    return cmocka_run_group_tests_name("image/manifest", tests, NULL, NULL);
}
