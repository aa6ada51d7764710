/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands and terminals that are made once, whatever becomes of the answer: their client names them before it asks,
 * "<instance>.<second>.<token>".
 *
 *  1. The instance is this worker's and this sandbox's, the second is when GET /execution/instance gave it. So an id
 *     that is too old, or that an earlier worker knew, is refused without being remembered.
 *  2. A record is made when the process is under way, which is what the gate let pass, and stays until RETENTION_S
 *     after the id's second, and while the process runs; at the longest until the end of its sandbox. It has the
 *     handle, which is a digest of who asks, the kind and the id: nobody finds another one's.
 *  3. A sandbox has OPERATIONS_MAX of them. No other is dropped for a new one.
 */
#include "api/opensandbox/handlers.h"
#include "base/mem.h"

enum { OPERATIONS_MAX = 1024, RETENTION_S = 24 * 3600, TOKEN_MIN = 8, TOKEN_MAX = 128 };

#define CREATING "creating"

struct operation {
    char id[COMMAND_ID_LEN + 1]; /* of what was made; first (operation_begin()) */
    char body[DIGEST_LEN + 1];   /* a digest of what was asked for */
    const char *state;
    usec_t expires; /* real time */
    bool is_pty;
};

/* Those of one sandbox. */
struct operations {
    struct opensandbox *o;
    struct sandbox_watch watch;
    char sandbox[ID_SANDBOX_LEN + 1];
    struct map by_id;
};

static void operations_free(void *operations)
{
    struct operations *s = operations;
    (void)map_del(&s->o->operations, str_of(s->sandbox));
    sandbox_unwatch(&s->watch);
    MAP_FOREACH (struct operation, p, &s->by_id)
        mem_free(p);
    map_fini(&s->by_id);
    mem_free(s);
}

static void operations_on_sandbox_end(struct sandbox_watch *w, struct sandbox *sb UNUSED)
{
    operations_free(container_of(w, struct operations, watch));
}

static struct operations *operations_of(struct call *c)
{
    return map_get(&opensandbox_of_execd(c)->operations, str_of(sandbox_info(c->sandbox)->id));
}

void operations_free_all(struct opensandbox *o)
{
    facade_drain(&o->operations, operations_free);
}

/* ---- answers ---- */

static void operation_answer(struct call *c, int status, json_t *json)
{
    http_add_header(c->req, STR("cache-control"), STR("no-store"));
    call_value(c, status, json);
}

static bool operation_refuse(struct call *c, int status, const char *code, const char *why)
{
    http_add_header(c->req, STR("cache-control"), STR("no-store"));
    return opensandbox_fail(c, status, code, why);
}

static void operation_refuse_old(struct call *c)
{
    operation_refuse(c, 410, "operation_expired", "the id is too old: what became of it is not known any more");
}

static void operation_tell(struct call *c, const struct operation *p)
{
    operation_answer(c, strcmp(p->state, CREATING) == 0 ? 202 : 200,
                     json_pack("{s:s,s:s,s:s,s:o}", "id", p->id, "kind", p->is_pty ? "pty" : "command", "state",
                               p->state, "expires_at", call_time(p->expires)));
}

void operation_full(struct call *c)
{
    operation_refuse(c, 503, "operation_capacity_exceeded", "there are too many operations: nothing was made");
}

/* ---- ids ---- */

static void operation_instance(struct call *c, char to[static DIGEST_LEN + 1])
{
    AUTO_BUF struct buf b = BUF_INIT(256);
    buf_printf(&b, "instance %s %s", opensandbox_of_execd(c)->instance, sandbox_info(c->sandbox)->id);
    opensandbox_digest(buf_str(&b), to, DIGEST_LEN);
}

static bool operation_is_token(struct str token)
{
    return token.n >= TOKEN_MIN && token.n <= TOKEN_MAX && str_is_of(token, "A-Za-z0-9_-");
}

/* What is known of it: the record, NULL for none, and the handle that it has or would have. False: answered. */
static bool operation_find(struct call *c, bool is_pty, struct str id, struct operation **ret_found,
                           char handle[static COMMAND_ID_LEN + 1], usec_t *ret_expires)
{
    AUTO_BUF struct buf b = BUF_INIT(1024);
    char ours[DIGEST_LEN + 1];
    struct str token = id, instance, second;
    uint64_t issued;
    *ret_found = NULL;
    *ret_expires = 0;
    if (!str_split(&token, '.', &instance) || !str_split(&token, '.', &second) || instance.n != DIGEST_LEN ||
        str_to_u64(second, &issued) < 0 || (second.n > 1 && second.p[0] == '0') || !operation_is_token(token))
        return operation_refuse(c, 400, "invalid_operation_id",
                                "an operation id is <instance_id>.<issued_at>.<8 to 128 of A-Z, a-z, 0-9, _ and ->");
    operation_instance(c, ours);
    if (!str_eqc(instance, ours))
        return operation_refuse(
            c, 409, "operation_instance_mismatch",
            "the id is of another sandbox, or from before a restart of the service: what became of it is "
            "not known here");
    if (issued > clock_real() / USEC_PER_SEC)
        return operation_refuse(c, 400, "invalid_operation_id", "issued_at is in the future");
    *ret_expires = (issued + RETENTION_S) * USEC_PER_SEC;
    buf_printf(&b, "operation %s %d %.*s", c->actor.name, is_pty, STR_ARG(id));
    opensandbox_digest(buf_str(&b), handle, COMMAND_ID_LEN);
    const struct operations *s = operations_of(c);
    *ret_found = s ? map_get(&s->by_id, str_of(handle)) : NULL;
    return true;
}

/* ---- records ---- */

/* Its time is over, and so is what it is of. */
static bool operation_expires(struct opensandbox *o, const struct operation *p)
{
    return clock_real() >= p->expires && strcmp(p->state, CREATING) != 0 &&
           (p->is_pty ? pty_retire(o, p->id) : !command_runs(o, p->id));
}

static void operations_sweep(struct operations *s)
{
    size_t it = 0;
    for (struct operation *p; (p = map_next(&s->by_id, &it));)
        if (operation_expires(s->o, p)) {
            mem_free(map_del(&s->by_id, str_of(p->id)));
            it = 0;
        }
}

static const char *const operation_members[] = {"operation_id", "command", "argv", "cwd", "background",
                                                "timeout",      "uid",     "gid",  "envs"};

void operation_digest_body(const struct call *c, char to[static DIGEST_LEN + 1])
{
    json_t *body AUTO_JSON = json_copy(c->body);
    (void)json_object_del(body, "operation_id");
    for (size_t i = 1; i < ARRAY_SIZE(operation_members); i++) {
        const char *text = json_string_value(json_object_get(body, operation_members[i]));
        if (json_asks_nothing(body, operation_members[i]) || (text && !*text))
            (void)json_object_del(body, operation_members[i]);
    }
    AUTO_FREE char *text = json_dumps(body, JSON_COMPACT | JSON_SORT_KEYS);
    opensandbox_digest(str_of(text), to, DIGEST_LEN);
}

/* False: answered. Else what the record would be stands where the route has no argument, and nothing was made yet. */
static bool operation_begin(struct call *c, bool is_pty)
{
    static const char *const pty_members[] = {"operation_id", "command", "cwd"};
    struct operation *draft = arena_alloc(http_arena(c->req), sizeof(*draft)), *same;
    struct str id = STR("");
    struct err err;
    if ((is_pty ? json_only(c->body, pty_members, ARRAY_SIZE(pty_members), &err)
                : json_only(c->body, operation_members, ARRAY_SIZE(operation_members), &err)) < 0)
        return call_refuse(c, ERR_INVALID_ARGUMENT, "%s", err.msg);
    *draft = (struct operation){.is_pty = is_pty};
    if (!CALL_WANTS(c, JSON_NEED_STR("operation_id", &id)) ||
        !operation_find(c, is_pty, id, &same, draft->id, &draft->expires))
        return false;
    operation_digest_body(c, draft->body);
    struct operations *s = operations_of(c);
    if (same && !operation_expires(s->o, same)) {
        if (strcmp(draft->body, same->body) == 0)
            operation_tell(c, same);
        else
            operation_refuse(c, 409, "operation_conflict", "this operation id was used for another request");
        return false;
    }
    if (same || clock_real() >= draft->expires) {
        operation_refuse_old(c);
        return false;
    }
    if (s && map_count(&s->by_id) >= OPERATIONS_MAX)
        operations_sweep(s);
    if (s && map_count(&s->by_id) >= OPERATIONS_MAX) {
        operation_full(c);
        return false;
    }
    c->args[1] = str_n((const char *)draft, COMMAND_ID_LEN);
    return true;
}

void operation_claim(struct call *c, bool is_made)
{
    struct operations *s = operations_of(c);
    struct operation *p = mem_new(struct operation);
    if (!s) {
        s = mem_new(struct operations);
        s->o = opensandbox_of_execd(c);
        memcpy(s->sandbox, sandbox_info(c->sandbox)->id, sizeof(s->sandbox));
        s->watch.fn = operations_on_sandbox_end;
        sandbox_watch_end(c->sandbox, &s->watch);
        (void)map_put(&s->o->operations, str_of(s->sandbox), s);
    }
    memcpy(p, c->args[1].p, sizeof(*p));
    p->state = is_made ? "created" : CREATING;
    (void)map_put(&s->by_id, str_of(p->id), p);
    if (is_made)
        operation_tell(c, p);
}

bool operation_settle(struct opensandbox *o, const char *sandbox, const char *id, bool is_made, struct call *c)
{
    const struct operations *s = map_get(&o->operations, str_of(sandbox));
    struct operation *p = s ? map_get(&s->by_id, str_of(id)) : NULL;
    if (!p)
        return false;
    p->state = is_made ? "created" : "failed";
    if (c)
        operation_tell(c, p);
    return true;
}

/* ---- routes ---- */

void operation_show_instance(struct call *c)
{
    char instance[DIGEST_LEN + 1];
    operation_instance(c, instance);
    operation_answer(c, 200,
                     json_pack("{s:s,s:I,s:i,s:i}", "instance_id", instance, "issued_at",
                               (json_int_t)(clock_real() / USEC_PER_SEC), "retention_seconds", RETENTION_S, "capacity",
                               OPERATIONS_MAX));
}

void operation_show(struct call *c)
{
    struct str kind = STR("");
    struct operation *p;
    char handle[COMMAND_ID_LEN + 1];
    usec_t expires;
    (void)call_query(c, "kind", &kind);
    if (!str_eqc(kind, "command") && !str_eqc(kind, "pty")) {
        operation_refuse(c, 400, "invalid_operation_kind", "kind must be command or pty");
        return;
    }
    if (!operation_find(c, str_eqc(kind, "pty"), http_header_get(c->req, COMMAND_OPERATION_HEADER), &p, handle,
                        &expires))
        return;
    if (p && !operation_expires(opensandbox_of_execd(c), p))
        operation_tell(c, p);
    else if (clock_real() >= expires)
        operation_refuse_old(c);
    else
        operation_refuse(c, 404, "operation_not_found", "nothing was made under this id");
}

void operation_command(struct call *c)
{
    if (operation_begin(c, false))
        session_command(c);
}

void operation_pty(struct call *c)
{
    if (operation_begin(c, true))
        pty_make(c);
}
