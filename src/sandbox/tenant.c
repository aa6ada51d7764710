/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/tenant.h"
#include "base/mem.h"
#include "sandbox/guard/guard_life.h"
#include "sandbox/life/checkpoint.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "sandbox/volume/volumes.h"
#include "template/builds.h"
#include "wire/supervisor.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>

enum { TENANTS_MAX = 10000, KEYS_MAX = 10000, GIVEN_MAX = 512 };

struct tenant {
    uint64_t number;
    char *name;
    usec_t created;
    struct quota_user quota;
    size_t n_keys;
};

struct key_hash {
    unsigned char bytes[KEY_HASH_SIZE];
};

struct key {
    char id[KEY_ID_LEN + 1];
    struct tenant *tenant;
    char *name, *sandbox; /* sandbox NULL: all */
    enum scope scope;
    struct key_hash hash, old_hash;
    usec_t created, expires, old_until; /* old_until 0: there is no old_hash */
};

struct tenants {
    struct core *core;
    struct map by_name, by_number; /* struct tenant */
    struct map keys, keys_by_hash; /* struct key, by id; by what it is now, and what it was */
    struct key_hash builtin;
    bool has_builtin;
    char prefix[KEY_PREFIX_MAX + 1]; /* of new keys */
};

static struct str hash_str(const struct key_hash *hash)
{
    return str_n(hash->bytes, sizeof(hash->bytes));
}

static void hash_of(struct str key, struct key_hash *ret_hash)
{
    (void)SHA256((const unsigned char *)key.p, key.n, ret_hash->bytes);
}

static struct tenant *tenant_get(const struct core *core, uint64_t number)
{
    return map_get_u64(&core->tenants->by_number, number);
}

struct quota_user *tenant_quota(struct core *core, uint64_t number)
{
    struct tenant *t = tenant_get(core, number);
    return t ? &t->quota : NULL;
}

bool tenant_has_others(const struct core *core)
{
    return map_count(&core->tenants->by_number) > 1;
}

const char *tenant_name(struct core *core, uint64_t number)
{
    const struct tenant *t = tenant_get(core, number);
    return t ? t->name : NULL;
}

/* ---- who is it? ---- */

void tenant_set_key(struct core *core, struct str key)
{
    ssize_t end = str_find_char(key, '_');
    core->tenants->has_builtin = key.n > 0;
    if (end >= 0 && end < KEY_PREFIX_MAX)
        (void)snprintf(core->tenants->prefix, sizeof(core->tenants->prefix), "%.*s_", (int)end, key.p);
    hash_of(key, &core->tenants->builtin);
}

bool tenant_has_keys(const struct core *core)
{
    return core->tenants->has_builtin || map_count(&core->tenants->keys);
}

bool tenant_authenticate(struct core *core, struct str given, struct principal *ret_who)
{
    const struct tenants *all = core->tenants;
    struct key_hash hash;
    usec_t now = clock_real();
    if (given.n < SUP_KEY_LEAST || given.n > GIVEN_MAX)
        return false;
    hash_of(given, &hash);
    if (all->has_builtin && str_eq_secret(hash_str(&hash), hash_str(&all->builtin))) {
        *ret_who = (struct principal){.scope = SCOPE_OPERATOR};
        return true;
    }
    /* How far a guess gets in the table tells of a hash, and nothing of what has it. */
    const struct key *k = map_get(&all->keys_by_hash, hash_str(&hash));
    if (!k || (k->expires && k->expires <= now) ||
        (!str_eq_secret(hash_str(&hash), hash_str(&k->hash)) && k->old_until <= now))
        return false;
    bool operates = k->scope == SCOPE_ADMIN && k->tenant->number == TENANT_DEFAULT && !k->sandbox;
    *ret_who = (struct principal){.tenant = k->tenant->number,
                                  .view = k->tenant->number,
                                  .scope = operates ? SCOPE_OPERATOR : k->scope,
                                  .key = k->id,
                                  .name = k->name,
                                  .sandbox = k->sandbox};
    return true;
}

int tenant_still_good(const struct core *core, const struct principal *who, struct err *err)
{
    const struct key *k = who->key ? map_get(&core->tenants->keys, str_of(who->key)) : NULL;
    if (!who->key || (k && (!k->expires || k->expires > clock_real())))
        return 0;
    return err_set(err, ERR_UNAUTHENTICATED, "the API key was revoked, or has expired");
}

static bool name_is(struct str name, size_t max, const char *set)
{
    return name.n && name.n <= max && name.p[0] != '-' && str_is_of(name, set);
}

static int tenant_of_name(struct core *core, struct str name, struct tenant **ret_tenant, struct err *err)
{
    *ret_tenant = map_get(&core->tenants->by_name, name);
    if (*ret_tenant)
        return 0;
    return err_set(err, ERR_NOT_FOUND, "there is no tenant '%.*s'", STR_ARG_MAX(name, 64));
}

int tenant_find(struct core *core, struct str name, uint64_t *ret_number, struct err *err)
{
    struct tenant *t;
    if (tenant_of_name(core, name, &t, err) < 0)
        return -1;
    *ret_number = t->number;
    return 0;
}

int tenant_of_log(struct core *core, const char *id, uint64_t *ret_number, struct err *err)
{
    const struct sandbox *sb = map_get(&core->by_id, str_of(id));
    const struct volume *v = volume_find(core, TENANT_ANY, str_of(id));
    if (sb || v) {
        *ret_number = sb ? sb->info.tenant : v->tenant;
        return 0;
    }
    if (!id_is_sandbox(str_of(id)))
        return owner_rows_get(core->config.store, id, ret_number, err) < 0 ? -1 : 0;
    struct arena arena = {0};
    struct store_sandbox row = {0};
    int r = sandbox_rows_get(core->config.store, id, &arena, &row, err);
    *ret_number = row.tenant;
    arena_fini(&arena);
    return r;
}

/* ---- the tables ---- */

static struct tenant *tenant_add(struct tenants *all, uint64_t number, struct str name, usec_t created)
{
    struct tenant *t = mem_new(struct tenant);
    t->number = number;
    t->name = mem_strndup(name.p, name.n);
    t->created = created;
    (void)map_put(&all->by_name, name, t);
    (void)map_put_u64(&all->by_number, number, t);
    return t;
}

static void tenant_free(struct tenants *all, struct tenant *t)
{
    (void)map_del(&all->by_name, str_of(t->name));
    (void)map_del_u64(&all->by_number, t->number);
    MEM_FREE(t->name, t);
}

static void key_untable(struct tenants *all, struct key *k)
{
    (void)map_del(&all->keys, str_of(k->id));
    (void)map_del(&all->keys_by_hash, hash_str(&k->hash));
    if (k->old_until)
        (void)map_del(&all->keys_by_hash, hash_str(&k->old_hash));
    k->tenant->n_keys--;
}

static void key_table(struct tenants *all, struct key *k)
{
    (void)map_put(&all->keys, str_of(k->id), k);
    (void)map_put(&all->keys_by_hash, hash_str(&k->hash), k);
    if (k->old_until)
        (void)map_put(&all->keys_by_hash, hash_str(&k->old_hash), k);
    k->tenant->n_keys++;
}

static void key_free(struct key *k)
{
    MEM_FREE(k->name, k->sandbox, k);
}

static void load_tenant(void *ctx, const struct store_tenant *row)
{
    (void)tenant_add(ctx, row->number, str_of(row->name), row->created_at);
}

static void load_limit(void *ctx, uint64_t number, const char *what, uint64_t most)
{
    struct tenants *all = ctx;
    struct tenant *t = map_get_u64(&all->by_number, number);
    for (size_t i = 0; t && i < QUOTA_MAX; i++)
        if (strcmp(quota_names[i], what) == 0)
            t->quota.limits[i] = most;
}

/* As they are stored: numbers never change their meaning. */
static const enum scope stored_scopes[] = {SCOPE_NONE, SCOPE_READ, SCOPE_USE, SCOPE_ADMIN, SCOPE_APPROVE};

static void load_key(void *ctx, const struct store_key *row)
{
    struct tenants *all = ctx;
    struct tenant *t = map_get_u64(&all->by_number, row->tenant);
    if (!t || strlen(row->id) != KEY_ID_LEN || row->hash.n != KEY_HASH_SIZE || row->scope < 1 ||
        row->scope >= (int)ARRAY_SIZE(stored_scopes))
        return;
    struct key *k = mem_new(struct key);
    memcpy(k->id, row->id, KEY_ID_LEN);
    k->tenant = t;
    k->name = mem_strdup(row->name);
    k->sandbox = *row->sandbox ? mem_strdup(row->sandbox) : NULL;
    k->scope = stored_scopes[row->scope];
    memcpy(k->hash.bytes, row->hash.p, KEY_HASH_SIZE);
    k->old_until = row->old_hash.n == KEY_HASH_SIZE ? row->old_until : 0;
    if (k->old_until)
        memcpy(k->old_hash.bytes, row->old_hash.p, KEY_HASH_SIZE);
    k->created = row->created_at;
    k->expires = row->expires_at;
    key_table(all, k);
}

struct tenants *tenants_new(struct core *core)
{
    struct tenants *all = mem_new(struct tenants);
    all->core = core;
    (void)snprintf(all->prefix, sizeof(all->prefix), "cove_");
    return all;
}

int tenants_load(struct core *core, struct err *err)
{
    struct store *s = core->config.store;
    struct tenants *all = core->tenants;
    if (tenant_rows_each(s, load_tenant, all, err) < 0 || tenant_rows_each_limit(s, load_limit, all, err) < 0)
        return -1;
    return key_rows_each(s, load_key, all, err);
}

void tenants_free(struct tenants *all)
{
    MAP_FOREACH (struct key, k, &all->keys)
        key_free(k);
    MAP_FOREACH (struct tenant, t, &all->by_name) {
        MEM_FREE(t->name, t);
    }
    map_fini(&all->keys);
    map_fini(&all->keys_by_hash);
    map_fini(&all->by_name);
    map_fini(&all->by_number);
    mem_free(all);
}

/* ---- tenants ---- */

static void tenant_fill(struct core *core, const struct tenant *t, struct tenant_info *ret_info)
{
    *ret_info = (struct tenant_info){.name = t->name,
                                     .number = t->number,
                                     .created = t->created,
                                     .quota = &t->quota,
                                     .n_keys = t->n_keys,
                                     .n_templates = template_count(core->templates, t->number),
                                     .n_checkpoints = checkpoint_count(core, t->number)};
}

static int tenant_by_name(const void *a, const void *b)
{
    return strcmp((*(struct tenant *const *)a)->name, (*(struct tenant *const *)b)->name);
}

void tenant_each(struct core *core, void (*fn)(void *ctx, const struct tenant_info *info), void *ctx)
{
    const struct map *all = &core->tenants->by_name;
    AUTO_FREE struct tenant **sorted = mem_array(map_count(all) + 1, sizeof(struct tenant *));
    size_t n = 0;
    MAP_FOREACH (struct tenant, t, all)
        sorted[n++] = t;
    qsort(sorted, n, sizeof(struct tenant *), tenant_by_name);
    for (size_t i = 0; i < n; i++) {
        struct tenant_info info;
        tenant_fill(core, sorted[i], &info);
        fn(ctx, &info);
    }
}

int tenant_info(struct core *core, struct str name, struct tenant_info *ret_info, struct err *err)
{
    struct tenant *t;
    if (tenant_of_name(core, name, &t, err) < 0)
        return -1;
    tenant_fill(core, t, ret_info);
    return 0;
}

/* An action on what is named so; ret_seq: its event. */
static int act(struct core *core, const struct actor *actor, enum event_kind kind, struct event_data *d,
               uint64_t *ret_seq, struct err *err)
{
    return action_on(core, SERVICE_LOG_ID, actor, kind, event_data_end(d), ret_seq, err);
}

/* What came of it is in the store; or it is refused, and that is told. */
static int act_end(struct core *core, uint64_t seq, enum event_kind kind, int r, struct err *err)
{
    return action_end(core, seq, kind, r < 0 ? r : keeper_commit(core->keeper, err), err);
}

static int put_limits(struct core *core, uint64_t number, const int64_t limits[static QUOTA_MAX], struct err *err)
{
    for (size_t i = 0; i < QUOTA_MAX; i++)
        if (limits[i] >= 0 &&
            tenant_rows_put_limit(core->config.store, number, quota_names[i], (uint64_t)limits[i], err) < 0)
            return -1;
    return 0;
}

static void describe_limits(struct event_data *d, const int64_t limits[static QUOTA_MAX])
{
    for (size_t i = 0; i < QUOTA_MAX; i++)
        if (limits[i] >= 0)
            event_data_u64(d, quota_names[i], (uint64_t)limits[i]);
}

static void take_limits(struct tenant *t, const int64_t limits[static QUOTA_MAX])
{
    for (size_t i = 0; i < QUOTA_MAX; i++)
        if (limits[i] >= 0)
            t->quota.limits[i] = (uint64_t)limits[i];
}

int tenant_create(struct core *core, const struct actor *actor, struct str name, const int64_t *limits, struct err *err)
{
    struct tenants *all = core->tenants;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    uint64_t seq, number = 0;
    usec_t now = clock_real();
    if (!name_is(name, TENANT_NAME_LEN_MAX, "a-z0-9-") || (name.p[0] >= '0' && name.p[0] <= '9'))
        return err_set(err, ERR_INVALID_ARGUMENT, "a tenant's name must be 1 to %d of [a-z0-9-], the first a letter",
                       TENANT_NAME_LEN_MAX);
    if (map_get(&all->by_name, name))
        return err_set(err, ERR_ALREADY_EXISTS, "the tenant '%.*s' already exists", STR_ARG(name));
    if (map_count(&all->by_name) >= TENANTS_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "there are %d tenants, which is the limit", TENANTS_MAX);
    AUTO_FREE char *text = mem_strndup(name.p, name.n);
    event_data_str(&d, "tenant", name);
    if (limits)
        describe_limits(&d, limits);
    if (act(core, actor, EVENT_TENANT_CREATE, &d, &seq, err) < 0)
        return -1;
    int r = tenant_rows_insert(core->config.store, text, now, &number, err);
    if (r == 0 && limits)
        r = put_limits(core, number, limits, err);
    if (act_end(core, seq, EVENT_TENANT_CREATE, r, err) < 0)
        return -1;
    struct tenant *made = tenant_add(all, number, name, now);
    if (limits)
        take_limits(made, limits);
    return 0;
}

bool tenant_is_uid(const char *name, uid_t *ret_uid)
{
    uint64_t uid;
    if (!name || strncmp(name, "uid-", 4) != 0 || name[4] == '0' || str_to_u64(str_of(name + 4), &uid) < 0 ||
        uid >= UINT32_MAX)
        return false;
    *ret_uid = (uid_t)uid;
    return true;
}

int tenant_of_uid(struct core *core, const struct actor *actor, uid_t uid, uint64_t *ret_number, struct err *err)
{
    char name[16];
    (void)snprintf(name, sizeof(name), "uid-%u", (unsigned)uid);
    if (tenant_find(core, str_of(name), ret_number, err) == 0)
        return 0;
    return tenant_create(core, actor, str_of(name), NULL, err) < 0 ? -1
                                                                   : tenant_find(core, str_of(name), ret_number, err);
}

int tenant_set(struct core *core, const struct actor *actor, struct str name, const int64_t limits[static QUOTA_MAX],
               struct err *err)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    struct tenant *t;
    uint64_t seq;
    if (tenant_of_name(core, name, &t, err) < 0)
        return -1;
    event_data_str(&d, "tenant", name);
    describe_limits(&d, limits);
    if (act(core, actor, EVENT_TENANT_SET, &d, &seq, err) < 0 ||
        act_end(core, seq, EVENT_TENANT_SET, put_limits(core, t->number, limits, err), err) < 0)
        return -1;
    take_limits(t, limits);
    return 0;
}

static bool count_volume(void *ctx, const struct volume *v UNUSED)
{
    ++*(size_t *)ctx;
    return true;
}

static int refuse_owner(struct core *core, const struct tenant *t, struct err *err)
{
    size_t sandboxes = 0, volumes = 0, templates = template_count(core->templates, t->number);
    MAP_FOREACH (const struct sandbox, sb, &core->by_id)
        sandboxes += sb->info.tenant == t->number && !sandbox_state_is_over(sb->info.state);
    volume_each(core, t->number, count_volume, &volumes);
    if (t->number == TENANT_DEFAULT)
        return err_set(err, ERR_FAILED_PRECONDITION, "the tenant '%s' can't be removed", t->name);
    if (sandboxes || volumes || templates)
        return err_set(err, ERR_FAILED_PRECONDITION,
                       "tenant '%s' has %zu sandboxes, %zu volumes and %zu templates and snapshots: remove those first",
                       t->name, sandboxes, volumes, templates);
    return 0;
}

int tenant_remove(struct core *core, const struct actor *actor, struct str name, struct err *err)
{
    struct tenants *all = core->tenants;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    struct tenant *t;
    uint64_t seq;
    if (tenant_of_name(core, name, &t, err) < 0 || refuse_owner(core, t, err) < 0)
        return -1;
    event_data_str(&d, "tenant", name);
    if (act(core, actor, EVENT_TENANT_REMOVE, &d, &seq, err) < 0 ||
        act_end(core, seq, EVENT_TENANT_REMOVE, tenant_rows_delete(core->config.store, t->number, err), err) < 0)
        return -1;
    size_t it = 0;
    for (struct key *k; (k = map_next(&all->keys, &it));) {
        if (k->tenant != t)
            continue;
        key_untable(all, k);
        key_free(k);
        it = 0;
    }
    guard_forget_tenant(core, t->number);
    tenant_free(all, t);
    return 0;
}

/* ---- keys ---- */

const char *scope_name(enum scope scope)
{
    static const char *const names[] = {"none", "read", "use", "approve", "admin", "admin"};
    return names[scope];
}

static void key_fill(const struct key *k, struct key_info *ret_info)
{
    *ret_info = (struct key_info){.id = k->id,
                                  .name = k->name,
                                  .tenant = k->tenant->name,
                                  .sandbox = k->sandbox,
                                  .scope = k->scope,
                                  .created = k->created,
                                  .expires = k->expires,
                                  .old_until = k->old_until > clock_real() ? k->old_until : 0};
}

static int by_key_name(const void *a, const void *b)
{
    const struct key *x = *(struct key *const *)a, *y = *(struct key *const *)b;
    int order = strcmp(x->tenant->name, y->tenant->name);
    return order ? order : strcmp(x->name, y->name);
}

void key_each(struct core *core, const struct principal *who, void (*fn)(void *ctx, const struct key_info *info),
              void *ctx)
{
    const struct map *all = &core->tenants->keys;
    AUTO_FREE struct key **sorted = mem_array(map_count(all) + 1, sizeof(struct key *));
    size_t n = 0;
    MAP_FOREACH (struct key, k, all)
        if (view_has(who->view, k->tenant->number))
            sorted[n++] = k;
    qsort(sorted, n, sizeof(struct key *), by_key_name);
    for (size_t i = 0; i < n; i++) {
        struct key_info info;
        key_fill(sorted[i], &info);
        fn(ctx, &info);
    }
}

static struct key *key_find(struct core *core, const struct principal *who, struct str ref)
{
    struct key *by_id = map_get(&core->tenants->keys, ref);
    if (by_id && view_has(who->view, by_id->tenant->number))
        return by_id;
    MAP_FOREACH (struct key, k, &core->tenants->keys)
        if (k->tenant->number == who->tenant && str_eqc(ref, k->name))
            return k;
    return NULL;
}

static int key_unknown(struct str ref, struct err *err)
{
    return err_set(err, ERR_NOT_FOUND, "there is no key '%.*s'", STR_ARG_MAX(ref, 64));
}

static int key_store(struct core *core, const struct key *k, struct err *err)
{
    int scope = 1;
    while (stored_scopes[scope] != k->scope)
        scope++;
    return key_rows_put(core->config.store,
                        &(struct store_key){.id = k->id,
                                            .name = k->name,
                                            .sandbox = k->sandbox ? k->sandbox : "",
                                            .tenant = k->tenant->number,
                                            .scope = scope,
                                            .hash = hash_str(&k->hash),
                                            .old_hash = k->old_until ? hash_str(&k->old_hash) : STR_NULL,
                                            .old_until = k->old_until,
                                            .created_at = k->created,
                                            .expires_at = k->expires},
                        err);
}

static void key_random(const struct tenants *all, char ret_key[static KEY_TEXT_LEN + 1], struct key_hash *ret_hash)
{
    AUTO_BUF struct buf b = BUF_INIT(KEY_TEXT_LEN + 1);
    unsigned char random[20];
    id_random_bytes(random, sizeof(random));
    buf_append_cstr(&b, all->prefix);
    buf_append_hex(&b, str_n(random, sizeof(random)));
    memcpy(ret_key, buf_data(&b), buf_len(&b));
    ret_key[buf_len(&b)] = '\0';
    hash_of(buf_str(&b), ret_hash);
    mem_wipe(random, sizeof(random));
    mem_wipe(buf_data(&b), buf_len(&b));
}

static int key_check(struct core *core, const struct principal *who, const struct key_spec *spec, struct err *err)
{
    struct key *taken = key_find(core, who, spec->name);
    if (!name_is(spec->name, KEY_NAME_LEN_MAX, "A-Za-z0-9._-") || str_starts(spec->name, STR("key-")))
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "a key's name must be 1 to %d of [A-Za-z0-9._-], and not begin with '-' or 'key-'",
                       KEY_NAME_LEN_MAX);
    if (spec->scope < SCOPE_READ || spec->scope > SCOPE_ADMIN || (spec->sandbox.n && spec->scope > SCOPE_USE))
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "a scope must be read, use, approve or admin; for one sandbox read or use");
    if (taken)
        return err_set(err, ERR_ALREADY_EXISTS, "the key '%.*s' already exists", STR_ARG(spec->name));
    if (map_count(&core->tenants->keys) >= KEYS_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "there are %d keys, which is the limit", KEYS_MAX);
    if (!spec->sandbox.n)
        return 0;
    const struct sandbox *sb = sandbox_find(core, spec->sandbox);
    if (!sb || sb->info.tenant != who->tenant)
        return err_set(err, ERR_NOT_FOUND, "there is no sandbox %.*s", STR_ARG_MAX(spec->sandbox, 64));
    return 0;
}

static void key_describe(const struct key *k, struct event_data *d)
{
    event_data_str(d, "key", str_of(k->id));
    event_data_str(d, "name", str_of(k->name));
    event_data_str(d, "tenant", str_of(k->tenant->name));
}

int key_create(struct core *core, const struct actor *actor, const struct key_spec *spec,
               char ret_key[static KEY_TEXT_LEN + 1], struct key_info *ret_info, struct err *err)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    AUTO_EVENT_DATA struct event_data asked = EVENT_DATA_INIT;
    struct tenant *t = tenant_get(core, actor->who.tenant);
    uint64_t seq;
    if (!t)
        return err_set(err, ERR_NOT_FOUND, "the tenant was removed");
    if (key_check(core, &actor->who, spec, err) < 0)
        return -1;
    /* The guard's question is the same each time: an id is not given out before. */
    event_data_str(&asked, "name", spec->name);
    event_data_str(&asked, "tenant", str_of(t->name));
    event_data_str(&asked, "scope", str_of(scope_name(spec->scope)));
    event_data_str(&asked, "sandbox", spec->sandbox);
    if (action_allow(core, actor, EVENT_KEY_CREATE, event_data_end(&asked), err) < 0)
        return -1;
    struct key *k = mem_new(struct key);
    char id[KEY_ID_LEN - 4 + 1], text[KEY_TEXT_LEN + 1];
    id_token(id, sizeof(id) - 1);
    (void)snprintf(k->id, sizeof(k->id), "key-%s", id);
    k->tenant = t;
    k->name = mem_strndup(spec->name.p, spec->name.n);
    k->sandbox = spec->sandbox.n ? mem_strdup(sandbox_find(core, spec->sandbox)->info.id) : NULL;
    k->scope = spec->scope;
    k->created = clock_real();
    k->expires = spec->expires_ms ? clock_add_ms(k->created, spec->expires_ms) : 0;
    key_random(core->tenants, text, &k->hash);
    key_describe(k, &d);
    event_data_str(&d, "scope", str_of(scope_name(k->scope)));
    if (k->sandbox)
        event_data_str(&d, "sandbox", str_of(k->sandbox));
    if (action_record(core, SERVICE_LOG_ID, actor, EVENT_KEY_CREATE, event_data_end(&d), &seq, err) < 0 ||
        act_end(core, seq, EVENT_KEY_CREATE, key_store(core, k, err), err) < 0) {
        key_free(k);
        return -1;
    }
    key_table(core->tenants, k);
    key_fill(k, ret_info);
    memcpy(ret_key, text, sizeof(text));
    mem_wipe(text, sizeof(text));
    return 0;
}

int key_rotate(struct core *core, const struct actor *actor, struct str ref, uint64_t grace_ms,
               char ret_key[static KEY_TEXT_LEN + 1], struct key_info *ret_info, struct err *err)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    struct key *k = key_find(core, &actor->who, ref);
    char text[KEY_TEXT_LEN + 1];
    uint64_t seq;
    if (!k)
        return key_unknown(ref, err);
    struct key next = *k;
    key_random(core->tenants, text, &next.hash);
    next.old_hash = k->hash;
    next.old_until = grace_ms ? clock_add_ms(clock_real(), grace_ms) : 0;
    key_describe(k, &d);
    event_data_u64(&d, "grace_ms", grace_ms);
    if (act(core, actor, EVENT_KEY_ROTATE, &d, &seq, err) < 0 ||
        act_end(core, seq, EVENT_KEY_ROTATE, key_store(core, &next, err), err) < 0)
        return -1;
    key_untable(core->tenants, k);
    *k = next;
    key_table(core->tenants, k);
    key_fill(k, ret_info);
    memcpy(ret_key, text, sizeof(text));
    mem_wipe(text, sizeof(text));
    return 0;
}

int key_revoke(struct core *core, const struct actor *actor, struct str ref, struct err *err)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    struct key *k = key_find(core, &actor->who, ref);
    uint64_t seq;
    if (!k)
        return key_unknown(ref, err);
    key_describe(k, &d);
    if (act(core, actor, EVENT_KEY_REVOKE, &d, &seq, err) < 0 ||
        act_end(core, seq, EVENT_KEY_REVOKE, key_rows_delete(core->config.store, k->id, err), err) < 0)
        return -1;
    key_untable(core->tenants, k);
    key_free(k);
    return 0;
}
