/* SPDX-License-Identifier: Apache-2.0 */
/* Keys from their making to their end, and what tenants are charged. */
#include "base/mem.h"
#include "sandbox/key.h"
#include "sandbox/life/pause.h"
#include "sandbox/life/snapshot.h"
#include "sandbox/templates.h"
#include "sandbox/tenant.h"
#include "sandbox/test_world.h"
#include "sandbox/volume/volumes.h"
#include "store/sandbox_rows.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct actor owner = {.name = "owner", .who = PRINCIPAL_OWNER};

static struct actor tenant_made(struct world *w, const char *name)
{
    struct actor a = {.name = name, .who.scope = SCOPE_ADMIN};
    struct err err;
    if (tenant_create(w->core, &owner, str_of(name), NULL, &err) < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(tenant_find(w->core, str_of(name), &a.who.tenant, &err), 0);
    a.who.view = a.who.tenant;
    return a;
}

static void limit(struct world *w, const char *name, enum quota what, int64_t most)
{
    int64_t limits[QUOTA_MAX];
    struct err err;
    for (size_t i = 0; i < QUOTA_MAX; i++)
        limits[i] = (size_t)what == i ? most : -1;
    assert_int_equal(tenant_set(w->core, &owner, str_of(name), limits, &err), 0);
}

static void made(struct world *w, const struct actor *actor, const struct key_spec *spec,
                 char key[static KEY_TEXT_LEN + 1])
{
    struct key_info info;
    struct err err;
    if (key_create(w->core, actor, spec, key, &info, &err) < 0)
        fail_msg("%s", err.msg);
}

static void each_has_a_share(void **state)
{
    size_t own[12] = {0}, all = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(own); i++) /* one after the other takes what it gets: half of what is left */
        while (quota_is_share(1000, all, own[i], 1))
            all++, own[i]++;
    assert_int_equal(own[0], 500);
    assert_int_equal(own[1], 250);
    assert_true(own[7] >= 1 && all <= 1000);
    assert_true(quota_is_share(1000, 0, 0, 500));
    assert_false(quota_is_share(1000, 0, 0, 501) || quota_is_share(1000, 1001, 0, 1) ||
                 quota_is_share(1000, 500, 0, SIZE_MAX));
}

static void keys_are_good_from_their_making_to_their_end(void **state)
{
    struct world *w = *state;
    struct actor a = tenant_made(w, "a");
    char first[KEY_TEXT_LEN + 1], second[KEY_TEXT_LEN + 1], third[KEY_TEXT_LEN + 1];
    struct principal who;
    struct key_info info;
    struct err err;
    assert_false(keys_exist(w->core));
    made(w, &a, &(struct key_spec){.name = STR("ci"), .scope = SCOPE_USE}, first);
    assert_true(keys_exist(w->core));
    assert_true(key_authenticate(w->core, str_of(first), &who));
    assert_int_equal(who.tenant, a.who.tenant);
    assert_int_equal(who.view, a.who.tenant);
    assert_int_equal(who.scope, SCOPE_USE);
    assert_string_equal(who.name, "ci");
    assert_false(key_authenticate(w->core, STR(""), &who));
    assert_false(key_authenticate(w->core, str_n(first, strlen(first) - 1), &who));
    assert_null(strstr(world_event_data(w, tenant_log(w->core, a.who.tenant), EVENT_KEY_CREATE), first));
    assert_non_null(
        strstr(world_event_data(w, tenant_log(w->core, a.who.tenant), EVENT_KEY_CREATE), "\"name\":\"ci\""));

    /* The old one goes on for as long as was said, also past another worker. */
    assert_int_equal(key_rotate(w->core, &a, STR("ci"), 3600 * 1000, second, &info, &err), 0);
    assert_true(key_authenticate(w->core, str_of(first), &who) && key_authenticate(w->core, str_of(second), &who));
    world_close(w);
    world_open(w);
    assert_true(key_authenticate(w->core, str_of(first), &who) && key_authenticate(w->core, str_of(second), &who));
    assert_int_equal(key_rotate(w->core, &a, STR("ci"), 0, third, &info, &err), 0);
    assert_false(key_authenticate(w->core, str_of(first), &who) || key_authenticate(w->core, str_of(second), &who));
    assert_true(key_authenticate(w->core, str_of(third), &who));

    /* What another tenant calls so is another key. */
    struct actor b = tenant_made(w, "b");
    assert_int_equal(key_revoke(w->core, &b, STR("ci"), &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(key_revoke(w->core, &b, str_of(who.key), &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    AUTO_FREE char *id = mem_strdup(who.key);
    const struct actor waits = {.name = "waits", .who = {.tenant = a.who.tenant, .view = a.who.tenant, .key = id}};
    assert_int_equal(key_still_good(w->core, &waits.who, &err), 0);
    assert_int_equal(key_revoke(w->core, &a, STR("ci"), &err), 0);
    assert_false(key_authenticate(w->core, str_of(third), &who));
    assert_int_equal(
        sandbox_create(w->core, &waits, &(struct sandbox_spec){.template_ref = STR("base")}, world_on_done, NULL, &err),
        -1);
    assert_int_equal(err.code, ERR_UNAUTHENTICATED); /* its turn has come too late */
    struct sandbox *sb = world_sandbox(w, NULL);
    assert_int_equal(sandbox_fork(sb, &waits, false, 1, UINT64_MAX, NULL, NULL, &err), -1);
    assert_int_equal(err.code, ERR_UNAUTHENTICATED);

    assert_int_equal(key_create(w->core, &a,
                                &(struct key_spec){.name = STR("short"), .scope = SCOPE_READ, .expires_ms = 1}, first,
                                &info, &err),
                     0);
    usec_t until = clock_mono() + 5 * USEC_PER_SEC;
    while (key_authenticate(w->core, str_of(first), &who) && clock_mono() < until)
        ;
    assert_false(key_authenticate(w->core, str_of(first), &who));
    who = (struct principal){.key = info.id};
    assert_int_equal(key_still_good(w->core, &who, &err), -1);
}

static void bad_keys_and_tenants_are_refused(void **state)
{
    static const struct {
        const char *name, *sandbox;
        enum scope scope;
        enum err_code code;
    } bad[] = {
        {"", "", SCOPE_USE, ERR_INVALID_ARGUMENT},          {"a b", "", SCOPE_USE, ERR_INVALID_ARGUMENT},
        {"-a", "", SCOPE_USE, ERR_INVALID_ARGUMENT},        {"key-a", "", SCOPE_USE, ERR_INVALID_ARGUMENT},
        {"a/b", "", SCOPE_USE, ERR_INVALID_ARGUMENT},       {"a", "", SCOPE_NONE, ERR_INVALID_ARGUMENT},
        {"a", "", SCOPE_OPERATOR, ERR_INVALID_ARGUMENT},    {"a", "nobody", SCOPE_USE, ERR_NOT_FOUND},
        {"a", "nobody", SCOPE_ADMIN, ERR_INVALID_ARGUMENT}, {"taken", "", SCOPE_USE, ERR_ALREADY_EXISTS},
    };
    static const char *const names[] = {"", "A", "1a", "-a", "a b", "a/b", "default", "a.b"};
    struct world *w = *state;
    char key[KEY_TEXT_LEN + 1];
    struct key_info info;
    struct err err;
    made(w, &test_actor, &(struct key_spec){.name = STR("taken"), .scope = SCOPE_ADMIN}, key);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct key_spec spec = {.name = str_of(bad[i].name), .scope = bad[i].scope, .sandbox = str_of(bad[i].sandbox)};
        assert_int_equal(key_create(w->core, &test_actor, &spec, key, &info, &err), -1);
        assert_int_equal(err.code, bad[i].code);
    }
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_int_equal(tenant_create(w->core, &owner, str_of(names[i]), NULL, &err), -1);
    assert_int_equal(tenant_remove(w->core, &owner, STR("default"), &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
}

static int create(struct world *w, const struct actor *actor, struct world_outcome *o, struct err *err)
{
    *o = (struct world_outcome){0};
    return sandbox_create(w->core, actor,
                          &(struct sandbox_spec){.template_ref = STR("base"),
                                                 .timeout_ms = 300000,
                                                 .memory_bytes = 1 << 28,
                                                 .cpu_milli = 500,
                                                 .disk_bytes = 1 << 28,
                                                 .allow_internet = true},
                          world_on_done, o, err);
}

static const struct quota_user *quota_of(struct world *w, const char *name)
{
    struct tenant_info info;
    struct err err;
    assert_int_equal(tenant_info(w->core, str_of(name), &info, &err), 0);
    return info.quota;
}

static void what_is_scarce_is_shared_with_others(void **state)
{
    struct world *w = *state;
    struct err err;
    assert_true(quota_has_room(w->core, 10, 9, 9));
    assert_int_equal(quota_check_template(w->core, TENANT_DEFAULT, TEMPLATE_BUILT_MAX - 1, &err), 0);
    struct actor a = tenant_made(w, "a");
    assert_false(quota_has_room(w->core, 10, 9, 9) || quota_has_room(w->core, 10, 5, 5));
    assert_true(quota_has_room(w->core, 10, 5, 0));
    assert_int_equal(quota_check_template(w->core, TENANT_DEFAULT, TEMPLATE_BUILT_MAX / 2, &err), -1);
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(quota_check_template(w->core, a.who.tenant, TEMPLATE_BUILT_MAX / 2 - 1, &err), 0);
}

static void texts_of_templates_are_shared(void **state)
{
    struct world *w = *state;
    const struct template *made;
    struct err err;
    AUTO_FREE char *text = mem_zalloc((130 << 20) + 1);
    memset(text, 'x', 130 << 20);
    assert_int_equal(template_add_snapshot(core_templates(w->core),
                                           &(struct template_snapshot){.tenant = TENANT_DEFAULT,
                                                                       .of = &(struct template){.start_cmd = text},
                                                                       .layer = "layer-aaaaaaaaaaaaaaaaaaaa"},
                                           &made, &err),
                     0);
    assert_int_equal(quota_check_template(w->core, TENANT_DEFAULT, 1, &err), 0);
    const struct actor a = tenant_made(w, "a");
    assert_int_equal(quota_check_template(w->core, TENANT_DEFAULT, 1, &err), -1);
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(quota_check_template(w->core, a.who.tenant, 1, &err), 0);
}

static void memory_is_shared(void **state)
{
    struct world *w = *state;
    struct charge first = {.core = w->core, .tenant = tenant_made(w, "a").who.tenant};
    struct charge second = {.core = w->core, .tenant = tenant_made(w, "b").who.tenant};
    struct err err;
    assert_int_equal(charge_memory(&first, 256 << 20, &err), 0);
    assert_int_equal(charge_memory(&first, 1, &err), -1);
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(charge_memory(&second, 128 << 20, &err), 0);
    charge_release(&first);
    charge_release(&second);
    second.core = w->core;
    assert_int_equal(charge_memory(&second, 256 << 20, &err), 0);
    charge_release(&second);
    assert_int_equal(quota_of(w, "a")->bytes + quota_of(w, "b")->bytes, 0);
}

static void connections_are_shared(void **state)
{
    enum { MOST = 8192 };
    static const uint64_t one[QUOTA_CHARGED] = {[QUOTA_CONNECTIONS] = 1};
    static struct charge all[MOST + 2];
    struct world *w = *state;
    uint64_t a = tenant_made(w, "a").who.tenant, b = tenant_made(w, "b").who.tenant;
    struct err err;
    for (size_t i = 0; i < MOST; i++)
        assert_int_equal(charge_take(&all[i], w->core, a, one, &err), 0);
    assert_int_equal(charge_take(&all[MOST], w->core, a, one, &err), -1);
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(charge_take(&all[MOST + 1], w->core, b, one, &err), 0);
    charge_release(&all[0]);
    charge_release(&all[MOST + 1]);
    assert_int_equal(charge_take(&all[0], w->core, a, one, &err), 0);
    for (size_t i = 0; i < MOST; i++)
        charge_release(&all[i]);
    assert_int_equal(quota_of(w, "a")->used[QUOTA_CONNECTIONS], 0);
}

static void what_is_charged_is_given_back(void **state)
{
    struct world *w = *state;
    struct actor a = tenant_made(w, "a");
    struct world_outcome first, second, killed = {0};
    struct err err;
    limit(w, "a", QUOTA_SANDBOXES, 1);
    assert_int_equal(create(w, &a, &first, &err), 0);
    WAIT(w, first.calls);
    assert_int_equal(first.err.code, ERR_OK);
    assert_int_equal(quota_of(w, "a")->used[QUOTA_SANDBOXES], 1);
    assert_int_equal(quota_of(w, "a")->used[QUOTA_MEMORY], 1 << 28);
    assert_int_equal(create(w, &a, &second, &err), -1);
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(create(w, &test_actor, &second, &err), 0); /* another tenant's */
    WAIT(w, second.calls);

    /* Another worker knows what there is. */
    AUTO_FREE char *id = mem_strdup(sandbox_info(first.sb)->id);
    struct sandbox *sb = world_restart(w, id);
    assert_int_equal(sandbox_info(sb)->tenant, a.who.tenant);
    assert_int_equal(quota_of(w, "a")->used[QUOTA_SANDBOXES], 1);
    assert_int_equal(create(w, &a, &first, &err), -1);
    assert_int_equal(tenant_remove(w->core, &owner, STR("a"), &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);

    assert_int_equal(sandbox_kill(sb, &a, world_on_done, &killed, &err), 0);
    WAIT(w, killed.calls);
    for (size_t i = 0; i < QUOTA_CHARGED; i++)
        assert_int_equal(quota_of(w, "a")->used[i], 0);
    assert_int_equal(create(w, &a, &first, &err), 0);
    WAIT(w, first.calls);
    killed = (struct world_outcome){0};
    assert_int_equal(sandbox_kill(first.sb, &a, world_on_done, &killed, &err), 0);
    assert_int_equal(tenant_remove(w->core, &owner, STR("a"), &err), 0); /* what has been killed holds nobody up */
    WAIT(w, killed.calls);
    assert_int_equal(create(w, &a, &first, &err), -1);
    assert_int_equal(err.code, ERR_UNAUTHENTICATED);
}

static bool has_record(struct world *w, const char *id)
{
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct store_sandbox row;
    struct err err;
    return sandbox_rows_get(w->store, id, &arena, &row, &err) == 0;
}

static void nobody_pushes_out_records_of_others(void **state)
{
    struct world *w = *state;
    const struct actor a = tenant_made(w, "a"), *const actors[] = {&a, &test_actor, &test_actor, &test_actor};
    char ids[ARRAY_SIZE(actors)][ID_SANDBOX_LEN + 1];
    struct err err;
    for (size_t i = 0; i < ARRAY_SIZE(actors); i++) {
        struct world_outcome made = {0}, killed = {0};
        assert_int_equal(create(w, actors[i], &made, &err), 0);
        WAIT(w, made.calls);
        memcpy(ids[i], sandbox_info(made.sb)->id, sizeof(ids[i]));
        assert_int_equal(sandbox_kill(made.sb, actors[i], world_on_done, &killed, &err), 0);
        WAIT(w, killed.calls && sandbox_info(killed.sb)->state == SANDBOX_ENDED);
    }
    world_close(w);
    w->config.keep_ended = 2;
    world_open(w);
    WAIT(w, !has_record(w, ids[1]) && !has_record(w, ids[2]));
    assert_true(has_record(w, ids[0]) && has_record(w, ids[3]));
    assert_int_equal(world_count_events(w, ids[0], EVENT_SANDBOX_ENDED), 1);
}

static void on_volume(void *ctx, const struct volume *v, const struct err *err)
{
    (void)v, (void)err;
    ++*(unsigned *)ctx;
}

static void each_limit_is_kept(void **state)
{
    static const struct {
        enum quota what;
        int64_t most;
        enum err_code code;
    } limits[] = {
        {QUOTA_MEMORY, (1 << 28) - 1, ERR_PERMISSION_DENIED},
        {QUOTA_CPU, 499, ERR_PERMISSION_DENIED},
        {QUOTA_DISK, (1 << 28) - 1, ERR_PERMISSION_DENIED},
        {QUOTA_CREATES, 1, ERR_RESOURCE_EXHAUSTED},
    };
    struct world *w = *state;
    struct actor a = tenant_made(w, "a");
    struct world_outcome o;
    unsigned volumes = 0;
    struct err err;
    assert_int_equal(create(w, &a, &o, &err), 0);
    WAIT(w, o.calls);
    for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
        limit(w, "a", limits[i].what, limits[i].most);
        if (limits[i].what == QUOTA_CREATES) {
            assert_int_equal(create(w, &a, &o, &err), 0);
            WAIT(w, o.calls);
        }
        assert_int_equal(create(w, &a, &o, &err), -1);
        assert_int_equal(err.code, limits[i].code);
        limit(w, "a", limits[i].what, 0);
    }
    limit(w, "a", QUOTA_DISK, 1 << 30);
    assert_int_equal(volume_make(w->core, &a, STR("v"), 0, on_volume, &volumes, &err), -1);
    assert_int_equal(err.code, ERR_PERMISSION_DENIED);
    assert_int_equal(volume_make(w->core, &a, STR("v"), 1 << 28, on_volume, &volumes, &err), 0);
    WAIT(w, volumes);
    assert_int_equal(quota_of(w, "a")->used[QUOTA_DISK], 3 << 28);
    assert_int_equal(volume_drop(w->core, &a, STR("v"), on_volume, &volumes, &err), 0);
    WAIT(w, volumes == 2);
    assert_int_equal(quota_of(w, "a")->used[QUOTA_DISK], 2 << 28);

    limit(w, "a", QUOTA_TEMPLATES, 1);
    struct template_request request = {.name = STR("app")};
    const struct template_build *build;
    assert_int_equal(core_template_request(w->core, &a, &request, &build, &err), 0);
    assert_int_equal(core_template_request(w->core, &a, &request, &build, &err), 0); /* the same template */
    request.name = STR("other");
    assert_int_equal(core_template_request(w->core, &a, &request, &build, &err), -1);
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(core_template_request(w->core, &test_actor, &request, &build, &err), 0);
}

/* By coved, once it is limited: also what was there before. */
static void what_there_is_on_disk_counts(void **state)
{
    struct world *w = *state;
    struct actor a = tenant_made(w, "a");
    struct world_outcome o;
    unsigned volumes = 0;
    struct err err;
    assert_int_equal(create(w, &a, &o, &err), 0);
    WAIT(w, o.calls);
    assert_int_equal(w->create_owner, 0);
    limit(w, "a", QUOTA_MEMORY, 1 << 30);
    limit(w, "a", QUOTA_DISK, 1 << 30);
    WAIT(w, w->owners == 2);
    assert_int_equal(w->owner.owner, a.who.tenant + 1);
    assert_string_equal(w->owner.what, sandbox_info(o.sb)->id);
    assert_int_equal(w->owner_limit, 2ULL << 30);
    assert_int_equal(create(w, &test_actor, &o, &err), 0);
    WAIT(w, o.calls);
    assert_int_equal(w->create_owner, 0);
    assert_int_equal(create(w, &a, &o, &err), 0);
    WAIT(w, o.calls);
    assert_int_equal(w->create_owner, a.who.tenant + 1);
    assert_int_equal(volume_make(w->core, &a, STR("v"), 1 << 28, on_volume, &volumes, &err), 0);
    WAIT(w, volumes);
    assert_int_equal(w->volume_owner, a.who.tenant + 1);

    /* Another worker tells of all: the tenant, two sandboxes, a volume. */
    AUTO_FREE char *id = mem_strdup(sandbox_info(o.sb)->id);
    w->owners = 0;
    (void)world_restart(w, id);
    WAIT(w, w->owners == 4);
    limit(w, "a", QUOTA_DISK, 0);
    WAIT(w, w->owners == 5);
    assert_int_equal(w->owner_limit, 0);
    assert_string_equal(w->owner.what, "");
}

/* coved is asked again; until then nothing begins, and who asks is told why. */
static void a_limit_that_fails_is_asked_for_again(void **state)
{
    struct world *w = *state;
    struct actor a = tenant_made(w, "a");
    const struct owner *disk = tenant_owner(w->core, a.who.tenant);
    struct world_outcome o;
    struct err err;
    w->owner_error = ERR_INTERNAL;
    limit(w, "a", QUOTA_DISK, 1 << 30);
    WAIT(w, disk->failures == 1);
    assert_int_equal(create(w, &a, &o, &err), -1);
    assert_int_equal(err.code, ERR_UNAVAILABLE);
    assert_non_null(strstr(err.msg, "can't be put in force now: the pool is away"));
    assert_int_equal(create(w, &test_actor, &o, &err), 0);
    WAIT(w, o.calls);
    const usec_t at = clock_mono();
    WAIT(w, disk->failures == 2);
    assert_true(clock_mono() - at < 5 * USEC_PER_SEC && disk->alarm.at > clock_mono() + USEC_PER_SEC);
    w->owner_error = ERR_OK;
    w->owners = 0;
    WAIT(w, disk->failures == 0);
    assert_int_equal(create(w, &a, &o, &err), 0);
    WAIT(w, o.calls);
    assert_non_null(o.sb);

    /* With what has been made since: another worker, whose first question fails. */
    AUTO_FREE char *id = mem_strdup(sandbox_info(o.sb)->id);
    w->owner_error = ERR_INTERNAL;
    (void)world_restart(w, id);
    disk = tenant_owner(w->core, a.who.tenant);
    WAIT(w, disk->failures == 1);
    w->owner_error = ERR_OK;
    w->owners = 0;
    WAIT(w, w->owners == 2 && disk->failures == 0);
    assert_string_equal(w->owner.what, id);
}

static void at_the_bound_nothing_begins_on_new_files(void **state)
{
    struct world *w = *state;
    struct actor a = tenant_made(w, "a");
    const struct owner *disk = tenant_owner(w->core, a.who.tenant);
    struct world_outcome o, paused, memory, back;
    struct err err;
    assert_int_equal(create(w, &a, &paused, &err), 0);
    assert_int_equal(create(w, &a, &memory, &err), 0);
    WAIT(w, paused.calls && memory.calls);
    struct sandbox *sb = paused.sb, *other = memory.sb;
    assert_int_equal(sandbox_pause(sb, &a, false, world_on_done, &paused, &err), 0);
    assert_int_equal(sandbox_pause(other, &a, true, world_on_done, &memory, &err), 0);
    WAIT(w, sandbox_info(sb)->state == SANDBOX_PAUSED && sandbox_info(other)->state == SANDBOX_PAUSED);
    w->owner_used = 2ULL << 30;
    limit(w, "a", QUOTA_DISK, 1 << 30);
    WAIT(w, disk->is_full);
    assert_int_equal(world_count_events(w, SERVICE_LOG_ID, EVENT_LIMIT_TENANT), 1);
    assert_int_equal(create(w, &a, &o, &err), -1);
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(err.reason, ERR_POOL_FULL);
    assert_non_null(strstr(err.msg, "snapshots and templates have 2 GiB on disk, and may have 2 GiB"));
    const struct sandbox_resume how = {0};
    assert_int_equal(sandbox_resume(sb, &a, &how, world_on_done, &back, &err), -1);
    assert_int_equal(err.reason, ERR_POOL_FULL);
    back = (struct world_outcome){0};
    assert_int_equal(sandbox_resume(other, &a, &how, world_on_done, &back, &err), 0); /* it has its files */
    WAIT(w, back.calls);
    assert_int_equal(sandbox_info(other)->state, SANDBOX_RUNNING);

    w->owner_used = 4096;
    WAIT(w, !disk->is_full);
    back = (struct world_outcome){0};
    assert_int_equal(sandbox_resume(sb, &a, &how, world_on_done, &back, &err), 0);
    WAIT(w, back.calls);
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_RUNNING);
    assert_int_equal(world_count_events(w, SERVICE_LOG_ID, EVENT_LIMIT_TENANT), 1);
}

static void names_are_each_tenants_and_public_ones_for_all(void **state)
{
    struct world *w = *state;
    struct actor a = tenant_made(w, "a"), b = tenant_made(w, "b");
    const struct template *t;
    struct err err;
    world_template(w, "app", NULL, NULL); /* the default tenant's */
    assert_int_equal(core_template_find(w->core, TENANT_DEFAULT, STR("app"), &t, &err), 0);
    AUTO_FREE char *id = mem_strdup(t->id);
    assert_int_equal(core_template_find(w->core, a.who.view, STR("app"), &t, &err), -1);
    assert_int_equal(core_template_find(w->core, a.who.view, str_of(id), &t, &err), -1);
    assert_int_equal(core_template_find(w->core, a.who.view, STR("base"), &t, &err), 0); /* a file */
    assert_int_equal(core_template_publish(w->core, &a, STR("app"), true, &err), -1);
    assert_int_equal(core_template_publish(w->core, &test_actor, STR("app"), true, &err), 0);
    assert_int_equal(core_template_find(w->core, a.who.view, STR("app"), &t, &err), 0);
    assert_int_equal(core_template_remove(w->core, &a, STR("app"), &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);

    /* What another tenant publishes is for all who know its id, and takes no name. */
    struct template_request request = {.tenant = a.who.tenant, .name = STR("tool")};
    struct template_result result = {.layer = "layer-0123456789abcdefghij"};
    const struct template_build *build;
    struct template_registry *r = core_templates(w->core);
    assert_int_equal(template_request(r, &request, &build, &err), 0);
    AUTO_FREE char *build_id = mem_strdup(build->id), *tool = mem_strdup(build->template_id);
    assert_int_equal(template_build_begin(r, build_id, &err), 0);
    assert_int_equal(template_build_done(r, build_id, &result, &err), 0);
    assert_int_equal(core_template_publish(w->core, &a, STR("tool"), true, &err), 0);
    assert_int_equal(core_template_find(w->core, a.who.view, STR("tool"), &t, &err), 0);
    assert_int_equal(core_template_find(w->core, b.who.view, STR("tool"), &t, &err), -1);
    assert_int_equal(core_template_find(w->core, b.who.view, str_of(tool), &t, &err), 0);
    assert_null(template_build_find(r, b.who.view, str_of(build_id)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_has_a_share),
        cmocka_unit_test_setup_teardown(keys_are_good_from_their_making_to_their_end, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(bad_keys_and_tenants_are_refused, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(connections_are_shared, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(what_is_scarce_is_shared_with_others, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(texts_of_templates_are_shared, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(memory_is_shared, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(what_is_charged_is_given_back, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(nobody_pushes_out_records_of_others, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(each_limit_is_kept, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(what_there_is_on_disk_counts, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(a_limit_that_fails_is_asked_for_again, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(at_the_bound_nothing_begins_on_new_files, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(names_are_each_tenants_and_public_ones_for_all, world_setup, world_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
