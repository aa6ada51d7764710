/* SPDX-License-Identifier: Apache-2.0 */
/* Snapshots, forks, and what becomes of layers that nobody needs. */
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "sandbox/life/layers.h"
#include "sandbox/life/pause.h"
#include "sandbox/life/snapshot.h"
#include "sandbox/life/store.h"
#include "sandbox/network/network.h"
#include "sandbox/templates.h"
#include "sandbox/test_world.h"
#include "store/template_rows.h"

#include <fcntl.h>
#include <setjmp.h>
#include <unistd.h>

#include <cmocka.h>

static void on_layer(void *ctx, struct sandbox *sb, uint64_t bytes, const struct err *err)
{
    (void)bytes;
    world_on_done(ctx, sb, err);
}

struct taken {
    unsigned calls;
    char id[TEMPLATE_NAME_MAX + 1], layer[SUP_DIGEST_MAX], ref[200];
    struct err err;
};

static void on_snapshot(void *ctx, const struct template *t, const struct err *err)
{
    struct taken *k = ctx;
    k->calls++;
    k->err = err ? *err : (struct err){0};
    assert_true(!t == !!err);
    if (!t)
        return;
    assert_true(t->is_snapshot);
    (void)snprintf(k->id, sizeof(k->id), "%s", t->id);
    (void)snprintf(k->layer, sizeof(k->layer), "%s", t->layer);
    (void)snprintf(k->ref, sizeof(k->ref), "%s", t->ref);
}

static struct taken snapshot(struct world *w, struct sandbox *sb, const char *name)
{
    static struct taken k;
    struct err err;
    k = (struct taken){0};
    if (sandbox_snapshot(sb, &test_actor, str_of(name), false, on_snapshot, &k, &err) < 0)
        fail_msg("snapshot: %s", err.msg);
    assert_int_equal(k.calls, 0);
    WAIT(w, k.calls);
    if (k.err.code)
        fail_msg("snapshot: %s", k.err.msg);
    return k;
}

static void note_build(void *ctx, const struct store_build *row)
{
    const char **wanted = ctx;
    if (*wanted && strcmp(row->layer, *wanted) == 0)
        *wanted = NULL;
}

/* What of the store is on disk when nothing of its log is: as after a power cut, at worst. */
static bool is_settled(struct world *w, const char *layer)
{
    struct store *s = NULL;
    struct err err;
    AUTO_BUF struct buf file = BUF_INIT(64 << 20);
    AUTO_FREE char *copy = mem_printf("%s.cut", w->dir->db), *log = mem_printf("%s-wal", copy),
                   *shared = mem_printf("%s-shm", copy), *lock = mem_printf("%s.lock", copy);
    assert_int_equal(fd_read_file(AT_FDCWD, w->dir->db, &file), 0);
    assert_int_equal(fd_write_file(AT_FDCWD, copy, buf_str(&file), 0600), 0);
    bool is_store =
        buf_len(&file) && store_open(copy, &s, &err) == 0 && template_rows_each_build(s, note_build, &layer, &err) == 0;
    store_close(s);
    (void)unlink(copy), (void)unlink(log), (void)unlink(shared), (void)unlink(lock);
    return is_store && !layer;
}

static void kill_it(struct world *w, struct sandbox *sb)
{
    static struct world_outcome o;
    struct err err;
    o = (struct world_outcome){0};
    assert_int_equal(sandbox_kill(sb, &test_actor, world_on_done, &o, &err), 0);
    WAIT(w, o.calls && sandbox_info(sb)->state == SANDBOX_ENDED);
}

static struct sandbox *create_from(struct world *w, const char *ref)
{
    static struct world_outcome o;
    struct err err;
    struct sandbox_spec spec = {.template_ref = str_of(ref), .timeout_ms = 60000};
    o = (struct world_outcome){0};
    if (sandbox_create(w->core, &test_actor, &spec, world_on_done, &o, &err) < 0)
        fail_msg("create: %s", err.msg);
    WAIT(w, o.calls);
    assert_non_null(o.sb);
    return o.sb;
}

static void sandboxes_of_it(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    const char *id = sandbox_info(sb)->id;
    struct taken k = snapshot(w, sb, "");
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_RUNNING);
    assert_int_equal(strlen(k.layer), LAYER_NAME_LEN);
    struct sandbox *of = create_from(w, k.ref);
    assert_string_equal(world_agent(w, of)->layer, k.layer);
    assert_string_equal(sandbox_info(of)->template_id, k.id);
    assert_int_equal(sandbox_info(of)->cpu_milli, 1000);
    struct taken named = snapshot(w, sb, "before-lunch:v1");
    assert_non_null(strstr(named.ref, "before-lunch:v1"));
    (void)create_from(w, "before-lunch:v1");
    assert_int_equal(world_count_events(w, id, EVENT_SANDBOX_SNAPSHOT), 2);
    assert_int_equal(world_count_events(w, id, EVENT_SANDBOX_SNAPSHOTTED), 2);
    /* It outlives the sandbox, and the worker. */
    kill_it(w, sb);
    world_close(w);
    world_open(w);
    (void)create_from(w, k.ref);
}

/* Else its layer would be nobody's, and dropped as garbage. */
static void a_power_cut_does_not_take_its_name(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    const struct taken k = snapshot(w, sb, "first");
    WAIT(w, is_settled(w, k.layer));
    /* One that comes while the log is being folded, too. */
    char layers[4][SUP_DIGEST_MAX];
    for (size_t i = 0; i < ARRAY_SIZE(layers); i++) {
        const struct taken next = snapshot(w, sb, "");
        memcpy(layers[i], next.layer, sizeof(layers[i]));
        world_turns(w, 60);
    }
    for (size_t i = 0; i < ARRAY_SIZE(layers); i++)
        WAIT(w, is_settled(w, layers[i]));
}

static void refused(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    static struct taken k;
    struct err err;
    k = (struct taken){0};
    assert_int_equal(sandbox_snapshot(sb, &test_actor, STR("no such name!"), false, on_snapshot, &k, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    w->snapshot_error = ERR_RESOURCE_EXHAUSTED;
    assert_int_equal(sandbox_snapshot(sb, &test_actor, STR(""), false, on_snapshot, &k, &err), 0);
    WAIT(w, k.calls == 1);
    assert_int_equal(k.err.code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_RUNNING);
    w->snapshot_error = 0;
    kill_it(w, sb);
    assert_int_equal(sandbox_snapshot(sb, &test_actor, STR(""), false, on_snapshot, &k, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    char layer[LAYER_NAME_LEN + 1] = "layer-../../../../etc";
    struct world_outcome o = {0};
    assert_int_equal(sandbox_store_layer(world_sandbox(w, NULL), &test_actor, layer, false, on_layer, &o, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
}

/* One after the other; what pauses it waits; what ends it does not. */
static void crossing(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = sandbox_ref(world_sandbox(w, NULL));
    static struct taken a, b;
    static struct world_outcome paused, killed;
    struct err err;
    a = b = (struct taken){0};
    paused = killed = (struct world_outcome){0};
    w->holds = true;
    assert_int_equal(sandbox_snapshot(sb, &test_actor, STR(""), false, on_snapshot, &a, &err), 0);
    assert_int_equal(sandbox_snapshot(sb, &test_actor, STR(""), false, on_snapshot, &b, &err), 0);
    assert_int_equal(sandbox_pause(sb, &test_actor, true, world_on_done, &paused, &err), 0);
    assert_int_equal(sandbox_snapshot(sb, &test_actor, STR(""), false, on_snapshot, &b, &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
    WAIT(w, w->snapshots == 1);
    world_turns(w, 30);
    assert_int_equal(w->snapshots, 1);
    assert_int_equal(w->pauses, 0);
    world_answer_stored(w, 0);
    WAIT(w, a.calls == 1 && w->snapshots == 2);
    assert_int_equal(w->pauses, 0);
    w->holds = false;
    world_answer_stored(w, 0);
    WAIT(w, b.calls == 1 && paused.calls == 1);
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_PAUSED);
    /* Paused ones, too; and one that ends meanwhile. */
    (void)snapshot(w, sb, "");
    assert_int_equal(sandbox_info(sb)->state, SANDBOX_PAUSED);
    w->holds = true;
    assert_int_equal(sandbox_snapshot(sb, &test_actor, STR(""), false, on_snapshot, &a, &err), 0);
    assert_int_equal(sandbox_snapshot(sb, &test_actor, STR(""), false, on_snapshot, &b, &err), 0);
    WAIT(w, w->held_tag);
    w->holds = false;
    assert_int_equal(sandbox_kill(sb, &test_actor, world_on_done, &killed, &err), 0);
    assert_int_equal(b.calls, 2); /* nobody began it */
    assert_int_equal(b.err.code, ERR_UNAVAILABLE);
    WAIT(w, sandbox_info(sb)->state == SANDBOX_ENDED);
    world_answer_stored(w, 0);
    WAIT(w, a.calls == 2);
    assert_int_equal(a.err.code, ERR_OK);
    sandbox_unref(sb);
}

/* ---- forks ---- */

enum { MANY = 100 };

struct forking {
    unsigned made, failed, ends;
    struct sandbox *forks[MANY];
    bool seen[MANY];
    enum err_code code;
};

static void on_fork(void *ctx, size_t i, struct sandbox *fork, const struct err *err)
{
    struct forking *f = ctx;
    if (!fork && !err) {
        f->ends++;
        return;
    }
    assert_int_equal(f->ends, 0);
    assert_true(i < MANY && !f->seen[i]);
    f->seen[i] = true;
    f->made += fork != NULL;
    f->failed += err != NULL;
    f->code = err ? err->code : ERR_OK;
    f->forks[i] = fork;
}

static void forks(void **state)
{
    struct world *w = *state;
    struct pair metadata[] = {{STR("k"), STR("v")}}, envs[] = {{STR("A"), STR("1")}};
    json_t *policy = json_loads("{\"default\":\"deny\",\"rules\":[{\"allow\":\"example.com\"}]}", 0, NULL);
    struct network_spec network = {.policy = policy};
    struct sandbox_spec spec = {.timeout_ms = 70000,
                                .secure = true,
                                .private_traffic = true,
                                .auto_resume = true,
                                .metadata = metadata,
                                .n_metadata = 1,
                                .envs = envs,
                                .n_envs = 1,
                                .memory_bytes = 100 << 20,
                                .network = &network};
    struct sandbox *sb = world_sandbox(w, &spec);
    const struct sandbox_info *from = sandbox_info(sb);
    static struct forking f;
    struct err err;
    json_decref(policy);
    f = (struct forking){0};
    assert_int_equal(sandbox_fork(sb, &test_actor, false, 0, UINT64_MAX, on_fork, &f, &err), -1);
    assert_int_equal(sandbox_fork(sb, &test_actor, false, FORKS_MAX + 1, UINT64_MAX, on_fork, &f, &err), -1);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    assert_int_equal(sandbox_fork(sb, &test_actor, false, MANY, UINT64_MAX, on_fork, &f, &err), 0);
    assert_int_equal(f.made + f.failed, 0);
    WAIT(w, f.ends == 1);
    assert_int_equal(f.made, MANY);
    assert_int_equal(w->snapshots, 1);
    assert_int_equal(sandbox_count(w->core), MANY + 1);
    for (int i = 0; i < MANY; i++) {
        const struct sandbox_info *to = sandbox_info(f.forks[i]);
        assert_string_not_equal(to->id, from->id);
        assert_string_equal(to->template_id, from->template_id);
        assert_string_equal(to->template_alias, from->template_alias);
        assert_string_not_equal(to->access_token, from->access_token);
        assert_string_not_equal(to->traffic_token, from->traffic_token);
        assert_int_equal(to->memory_bytes, from->memory_bytes);
        assert_int_equal(to->timeout_ms, 70000);
        assert_true(to->auto_resume);
        assert_int_equal(to->n_metadata, 1);
        assert_int_equal(to->n_envs, from->n_envs);
        assert_true(json_equal(network_policy(f.forks[i]), network_policy(sb)));
        assert_int_equal(world_agent(w, f.forks[i])->layer[0], 'l');
    }
    assert_int_equal(world_count_events(w, from->id, EVENT_SANDBOX_FORK), 1);
    assert_string_equal(world_event_data(w, from->id, EVENT_SANDBOX_FORKED), "{\"count\":100}");
    assert_non_null(strstr(world_event_data(w, sandbox_info(f.forks[3])->id, EVENT_SANDBOX_CREATE), from->id));
}

static const char *fork_one(struct world *w, struct sandbox *sb)
{
    static struct forking f;
    struct err err;
    f = (struct forking){0};
    assert_int_equal(sandbox_fork(sb, &test_actor, false, 1, 60000, on_fork, &f, &err), 0);
    WAIT(w, f.ends == 1);
    assert_int_equal(f.made, 1);
    return f.forks[0]->layer;
}

static void forks_of_unchanged_files_share_a_layer(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    w->files_stay = true;
    const char *first = fork_one(w, sb), *second = fork_one(w, sb);
    assert_string_equal(first, second);
    assert_true(map_get(&w->layers, str_of(second)));
    assert_int_equal(map_count(&w->layers), 1);
    assert_int_equal(world_count_events(w, sb->info.id, EVENT_SANDBOX_SNAPSHOTTED), 1);
    assert_int_equal(world_count_events(w, sb->info.id, EVENT_SANDBOX_FORKED), 2);
    w->files_stay = false;
    const char *third = fork_one(w, sb);
    assert_string_not_equal(third, second);
    assert_false(layers_is_fresh(w->core, first) || layers_is_fresh(w->core, third));
    w->files_stay = true;
    assert_string_equal(fork_one(w, sb), third);
}

static void forks_that_fail(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    static struct forking f;
    struct err err;
    f = (struct forking){0};
    w->snapshot_error = ERR_RESOURCE_EXHAUSTED;
    assert_int_equal(sandbox_fork(sb, &test_actor, false, 3, 1000, on_fork, &f, &err), 0);
    WAIT(w, f.ends == 1);
    assert_int_equal(f.failed, 3);
    assert_int_equal(f.code, ERR_RESOURCE_EXHAUSTED);
    w->snapshot_error = 0;
    f = (struct forking){0};
    w->core->config.max_sandboxes = 3;
    assert_int_equal(sandbox_fork(sb, &test_actor, false, 5, 1000, on_fork, &f, &err), 0);
    WAIT(w, f.ends == 1);
    assert_int_equal(f.made, 2);
    assert_int_equal(f.failed, 3);
    w->core->config.max_sandboxes = 1200;
    f = (struct forking){0};
    w->create_error = ERR_INTERNAL;
    assert_int_equal(sandbox_fork(sb, &test_actor, false, 2, 1000, on_fork, &f, &err), 0);
    WAIT(w, f.ends == 1);
    assert_int_equal(f.failed, 2);
}

static void service_stops_while_forking(void **state)
{
    struct world *w = *state;
    struct sandbox *sb = world_sandbox(w, NULL);
    static struct forking f;
    struct err err;
    f = (struct forking){0};
    w->create_mute = true;
    assert_int_equal(sandbox_fork(sb, &test_actor, false, 40, 1000, on_fork, &f, &err), 0);
    WAIT(w, w->creates > 5);
    world_close(w);
    assert_int_equal(f.failed, 40);
    assert_int_equal(f.ends, 1);
}

/* ---- garbage ---- */

struct collected {
    unsigned calls;
    size_t n, dropped;
    char first[SUP_DIGEST_MAX];
};

static void on_collected(void *ctx, const struct layers_garbage *found, size_t n, const struct err *err)
{
    struct collected *c = ctx;
    assert_null(err);
    *c = (struct collected){.calls = 1, .n = n};
    for (size_t i = 0; i < n; i++)
        c->dropped += found[i].dropped;
    if (n)
        (void)snprintf(c->first, sizeof(c->first), "%s", found[0].layer);
}

static struct collected collect(struct world *w, bool dry_run)
{
    static struct collected c;
    struct err err;
    c = (struct collected){0};
    if (layers_collect(w->core, &test_actor, dry_run, on_collected, &c, &err) < 0)
        fail_msg("collect: %s", err.msg);
    assert_int_equal(c.calls, 0);
    WAIT(w, c.calls);
    return c;
}

struct my_root {
    struct layers_root root;
    const char *layer;
};

static void each_of_mine(struct layers_root *root, void (*fn)(void *ctx, const char *layer), void *ctx)
{
    fn(ctx, container_of(root, struct my_root, root)->layer);
}

static void garbage(void **state)
{
    struct world *w = *state;
    struct err err;
    static const char *const names[] = {"layer-aaaaaaaaaaaaaaaaaaaa", "layer-bbbbbbbbbbbbbbbbbbbb",
                                        "layer-cccccccccccccccccccc", "layer-dddddddddddddddddddd"};
    struct my_root mine = {.root.each = each_of_mine, .layer = names[1]};
    for (int i = 0; i < 4; i++)
        world_layer(w, names[i], i ? names[i - 1] : "");
    layers_root_add(w->core, &mine.root);
    struct collected c = collect(w, true);
    assert_int_equal(c.n, 2); /* a is below b */
    assert_int_equal(c.dropped, 0);
    assert_string_equal(c.first, names[3]);
    assert_int_equal(map_count(&w->layers), 4);
    c = collect(w, false);
    assert_int_equal(c.dropped, 2);
    assert_int_equal(map_count(&w->layers), 2);
    layers_root_remove(&mine.root);
    assert_int_equal(collect(w, false).dropped, 2);

    /* Forks need their layer, paused ones too; a snapshot as long as it is there. */
    struct sandbox *sb = world_sandbox(w, NULL);
    static struct forking f;
    f = (struct forking){0};
    assert_int_equal(sandbox_fork(sb, &test_actor, false, 1, 60000, on_fork, &f, &err), 0);
    WAIT(w, f.ends == 1);
    struct taken k = snapshot(w, sb, "kept");
    assert_int_equal(collect(w, false).n, 0);
    kill_it(w, f.forks[0]);
    assert_int_equal(collect(w, false).dropped, 1);
    assert_int_equal(map_count(&w->layers), 1);

    /* Nobody takes away what is used. */
    struct sandbox *user = create_from(w, k.ref);
    assert_int_equal(core_template_remove(w->core, &test_actor, str_of(k.ref), &err), -1);
    assert_int_equal(err.code, ERR_FAILED_PRECONDITION);
    assert_non_null(strstr(err.msg, sandbox_info(user)->id));
    kill_it(w, user);
    if (core_template_remove(w->core, &test_actor, str_of(k.ref), &err) < 0)
        fail_msg("remove: %s", err.msg);
    assert_int_equal(core_template_remove(w->core, &test_actor, str_of(k.ref), &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(collect(w, false).dropped, 1);
    assert_int_equal(map_count(&w->layers), 0);
}

static void count_collected(void *ctx, const struct layers_garbage *found UNUSED, size_t n UNUSED,
                            const struct err *err)
{
    *(unsigned *)ctx += err ? 100 : 1;
}

/* Its box is there still when its killer has been told. */
static void garbage_of_what_is_ending(void **state)
{
    struct world *w = *state;
    struct world_outcome o = {0};
    struct err err;
    unsigned calls = 0;
    struct sandbox *sb = world_sandbox(w, NULL);
    struct taken k = snapshot(w, sb, "kept");
    struct sandbox *user = create_from(w, k.ref);
    w->ended_is_late = true;
    assert_int_equal(sandbox_kill(user, &test_actor, world_on_done, &o, &err), 0);
    WAIT(w, o.calls);
    assert_int_equal(sandbox_info(user)->state, SANDBOX_STOPPING);
    assert_int_equal(core_template_remove(w->core, &test_actor, str_of(k.ref), &err), 0);
    assert_int_equal(layers_collect(w->core, &test_actor, false, count_collected, &calls, &err), 0);
    world_turns(w, 20);
    assert_int_equal(calls, 0);
    assert_int_equal(map_count(&w->layers), 1);
    world_end_agent(w, world_agent(w, user), SUP_CAUSE_KILLED);
    WAIT(w, calls);
    assert_int_equal(calls, 1);
    assert_int_equal(map_count(&w->layers), 0);

    assert_int_equal(sandbox_kill(sb, &test_actor, world_on_done, &o, &err), 0);
    assert_int_equal(layers_collect(w->core, &test_actor, false, count_collected, &calls, &err), 0);
    world_turns(w, 20);
    assert_int_equal(calls, 1);
    world_close(w);
    assert_int_equal(calls, 101);
    world_open(w);
}

/* A builder's layer is there for a while before anybody names it. */
static void fresh(void **state)
{
    struct world *w = *state;
    struct sandbox_spec spec = {.timeout_ms = 60000, .hidden = true};
    struct sandbox *sb = world_sandbox(w, &spec);
    static struct world_outcome o;
    struct err err;
    char layer[LAYER_NAME_LEN + 1];
    o = (struct world_outcome){0};
    assert_int_equal(sandbox_count(w->core), 0);
    assert_null(sandbox_find(w->core, str_of(sandbox_info(sb)->id)));
    assert_null(sandbox_only(w->core, &test_actor.who));
    layer_name_new(layer);
    assert_int_equal(sandbox_store_layer(sb, &test_actor, layer, false, on_layer, &o, &err), 0);
    WAIT(w, o.calls);
    assert_int_equal(o.err.code, ERR_OK);
    assert_int_equal(collect(w, false).n, 0);
    spec.layer = layer;
    struct sandbox *next = world_sandbox(w, &spec);
    assert_string_equal(world_agent(w, next)->layer, layer);
    world_close(w);
    world_open(w); /* whoever built is gone: so are its sandboxes */
    WAIT(w, w->kills == 2 && map_count(&w->agents) == 0);
    assert_int_equal(collect(w, false).dropped, 1);
}

struct pool_told {
    unsigned calls;
    struct pool_figures f;
};

static void on_figures(void *ctx, const struct pool_figures *f, const struct err *err)
{
    struct pool_told *to = ctx;
    assert_null(err);
    to->calls++;
    to->f = *f;
}

static void figures(void **state)
{
    struct world *w = *state;
    struct pool_told f = {0};
    struct err err;
    world_layer(w, "layer-aaaaaaaaaaaaaaaaaaaa", "");
    assert_int_equal(pool_figures(w->core, "", on_figures, &f, &err), 0);
    WAIT(w, f.calls);
    assert_string_equal(f.f.kind, "btrfs");
    assert_true(f.f.limits);
    assert_int_equal(f.f.total_bytes, 1000);
    assert_int_equal(f.f.layers, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(sandboxes_of_it, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(a_power_cut_does_not_take_its_name, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(refused, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(crossing, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(forks, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(forks_of_unchanged_files_share_a_layer, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(forks_that_fail, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(service_stops_while_forking, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(garbage, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(garbage_of_what_is_ending, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(fresh, world_setup, world_teardown),
        cmocka_unit_test_setup_teardown(figures, world_setup, world_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
