/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/key.h"
#include "base/mem.h"
#include "sandbox/object.h"
#include "sandbox/record/record.h"
#include "sandbox/tenant.h"
#include "wire/supervisor.h"

#include <openssl/sha.h>
#include <stdlib.h>

enum { KEYS_MAX = 10000, GIVEN_MAX = 512 };

struct key_hash {
    unsigned char bytes[KEY_HASH_SIZE];
};

struct key {
    char id[KEY_ID_LEN + 1];
    uint64_t tenant;
    char *name, *sandbox; /* sandbox NULL: all */
    enum scope scope;
    struct key_hash hash, old_hash;
    usec_t created, expires, old_until; /* old_until 0: there is no old_hash */
};

struct keys {
    struct map by_id, by_hash; /* struct key; the latter by what it is now, and what it was */
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

/* ---- who is it? ---- */

void key_set_builtin(struct core *core, struct str key)
{
    ssize_t end = str_find_char(key, '_');
    core->keys->has_builtin = key.n > 0;
    if (end >= 0 && end < KEY_PREFIX_MAX)
        (void)snprintf(core->keys->prefix, sizeof(core->keys->prefix), "%.*s_", (int)end, key.p);
    hash_of(key, &core->keys->builtin);
}

bool keys_exist(const struct core *core)
{
    return core->keys->has_builtin || map_count(&core->keys->by_id);
}

bool key_authenticate(struct core *core, struct str given, struct principal *ret_who)
{
    const struct keys *all = core->keys;
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
    const struct key *k = map_get(&all->by_hash, hash_str(&hash));
    if (!k || (k->expires && k->expires <= now) ||
        (!str_eq_secret(hash_str(&hash), hash_str(&k->hash)) && k->old_until <= now))
        return false;
    bool operates = k->scope == SCOPE_ADMIN && k->tenant == TENANT_DEFAULT && !k->sandbox;
    *ret_who = (struct principal){.tenant = k->tenant,
                                  .view = k->tenant,
                                  .scope = operates ? SCOPE_OPERATOR : k->scope,
                                  .key = k->id,
                                  .name = k->name,
                                  .sandbox = k->sandbox};
    return true;
}

int key_still_good(const struct core *core, const struct principal *who, struct err *err)
{
    const struct key *k = who->key ? map_get(&core->keys->by_id, str_of(who->key)) : NULL;
    if (!who->key || (k && (!k->expires || k->expires > clock_real())))
        return 0;
    (void)err_set(err, ERR_UNAUTHENTICATED, "the API key was revoked, or has expired");
    return err_because(err, ERR_KEY_GONE);
}

/* ---- the table ---- */

static void key_untable(struct keys *all, struct key *k)
{
    (void)map_del(&all->by_id, str_of(k->id));
    (void)map_del(&all->by_hash, hash_str(&k->hash));
    if (k->old_until)
        (void)map_del(&all->by_hash, hash_str(&k->old_hash));
}

static void key_table(struct keys *all, struct key *k)
{
    (void)map_put(&all->by_id, str_of(k->id), k);
    (void)map_put(&all->by_hash, hash_str(&k->hash), k);
    if (k->old_until)
        (void)map_put(&all->by_hash, hash_str(&k->old_hash), k);
}

static void key_free(struct key *k)
{
    MEM_FREE(k->name, k->sandbox, k);
}

/* As they are stored: numbers never change their meaning. */
static const enum scope stored_scopes[] = {SCOPE_NONE, SCOPE_READ, SCOPE_USE, SCOPE_ADMIN, SCOPE_APPROVE};

static void load_key(void *ctx, const struct store_key *row)
{
    struct core *core = ctx;
    if (!tenant_name(core, row->tenant) || strlen(row->id) != KEY_ID_LEN || row->hash.n != KEY_HASH_SIZE ||
        row->scope < 1 || row->scope >= (int)ARRAY_SIZE(stored_scopes))
        return;
    struct key *k = mem_new(struct key);
    memcpy(k->id, row->id, KEY_ID_LEN);
    k->tenant = row->tenant;
    k->name = mem_strdup(row->name);
    k->sandbox = *row->sandbox ? mem_strdup(row->sandbox) : NULL;
    k->scope = stored_scopes[row->scope];
    memcpy(k->hash.bytes, row->hash.p, KEY_HASH_SIZE);
    k->old_until = row->old_hash.n == KEY_HASH_SIZE ? row->old_until : 0;
    if (k->old_until)
        memcpy(k->old_hash.bytes, row->old_hash.p, KEY_HASH_SIZE);
    k->created = row->created_at;
    k->expires = row->expires_at;
    key_table(core->keys, k);
}

struct keys *keys_new(void)
{
    struct keys *all = mem_new(struct keys);
    (void)snprintf(all->prefix, sizeof(all->prefix), "cove_");
    return all;
}

int keys_load(struct core *core, struct err *err)
{
    return key_rows_each(core->config.store, load_key, core, err);
}

void keys_free(struct keys *all)
{
    MAP_FOREACH (struct key, k, &all->by_id)
        key_free(k);
    map_fini(&all->by_id);
    map_fini(&all->by_hash);
    mem_free(all);
}

size_t key_count(const struct core *core, uint64_t tenant)
{
    size_t n = 0;
    MAP_FOREACH (const struct key, k, &core->keys->by_id)
        n += k->tenant == tenant;
    return n;
}

void keys_forget_tenant(struct core *core, uint64_t tenant)
{
    size_t it = 0;
    for (struct key *k; (k = map_next(&core->keys->by_id, &it));) {
        if (k->tenant != tenant)
            continue;
        key_untable(core->keys, k);
        key_free(k);
        it = 0;
    }
}

/* ---- what an administrator does ---- */

const char *scope_name(enum scope scope)
{
    static const char *const names[] = {"none", "read", "use", "approve", "admin", "admin"};
    return names[scope];
}

static void key_fill(struct core *core, const struct key *k, struct key_info *ret_info)
{
    *ret_info = (struct key_info){.id = k->id,
                                  .name = k->name,
                                  .tenant = tenant_name(core, k->tenant),
                                  .sandbox = k->sandbox,
                                  .scope = k->scope,
                                  .created = k->created,
                                  .expires = k->expires,
                                  .old_until = k->old_until > clock_real() ? k->old_until : 0};
}

struct key_sorted {
    const struct key *key;
    const char *tenant;
};

static int by_key_name(const void *a, const void *b)
{
    const struct key_sorted *x = a, *y = b;
    int order = strcmp(x->tenant, y->tenant);
    return order ? order : strcmp(x->key->name, y->key->name);
}

void key_each(struct core *core, const struct principal *who, void (*fn)(void *ctx, const struct key_info *info),
              void *ctx)
{
    const struct map *all = &core->keys->by_id;
    AUTO_FREE struct key_sorted *sorted = mem_array(map_count(all) + 1, sizeof(*sorted));
    size_t n = 0;
    MAP_FOREACH (struct key, k, all)
        if (view_has(who->view, k->tenant))
            sorted[n++] = (struct key_sorted){k, tenant_name(core, k->tenant)};
    qsort(sorted, n, sizeof(*sorted), by_key_name);
    for (size_t i = 0; i < n; i++) {
        struct key_info info;
        key_fill(core, sorted[i].key, &info);
        fn(ctx, &info);
    }
}

static struct key *key_find(struct core *core, const struct principal *who, struct str ref)
{
    struct key *by_id = map_get(&core->keys->by_id, ref);
    if (by_id && view_has(who->view, by_id->tenant))
        return by_id;
    MAP_FOREACH (struct key, k, &core->keys->by_id)
        if (k->tenant == who->tenant && str_eqc(ref, k->name))
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
                                            .tenant = k->tenant,
                                            .scope = scope,
                                            .hash = hash_str(&k->hash),
                                            .old_hash = k->old_until ? hash_str(&k->old_hash) : STR_NULL,
                                            .old_until = k->old_until,
                                            .created_at = k->created,
                                            .expires_at = k->expires},
                        err);
}

static void key_random(const struct keys *all, char ret_key[static KEY_TEXT_LEN + 1], struct key_hash *ret_hash)
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
    if (!spec->name.n || spec->name.n > KEY_NAME_LEN_MAX || !str_is_of(spec->name, "A-Za-z0-9._-") ||
        spec->name.p[0] == '-' || str_starts(spec->name, STR("key-")))
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "a key's name must be 1 to %d of [A-Za-z0-9._-], and not begin with '-' or 'key-'",
                       KEY_NAME_LEN_MAX);
    if (spec->scope < SCOPE_READ || spec->scope > SCOPE_ADMIN || (spec->sandbox.n && spec->scope > SCOPE_USE))
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "a scope must be read, use, approve or admin; for one sandbox read or use");
    if (taken)
        return err_set(err, ERR_ALREADY_EXISTS, "the key '%.*s' already exists", STR_ARG(spec->name));
    size_t own = 0;
    MAP_FOREACH (const struct key, k, &core->keys->by_id)
        own += k->tenant == who->tenant;
    if (!quota_has_room(core, KEYS_MAX, map_count(&core->keys->by_id), own))
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "there are %zu keys, %zu of them your tenant's: revoke some",
                       map_count(&core->keys->by_id), own);
    if (!spec->sandbox.n)
        return 0;
    const struct sandbox *sb = sandbox_find(core, spec->sandbox);
    if (!sb || sb->info.tenant != who->tenant)
        return err_set(err, ERR_NOT_FOUND, "there is no sandbox %.*s", STR_ARG_MAX(spec->sandbox, 64));
    return 0;
}

static void key_describe(struct core *core, const struct key *k, struct event_data *d)
{
    EVENT_DATA_PUT(d, DATA_STR("key", k->id), DATA_STR("name", k->name),
                   DATA_STR("tenant", tenant_name(core, k->tenant)));
}

int key_create(struct core *core, const struct actor *actor, const struct key_spec *spec,
               char ret_key[static KEY_TEXT_LEN + 1], struct key_info *ret_info, struct err *err)
{
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    const char *tenant = tenant_name(core, actor->who.tenant);
    uint64_t seq;
    if (!tenant)
        return err_set(err, ERR_NOT_FOUND, "the tenant was removed");
    if (key_check(core, &actor->who, spec, err) < 0)
        return -1;
    /* The guard's question is the same each time: an id is not given out before. */
    AUTO_EVENT_DATA struct event_data asked =
        EVENT_DATA(DATA_STR("name", spec->name), DATA_STR("tenant", tenant), DATA_STR("scope", scope_name(spec->scope)),
                   DATA_STR("sandbox", spec->sandbox));
    if (action_allow(core, actor, EVENT_KEY_CREATE, event_data_end(&asked), err) < 0)
        return -1;
    struct key *k = mem_new(struct key);
    char id[KEY_ID_LEN - 4 + 1], text[KEY_TEXT_LEN + 1];
    id_token(id, sizeof(id) - 1);
    (void)snprintf(k->id, sizeof(k->id), "key-%s", id);
    k->tenant = actor->who.tenant;
    k->name = mem_strndup(spec->name.p, spec->name.n);
    k->sandbox = spec->sandbox.n ? mem_strdup(sandbox_find(core, spec->sandbox)->info.id) : NULL;
    k->scope = spec->scope;
    k->created = clock_real();
    k->expires = spec->expires_ms ? clock_add_ms(k->created, spec->expires_ms) : 0;
    key_random(core->keys, text, &k->hash);
    key_describe(core, k, &d);
    EVENT_DATA_PUT(&d, DATA_STR("scope", scope_name(k->scope)), DATA_SOME("sandbox", k->sandbox));
    if (action_record(core, SERVICE_LOG_ID, actor, EVENT_KEY_CREATE, event_data_end(&d), &seq, err) < 0 ||
        action_stored(core, actor, seq, EVENT_KEY_CREATE, key_store(core, k, err), err) < 0) {
        key_free(k);
        return -1;
    }
    key_table(core->keys, k);
    key_fill(core, k, ret_info);
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
    key_random(core->keys, text, &next.hash);
    next.old_hash = k->hash;
    next.old_until = grace_ms ? clock_add_ms(clock_real(), grace_ms) : 0;
    key_describe(core, k, &d);
    event_data_u64(&d, "grace_ms", grace_ms);
    if (action_service(core, actor, EVENT_KEY_ROTATE, &d, &seq, err) < 0 ||
        action_stored(core, actor, seq, EVENT_KEY_ROTATE, key_store(core, &next, err), err) < 0)
        return -1;
    key_untable(core->keys, k);
    *k = next;
    key_table(core->keys, k);
    key_fill(core, k, ret_info);
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
    key_describe(core, k, &d);
    if (action_service(core, actor, EVENT_KEY_REVOKE, &d, &seq, err) < 0 ||
        action_stored(core, actor, seq, EVENT_KEY_REVOKE, key_rows_delete(core->config.store, k->id, err), err) < 0)
        return -1;
    key_untable(core->keys, k);
    key_free(k);
    return 0;
}
