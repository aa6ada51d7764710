/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of the tenant in which somebody acts. */
#include "api/native/handlers.h"
#include "base/mem.h"
#include "sandbox/key.h"

enum { GRACE_MS = 24 * 3600 * 1000 };

static json_t *key_json(const struct key_info *info)
{
    return json_pack("{s:s,s:o?,s:s?,s:s,s:s?,s:o?,s:o?,s:o?}", "id", info->id, "name", call_cstr(info->name), "tenant",
                     info->tenant, "scope", scope_name(info->scope), "sandbox", info->sandbox, "created_at",
                     call_time(info->created), "expires_at", call_time(info->expires), "old_until",
                     call_time(info->old_until));
}

static void keys_add(void *ctx, const struct key_info *info)
{
    (void)json_array_append_new(ctx, key_json(info));
}

void native_keys_list(struct call *c)
{
    json_t *all = json_array();
    key_each(call_core(c), &c->actor.who, keys_add, all);
    call_value(c, 200, json_pack("{s:o}", "keys", all));
}

/* Told once; nothing of it stays in our memory. */
static void answer_key(struct call *c, int status, const struct key_info *info, char key[static KEY_TEXT_LEN + 1])
{
    AUTO_BUF struct buf b = BUF_INIT(8192);
    AUTO_JSON json_t *known = key_json(info);
    AUTO_FREE char *members = json_dumps(known, JSON_COMPACT | JSON_EMBED);
    http_add_header(c->req, STR("cache-control"), STR("no-store"));
    buf_printf(&b, "{%s", members);
    json_put_text(&b, "key", key);
    buf_append_char(&b, '}');
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
