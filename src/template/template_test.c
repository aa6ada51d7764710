/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "store/tenant_rows.h"
#include "template/template.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#define LAYER "layer = sha256-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n"

static int parse(const char *text, struct template **ret_template)
{
    struct err err;
    return template_parse(str_of(text), ret_template, &err);
}

static void whole_file(void **state)
{
    struct template *t;
    (void)state;
    assert_int_equal(
        parse(
            "# what it is\n id = base-1 \r\nalias=base\nalias = acme/base:v2\n" LAYER
            "cpu_milli = 1500\nmemory_bytes = 1073741824\ndisk_bytes=5\nsize_bytes = 7\nbuilt = 2026-11-21T10:03:07Z\n"
            "start_cmd = /bin/sh -c 'a = b'\nenv = A=1=2\nfuture = x\n\n",
            &t),
        0);
    assert_string_equal(t->id, "base-1");
    assert_int_equal(t->n_aliases, 2);
    assert_string_equal(t->aliases[1], "acme/base:v2");
    assert_int_equal(t->cpu_milli, 1500);
    assert_int_equal(t->memory_bytes, 1073741824);
    assert_int_equal(t->disk_bytes, 5);
    assert_int_equal(t->size_bytes, 7);
    assert_true(t->built > 0);
    assert_string_equal(t->start_cmd, "/bin/sh -c 'a = b'");
    assert_string_equal(t->envs[0], "A=1=2");
    template_free(t);
}

static void refused(void **state)
{
    static const char *const bad[] = {
        "",
        "id = a\n",
        LAYER,
        "id = a\nlayer = sha256-xyz\n",
        "id = a\nlayer = sha256-0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef\n",
        "id = ../etc\n" LAYER,
        "id = .a\n" LAYER,
        "id = a b\n" LAYER,
        "id = a\nid = b\n" LAYER,
        "id = a\nalias = a/b/c\n" LAYER,
        "id = a\nalias = x:\n" LAYER,
        "id = a\nno equals sign\n" LAYER,
        "id = a\n= x\n" LAYER,
        "id = a\ncpu_milli = -1\n" LAYER,
        "id = a\ncpu_milli = 99999999999\n" LAYER,
        "id = a\nbuilt = yesterday\n" LAYER,
        "id = a\nenv = NOTHING\n" LAYER,
        "id = a\xff\n" LAYER,
        "id = aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n" LAYER,
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct template *t;
        if (parse(bad[i], &t) == 0)
            fail_msg("taken: %s", bad[i]);
    }
}

struct place {
    char dir[64];
    struct template_registry *r;
};

static int setup(void **state)
{
    struct place *p = mem_new(struct place);
    log_init("test", LOG_ERROR);
    (void)snprintf(p->dir, sizeof(p->dir), "/tmp/cove-templates-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
    p->r = template_registry_new(p->dir);
    *state = p;
    return 0;
}

static const char *path_of(const struct place *p, const char *name)
{
    static char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", p->dir, name);
    return path;
}

static void put(const struct place *p, const char *name, const char *text)
{
    assert_int_equal(fd_write_file(AT_FDCWD, path_of(p, name), str_of(text), 0600), 0);
}

static int teardown(void **state)
{
    static const char *const names[] = {"a.conf", "b.conf", "c.conf", "bad.conf", "x.tmp"};
    struct place *p = *state;
    template_registry_free(p->r);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        (void)unlink(path_of(p, names[i]));
    assert_int_equal(rmdir(p->dir), 0);
    mem_free(p);
    return 0;
}

/* Returns the id that ref leads to, "" for ERR_NOT_FOUND, NULL for a refused name. */
static const char *resolve(struct place *p, const char *ref)
{
    const struct template *t;
    const char *alias;
    struct err err;
    if (template_resolve(p->r, TENANT_DEFAULT, str_of(ref), &t, &alias, &err) == 0)
        return t->id;
    return err.code == ERR_NOT_FOUND ? "" : NULL;
}

static void names(void **state)
{
    struct place *p = *state;
    put(p, "a.conf", "id = base-1\nalias = base\nalias = acme/tool:v1\n" LAYER);
    put(p, "b.conf", "id = other\nalias = tool\n" LAYER);
    put(p, "bad.conf", "id = bad\n");
    put(p, "x.tmp", "id = half\n" LAYER);
    assert_string_equal(resolve(p, "base"), "base-1");
    assert_string_equal(resolve(p, "base:default"), "base-1");
    assert_string_equal(resolve(p, "anybody/base"), "base-1");
    assert_string_equal(resolve(p, "base-1"), "base-1");
    assert_string_equal(resolve(p, "base-1:default"), "base-1");
    assert_string_equal(resolve(p, "base-1:v2"), "");
    assert_string_equal(resolve(p, "base:v2"), "");
    assert_string_equal(resolve(p, "acme/tool:v1"), "base-1");
    assert_string_equal(resolve(p, "tool:v1"), "base-1");
    assert_string_equal(resolve(p, "evil/tool:v1"), "");
    assert_string_equal(resolve(p, "tool"), "other");
    assert_string_equal(resolve(p, "bad"), "");
    assert_string_equal(resolve(p, "half"), "");
    assert_string_equal(resolve(p, "../a"), "");
    assert_null(resolve(p, ""));
    assert_null(resolve(p, "base:"));
    assert_null(resolve(p, "a/"));
    const struct template *t;
    const char *alias;
    struct err err;
    assert_int_equal(template_resolve(p->r, TENANT_DEFAULT, STR("acme/tool:v1"), &t, &alias, &err), 0);
    assert_string_equal(alias, "tool");
    assert_int_equal(template_resolve(p->r, TENANT_DEFAULT, STR("other"), &t, &alias, &err), 0);
    assert_null(alias);
}

static void changes(void **state)
{
    struct place *p = *state;
    assert_string_equal(resolve(p, "base"), "");
    put(p, "a.conf", "id = base-1\nalias = base\n" LAYER);
    assert_string_equal(resolve(p, "base"), "base-1");
    put(p, "b.conf", "id = later\n" LAYER);
    const char *had = resolve(p, "base");
    assert_string_equal(resolve(p, "later"), "later");
    assert_int_equal(unlink(path_of(p, "a.conf")), 0);
    assert_string_equal(resolve(p, "base"), "");
    assert_string_equal(had, "base-1");                    /* who has it goes on with it */
    put(p, "c.conf", "id = later\nalias = twice\n" LAYER); /* the id is taken */
    assert_string_equal(resolve(p, "later"), "later");
}

static void count_layer(void *ctx, const char *layer)
{
    assert_true(*layer);
    ++*(unsigned *)ctx;
}

/* With so many more descriptors: what is not read then may need layers, too. */
static int each_layer(const struct place *p, int more, unsigned *ret_n)
{
    struct rlimit was, few;
    struct err err;
    int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(next >= 0 && close(next) == 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = (struct rlimit){(rlim_t)(next + more), was.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    *ret_n = 0;
    int r = template_each_layer(p->r, count_layer, ret_n, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &was), 0);
    return r;
}

static void what_is_not_read_needs_layers_too(void **state)
{
    struct place *p = *state;
    unsigned n;
    put(p, "a.conf", "id = a\n" LAYER);
    assert_int_equal(each_layer(p, 0, &n), -1); /* the directory */
    assert_int_equal(each_layer(p, 1, &n), -1); /* what is in it */
    assert_int_equal(n, 0);
    assert_int_equal(each_layer(p, 2, &n), 0);
    assert_int_equal(n, 1);
    put(p, "b.conf", "nonsense"); /* is none */
    assert_int_equal(each_layer(p, 2, &n), 0);
    assert_int_equal(n, 1);
}

static bool count(void *ctx, const struct template *t)
{
    unsigned *n = ctx;
    assert_non_null(t->id);
    ++*n;
    return true;
}

static void each(void **state)
{
    struct place *p = *state;
    unsigned n = 0;
    put(p, "a.conf", "id = b\n" LAYER);
    put(p, "b.conf", "id = a\n" LAYER);
    template_each(p->r, TENANT_DEFAULT, count, &n);
    assert_int_equal(n, 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole_file),
                                       cmocka_unit_test(refused),
                                       TEST(names),
                                       TEST(changes),
                                       TEST(what_is_not_read_needs_layers_too),
                                       TEST(each)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
