/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of the tenant in which somebody acts. */
#include "api/native/handlers.h"
#include "base/mem.h"
#include "sandbox/key.h"

enum { KEYS_LIST_BYTES = 16 << 20, GRACE_MS = 24 * 3600 * 1000 };

static void append_key(struct buf *b, const struct key_info *info, const char *key)
{
    json_open(b, "id", str_of(info->id));
    json_put_text(b, "name", info->name);
    json_put_text(b, "tenant", info->tenant);
    json_put_text(b, "scope", scope_name(info->scope));
    json_put_text(b, "sandbox", info->sandbox);
    native_append_time(b, "created_at", info->created);
    native_append_time(b, "expires_at", info->expires);
    native_append_time(b, "old_until", info->old_until);
    if (key)
        json_put_text(b, "key", key);
    buf_append_char(b, '}');
}

static void keys_append_one(void *ctx, const struct key_info *info)
{
    append_key(ctx, info, NULL);
}

void native_keys_list(struct call *c)
{
    AUTO_BUF struct buf b = BUF_INIT(KEYS_LIST_BYTES);
    buf_append_cstr(&b, "{\"keys\":[");
    key_each(call_core(c), &c->actor.who, keys_append_one, &b);
    buf_append_cstr(&b, "]}");
    call_json_buf(c, 200, &b);
}

/* Told once; nothing of it stays in our memory. */
static void answer_key(struct call *c, int status, const struct key_info *info, char key[static KEY_TEXT_LEN + 1])
{
    AUTO_BUF struct buf b = BUF_INIT(8192);
    http_add_header(c->req, STR("cache-control"), STR("no-store"));
    append_key(&b, info, key);
    mem_wipe(key, KEY_TEXT_LEN);
    call_json(c, status, buf_str(&b));
    if (b.data)
        mem_wipe(b.data, b.cap);
}

void native_keys_create(struct call *c)
{
    struct str scope = STR("use");
    struct key_spec spec = {.name = STR_NULL};
    char key[KEY_TEXT_LEN + 1];
    struct key_info info;
    int64_t expires = 0;
    if (!CALL_WANTS(c, JSON_NEED_STR("name", &spec.name), JSON_WANT_STR("scope", &scope),
                    JSON_WANT_STR("sandbox", &spec.sandbox), JSON_WANT_INT("expires_ms", 0, INT64_MAX, &expires)))
        return;
    for (enum scope s = SCOPE_READ; s <= SCOPE_ADMIN; s++)
        if (str_eqc(scope, scope_name(s)))
            spec.scope = s;
    spec.expires_ms = (uint64_t)expires;
    if (call_ok(c, key_create(call_core(c), &c->actor, &spec, key, &info, &c->err)))
        answer_key(c, 201, &info, key);
}

void native_keys_rotate(struct call *c)
{
    char key[KEY_TEXT_LEN + 1];
    struct key_info info;
    int64_t grace = GRACE_MS;
    if (!CALL_WANTS(c, JSON_WANT_INT("grace_ms", 0, INT64_MAX, &grace)))
        return;
    if (call_ok(c, key_rotate(call_core(c), &c->actor, c->args[0], (uint64_t)grace, key, &info, &c->err)))
        answer_key(c, 200, &info, key);
}

void native_keys_revoke(struct call *c)
{
    if (call_ok(c, key_revoke(call_core(c), &c->actor, c->args[0], &c->err)))
        call_empty(c, 204);
}
