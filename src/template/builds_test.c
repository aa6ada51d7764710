/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"
#include "base/mem.h"
#include "store/test_dir.h"
#include "template/internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct place {
    struct test_dir *dir;
    struct store *store;
    struct template_registry *r;
};

static void open_all(struct place *p)
{
    struct err err;
    assert_int_equal(store_open(p->dir->db, &p->store, &err), 0);
    p->r = template_registry_new(p->dir->path);
    assert_int_equal(template_registry_load(p->r, p->store, &err), 0);
}

static void close_all(struct place *p)
{
    template_registry_free(p->r);
    store_close(p->store);
}

static int setup(void **state)
{
    struct place *p = mem_new(struct place);
    void *dir;
    log_init("test", LOG_ERROR);
    if (test_dir_setup(&dir) < 0)
        return -1;
    p->dir = dir;
    open_all(p);
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;
    void *dir = p->dir;
    close_all(p);
    mem_free(p);
    return test_dir_teardown(&dir);
}

static void again(struct place *p)
{
    close_all(p);
    open_all(p);
}

static void commit(struct place *p)
{
    struct err err;
    assert_int_equal(store_commit(p->store, &err), 0);
}

/* Of the build to come; its template's goes to template_id. */
static void request(struct place *p, const char *name, const char *tag, char ret_id[static ID_UUID_LEN + 1],
                    char ret_template[static TEMPLATE_ID_LEN + 1])
{
    const struct template_build *b;
    struct err err;
    struct str tags[] = {str_of(tag)};
    struct template_request q = {
        .name = str_of(name), .tags = tags, .n_tags = tag ? 1 : 0, .cpu_milli = 1000, .memory_bytes = 1 << 30};
    if (template_request(p->r, &q, &b, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(b->status, TEMPLATE_WAITING);
    memcpy(ret_id, b->id, ID_UUID_LEN + 1);
    memcpy(ret_template, b->template_id, TEMPLATE_ID_LEN + 1);
}

static void finish(struct place *p, const char *id, const char *layer)
{
    static const char *const envs[] = {"A=1", "B=two\nlines"};
    struct err err;
    assert_int_equal(template_build_begin(p->r, id, &err), 0);
    assert_int_equal(template_build_begin(p->r, id, &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
    assert_int_equal(template_build_done(p->r, id,
                                         &(struct template_result){.layer = layer,
                                                                   .start_cmd = "run",
                                                                   .workdir = "/app",
                                                                   .user = "user",
                                                                   .envs = envs,
                                                                   .n_envs = 2,
                                                                   .size_bytes = 7},
                                         &err),
                     0);
}

/* The layer that ref leads to, "" for ERR_NOT_FOUND. */
static const char *layer_of(struct place *p, const char *ref)
{
    const struct template *t;
    struct err err;
    if (template_resolve(p->r, TENANT_DEFAULT, str_of(ref), &t, NULL, &err) == 0)
        return t->layer;
    assert_int_equal(err.code, ERR_NOT_FOUND);
    return "";
}

#define LAYER_1 "layer-aaaaaaaaaaaaaaaaaaaa"
#define LAYER_2 "layer-bbbbbbbbbbbbbbbbbbbb"

static void a_build_becomes_a_template(void **state)
{
    struct place *p = *state;
    char id[ID_UUID_LEN + 1], template_id[TEMPLATE_ID_LEN + 1], ref[64];
    request(p, " My-App ", NULL, id, template_id);
    assert_string_equal(layer_of(p, "my-app"), "");
    finish(p, id, LAYER_1);
    commit(p);
    for (int i = 0; i < 2; i++) {
        const struct template *t;
        const char *alias;
        struct err err;
        assert_int_equal(template_resolve(p->r, TENANT_DEFAULT, STR("anybody/my-app"), &t, &alias, &err), 0);
        assert_string_equal(alias, "my-app");
        assert_string_equal(t->id, template_id);
        assert_string_equal(t->build_id, id);
        assert_string_equal(t->start_cmd, "run");
        assert_string_equal(t->workdir, "/app");
        assert_int_equal(t->n_envs, 2);
        assert_string_equal(t->envs[1], "B=two\nlines");
        assert_int_equal(t->cpu_milli, 1000);
        assert_int_equal(t->size_bytes, 7);
        assert_int_equal(template_bytes(p->r, TENANT_DEFAULT), strlen("A=1B=two\nlinesrun"));
        assert_int_equal(t->n_aliases, 1);
        assert_string_equal(t->aliases[0], "my-app");
        assert_null(t->ready_cmd);
        assert_string_equal(layer_of(p, template_id), LAYER_1);
        (void)snprintf(ref, sizeof(ref), "%s:default", template_id);
        assert_string_equal(layer_of(p, ref), LAYER_1);
        again(p); /* and it is the same from the store */
    }
}

static void tags(void **state)
{
    struct place *p = *state;
    char id[ID_UUID_LEN + 1], second[ID_UUID_LEN + 1], template_id[TEMPLATE_ID_LEN + 1], other[TEMPLATE_ID_LEN + 1];
    const char *build;
    struct err err;
    request(p, "app:v1", "stable", id, template_id);
    finish(p, id, LAYER_1);
    assert_string_equal(layer_of(p, "app"), "");
    assert_string_equal(layer_of(p, "app:v1"), LAYER_1);
    assert_string_equal(layer_of(p, "app:stable"), LAYER_1);
    request(p, "app", NULL, second, other);
    assert_string_equal(other, template_id);
    finish(p, second, LAYER_2);
    assert_string_equal(layer_of(p, "app"), LAYER_2);
    assert_string_equal(layer_of(p, "app:v1"), LAYER_1);

    struct str more[] = {STR("production"), STR("STABLE")};
    assert_int_equal(template_tags_add(p->r, TENANT_DEFAULT, STR("app"), more, 2, &build, &err), 0);
    assert_string_equal(build, second);
    assert_string_equal(layer_of(p, "app:stable"), LAYER_2);
    assert_int_equal(template_tags_add(p->r, TENANT_DEFAULT, STR("app:nothing"), more, 2, &build, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(template_tags_add(p->r, TENANT_DEFAULT, STR("other"), more, 2, &build, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    struct str bad[] = {STR(":x"), STR(""), STR("a b"), STR("3fa85f64-5717-4562-b3fc-2c963f66afa6")};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(template_tags_add(p->r, TENANT_DEFAULT, STR("app"), &bad[i], 1, &build, &err), -1);
        assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    }
    assert_int_equal(template_tags_remove(p->r, TENANT_DEFAULT, STR("app"), &STR("default"), 1, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    assert_int_equal(template_tags_remove(p->r, TENANT_DEFAULT, STR("app:v1"), &STR("v1"), 1, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    assert_int_equal(template_tags_remove(p->r, TENANT_DEFAULT, STR("app"), &STR("v1"), 1, &err), 0);
    commit(p);
    again(p);
    assert_string_equal(layer_of(p, "app:v1"), "");
    assert_string_equal(layer_of(p, "app:stable"), LAYER_2);
    struct template_info info;
    assert_int_equal(template_info_find(p->r, TENANT_DEFAULT, STR("app"), &info, &err), 0);
    assert_int_equal(info.n_tags, 3);
    assert_int_equal(info.n_builds, 2);
    assert_string_equal(info.build->id, second);
}

static void snapshots(void **state)
{
    struct place *p = *state;
    const struct template *t;
    struct err err;
    char ref[128], id[ID_UUID_LEN + 1], template_id[TEMPLATE_ID_LEN + 1];
    request(p, "app", NULL, id, template_id);
    finish(p, id, LAYER_1);
    assert_int_equal(template_resolve(p->r, TENANT_DEFAULT, STR("app"), &t, NULL, &err), 0);
    struct template_snapshot s = {
        .of = t, .layer = LAYER_2, .source = "i0123", .name = STR(""), .cpu_milli = 500, .memory_bytes = 9};
    assert_int_equal(template_add_snapshot(p->r, &s, &t, &err), 0);
    assert_true(t->is_snapshot);
    assert_string_equal(t->start_cmd, "run");
    assert_int_equal(t->cpu_milli, 500);
    (void)snprintf(ref, sizeof(ref), "%s:default", t->id);
    assert_string_equal(t->ref, ref);
    assert_null(t->name);
    commit(p);
    again(p);
    assert_string_equal(layer_of(p, ref), LAYER_2);

    s.of = NULL;
    s.name = STR("mine:v1");
    assert_int_equal(template_add_snapshot(p->r, &s, &t, &err), 0);
    assert_string_equal(t->ref, "local/mine:v1");
    assert_string_equal(t->name, "local/mine");
    assert_string_equal(layer_of(p, "local/mine:v1"), LAYER_2);
    assert_string_equal(layer_of(p, "mine:v1"), LAYER_2);
    assert_string_equal(layer_of(p, "mine"), "");
    s.layer = LAYER_1; /* the tag moves */
    assert_int_equal(template_add_snapshot(p->r, &s, &t, &err), 0);
    assert_string_equal(layer_of(p, "mine:v1"), LAYER_1);
    s.name = STR("not a name");
    assert_int_equal(template_add_snapshot(p->r, &s, &t, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);

    /* Each tag is a snapshot of its own. */
    assert_false(template_is_one_of_several(p->r, TENANT_DEFAULT, STR("local/mine:v1")));
    s.layer = LAYER_2;
    s.name = STR("mine");
    assert_int_equal(template_add_snapshot(p->r, &s, &t, &err), 0);
    assert_true(template_is_one_of_several(p->r, TENANT_DEFAULT, STR("local/mine:v1")));
    assert_true(template_is_one_of_several(p->r, TENANT_DEFAULT, STR("mine:default")));
    assert_false(template_is_one_of_several(p->r, TENANT_DEFAULT, STR("local/mine")));
    assert_false(template_is_one_of_several(p->r, TENANT_DEFAULT, STR("local/mine:v2")));
    assert_false(template_is_one_of_several(p->r, TENANT_DEFAULT, STR("app:v2")));
    (void)snprintf(id, sizeof(id), "%s:v1", t->id);
    assert_false(template_is_one_of_several(p->r, TENANT_DEFAULT, str_of(id)));
    assert_int_equal(template_remove_tag(p->r, TENANT_DEFAULT, STR("local/mine:default"), &err), 0);
    assert_int_equal(template_remove_tag(p->r, TENANT_DEFAULT, STR("local/mine:default"), &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_string_equal(layer_of(p, "mine"), "");
    assert_string_equal(layer_of(p, "mine:v1"), LAYER_1);
    assert_false(template_is_one_of_several(p->r, TENANT_DEFAULT, STR("local/mine:v1")));

    assert_int_equal(template_remove(p->r, TENANT_DEFAULT, STR("local/mine:v1"), &err), 0);
    assert_int_equal(template_remove(p->r, TENANT_DEFAULT, STR("local/mine:v1"), &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(template_remove(p->r, TENANT_DEFAULT, str_of(ref), &err), 0);
    assert_int_equal(template_remove(p->r, TENANT_DEFAULT, STR("app"), &err), 0);
    commit(p);
    again(p);
    assert_string_equal(layer_of(p, "app"), "");
    assert_int_equal(map_count(&p->r->builds), 0);
    assert_int_equal(test_sql_number(p->dir->db, "SELECT count(*) FROM template_builds"), 0);
    assert_int_equal(test_sql_number(p->dir->db, "SELECT count(*) FROM template_tags"), 0);
}

static void what_is_undone_never_was(void **state)
{
    struct place *p = *state;
    char id[ID_UUID_LEN + 1], template_id[TEMPLATE_ID_LEN + 1], other[ID_UUID_LEN + 1];
    request(p, "app:x", NULL, id, template_id);
    commit(p);
    struct err err;
    assert_int_equal(template_build_begin(p->r, id, &err), 0);
    request(p, "other", NULL, other, template_id);
    store_rollback(p->store);
    assert_null(template_build_find(p->r, TENANT_DEFAULT, str_of(other)));
    assert_int_equal(template_build_find(p->r, TENANT_DEFAULT, str_of(id))->status, TEMPLATE_WAITING);
    finish(p, id, LAYER_1); /* and the tag it is to get is still known */
    assert_string_equal(layer_of(p, "app:x"), LAYER_1);
}

static void an_interrupted_build_failed(void **state)
{
    struct place *p = *state;
    char id[ID_UUID_LEN + 1], waiting[ID_UUID_LEN + 1], template_id[TEMPLATE_ID_LEN + 1];
    struct err err;
    request(p, "app", NULL, id, template_id);
    assert_int_equal(template_build_begin(p->r, id, &err), 0);
    request(p, "app:v2", NULL, waiting, template_id);
    commit(p);
    again(p);
    const struct template_build *b = template_build_find(p->r, TENANT_DEFAULT, str_of(id));
    assert_int_equal(b->status, TEMPLATE_FAILED);
    assert_non_null(strstr(b->reason, "while this was being built"));
    assert_int_equal(template_build_find(p->r, TENANT_DEFAULT, str_of(waiting))->status, TEMPLATE_FAILED);
    /* One that waits makes room for the next. */
    request(p, "app", NULL, id, template_id);
    request(p, "app", NULL, waiting, template_id);
    assert_int_equal(template_build_find(p->r, TENANT_DEFAULT, str_of(id))->status, TEMPLATE_FAILED);
    assert_int_equal(template_build_fail(p->r, waiting, "3", "it broke", &err), 0);
    assert_string_equal(template_build_find(p->r, TENANT_DEFAULT, str_of(waiting))->reason_step, "3");
}

struct lines {
    size_t n;
    char last[256];
    uint64_t first;
};

static void count_line(void *ctx, const struct template_log *line)
{
    struct lines *l = ctx;
    if (l->n++ == 0)
        l->first = line->seq;
    (void)snprintf(l->last, sizeof(l->last), "%.*s", STR_ARG(line->message));
}

static struct lines log_of(struct place *p, const char *id, enum template_level least, uint64_t skip, uint64_t limit)
{
    struct lines l = {0};
    struct err err;
    assert_int_equal(template_log_each(p->r, id, least, skip, limit, count_line, &l, &err), 0);
    return l;
}

static void logs(void **state)
{
    struct place *p = *state;
    char id[ID_UUID_LEN + 1], template_id[TEMPLATE_ID_LEN + 1];
    struct err err;
    request(p, "app", NULL, id, template_id);
    for (int i = 0; i < 250; i++)
        assert_int_equal(template_log_add(p->r, id, i % 2 ? TEMPLATE_INFO : TEMPLATE_DEBUG, "1", STR("a line"), &err),
                         0);
    assert_int_equal(template_log_add(p->r, id, TEMPLATE_WARN, "", STR("\x1b[31mred\x1b[0m \xff\x01 \xc3\xa4\r"), &err),
                     0);
    struct lines l = log_of(p, id, TEMPLATE_DEBUG, 100, 100);
    assert_int_equal(l.n, 100);
    assert_int_equal(l.first, 101);
    l = log_of(p, id, TEMPLATE_DEBUG, 200, 100);
    assert_int_equal(l.n, 51);
    assert_string_equal(l.last, "red \xef\xbf\xbd? \xc3\xa4");
    assert_int_equal(log_of(p, id, TEMPLATE_DEBUG, 251, 100).n, 0);
    assert_int_equal(log_of(p, id, TEMPLATE_INFO, 0, 1000).n, 126);
    assert_int_equal(log_of(p, id, TEMPLATE_INFO, 100, 1000).n, 26);
    /* A flood ends in one line that says so; errors still come through. */
    for (int i = 0; i < TEMPLATE_LOG_LINES_MAX; i++)
        assert_int_equal(template_log_add(p->r, id, TEMPLATE_INFO, "1", STR("y"), &err), 0);
    uint64_t n = template_build_find(p->r, TENANT_DEFAULT, str_of(id))->n_logs;
    assert_int_equal(n, TEMPLATE_LOG_LINES_MAX + 1);
    assert_non_null(strstr(log_of(p, id, TEMPLATE_WARN, 1, 10).last, "The log is full"));
    assert_int_equal(template_log_add(p->r, id, TEMPLATE_ERROR, "1", STR("the end"), &err), 0);
    assert_string_equal(log_of(p, id, TEMPLATE_ERROR, 0, 10).last, "the end");
}

static void old_builds_go(void **state)
{
    struct place *p = *state;
    char id[ID_UUID_LEN + 1], first[ID_UUID_LEN + 1], template_id[TEMPLATE_ID_LEN + 1];
    struct err err;
    request(p, "app:keep", NULL, first, template_id);
    finish(p, first, LAYER_1);
    for (int i = 0; i < 3 * TEMPLATE_UNTAGGED_MAX; i++) {
        request(p, "app", NULL, id, template_id);
        if (i % 2)
            finish(p, id, LAYER_2);
        else
            assert_int_equal(template_build_fail(p->r, id, "1", "no", &err), 0);
    }
    assert_true(map_count(&p->r->builds) <= TEMPLATE_UNTAGGED_MAX + 3);
    assert_string_equal(layer_of(p, "app:keep"), LAYER_1);
    assert_string_equal(layer_of(p, "app"), LAYER_2);
}

static void uses(void **state)
{
    struct place *p = *state;
    char id[ID_UUID_LEN + 1], template_id[TEMPLATE_ID_LEN + 1];
    struct template_info info;
    struct err err;
    request(p, "app", NULL, id, template_id);
    template_spawned(p->r, template_id);
    template_spawned(p->r, template_id);
    commit(p);
    again(p);
    assert_int_equal(template_info_find(p->r, TENANT_DEFAULT, STR("app"), &info, &err), 0);
    assert_int_equal(info.n_spawns, 2);
    assert_true(info.spawned > 0);
    assert_int_equal(template_publish(p->r, TENANT_DEFAULT, STR("app"), true, &err), 0);
    assert_int_equal(template_info_find(p->r, TENANT_DEFAULT, STR("app"), &info, &err), 0);
    assert_true(info.is_public);

    template_spawned(p->r, template_id);
    assert_int_equal(template_remove(p->r, TENANT_DEFAULT, STR("app"), &err), 0);
    store_rollback(p->store);
    assert_int_equal(template_info_find(p->r, TENANT_DEFAULT, STR("app"), &info, &err), 0);
    assert_int_equal(info.n_spawns, 2);
    template_spawned(p->r, template_id);
    assert_int_equal(template_remove(p->r, TENANT_DEFAULT, STR("app"), &err), 0);
    assert_int_equal(map_count(&p->r->uses), 0);
    commit(p);
    again(p);
    assert_int_equal(map_count(&p->r->uses), 0); /* nor in the store */
}

static void names(void **state)
{
    static const struct {
        const char *text, *space, *name, *tag;
    } good[] = {
        {"app", "", "app", "default"},         {"App:V1.0", "", "app", "v1.0"},
        {"me/app", "me", "app", "default"},    {" me/app:x_y-z ", "me", "app", "x_y-z"},
        {"app:default", "", "app", "default"}, {"a-b:-c", "", "a-b", "-c"},
    };
    static const char *const bad[] = {"",         ":",    "app:", ":v1",  "/app",    "a/b/c",   "app:a:b", "a b",
                                      "\xc3\xa4", "../x", "me/",  "-app", "-me/app", "me/-app", " -app"};
    struct template_name n;
    struct err err;
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        assert_int_equal(template_name_parse(str_of(good[i].text), &n, &err), 0);
        assert_string_equal(n.space, good[i].space);
        assert_string_equal(n.name, good[i].name);
        assert_string_equal(n.tag, good[i].tag);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (template_name_parse(str_of(bad[i]), &n, &err) == 0)
            fail_msg("taken: %s", bad[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(a_build_becomes_a_template),
                                       TEST(tags),
                                       TEST(snapshots),
                                       TEST(what_is_undone_never_was),
                                       TEST(an_interrupted_build_failed),
                                       TEST(logs),
                                       TEST(old_builds_go),
                                       TEST(uses),
                                       cmocka_unit_test(names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
