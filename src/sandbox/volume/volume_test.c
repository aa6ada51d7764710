/* SPDX-License-Identifier: Apache-2.0 */
/* Volumes: made, mounted wherever a sandbox comes back, opened for their files, dropped when nobody has them. */
#include "base/mem.h"
#include "sandbox/life/pause.h"
#include "sandbox/life/snapshot.h"
#include "sandbox/tenant.h"
#include "sandbox/test_world.h"
#include "sandbox/volume/volumes.h"

#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

struct outcome {
    unsigned calls;
    struct sandbox *sb;
    char id[64];
    struct err err;
};

static struct outcome outcomes[8];

static struct outcome *outcome(int i)
{
    outcomes[i] = (struct outcome){0};
    return &outcomes[i];
}

static void on_done(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct outcome *o = ctx;
    o->calls++;
    o->sb = sb;
    o->err = err ? *err : (struct err){0};
}

static void on_volume(void *ctx, const struct volume *v, const struct err *err)
{
    struct outcome *o = ctx;
    o->calls++;
    if (v)
        (void)snprintf(o->id, sizeof(o->id), "%s", v->id);
    o->err = err ? *err : (struct err){0};
}

static const char *make_as(struct world *w, const struct actor *actor, const char *name)
{
    struct outcome *o = outcome(7);
    struct err err;
    if (volume_make(w->core, actor, str_of(name), 1 << 20, on_volume, o, &err) < 0)
        fail_msg("make: %s", err.msg);
    assert_int_equal(o->calls, 0);
    assert_null(volume_find(w->core, actor->who.tenant, str_of(name)));
    WAIT(w, o->calls);
    if (o->err.code)
        fail_msg("make: %s", o->err.msg);
    return o->id;
}

static const char *make(struct world *w, const char *name)
{
    return make_as(w, &test_actor, name);
}

static int drop(struct world *w, const char *ref, struct outcome *o, struct err *err)
{
    return volume_drop(w->core, &test_actor, str_of(ref), on_volume, o, err);
}

static bool note_name(void *ctx, const struct volume *v)
{
    char *names = ctx;
    size_t at = strlen(names);
    (void)snprintf(names + at, 64 - at, "%s ", v->name);
    return true;
}

static void on_usage(void *ctx, uint64_t bytes, const struct err *err)
{
    assert_null(err);
    *(uint64_t *)ctx = bytes;
}

static void made_and_dropped(void **state)
{
    struct world *w = *state;
    struct err err;
    struct outcome *o = outcome(0);
    char names[64] = "", id[64];
    uint64_t bytes = 0;
    (void)snprintf(id, sizeof(id), "%s", make(w, "data"));
    assert_int_equal(strlen(id), VOLUME_ID_LEN);
    (void)make(w, "a.b-c_D");
    const struct volume *v = volume_find(w->core, TENANT_DEFAULT, STR("data"));
    assert_string_equal(v->id, id);
    assert_ptr_equal(volume_find(w->core, TENANT_DEFAULT, str_of(id)), v);
    assert_int_equal(v->limit_bytes, 1 << 20);
    assert_int_equal(strlen(v->token), 40);
    volume_each(w->core, TENANT_DEFAULT, note_name, names);
    assert_string_equal(names, "a.b-c_D data ");
    static const char *const bad[] = {
        "",    "a b",  "-x",       "-",
        "a/b", "..x/", "\xc3\xa9", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(volume_make(w->core, &test_actor, str_of(bad[i]), 0, on_volume, o, &err), -1);
        assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    }
    assert_int_equal(volume_make(w->core, &test_actor, STR("data"), 0, on_volume, o, &err), -1);
    assert_int_equal(err.code, ERR_ALREADY_EXISTS);
    assert_int_equal(volume_usage(w->core, TENANT_DEFAULT, STR("data"), on_usage, &bytes, &err), 0);
    WAIT(w, bytes);
    assert_int_equal(bytes, 4096);
    w->volume_error = ERR_RESOURCE_EXHAUSTED;
    assert_int_equal(volume_make(w->core, &test_actor, STR("third"), 0, on_volume, o, &err), 0);
    WAIT(w, o->calls == 1);
    assert_int_equal(o->err.code, ERR_RESOURCE_EXHAUSTED);
    assert_null(volume_find(w->core, TENANT_DEFAULT, STR("third")));
    w->volume_error = 0;
    (void)make(w, "third");
    /* Another worker knows them. */
    world_close(w);
    world_open(w);
    v = volume_find(w->core, TENANT_DEFAULT, STR("data"));
    assert_string_equal(v->id, id);
    assert_int_equal(v->limit_bytes, 1 << 20);
    o = outcome(0);
    w->volume_refusals = 3; /* what has just ended has it still */
    assert_int_equal(drop(w, "data", o, &err), 0);
    assert_int_equal(o->calls, 0);
    assert_int_equal(world_count_events(w, id, EVENT_VOLUME_DROP), 1); /* stored before coved could hear of it */
    WAIT(w, o->calls);
    assert_int_equal(o->err.code, ERR_OK);
    assert_int_equal(w->volume_refusals, 0);
    assert_null(volume_find(w->core, TENANT_DEFAULT, str_of(id)));
    assert_int_equal(drop(w, "data", o, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    world_close(w);
    world_open(w);
    assert_null(volume_find(w->core, TENANT_DEFAULT, STR("data")));
    assert_non_null(volume_find(w->core, TENANT_DEFAULT, STR("a.b-c_D")));
}

struct told {
    struct core *core;
    unsigned calls;
    size_t known;
    struct err err;
};

static bool count_known(void *ctx, const struct volume *v)
{
    struct told *t = ctx;
    t->known += v->used_bytes == 4096;
    return true;
}

static void on_usages(void *ctx, const struct err *err)
{
    struct told *t = ctx;
    t->calls++;
    t->err = err ? *err : (struct err){0};
    t->known = 0;
    volume_each(t->core, TENANT_DEFAULT, count_known, t);
}

static void of_all_at_once(void **state)
{
    struct world *w = *state;
    enum { N = 2 * SUP_VOLUMES_MAX + 6, ROUND = 3 };
    struct told told[4];
    struct err err;
    char name[16];
    for (size_t i = 0; i < ARRAY_SIZE(told); i++)
        told[i] = (struct told){.core = w->core};
    assert_int_equal(volume_usages(w->core, on_usages, &told[0], &err), 0);
    WAIT(w, told[0].calls); /* of none */
    assert_int_equal(w->usage_asks, 0);
    for (int i = 0; i < N; i++) {
        (void)snprintf(name, sizeof(name), "v%d", i);
        (void)make(w, name);
    }
    /* The first begins a round; the others come too late for that, and are told together after the next. */
    for (size_t i = 0; i < ARRAY_SIZE(told); i++)
        assert_int_equal(volume_usages(w->core, on_usages, &told[i], &err), 0);
    assert_int_equal(told[0].calls, 1);
    WAIT(w, told[0].calls == 2);
    assert_int_equal(told[3].calls, 0);
    WAIT(w, told[3].calls);
    for (size_t i = 0; i < ARRAY_SIZE(told); i++) {
        assert_int_equal(told[i].err.code, ERR_OK);
        assert_int_equal(told[i].known, N);
    }
    assert_int_equal(w->usage_asks, 2 * ROUND);
    /* What coved refuses ends the round: nobody takes some of them for all. */
    w->volume_error = ERR_INTERNAL;
    assert_int_equal(volume_usages(w->core, on_usages, &told[0], &err), 0);
    WAIT(w, told[0].calls == 3);
    assert_int_equal(told[0].err.code, ERR_INTERNAL);
    assert_int_equal(w->usage_asks, 2 * ROUND + 1);
    w->volume_error = 0;
    /* The core ends in the middle of it. */
    assert_int_equal(volume_usages(w->core, on_usages, &told[0], &err), 0);
    assert_int_equal(volume_usages(w->core, on_usages, &told[1], &err), 0);
    world_close(w);
    assert_int_equal(told[0].calls, 4);
    assert_int_equal(told[0].err.code, ERR_UNAVAILABLE);
    assert_int_equal(told[1].err.code, ERR_UNAVAILABLE);
    world_open(w);
}

static void use(struct world *w, enum err_code expected)
{
    struct volume_mount mount = {STR("data"), STR("/mnt"), false, false, {0}};
    struct sandbox_spec spec = {.timeout_ms = 60000, .mounts = &mount, .n_mounts = 1, .template_ref = STR("base")};
    struct outcome *made = outcome(1), *opened = outcome(2);
    uint64_t bytes = 0;
    struct err err[3] = {0};
    int r = sandbox_create(w->core, &test_actor, &spec, on_done, made, &err[0]);
    assert_int_equal(volume_open(w->core, &test_actor, STR("data"), on_done, opened, &err[1]), r);
    assert_int_equal(volume_usage(w->core, TENANT_DEFAULT, STR("data"), on_usage, &bytes, &err[2]), r);
    assert_int_equal(r, expected ? -1 : 0);
    for (size_t i = 0; i < ARRAY_SIZE(err) && r < 0; i++) {
        assert_int_equal(err[i].code, expected);
        assert_non_null(strstr(err[i].msg, "volume data is not in this pool"));
    }
    if (r < 0)
        return;
    WAIT(w, made->calls && opened->calls && bytes);
    assert_int_equal(made->err.code + opened->err.code, ERR_OK);
    volume_release(w->core, opened->sb);
    sandbox_unref(opened->sb);
}

/* A start with another pool: names and tokens are no longer to be had from anywhere, once they are forgotten. */
static void of_another_pool(void **state)
{
    struct world *w = *state;
    struct err err;
    struct outcome *o;
    char id[VOLUME_ID_LEN + 1], other[VOLUME_ID_LEN + 1], gone[VOLUME_ID_LEN + 1], token[64];
    (void)snprintf(id, sizeof(id), "%s", make(w, "data"));
    (void)snprintf(token, sizeof(token), "%s", volume_find(w->core, TENANT_DEFAULT, STR("data"))->token);
    (void)snprintf(other, sizeof(other), "%s", make(w, "other"));
    (void)snprintf(gone, sizeof(gone), "%s", make(w, "gone"));
    /* Nobody knows whether this one was made, and it was not. */
    o = outcome(0);
    w->volume_error = ERR_UNAVAILABLE;
    assert_int_equal(volume_make(w->core, &test_actor, STR("half"), 0, on_volume, o, &err), 0);
    WAIT(w, o->calls);
    /* Nor whether this one was dropped, and it was; the other was not. */
    o = outcome(0);
    assert_int_equal(drop(w, "gone", o, &err), 0);
    WAIT(w, o->calls);
    mem_free(map_del(&w->volumes, str_of(gone)));
    w->volume_error = ERR_INTERNAL;
    o = outcome(0);
    assert_int_equal(drop(w, "data", o, &err), 0);
    WAIT(w, o->calls);
    w->volume_error = 0;
    assert_int_equal(volume_make(w->core, &test_actor, STR("half"), 0, on_volume, o, &err), -1);
    assert_int_equal(err.code, ERR_ALREADY_EXISTS);

    AUTO_FREE char *there = map_del(&w->volumes, str_of(id));
    mem_free(map_del(&w->volumes, str_of(other)));
    for (int i = 0; i < 2; i++) {
        world_close(w);
        world_open(w);
        world_turns(w, 50);
        use(w, ERR_FAILED_PRECONDITION);
        assert_false(volume_is_in_pool(volume_find(w->core, TENANT_DEFAULT, STR("data"))));
    }
    (void)make(w, "half"); /* these were forgotten */
    (void)make(w, "gone");
    assert_int_equal(volume_make(w->core, &test_actor, STR("data"), 0, on_volume, outcome(0), &err), -1);
    assert_int_equal(err.code, ERR_ALREADY_EXISTS);
    o = outcome(0);
    assert_int_equal(drop(w, "other", o, &err), 0);
    WAIT(w, o->calls);
    assert_int_equal(o->err.code, ERR_OK);
    assert_null(volume_find(w->core, TENANT_DEFAULT, STR("other")));

    /* It is back. */
    assert_null(map_put(&w->volumes, str_of(id), TAKE_PTR(there)));
    world_close(w);
    world_open(w);
    world_turns(w, 50);
    assert_string_equal(volume_find(w->core, TENANT_DEFAULT, STR("data"))->id, id);
    assert_string_equal(volume_find(w->core, TENANT_DEFAULT, STR("data"))->token, token);
    use(w, ERR_OK);
    assert_true(volume_is_in_pool(volume_find(w->core, TENANT_DEFAULT, STR("data"))));
    assert_null(volume_find(w->core, TENANT_DEFAULT, STR("other")));
}

static void pause_files(struct world *w, struct sandbox *sb)
{
    struct outcome *o = outcome(6);
    struct err err;
    assert_int_equal(sandbox_pause(sb, &test_actor, false, on_done, o, &err), 0);
    WAIT(w, o->calls);
    assert_int_equal(o->err.code, ERR_OK);
}

static void on_fork(void *ctx, size_t i, struct sandbox *fork, const struct err *err)
{
    struct outcome *o = ctx;
    (void)i;
    if (fork || err)
        on_done(ctx, fork, err);
    else
        o->id[0] = 'e';
}

static bool is_mounted_twice(void *ctx, const struct volume *v)
{
    (void)ctx;
    assert_int_equal(v->mounted, 2);
    return true;
}

static void mounted(void **state)
{
    struct world *w = *state;
    struct err err;
    char id[64], expected[300];
    (void)snprintf(id, sizeof(id), "%s", make(w, "data"));
    struct volume_mount mounts[] = {{STR("data"), STR("/mnt/data"), false, false, {0}},
                                    {str_of(id), STR("/home/user/ro"), true, false, {0}}};
    struct sandbox_spec spec = {.timeout_ms = 60000, .mounts = mounts, .n_mounts = 2, .template_ref = STR("base")};
    struct sandbox *sb = world_sandbox(w, &spec);
    (void)snprintf(expected, sizeof(expected), "%s:/mnt/data;%s:/home/user/ro:ro;", id, id);
    assert_string_equal(world_agent(w, sb)->mounted, expected);
    assert_int_equal(sandbox_info(sb)->n_mounts, 2);
    assert_int_equal(volume_find(w->core, TENANT_DEFAULT, STR("data"))->mounted, 1);
    assert_int_equal(drop(w, "data", outcome(0), &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(err.msg, sandbox_info(sb)->id));

    struct volume_mount by_id = {str_of(id), STR("/x"), false, false, {0}};
    struct sandbox_spec other = {.timeout_ms = 60000, .mounts = &by_id, .n_mounts = 1};
    struct sandbox *second = world_sandbox(w, &other);
    assert_int_equal(volume_find(w->core, TENANT_DEFAULT, STR("data"))->mounted, 2);
    volume_each(w->core, TENANT_DEFAULT, is_mounted_twice, NULL);
    struct outcome *gone = outcome(0);
    assert_int_equal(sandbox_kill(second, &test_actor, on_done, gone, &err), 0);
    WAIT(w, gone->calls);

    /* Wherever it comes back. */
    pause_files(w, sb);
    assert_int_equal(drop(w, "data", outcome(0), &err), -1);
    struct outcome *o = outcome(0);
    assert_int_equal(sandbox_resume(sb, &test_actor, &(struct sandbox_resume){0}, on_done, o, &err), 0);
    WAIT(w, o->calls);
    assert_string_equal(world_agent(w, sb)->mounted, expected);
    o = outcome(0);
    assert_int_equal(sandbox_fork(sb, &test_actor, false, 1, 60000, on_fork, o, &err), 0);
    WAIT(w, o->id[0]);
    assert_string_equal(world_agent(w, o->sb)->mounted, expected);
    assert_int_equal(volume_find(w->core, TENANT_DEFAULT, STR("data"))->mounted, 2);

    /* Not there, not clean, twice, in the way. */
    static const struct {
        const char *name, *path;
    } bad[] = {{"other", "/mnt"}, {"data", "mnt"},        {"data", "/"},    {"data", "/a/../b"}, {"data", "/a//b"},
               {"data", "/a/"},   {"data", "/proc/self"}, {"data", "/dev"}, {"data", ""}};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct volume_mount m = {str_of(bad[i].name), str_of(bad[i].path), false, false, {0}};
        spec.mounts = &m;
        spec.n_mounts = 1;
        assert_int_equal(sandbox_create(w->core, &test_actor, &spec, on_done, outcome(1), &err), -1);
        assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    }
    mounts[1].path = mounts[0].path;
    spec.mounts = mounts;
    spec.n_mounts = 2;
    assert_int_equal(sandbox_create(w->core, &test_actor, &spec, on_done, outcome(1), &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);

    /* Nobody hears of one whose volume is missing; files of a kept one stay. */
    w->mount_error = ERR_NOT_FOUND;
    spec.n_mounts = 1;
    o = outcome(1);
    assert_int_equal(sandbox_create(w->core, &test_actor, &spec, on_done, o, &err), 0);
    WAIT(w, o->calls);
    assert_null(o->sb);
    assert_non_null(strstr(o->err.msg, "mount volume data"));
    /* A path that turns out to be a file or a link is the request's mistake, not the service's failure. */
    w->mount_error = ERR_FAILED_PRECONDITION;
    o = outcome(1);
    assert_int_equal(sandbox_create(w->core, &test_actor, &spec, on_done, o, &err), 0);
    WAIT(w, o->calls);
    assert_null(o->sb);
    assert_int_equal(o->err.code, ERR_INVALID_ARGUMENT);
    assert_int_equal(strncmp(o->err.msg, "mount volume data: ", 19), 0);
    w->mount_error = ERR_INTERNAL;
    pause_files(w, sb);
    o = outcome(1);
    assert_int_equal(sandbox_resume(sb, &test_actor, &(struct sandbox_resume){0}, on_done, o, &err), 0);
    WAIT(w, o->calls);
    assert_int_equal(o->err.code, ERR_INTERNAL);
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_PAUSED);
    w->mount_error = 0;
    char of[ID_SANDBOX_LEN + 1];
    memcpy(of, sandbox_info(sb)->id, sizeof(of));
    world_close(w);
    world_open(w);
    sb = sandbox_find(w->core, str_of(of));
    assert_int_equal(sandbox_info(sb)->n_mounts, 2);
    o = outcome(1);
    assert_int_equal(sandbox_resume(sb, &test_actor, &(struct sandbox_resume){0}, on_done, o, &err), 0);
    WAIT(w, o->calls);
    assert_int_equal(o->err.code, ERR_OK);
    assert_string_equal(world_agent(w, sb)->mounted, expected);
}

/* Its files are all there are: who can't take what lies in the way out of it would have lost them. */
static void files_in_the_way(void **state)
{
    static const enum err_code ways[] = {ERR_FAILED_PRECONDITION /* a link, a file */, ERR_NOT_FOUND};
    struct world *w = *state;
    (void)make(w, "data");
    w->is_flag_up = true;
    world_template(w, "web", "cat", "flag");
    struct volume_mount mount = {STR("data"), STR("/mnt"), false, false, {0}};
    struct sandbox_spec spec = {.timeout_ms = 60000, .mounts = &mount, .n_mounts = 1, .template_ref = STR("web")};
    struct outcome *o = outcome(0);
    struct err err;
    assert_int_equal(sandbox_create(w->core, &test_actor, &spec, on_done, o, &err), 0);
    WAIT(w, o->calls);
    assert_non_null(o->sb);
    struct sandbox *sb = o->sb;
    const char *id = sandbox_info(sb)->id;
    for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
        world_pause(w, sb, false);
        w->mount_error = ways[i];
        world_resume(w, sb, NULL);
        assert_non_null(
            strstr(world_event_data(w, id, EVENT_SANDBOX_RESUMED), "\"volumes_failed\":\"mount volume data: "));
        assert_non_null(strstr(sandbox_info(sb)->volumes_failed, "mount volume data: "));
        assert_int_equal(world_count_events(w, id, EVENT_VOLUME_REFUSED), i + 1);
        assert_int_equal(world_count_events(w, id, EVENT_VOLUME_MOUNTED), i + 1);
        assert_string_equal(world_agent(w, sb)->mounted, "");
        /* What would write to where the volume is not is not started. */
        assert_int_equal(world_agent(w, sb)->launches, 0);
        w->mount_error = 0;
        world_pause(w, sb, false);
        assert_int_equal(world_count_events(w, id, EVENT_VOLUME_UNMOUNTED), i + 1);
        world_resume(w, sb, NULL);
        assert_null(strstr(world_event_data(w, id, EVENT_SANDBOX_RESUMED), "volumes_failed"));
        assert_null(sandbox_info(sb)->volumes_failed);
        assert_non_null(strstr(world_agent(w, sb)->mounted, ":/mnt;"));
        assert_int_equal(world_agent(w, sb)->launches, 2);
    }
}

/* Under the volume's id; its mounts in the sandbox's, too. */
static void recorded(void **state)
{
    struct world *w = *state;
    struct err err;
    char id[64], of[ID_SANDBOX_LEN + 1];
    (void)snprintf(id, sizeof(id), "%s", make(w, "data"));
    assert_int_equal(world_count_events(w, id, EVENT_VOLUME_CREATE), 1);
    assert_non_null(strstr(world_event_data(w, id, EVENT_VOLUME_CREATE), "\"name\":\"data\""));
    assert_int_equal(world_count_events(w, id, EVENT_VOLUME_CREATED), 1);
    struct volume_mount mount = {STR("data"), STR("/mnt"), true, false, {0}};
    struct sandbox_spec spec = {.timeout_ms = 60000, .mounts = &mount, .n_mounts = 1};
    struct sandbox *sb = world_sandbox(w, &spec);
    memcpy(of, sandbox_info(sb)->id, sizeof(of));
    assert_int_equal(world_count_events(w, id, EVENT_VOLUME_MOUNTED), 1);
    assert_non_null(strstr(world_event_data(w, id, EVENT_VOLUME_MOUNTED), of));
    assert_non_null(strstr(world_event_data(w, of, EVENT_VOLUME_MOUNTED), id));
    assert_non_null(strstr(world_event_data(w, of, EVENT_VOLUME_MOUNTED), "\"path\":\"/mnt\",\"read_only\":true"));
    assert_int_equal(drop(w, "data", outcome(0), &err), -1);
    assert_non_null(strstr(world_event_data(w, id, EVENT_VOLUME_REFUSED), "\"what\":\"drop\""));
    assert_int_equal(volume_make(w->core, &test_actor, STR("data"), 0, on_volume, outcome(0), &err), -1);
    assert_non_null(strstr(world_event_data(w, id, EVENT_VOLUME_REFUSED), "\"what\":\"create\""));
    for (int i = 0; i < 100; i++) /* whoever goes on asking does not fill the log */
        assert_int_equal(drop(w, "data", outcome(0), &err), -1);
    assert_in_range(world_count_events(w, id, EVENT_VOLUME_REFUSED), 3, 30);

    world_pause(w, sb, true);
    assert_int_equal(world_count_events(w, id, EVENT_VOLUME_UNMOUNTED), 0);
    sb = world_restart(w, of);
    world_resume(w, sb, &(struct sandbox_resume){.cold = true});
    assert_int_equal(world_count_events(w, id, EVENT_VOLUME_UNMOUNTED), 1);
    assert_int_equal(world_count_events(w, of, EVENT_VOLUME_UNMOUNTED), 1);
    assert_int_equal(world_count_events(w, id, EVENT_VOLUME_MOUNTED), 2);
    world_pause(w, sb, true);
    world_lose_memory(w);
    sb = world_restart(w, of);
    assert_int_equal(world_count_events(w, id, EVENT_VOLUME_UNMOUNTED), 2);
    w->mount_error = ERR_INTERNAL;
    struct world_outcome o = {0};
    assert_int_equal(world_resume_begin(sb, NULL, &o, &err), 0);
    WAIT(w, o.calls);
    assert_non_null(strstr(world_event_data(w, id, EVENT_VOLUME_REFUSED), "\"what\":\"mount\""));
    assert_int_equal(world_count_events(w, of, EVENT_VOLUME_REFUSED), 1);
    w->mount_error = 0;
    world_resume(w, sb, NULL);
    struct outcome *gone = outcome(0);
    assert_int_equal(sandbox_kill(sb, &test_actor, on_done, gone, &err), 0);
    WAIT(w, gone->calls && sandbox_info(sb)->state == SANDBOX_ENDED);
    assert_int_equal(world_count_events(w, id, EVENT_VOLUME_UNMOUNTED), 3);
    assert_int_equal(world_count_events(w, id, EVENT_VOLUME_MOUNTED), 3);

    /* Our own looking into it is none of its mounts. */
    struct outcome *a = outcome(1);
    assert_int_equal(volume_open(w->core, &test_actor, STR("data"), on_done, a, &err), 0);
    WAIT(w, a->calls);
    volume_release(w->core, a->sb);
    sandbox_unref(a->sb);
    assert_int_equal(world_count_events(w, id, EVENT_VOLUME_MOUNTED), 3);
    w->volume_error = ERR_INTERNAL;
    gone = outcome(0);
    assert_int_equal(drop(w, "data", gone, &err), 0);
    WAIT(w, gone->calls);
    assert_non_null(strstr(world_event_data(w, id, EVENT_VOLUME_FAILED), "\"what\":\"drop\""));
    w->volume_error = 0;
    gone = outcome(0);
    assert_int_equal(drop(w, "data", gone, &err), 0);
    WAIT(w, gone->calls);
    assert_int_equal(gone->err.code, ERR_OK);
    assert_int_equal(world_count_events(w, id, EVENT_VOLUME_DROP), 2);
    assert_int_equal(world_count_events(w, id, EVENT_VOLUME_DROPPED), 1);

    /* Its log outlives it, for a while. */
    world_close(w);
    world_open(w);
    w->core->config.keep_ended_ms = 1;
    WAIT(w, world_count_events(w, id, EVENT_VOLUME_DROPPED) == 0);
}

static void opened(void **state)
{
    struct world *w = *state;
    struct err err;
    (void)make(w, "data");
    struct outcome *a = outcome(0), *b = outcome(1), *c = outcome(2);
    assert_int_equal(volume_open(w->core, &test_actor, STR("none"), on_done, a, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(volume_open(w->core, &test_actor, STR("data"), on_done, a, &err), 0);
    assert_int_equal(volume_open(w->core, &test_actor, STR("data"), on_done, b, &err), 0);
    WAIT(w, a->calls && b->calls);
    if (a->err.code)
        fail_msg("open: %s", a->err.msg);
    assert_ptr_equal(a->sb, b->sb);
    assert_int_equal(w->creates, 1);
    assert_int_equal(sandbox_count(w->core), 0);
    assert_int_equal(volume_find(w->core, TENANT_DEFAULT, STR("data"))->mounted, 0);
    assert_non_null(strstr(world_agent(w, a->sb)->mounted, ":/volume;"));
    assert_true(world_agent(w, a->sb)->confined);
    assert_int_equal(volume_open(w->core, &test_actor, STR("data"), on_done, c, &err), 0);
    assert_int_equal(c->calls, 0);
    WAIT(w, c->calls);
    assert_ptr_equal(c->sb, a->sb);
    struct sandbox *sb = a->sb;
    for (int i = 0; i < 3; i++) {
        volume_release(w->core, sb);
        sandbox_unref(sb);
    }
    /* It does not keep the volume from being dropped, nor does one that is being made. */
    struct outcome *d = outcome(3);
    assert_int_equal(drop(w, "data", d, &err), 0);
    WAIT(w, d->calls);
    assert_int_equal(d->err.code, ERR_OK);
    assert_int_equal(w->kills, 1);
    (void)make(w, "data");
    a = outcome(0), d = outcome(3);
    assert_int_equal(volume_open(w->core, &test_actor, STR("data"), on_done, a, &err), 0);
    assert_int_equal(drop(w, "data", d, &err), 0);
    WAIT(w, d->calls && a->calls);
    assert_int_equal(d->err.code, ERR_OK);
    assert_int_not_equal(a->err.code, ERR_OK);
    (void)make(w, "data");
    a = outcome(0);
    w->create_mute = true;
    assert_int_equal(volume_open(w->core, &test_actor, STR("data"), on_done, a, &err), 0);
    world_close(w); /* and nobody waits in vain */
    assert_int_equal(a->calls, 1);
}

/* They count for no limit of sandboxes, so they have one of their own. */
static void opened_by_the_dozen(void **state)
{
    struct world *w = *state;
    struct sandbox *all[VOLUMES_OPEN_MAX + 1];
    struct outcome *o;
    struct err err;
    char name[16];
    for (int i = 0; i <= VOLUMES_OPEN_MAX; i++) {
        (void)snprintf(name, sizeof(name), "v%d", i);
        (void)make(w, name);
    }
    for (int i = 0; i < VOLUMES_OPEN_MAX; i++) {
        o = outcome(0);
        (void)snprintf(name, sizeof(name), "v%d", i);
        assert_int_equal(volume_open(w->core, &test_actor, str_of(name), on_done, o, &err), 0);
        WAIT(w, o->calls);
        assert_non_null(o->sb);
        all[i] = o->sb;
    }
    /* All are in use. */
    (void)snprintf(name, sizeof(name), "v%d", VOLUMES_OPEN_MAX);
    assert_int_equal(volume_open(w->core, &test_actor, str_of(name), on_done, outcome(0), &err), -1);
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    for (int i = 7; i < 9; i++) {
        volume_release(w->core, all[i]);
        world_turns(w, 5);
    }
    o = outcome(0);
    assert_int_equal(volume_open(w->core, &test_actor, str_of(name), on_done, o, &err), 0);
    WAIT(w, o->calls);
    assert_non_null(o->sb);
    all[VOLUMES_OPEN_MAX] = o->sb;
    for (int i = 0; i <= VOLUMES_OPEN_MAX; i++) {
        assert_int_equal(sandbox_info(all[i])->state == SANDBOX_RUNNING, i != 7);
        if (i < 7 || i > 8)
            volume_release(w->core, all[i]);
        sandbox_unref(all[i]);
    }
}

/* None of whom has opened all that it may keeps others from their own. */
static void opened_by_tenants(void **state)
{
    enum { SHARE = VOLUMES_OPEN_MAX / 2 };
    const struct actor owner = {.name = "owner", .who = PRINCIPAL_OWNER};
    struct actor actors[2] = {{.name = "a"}, {.name = "b"}};
    struct world *w = *state;
    struct sandbox *all[SHARE + 1];
    struct err err;
    char name[16];
    for (size_t i = 0; i < ARRAY_SIZE(actors); i++) {
        struct principal *who = &actors[i].who;
        assert_int_equal(tenant_create(w->core, &owner, str_of(actors[i].name), NULL, &err), 0);
        assert_int_equal(tenant_find(w->core, str_of(actors[i].name), &who->tenant, &err), 0);
        who->view = who->tenant;
    }
    for (int i = 0; i < SHARE + 2; i++) {
        const struct actor *by = &actors[i > SHARE];
        struct outcome *o = outcome(0);
        (void)snprintf(name, sizeof(name), "v%d", i);
        (void)make_as(w, by, name);
        int r = volume_open(w->core, by, str_of(name), on_done, o, &err);
        assert_int_equal(r, i == SHARE ? -1 : 0);
        if (r < 0) {
            assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
            continue;
        }
        WAIT(w, o->calls);
        assert_non_null(o->sb);
        all[MIN(i, SHARE)] = o->sb;
    }
    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        volume_release(w->core, all[i]);
        sandbox_unref(all[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(made_and_dropped, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(of_another_pool, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(of_all_at_once, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(mounted, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(files_in_the_way, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(recorded, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(opened_by_the_dozen, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(opened_by_tenants, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(opened, world_setup, world_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
