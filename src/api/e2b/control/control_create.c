/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Creating. A client that is not sure whether its request arrived repeats it with the same Idempotency-Key (v2 only)
 * and gets the same sandbox: requests with the key of one that is under way wait for it, later ones find what it made
 * as long as that lives. Keys are kept in this process, up to CREATIONS_MAX of them.
 */
#include "api/e2b/control/control.h"
#include "api/e2b/control/create_spec.h"
#include "api/e2b/control/sandbox_json.h"
#include "base/mem.h"
#include "sandbox/share.h"
#include "sandbox/volume/volumes.h"

#include <inttypes.h>

enum { KEYS_AT_A_TIME = 64, KEY_LEN_MAX = 255 };

struct control_creation {
    struct list node;    /* of e2b->creations, oldest first; only when it has a key */
    struct list waiting; /* struct call, held */
    struct e2b *e2b;
    char *key; /* owned; NULL: none */
    uint64_t tenant;
    char id[ID_SANDBOX_LEN + 1]; /* "" while it is under way */
};

static void creation_free(struct control_creation *cr)
{
    if (cr->key)
        map_del(&cr->e2b->creations_by_key, str_of(cr->key));
    list_remove(&cr->node);
    MEM_FREE(cr->key, cr);
}

void control_creations_free(struct e2b *e2b)
{
    LIST_FOREACH (struct control_creation, cr, &e2b->creations, node) {
        list_remove(&cr->node);
        mem_free(TAKE_PTR(cr->key));
        /* One that is under way is freed when the core answers. */
        if (cr->id[0])
            mem_free(cr);
    }
    map_fini(&e2b->creations_by_key);
}

static void control_create_answer(struct call *c, struct sandbox *sb)
{
    call_value(c, 201, sandbox_json_access(sandbox_info(sb), e2b_of(c)->domain));
}

static void wait_for(struct control_creation *cr, struct call *c)
{
    list_append(&cr->waiting, &call_hold(c)->node);
}

static void on_created(void *ctx, struct sandbox *sb, const struct err *err)
{
    struct control_creation *cr = ctx;
    while (!list_empty(&cr->waiting)) {
        struct call *c = LIST_FIRST(struct call, &cr->waiting, node);
        list_remove(&c->node);
        c = call_back(c, err);
        if (c)
            control_create_answer(c, sb);
    }
    if (sb && cr->key)
        memcpy(cr->id, sandbox_info(sb)->id, sizeof(cr->id));
    else
        creation_free(cr);
}

static uint64_t creation_tenant(const struct list *node)
{
    return container_of(node, const struct control_creation, node)->tenant;
}

/*
 * The oldest that are complete of the tenant that has most make room; those under way are as many as requests, which
 * are limited elsewhere.
 */
static void control_create_make_room(struct e2b *e2b)
{
    if (map_count(&e2b->creations_by_key) < e2b->creations_max)
        return;
    const uint64_t tenant = creation_tenant(share_first(&e2b->creations, creation_tenant, NULL));
    unsigned n = 0;
    LIST_FOREACH (struct control_creation, cr, &e2b->creations, node)
        if (cr->id[0] && cr->tenant == tenant && n++ < KEYS_AT_A_TIME)
            creation_free(cr);
}

/* True when the call was answered, or waits for the answer to an earlier one. */
static bool is_repeated(struct call *c, struct str key)
{
    struct control_creation *cr = map_get(&e2b_of(c)->creations_by_key, key);
    struct sandbox *sb;
    if (!cr)
        return false;
    if (!cr->id[0]) {
        wait_for(cr, c);
        return true;
    }
    sb = access_find_sandbox(c, str_of(cr->id));
    if (sandbox_json_exists(sb)) {
        control_create_answer(c, sb);
        return true;
    }
    creation_free(cr);
    return false;
}

/* A name that is not there is told what would make it one: templates/ comes with Cove, but is built on demand. */
static void control_create_refuse(struct call *c, struct str template_ref, const struct err *err)
{
    static const char ready_made[] =
        "aider browser claude code-interpreter codex desktop gemini node opencode run-code vscode";
    if (err->code != ERR_NOT_FOUND) {
        call_fail_err(c, err);
        return;
    }
    if (str_eqc(template_ref, "code-interpreter-v1")) /* the same by its other name */
        template_ref = STR("code-interpreter");
    if (str_word(template_ref, ready_made) >= 0)
        call_fail(c, 404, "%s: it comes with Cove and is built by: cove template add %.*s", err->msg,
                  STR_ARG(template_ref));
    else if (str_eqc(template_ref, "mcp-gateway"))
        call_fail(
            c, 404,
            "%s: it is one of E2B's templates and not part of Cove; build it from its public source under this name: "
            "cove template build --name mcp-gateway DIRECTORY",
            err->msg);
    else
        call_fail(c, 404, "%s: " CALL_HINT_TEMPLATE, err->msg);
}

static void create(struct call *c, const struct sandbox_spec *spec, struct str key)
{
    struct control_creation *cr = mem_new(struct control_creation);
    struct err err;
    cr->e2b = e2b_of(c);
    cr->tenant = c->actor.who.tenant;
    list_init(&cr->node);
    list_init(&cr->waiting);
    if (sandbox_create(call_core(c), &c->actor, spec, on_created, cr, &err) < 0) {
        creation_free(cr);
        control_create_refuse(c, spec->template_ref, &err);
        return;
    }
    wait_for(cr, c);
    if (key.n) {
        control_create_make_room(e2b_of(c));
        cr->key = mem_strndup(key.p, key.n);
        map_put(&e2b_of(c)->creations_by_key, key, cr);
        list_append(&e2b_of(c)->creations, &cr->node);
    }
}

static bool is_key(struct str key)
{
    return key.n > 0 && key.n <= KEY_LEN_MAX && str_is_of(key, "a-z0-9-");
}

static struct str key_of_tenant(const struct call *c, struct str key)
{
    return str_of(arena_printf(http_arena(c->req), "%" PRIu64 "/%.*s", c->actor.who.tenant, STR_ARG(key)));
}

/* Found out here, where it is told from a template that is not there. */
static bool has_volumes(struct call *c, const struct sandbox_spec *spec)
{
    for (size_t i = 0; i < spec->n_mounts; i++) {
        struct str name = spec->mounts[i].name;
        if (volume_find(call_core(c), c->actor.who.view, name))
            continue;
        return call_fail(c, 400, "volume '%.*s' not found", STR_ARG_MAX(name, VOLUME_NAME_MAX));
    }
    return true;
}

/* E2B's SDKs below 1.5 (they name themselves) can't send an access token. */
static bool knows_tokens(const struct http_request *req)
{
    struct str version = http_header_get(req, "package_version"), major, minor;
    uint64_t numbers[2];
    if (!str_eqc(http_header_get(req, "publisher"), "e2b") || !str_split(&version, '.', &major) ||
        !str_split(&version, '.', &minor) || str_to_u64(major, &numbers[0]) < 0 || str_to_u64(minor, &numbers[1]) < 0)
        return true;
    return numbers[0] > 1 || (numbers[0] == 1 && numbers[1] >= 5);
}

void control_create(struct call *c)
{
    enum create_version version = c->route->what ? CREATE_V2 : knows_tokens(c->req) ? CREATE_V1 : CREATE_V1_TOKENLESS;
    struct str key = version == CREATE_V2 ? http_header_get(c->req, "idempotency-key") : STR_NULL, own = STR_NULL;
    struct sandbox_spec spec;
    struct network_body network = {0};
    if (key.p && !is_key(key))
        call_fail(c, 400, "validation error: Idempotency-Key must be 1 to %d characters of a-z, 0-9 and '-'",
                  KEY_LEN_MAX);
    else if (call_ok(c, create_spec_read(c->body, version, core_config(call_core(c))->max_timeout_ms,
                                         http_arena(c->req), &spec, &network, &c->err)) &&
             has_volumes(c, &spec) && (!key.n || !is_repeated(c, own = key_of_tenant(c, key))))
        create(c, &spec, own);
    network_body_fini(&network);
}
