/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two tenants at the same service, whose façades are both there: every route that names something is asked for one
 * tenant's things with the other's key. It answers what it answers for things that are not there at all. That it finds
 * them for their owner is seen, too.
 */
#include "api/docker/handlers.h"
#include "api/e2b/call.h"
#include "api/e2b/control/control.h"
#include "api/kit/test_facade.h"
#include "api/mcp/handlers.h"
#include "api/native/handlers.h"
#include "base/mem.h"
#include "build/builder.h"
#include "daemon/facades.h"
#include "sandbox/key.h"
#include "sandbox/templates.h"
#include "sandbox/tenant.h"
#include "sandbox/volume/volumes.h"

#include <stdio.h>
#include <unistd.h>

/* Of api/opensandbox/handlers.h, which has names that others have too. */
extern const struct route lifecycle_routes[], command_routes[], code_routes[], file_routes[], egress_routes[];
extern const size_t lifecycle_n_routes, command_n_routes, code_n_routes, file_n_routes, egress_n_routes;

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

struct site {
    struct test_facade *f;
    struct builder *builder;
    struct facades facades;
    char key_a[KEY_TEXT_LEN + 1], key_b[KEY_TEXT_LEN + 1], key_id[KEY_ID_LEN + 1];
    uint64_t tenant_a;
};

/* What a tenant has, or what nobody has. */
struct things {
    char sandbox[64], volume[64], template[64], build[64], key[64], snapshot[64], webhook[64], container[64],
        exec[DOCKER_EXEC_ID + 1];
};

static const struct things nothing = {"i00000000000000000000",
                                      "vol-00000000000000000000",
                                      "00000000000000000000",
                                      "00000000-0000-4000-8000-000000000000",
                                      "key-000000000000",
                                      "00000000000000000000:default",
                                      "wh-0000000000000000",
                                      "i11111111111111111111",
                                      HASH};

static struct native_obstacle no_obstacle(void *ctx)
{
    (void)ctx;
    return (struct native_obstacle){NULL, NULL};
}

static int no_verify(void *ctx, const char *sandbox, struct event_verdict *ret_verdict, struct err *err)
{
    (void)ctx, (void)sandbox, (void)ret_verdict;
    return err_set(err, ERR_UNIMPLEMENTED, "not here");
}

static void site_key(struct site *s, const char *tenant, enum scope scope, const char *name, const char *sandbox,
                     char ret_key[static KEY_TEXT_LEN + 1])
{
    struct actor actor = {.name = "owner", .who = PRINCIPAL_OWNER};
    struct key_info info;
    struct err err;
    assert_int_equal(tenant_find(s->f->w->core, str_of(tenant), &actor.who.tenant, &err), 0);
    actor.who.view = actor.who.tenant;
    if (key_create(s->f->w->core, &actor,
                   &(struct key_spec){.name = str_of(name), .scope = scope, .sandbox = str_of(sandbox)}, ret_key, &info,
                   &err) < 0)
        fail_msg("%s", err.msg);
    memcpy(s->key_id, info.id, sizeof(s->key_id));
}

static int setup(void **state)
{
    static const struct actor owner = {.name = "owner", .who = PRINCIPAL_OWNER};
    struct site *s = mem_new(struct site);
    struct core *core;
    struct err err;
    s->f = facade_open();
    core = s->f->w->core;
    assert_int_equal(
        builder_new(&(struct builder_config){.core = core, .data_dir = s->f->w->dir->path}, &s->builder, &err), 0);
    const struct native_config native = {.core = core,
                                         .builder = s->builder,
                                         .events = s->f->w->events,
                                         .verify = no_verify,
                                         .supervisor = no_obstacle,
                                         .version = "1"};
    facades_open(&s->facades, &native, NULL, false);
    facade_claim(s->f, &(struct claim){.serve = facades_serve, .facade = &s->facades});
    assert_int_equal(tenant_create(core, &owner, STR("b"), NULL, &err), 0);
    assert_int_equal(tenant_create(core, &owner, STR("a"), NULL, &err), 0);
    assert_int_equal(tenant_find(core, STR("a"), &s->tenant_a, &err), 0);
    site_key(s, "b", SCOPE_ADMIN, "admin", "", s->key_b);
    site_key(s, "a", SCOPE_ADMIN, "admin", "", s->key_a);
    *state = s;
    return 0;
}

static void site_free(void *facades)
{
    struct site *s = container_of((struct facades *)facades, struct site, facades);
    AUTO_FREE char *uploads = mem_printf("%s/uploads", s->f->w->dir->path);
    facades_free(&s->facades);
    builder_free(s->builder);
    world_turns(s->f->w, 50);
    (void)rmdir(uploads);
}

static int teardown(void **state)
{
    struct site *s = *state;
    int r = facade_close(s->f, site_free);
    mem_free(s);
    return r;
}

static int ask(struct site *s, const char *key, const char *method, const char *target, const char *body,
               struct buf *ret_body)
{
    AUTO_FREE char *headers = mem_printf("X-API-KEY: %s\r\nOPEN-SANDBOX-API-KEY: %s\r\n%s", key, key,
                                         body ? "Content-Type: application/json\r\n" : "");
    return facade_call(s->f, method, target, headers, str_of(body), NULL, ret_body);
}

static void member(const struct buf *body, const char *name, char *ret, size_t size)
{
    AUTO_FREE char *wanted = mem_printf("\"%s\":\"", name);
    const char *at = memmem(buf_data(body), buf_len(body), wanted, strlen(wanted));
    if (!at)
        fail_msg("no %s in %.*s", name, STR_ARG(buf_str(body)));
    at += strlen(wanted);
    (void)snprintf(ret, size, "%.*s", (int)strcspn(at, "\""), at);
}

static void fill(struct site *s, const char *key, struct things *t)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    assert_int_equal(ask(s, key, "POST", "/v2/sandboxes", "{\"templateID\":\"base\",\"timeout\":3000}", &b), 201);
    member(&b, "sandboxID", t->sandbox, sizeof(t->sandbox));
    assert_int_equal(ask(s, key, "POST", "/volumes", "{\"name\":\"data\"}", &b), 201);
    member(&b, "volumeID", t->volume, sizeof(t->volume));
    assert_int_equal(ask(s, key, "POST", "/v3/templates", "{\"name\":\"app\"}", &b), 202);
    member(&b, "templateID", t->template, sizeof(t->template));
    member(&b, "buildID", t->build, sizeof(t->build));
    AUTO_FREE char *snapshots = mem_printf("/sandboxes/%s/snapshots", t->sandbox);
    assert_int_equal(ask(s, key, "POST", snapshots, "{}", &b), 201);
    member(&b, "snapshotID", t->snapshot, sizeof(t->snapshot));
    assert_int_equal(ask(s, key, "POST", "/events/webhooks",
                         "{\"name\":\"more\",\"url\":\"https://a.test/\",\"events\":[\"sandbox.lifecycle.killed\"],"
                         "\"signatureSecret\":\"s\"}",
                         &b),
                     201);
    member(&b, "id", t->webhook, sizeof(t->webhook));
    memcpy(t->key, s->key_id, sizeof(s->key_id));
    assert_int_equal(ask(s, key, "POST", "/v1.44/containers/create", "{\"Image\":\"base\",\"Cmd\":[\"cat\"]}", &b),
                     201);
    member(&b, "Id", t->container, sizeof(t->container));
    AUTO_FREE char *start = mem_printf("/v1.44/containers/%s/start", t->container);
    AUTO_FREE char *exec = mem_printf("/v1.44/containers/%s/exec", t->container);
    assert_int_equal(ask(s, key, "POST", start, NULL, &b), 204);
    assert_int_equal(ask(s, key, "POST", exec, "{\"Cmd\":[\"echo\"]}", &b), 201);
    member(&b, "Id", t->exec, sizeof(t->exec));
}

/* The routes of one façade, or of one of its services, and where they are. */
enum { TABLES = 8 };
struct table {
    const struct route *routes;
    size_t n;
    const char *prefix;
    unsigned port; /* of what a sandbox seems to have; 0: none */
    bool is_e2b;
};

static void site_tables(struct site *s, struct table tables[static TABLES])
{
    (void)s;
    tables[0] = (struct table){control_routes, control_routes_n, "", 0, true};
    tables[1] = (struct table){native_routes, native_routes_n, "", 0, false};
    tables[2] = (struct table){lifecycle_routes, lifecycle_n_routes, "/v1", 0, false};
    tables[3] = (struct table){command_routes, command_n_routes, "/v1", 44772, false};
    tables[4] = (struct table){file_routes, file_n_routes, "/v1", 44772, false};
    tables[6] = (struct table){code_routes, code_n_routes, "/v1", 44772, false};
    tables[7] = (struct table){docker_routes, docker_n_routes, "/v1.44", 0, false};
    tables[5] = (struct table){egress_routes, egress_n_routes, "/v1", 18080, false};
}

/* The pattern with what it names; false: it names nothing, or what is no tenant's. */
static bool target_of_route(const struct table *table, const struct route *route, const struct things *t, struct buf *b)
{
    const char *p = route->pattern;
    bool names = table->port != 0;
    buf_append_cstr(b, table->prefix);
    if (table->port)
        buf_printf(b, "/sandboxes/%s/proxy/%u", t->sandbox, table->port);
    if (strncmp(p, NATIVE_PREFIX, strlen(NATIVE_PREFIX)) == 0) {
        buf_append_cstr(b, NATIVE_PREFIX);
        p += strlen(NATIVE_PREFIX);
    }
    const char *const firsts[][2] = {{"sandboxes/{}", t->sandbox},
                                     {"volumes/{}", t->volume},
                                     {"templates/", t->template},
                                     {"builds/{}", t->build},
                                     {"keys/{}", t->key},
                                     {"webhooks/{}", t->webhook},
                                     {"snapshots/{}", t->snapshot},
                                     {"containers/{}", t->container},
                                     {"exec/{}", t->exec},
                                     {"images/{}", t->template},
                                     {table->port ? "" : "none", t->build}};
    const char *first = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(firsts) && !first; i++)
        first = strstr(p, firsts[i][0]) ? firsts[i][1] : NULL;
    for (unsigned n = 0; *p; p++) {
        if (p[0] != '{') {
            buf_append_char(b, *p);
            continue;
        }
        if (!first)
            return false;
        buf_append_cstr(b, n++ == 0 ? first : strstr(route->pattern, "builds/{}") ? t->build : HASH);
        names = true;
        p++;
    }
    static const struct {
        const char *pattern, *query;
    } queries[] = {{NATIVE_PREFIX "/snapshots", "?ref=%s"},
                   {NATIVE_PREFIX "/templates", "?ref=%s"},
                   {NATIVE_PREFIX "/diff", "?a=&b=%s"}};
    for (size_t i = 0; i < ARRAY_SIZE(queries); i++) {
        bool lists = i == 0 && route->method == HTTP_METHOD_GET;
        if (strcmp(route->pattern, queries[i].pattern) != 0 || lists)
            continue;
        buf_append_str(b, str_n(queries[i].query, strcspn(queries[i].query, "%")));
        buf_append_cstr(b, i == 2 ? t->sandbox : i == 0 ? t->snapshot : t->template);
        names = true;
    }
    buf_append_char(b, '\0');
    return names;
}

static const char *method_of(const struct route *route)
{
    static const char *const names[] = {
        [HTTP_METHOD_GET] = "GET", [HTTP_METHOD_HEAD] = "HEAD",   [HTTP_METHOD_POST] = "POST",
        [HTTP_METHOD_PUT] = "PUT", [HTTP_METHOD_PATCH] = "PATCH", [HTTP_METHOD_DELETE] = "DELETE"};
    return names[route->method];
}

/* Of each route that has one, the members without which it would answer before it looks for anything. */
static const char *body_of(const struct route *route)
{
    bool has_body = route->flags & (ROUTE_BODY | ROUTE_BODY_MAY);
    return !has_body                                           ? NULL
           : strstr(route->pattern, "/v2/templates/{}/builds") ? "{\"fromTemplate\":\"base\"}"
           : strstr(route->pattern, "rotate")                  ? "{}"
           : strstr(route->pattern, "templates/{}")            ? "{\"public\":true}"
                                                               : "{}";
}

/* What is said of a thing, without its name. */
static void masked(struct buf *b, const char *name)
{
    for (char *at; buf_len(b) && (at = memmem(buf_data(b), buf_len(b), name, strlen(name)));)
        memset(at, '#', strlen(name));
}

static unsigned walk(struct site *s, const struct table *table, const struct things *theirs)
{
    unsigned walked = 0;
    for (size_t i = 0; i < table->n; i++) {
        const struct route *route = &table->routes[i];
        AUTO_BUF struct buf there = BUF_INIT(4096), not_there = BUF_INIT(4096), b = BUF_INIT(8 << 20),
                            other = BUF_INIT(8 << 20);
        const char *method = method_of(route), *body = body_of(route);
        if ((route->flags & (ROUTE_OPEN | ROUTE_OPERATOR)) || !target_of_route(table, route, theirs, &there) ||
            !target_of_route(table, route, &nothing, &not_there) || (route->what && table->is_e2b))
            continue; /* route->what: not here at all */
        int status = ask(s, s->key_b, method, buf_data(&there), body, &b);
        int expected = ask(s, s->key_b, method, buf_data(&not_there), body, &other);
        bool is_e2b_log = strstr(route->pattern, "/builds/{}/status") || strstr(route->pattern, "/builds/{}/logs");
        if (status != (is_e2b_log ? 400 : 404))
            fail_msg("%s %s: %d %.*s", method, buf_data(&there), status, STR_ARG(buf_str(&b)));
        const char *const pairs[][2] = {{theirs->snapshot, nothing.snapshot},   {theirs->sandbox, nothing.sandbox},
                                        {theirs->volume, nothing.volume},       {theirs->template, nothing.template},
                                        {theirs->build, nothing.build},         {theirs->key, nothing.key},
                                        {theirs->container, nothing.container}, {theirs->exec, nothing.exec}};
        for (size_t k = 0; k < ARRAY_SIZE(pairs); k++) {
            masked(&b, pairs[k][0]);
            masked(&other, pairs[k][1]);
        }
        assert_int_equal(status, expected);
        if (!str_eq(buf_str(&b), buf_str(&other)))
            fail_msg("%s %s tells them apart: %.*s / %.*s", method, buf_data(&there), STR_ARG(buf_str(&b)),
                     STR_ARG(buf_str(&other)));
        /* Its owner finds it. (What would change or end it is not asked for.) */
        if (route->method == HTTP_METHOD_GET && !table->port && !strstr(route->pattern, "files") &&
            !strstr(route->pattern, "guard/templates") /* none is built */ && !strstr(route->pattern, "entries") &&
            !strstr(route->pattern, "images/{}") /* the same */ && !strstr(route->pattern, "diff") &&
            !strstr(route->pattern, "output") && !strstr(route->pattern, "artefacts")) {
            status = ask(s, s->key_a, method, buf_data(&there), body, &b);
            if (status == 404 || status == 403 || status == 401)
                fail_msg("%s %s for its owner: %d %.*s", method, buf_data(&there), status, STR_ARG(buf_str(&b)));
        }
        walked++;
    }
    return walked;
}

static void nothing_of_another_tenant_is_there(void **state)
{
    struct site *s = *state;
    struct things theirs;
    fill(s, s->key_a, &theirs);
    struct table tables[TABLES];
    site_tables(s, tables);
    static const unsigned least[TABLES] = {25, 30, 10, 10, 8, 5, 5, 18};
    for (size_t i = 0; i < TABLES; i++) {
        unsigned n = walk(s, &tables[i], &theirs);
        if (n < least[i])
            fail_msg("table %zu: %u", i, n);
    }
}

static void lists_hold_ones_own(void **state)
{
    static const char *const lists[] = {"/sandboxes",
                                        "/v2/sandboxes",
                                        "/sandboxes/metrics?sandbox_ids=",
                                        "/templates",
                                        "/v2/templates",
                                        "/snapshots",
                                        "/volumes",
                                        NATIVE_PREFIX "/sandboxes",
                                        NATIVE_PREFIX "/snapshots",
                                        NATIVE_PREFIX "/templates",
                                        NATIVE_PREFIX "/volumes",
                                        NATIVE_PREFIX "/keys"};
    struct site *s = *state;
    struct things theirs;
    fill(s, s->key_a, &theirs);
    const char *const ids[] = {theirs.sandbox, theirs.volume, theirs.template, theirs.key};
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        AUTO_BUF struct buf b = BUF_INIT(8 << 20);
        AUTO_FREE char *target = mem_printf("%s%s", lists[i], strchr(lists[i], '=') ? theirs.sandbox : "");
        assert_int_equal(ask(s, s->key_b, "GET", target, NULL, &b), 200);
        for (size_t k = 0; k < ARRAY_SIZE(ids); k++)
            if (memmem(buf_data(&b), buf_len(&b), ids[k], strlen(ids[k])))
                fail_msg("%s holds %s", target, ids[k]);
    }
    /* Nor does that of those that have ended. */
    AUTO_BUF struct buf mine = BUF_INIT(1 << 20), others = BUF_INIT(1 << 20);
    AUTO_FREE char *one = mem_printf("/sandboxes/%s", theirs.sandbox);
    assert_int_equal(ask(s, s->key_a, "DELETE", one, NULL, &mine), 204);
    assert_int_equal(ask(s, s->key_a, "GET", NATIVE_PREFIX "/sandboxes?state=ended", NULL, &mine), 200);
    assert_has(&mine, theirs.sandbox);
    assert_int_equal(ask(s, s->key_b, "GET", NATIVE_PREFIX "/sandboxes?state=ended", NULL, &others), 200);
    assert_string_equal(buf_data(&others), "{\"sandboxes\":[],\"next\":null}");
    /* The same names, once more. */
    struct things own;
    memcpy(s->key_id, nothing.key, sizeof(s->key_id));
    fill(s, s->key_b, &own);
    assert_string_not_equal(own.template, theirs.template);
    assert_string_not_equal(own.volume, theirs.volume);
}

static void what_is_named_in_a_body_is_ones_own(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct site *s = *state;
    char first[64], second[64], again[64];
    struct things theirs;
    fill(s, s->key_a, &theirs);
    AUTO_FREE char *mount =
        mem_printf("{\"templateID\":\"base\",\"volumeMounts\":[{\"name\":\"%s\",\"path\":\"/v\"}]}", theirs.volume);
    assert_int_equal(ask(s, s->key_b, "POST", "/v2/sandboxes", mount, &b), 400);
    assert_int_equal(ask(s, s->key_b, "POST", "/v2/sandboxes",
                         "{\"templateID\":\"base\",\"volumeMounts\":[{\"name\":\"data\",\"path\":\"/v\"}]}", &b),
                     400);
    AUTO_FREE char *from = mem_printf("{\"templateID\":\"%s\"}", theirs.template);
    assert_int_equal(ask(s, s->key_b, "POST", "/v2/sandboxes", from, &b), 404);
    AUTO_FREE char *tag = mem_printf("{\"target\":\"%s\",\"tags\":[\"x\"]}", theirs.template);
    assert_int_equal(ask(s, s->key_b, "POST", "/templates/tags", tag, &b), 404);
    AUTO_FREE char *confined = mem_printf("{\"name\":\"x\",\"sandbox\":\"%s\"}", theirs.sandbox);
    assert_int_equal(ask(s, s->key_b, "POST", NATIVE_PREFIX "/keys", confined, &b), 404);

    /* A key of a create means that tenant's create. */
    static const char body[] = "{\"templateID\":\"base\",\"timeout\":3000}";
    AUTO_FREE char *a =
        mem_printf("X-API-KEY: %s\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\n", s->key_a);
    AUTO_FREE char *c =
        mem_printf("X-API-KEY: %s\r\nContent-Type: application/json\r\nIdempotency-Key: k\r\n", s->key_b);
    assert_int_equal(facade_call(s->f, "POST", "/v2/sandboxes", a, str_of(body), NULL, &b), 201);
    member(&b, "sandboxID", first, sizeof(first));
    assert_int_equal(facade_call(s->f, "POST", "/v2/sandboxes", c, str_of(body), NULL, &b), 201);
    member(&b, "sandboxID", second, sizeof(second));
    assert_int_equal(facade_call(s->f, "POST", "/v2/sandboxes", a, str_of(body), NULL, &b), 201);
    member(&b, "sandboxID", again, sizeof(again));
    assert_string_equal(first, again);
    assert_string_not_equal(first, second);
}

/* What is kept of creates is bounded, and whoever has most of it loses first. */
static void create_once(struct site *s, const char *key, unsigned n, char ret_id[static 64])
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    AUTO_FREE char *headers =
        mem_printf("X-API-KEY: %s\r\nContent-Type: application/json\r\nIdempotency-Key: k%u\r\n", key, n);
    assert_int_equal(facade_call(s->f, "POST", "/v2/sandboxes", headers, STR("{\"templateID\":\"base\"}"), NULL, &b),
                     201);
    member(&b, "sandboxID", ret_id, 64);
}

static void repeated_creates_of_others_stay_known(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct site *s = *state;
    char first[64], own[64], again[64];
    s->facades.e2b->creations_max = 8;
    create_once(s, s->key_b, 0, first);
    for (unsigned i = 0; i < 20; i++) {
        create_once(s, s->key_a, i, own);
        AUTO_FREE char *sandbox = mem_printf("/sandboxes/%s", own);
        assert_int_equal(ask(s, s->key_a, "DELETE", sandbox, NULL, &b), 204);
    }
    create_once(s, s->key_b, 0, again);
    assert_string_equal(first, again);
}

static void scopes_are_kept(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    char reads[KEY_TEXT_LEN + 1], uses[KEY_TEXT_LEN + 1], one[KEY_TEXT_LEN + 1];
    struct site *s = *state;
    struct things own;
    fill(s, s->key_a, &own);
    site_key(s, "a", SCOPE_READ, "reads", "", reads);
    site_key(s, "a", SCOPE_USE, "uses", "", uses);
    site_key(s, "a", SCOPE_USE, "one", own.sandbox, one);

    struct table tables[TABLES];
    site_tables(s, tables);
    for (size_t i = 0; i < TABLES; i++) {
        for (size_t k = 0; k < tables[i].n; k++) {
            const struct route *route = &tables[i].routes[k];
            AUTO_BUF struct buf target = BUF_INIT(4096);
            bool is_read = route->method == HTTP_METHOD_GET || route->method == HTTP_METHOD_HEAD;
            if ((route->flags & ROUTE_OPEN) ||
                (!target_of_route(&tables[i], route, &nothing, &target) && strchr(route->pattern, '{')))
                continue;
            const char *method = method_of(route), *body = body_of(route);
            unsigned above_use = route->flags & (ROUTE_APPROVE | ROUTE_ADMIN | ROUTE_OPERATOR);
            if (!is_read && !(route->flags & ROUTE_READ))
                assert_int_equal(ask(s, reads, method, buf_data(&target), body, &b), 403);
            if (above_use)
                assert_int_equal(ask(s, uses, method, buf_data(&target), body, &b), 403);
            if (route->flags & ROUTE_OPERATOR)
                assert_int_equal(ask(s, s->key_a, method, buf_data(&target), body, &b), 403);
            if (!(route->flags & (ROUTE_SANDBOX | ROUTE_OF_SANDBOX)) || (route->flags & ROUTE_WIDE))
                assert_int_equal(ask(s, one, method, buf_data(&target), body, &b), 403);
            else if (!(route->flags & ROUTE_ADMIN))
                assert_int_equal(ask(s, one, method, buf_data(&target), body, &b), 404); /* another sandbox */
        }
    }
    AUTO_FREE char *sandbox = mem_printf("/sandboxes/%s", own.sandbox);
    AUTO_FREE char *volume = mem_printf("/volumes/%s", own.volume);
    assert_int_equal(ask(s, one, "GET", sandbox, NULL, &b), 200);
    assert_has(&b, "\"envdAccessToken\"");
    assert_int_equal(ask(s, reads, "GET", sandbox, NULL, &b), 200); /* and no token, which would do more */
    assert_null(memmem(buf_data(&b), buf_len(&b), "envdAccessToken", 15));
    assert_int_equal(ask(s, reads, "GET", volume, NULL, &b), 200);
    assert_null(memmem(buf_data(&b), buf_len(&b), "\"token\"", 7));
    assert_int_equal(ask(s, one, "DELETE", sandbox, NULL, &b), 204);
    assert_int_equal(ask(s, one, "GET", sandbox, NULL, &b), 404);
}

static void limits_are_told_in_each_facades_words(void **state)
{
    static const struct actor owner = {.name = "owner", .who = PRINCIPAL_OWNER};
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    struct site *s = *state;
    int64_t limits[QUOTA_MAX] = {1, 0, 0, 0, 0, 0, 0};
    struct err err;
    assert_int_equal(tenant_set(s->f->w->core, &owner, STR("a"), limits, &err), 0);
    assert_int_equal(ask(s, s->key_a, "POST", "/v2/sandboxes", "{\"templateID\":\"base\"}", &b), 201);
    assert_int_equal(ask(s, s->key_a, "POST", "/v2/sandboxes", "{\"templateID\":\"base\"}", &b), 429);
    assert_has(&b, "{\"code\":429,\"message\":\"your tenant's limit is 1 sandboxes, and 1 is in use\"}");
    assert_int_equal(ask(s, s->key_a, "POST", NATIVE_PREFIX "/sandboxes", "{}", &b), 429);
    assert_has(&b, "\"code\":\"resource_exhausted\"");
    assert_int_equal(ask(s, s->key_b, "POST", "/v2/sandboxes", "{\"templateID\":\"base\"}", &b), 201);
    limits[QUOTA_SANDBOXES] = 0;
    limits[QUOTA_MEMORY] = 1;
    limits[QUOTA_CONNECTIONS] = 1;
    assert_int_equal(tenant_set(s->f->w->core, &owner, STR("a"), limits, &err), 0);
    assert_int_equal(ask(s, s->key_a, "POST", "/v2/sandboxes", "{\"templateID\":\"base\"}", &b), 403);
    assert_has(&b, "your tenant's limit is 1 B of memory, less than the 256 MiB asked for");
    /* A request that is over is given back. */
    for (int i = 0; i < 3; i++)
        assert_int_equal(ask(s, s->key_a, "GET", "/v2/sandboxes", NULL, &b), 200);
    limits[QUOTA_CONNECTIONS] = 0;
}

/* A tool with a sandbox's id and whatever else it can't do without. */
static void call_tool(struct site *s, const char *key, const struct mcp_tool *t, const char *sandbox, struct buf *b)
{
    bool is_theirs = t->renames && strstr(t->renames, "environment_id=sandbox");
    AUTO_FREE char *headers =
        mem_printf("X-API-KEY: %s\r\nContent-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\n"
                   "Mcp-Method: tools/call\r\nMcp-Name: %s\r\n",
                   key, t->name);
    AUTO_FREE char *body = mem_printf(
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"%s\",\"arguments\":{\"%s\":\"%s\"},"
        "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\",\"io.modelcontextprotocol/clientCapabilities\":"
        "{}}}}",
        t->name, is_theirs ? "environment_id" : "sandbox", sandbox);
    assert_int_equal(facade_call(s->f, "POST", MCP_PATH, headers, str_of(body), NULL, b), 200);
}

/* Which sandbox, and what a key must be good for, is in the body here: tool by tool. */
static void tools_keep_to_their_tenant(void **state)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20), other = BUF_INIT(1 << 20);
    char reads[KEY_TEXT_LEN + 1], one[KEY_TEXT_LEN + 1];
    struct site *s = *state;
    struct things theirs;
    fill(s, s->key_a, &theirs);
    site_key(s, "a", SCOPE_READ, "reads", "", reads);
    site_key(s, "a", SCOPE_USE, "one", theirs.sandbox, one);
    for (size_t i = 0; i < mcp_n_tools; i++) {
        const struct mcp_tool *t = &mcp_tools[i];
        if (t->flags & MCP_SANDBOX) {
            call_tool(s, s->key_b, t, theirs.sandbox, &b);
            call_tool(s, s->key_b, t, nothing.sandbox, &other);
            assert_has(&b, "not_found: there is no sandbox");
            masked(&b, theirs.sandbox);
            masked(&other, nothing.sandbox);
            assert_true(str_eq(buf_str(&b), buf_str(&other)));
            call_tool(s, one, t, nothing.sandbox, &b);
            assert_has(&b, t->flags & MCP_WIDE ? "permission_denied" : "not_found: there is no sandbox");
        }
        if (t->rights == MCP_USES) {
            call_tool(s, reads, t, theirs.sandbox, &b);
            assert_has(&b, "permission_denied");
        }
        if (t->flags & MCP_WIDE) {
            call_tool(s, one, t, theirs.sandbox, &b);
            assert_has(&b, "permission_denied");
        }
    }
    /* What is listed is one's own, and so are resources. */
    static const char *const methods[] = {"tools/call", "resources/list", "resources/read"};
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        AUTO_FREE char *uri = mem_printf("cove://%s/log", theirs.sandbox);
        const char *name = i == 2 ? uri : "sandbox_list";
        AUTO_FREE char *headers =
            mem_printf("X-API-KEY: %s\r\nContent-Type: application/json\r\nMCP-Protocol-Version: 2026-07-28\r\n"
                       "Mcp-Method: %s\r\nMcp-Name: %s\r\n",
                       s->key_b, methods[i], name);
        AUTO_FREE char *body =
            mem_printf("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":{\"%s\":\"%s\",\"_meta\":{"
                       "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","
                       "\"io.modelcontextprotocol/clientCapabilities\":{}}}}",
                       methods[i], i == 2 ? "uri" : "name", name);
        assert_int_equal(facade_call(s->f, "POST", MCP_PATH, headers, str_of(body), NULL, &b), i == 2 ? 400 : 200);
        if (i < 2)
            assert_null(memmem(buf_data(&b), buf_len(&b), theirs.sandbox, strlen(theirs.sandbox)));
        else
            assert_has(&b, "there is no such resource");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nothing_of_another_tenant_is_there, setup, teardown),
        cmocka_unit_test_setup_teardown(lists_hold_ones_own, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_named_in_a_body_is_ones_own, setup, teardown),
        cmocka_unit_test_setup_teardown(tools_keep_to_their_tenant, setup, teardown),
        cmocka_unit_test_setup_teardown(scopes_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(repeated_creates_of_others_stay_known, setup, teardown),
        cmocka_unit_test_setup_teardown(limits_are_told_in_each_facades_words, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
