/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sandboxes whose image is pulled first.
 *
 *  1. An image that no template stands for is built into one (build/builder.h), named after it: who asks for it next
 *     finds that. Those who ask meanwhile wait for the same build. With credentials each asks the registry by a build
 *     of its own (of which the builder's cache leaves little), so who has none, or wrong ones, gets nothing.
 *  2. Until then the sandbox is a row of o->pending, with the id and the token that it will have, in the state Pending.
 *     Its body was read, but for the credentials, which the builder has; everything in it that can be wrong was found
 *     wrong before. Then it is created, as by its own request, and the row goes.
 *  3. What can't be pulled, within PULL_MS, leaves a row in the state Failed for FAILED_MS. DELETE removes any row, and
 *     cancels the build that nobody else waits for. SDKs that wait for a sandbox don't read its state: they ask where
 *     execd is, and then execd's /ping until it answers, or answers 403. So both give the reason.
 *  4. Rows are in memory: a restart of this worker ends the build, and the client is told that there is no such
 *     sandbox.
 */
#include "api/opensandbox/handlers.h"
#include "base/id.h"
#include "base/mem.h"
#include "build/builder.h"
#include "sandbox/templates.h"

#include <openssl/sha.h>

enum {
    PENDING_MAX = 256,
    LOOK_MS = 100,
    PULL_MS = 15 * 60 * 1000,
    FAILED_MS = 10 * 60 * 1000,
    NAME_TEXT_MAX = 32,
    MESSAGE_MAX = 512
};

struct pending {
    struct opensandbox *o;
    char id[ID_SANDBOX_LEN + 1], token[SANDBOX_TOKEN_LEN + 1];
    struct actor actor; /* strings in the arena */
    struct arena arena;
    json_t *body;         /* without credentials; once it has failed, what is shown of it; owned */
    struct charge charge; /* of its memory */
    const char *template_name;
    char build[ID_UUID_LEN + 1];
    struct osb_creation *creation; /* NULL: not begun yet */
    usec_t created, changed;       /* real time */
    bool has_failed, is_dropped;
    char message[MESSAGE_MAX];
};

static void pending_free(void *pending)
{
    struct pending *p = pending;
    (void)map_del(&p->o->pending, str_of(p->id));
    create_drop(p->creation);
    json_decref(p->body);
    arena_fini(&p->arena);
    charge_release(&p->charge);
    mem_free(p);
}

void pendings_free(struct opensandbox *o)
{
    timer_stop(&o->pending_timer);
    facade_drain(&o->pending, pending_free);
}

const char *pending_name(struct arena *a, struct str uri, bool is_private)
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    char text[NAME_TEXT_MAX + 1];
    size_t n = 0;
    (void)SHA256((const unsigned char *)uri.p, uri.n, digest);
    for (size_t i = 0; i < uri.n && n < NAME_TEXT_MAX; i++) {
        char c = uri.p[i];
        bool is_plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (is_plain || (n && text[n - 1] != '-'))
            text[n++] = is_plain ? c : '-';
    }
    text[n] = 0;
    return arena_printf(a, "image-%s-%02x%02x%02x%02x%02x%02x%s", text, digest[0], digest[1], digest[2], digest[3],
                        digest[4], digest[5], is_private ? "-private" : "");
}

/* ---- its life ---- */

static void pending_fail(struct pending *p, const char *message)
{
    json_t *body = p->body;
    p->body = json_pack("{s:O*,s:O*,s:O*,s:O*}", "metadata", json_object_get(body, "metadata"), "image",
                        json_object_get(body, "image"), "entrypoint", json_object_get(body, "entrypoint"), "extensions",
                        json_object_get(body, "extensions"));
    json_decref(body);
    p->has_failed = true;
    p->changed = clock_real();
    (void)snprintf(p->message, sizeof(p->message), "%s", message);
}

static void pending_created(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct pending *p = ctx;
    static const struct actor actor = {.name = "opensandbox", .who.view = TENANT_ANY, .is_own = true};
    struct err ignored;
    if (sb && p->is_dropped)
        (void)!sandbox_kill(sb, &actor, sandbox_ignore, NULL, &ignored);
    else if (sb)
        create_began(p->creation, sb);
    if (sb || p->is_dropped)
        pending_free(p);
    else
        pending_fail(p, err->msg);
}

static void pending_go(struct pending *p)
{
    struct err err;
    p->creation = create_read(p->o, &p->actor, &p->arena, p->body, p->template_name, &err);
    if (!p->creation || create_begin_as(p->creation, p->id, p->token, pending_created, p, &err) < 0)
        pending_fail(p, err.msg);
}

static void pending_look_at(struct pending *p)
{
    const struct template_build *b =
        template_build_find(core_templates(p->o->lifecycle.core), p->actor.who.view, str_of(p->build));
    usec_t now = clock_real();
    struct err ignored;
    if (p->has_failed) {
        if (now > p->changed + FAILED_MS * USEC_PER_MS)
            pending_free(p);
    } else if (p->creation) {
        return; /* it is made */
    } else if (!b || b->status == TEMPLATE_FAILED) {
        pending_fail(p, b && b->reason ? b->reason : "the image could not be pulled");
    } else if (b->status == TEMPLATE_READY) {
        pending_go(p);
    } else if (now > p->created + PULL_MS * USEC_PER_MS) {
        (void)!builder_cancel(p->o->builder, &p->actor, p->build, &ignored);
        pending_fail(p, "the image could not be pulled in time");
    }
}

static void pending_look(struct timer *t)
{
    struct opensandbox *o = container_of(t, struct opensandbox, pending_timer);
    struct pending *all[PENDING_MAX];
    size_t n = 0;
    MAP_FOREACH (struct pending, p, &o->pending)
        all[n++] = p;
    for (size_t i = 0; i < n; i++)
        pending_look_at(all[i]);
    if (map_count(&o->pending))
        timer_set(&o->lifecycle.timers, t, LOOK_MS);
}

void pendings_init(struct opensandbox *o)
{
    timer_init(&o->pending_timer, pending_look);
}

/* ---- its beginning ---- */

/* The build that makes this template already; NULL: none does. */
static const char *pending_building(struct call *c, const char *name)
{
    struct template_info info;
    struct err ignored;
    if (template_info_find(core_templates(call_core(c)), c->actor.who.view, str_of(name), &info, &ignored) < 0 ||
        !info.build || (info.build->status != TEMPLATE_WAITING && info.build->status != TEMPLATE_BUILDING))
        return NULL;
    return info.build->id;
}

static int pending_pull(struct call *c, struct str uri, const char *name, char build[static ID_UUID_LEN + 1],
                        struct err *err)
{
    struct arena *a = http_arena(c->req);
    struct template_request request = {.tenant = c->actor.who.tenant, .name = str_of(name)};
    struct build_spec spec = {.image = arena_strndup(a, uri.p, uri.n)};
    struct str user = STR_NULL, password = STR_NULL;
    const json_t *auth = json_object_get(json_object_get(c->body, "image"), "auth");
    const struct template_build *b;
    if (auth && JSON_WANTS(auth, a, err, JSON_NEED_STR("username", &user), JSON_NEED_STR("password", &password)) < 0)
        return err_prefix(err, "image.auth");
    spec.username = user.p;
    spec.password = password.p;
    if (core_template_request(call_core(c), &c->actor, &request, &b, err) < 0)
        return -1;
    memcpy(build, b->id, ID_UUID_LEN + 1);
    if (core_templates_commit(call_core(c), err) < 0)
        return -1;
    return builder_start(lifecycle_of(c)->builder, &c->actor, build, &spec, err);
}

void pending_begin(struct call *c, struct str uri)
{
    struct opensandbox *o = lifecycle_of(c);
    bool is_private = !json_asks_nothing(json_object_get(c->body, "image"), "auth");
    const char *name = pending_name(http_arena(c->req), uri, is_private),
               *building = is_private ? NULL : pending_building(c, name);
    struct charge charge = {.core = call_core(c), .tenant = c->actor.who.tenant};
    char build[ID_UUID_LEN + 1];
    size_t own = 0;
    MAP_FOREACH (const struct pending, p, &o->pending)
        own += p->actor.who.tenant == c->actor.who.tenant;
    if (!quota_is_share(PENDING_MAX, map_count(&o->pending), own, 1)) {
        call_refuse(c, ERR_RESOURCE_EXHAUSTED, "%zu sandboxes are waiting for their images already", own);
        return;
    }
    if (!call_ok(c, charge_memory(&charge, c->holder.bytes, &c->err)))
        return;
    if (building) {
        memcpy(build, building, sizeof(build));
    } else if (!call_ok(c, pending_pull(c, uri, name, build, &c->err))) {
        charge_release(&charge);
        return;
    }
    struct pending *p = mem_new(struct pending);
    p->o = o;
    id_sandbox(p->id);
    id_token(p->token, SANDBOX_TOKEN_LEN);
    p->charge = charge;
    p->arena = ARENA_INIT;
    actor_take(&p->actor, &p->arena, c->actor.name, &c->actor.who);
    p->template_name = arena_strdup(&p->arena, name);
    p->body = json_deep_copy(c->body);
    (void)json_object_del(json_object_get(p->body, "image"), "auth");
    memcpy(p->build, build, sizeof(build));
    p->created = p->changed = clock_real();
    (void)map_put(&o->pending, str_of(p->id), p);
    timer_set(&o->lifecycle.timers, &o->pending_timer, LOOK_MS);
    http_add_header(c->req, STR("location"), str_of(arena_printf(http_arena(c->req), "/v1/sandboxes/%s", p->id)));
    call_value(c, 202, pending_json(p));
}

/* ---- as a sandbox ---- */

json_t *pending_json(const struct pending *p)
{
    json_t *metadata = json_object_get(p->body, "metadata");
    return json_pack("{s:s,s:{s:s,s:s,s:s,s:o},s:o,s:O?,s:O*,s:O*,s:o}", "id", p->id, "status", "state",
                     p->has_failed ? "Failed" : "Pending", "reason", p->has_failed ? PENDING_FAILED : "IMAGE_PULLING",
                     "message", p->has_failed ? p->message : "the image is pulled", "lastTransitionAt",
                     call_time(p->changed), "metadata", metadata ? json_incref(metadata) : json_object(), "image",
                     json_object_get(p->body, "image"), "entrypoint", json_object_get(p->body, "entrypoint"),
                     "extensions", json_object_get(p->body, "extensions"), "createdAt", call_time(p->created));
}

struct pending *pending_find(struct call *c, struct str id)
{
    struct pending *p = map_get(&lifecycle_of(c)->pending, id);
    return p && !p->is_dropped && view_has(c->actor.who.view, p->actor.who.tenant) && !c->actor.who.sandbox ? p : NULL;
}

const char *pending_token(struct opensandbox *o, struct str id)
{
    const struct pending *p = map_get(&o->pending, id);
    return p ? p->token : NULL;
}

uint64_t pending_tenant(struct opensandbox *o, struct str id)
{
    const struct pending *p = map_get(&o->pending, id);
    assert(p);
    return p->actor.who.tenant;
}

const char *pending_why(struct opensandbox *o, struct call *c, struct str id)
{
    const struct pending *p = map_get(&o->pending, id);
    return p && p->has_failed && view_has(c->actor.who.view, p->actor.who.tenant) ? p->message : NULL;
}

void pending_each(struct call *c, json_t *(*to)(void *ctx, const char *state, const json_t *metadata), void *ctx)
{
    MAP_FOREACH (const struct pending, p, &lifecycle_of(c)->pending) {
        json_t *list = pending_find(c, str_of(p->id))
                           ? to(ctx, p->has_failed ? "Failed" : "Pending", json_object_get(p->body, "metadata"))
                           : NULL;
        if (list)
            (void)json_array_append_new(list, pending_json(p));
    }
}

void pending_remove(struct call *c, struct pending *p)
{
    struct err ignored;
    bool is_alone = true;
    MAP_FOREACH (const struct pending, other, &p->o->pending)
        is_alone &= other == p || other->has_failed || strcmp(other->build, p->build) != 0;
    if (is_alone && !p->has_failed && !p->creation)
        (void)!builder_cancel(p->o->builder, &c->actor, p->build, &ignored);
    if (p->creation && !p->has_failed)
        p->is_dropped = true; /* killed when it is there */
    else
        pending_free(p);
    call_empty(c, 204);
}
