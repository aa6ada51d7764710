/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions of the older protocols.
 *
 *  1. A session is good for whoever made it alone: for anybody else it isn't there.
 *  2. It ends by DELETE, and with it the sandboxes that were made to end with it. It ends by being forgotten, when it
 *     was not used for SESSION_IDLE, when its maker has SESSIONS_OF_ONE newer ones, when there are SESSIONS_MAX and its
 *     tenant has most of them, or with this process: its sandboxes end by their time-outs then.
 */
#include "api/mcp/handlers.h"
#include "base/id.h"
#include "base/mem.h"
#include "sandbox/share.h"

#define SESSION_IDLE (24 * 3600 * USEC_PER_SEC)
enum { SESSIONS_OF_ONE = 256 };

static bool mcp_session_is_of(const struct mcp_session *s, const struct call *c)
{
    return s->tenant == c->actor.who.tenant && strcmp(s->actor, c->actor.name) == 0;
}

static void mcp_session_free(struct mcp *m, struct mcp_session *s)
{
    (void)map_del(&m->sessions, str_of(s->id));
    list_remove(&s->node);
    for (struct list *it; (it = s->calls.next) != &s->calls;) {
        struct call *c = container_of(it, struct call, node);
        list_remove(it);
        mcp_call_of(c)->session = NULL;
    }
    MEM_FREE(s->actor, s);
}

void mcp_sessions_free(struct mcp *m)
{
    for (struct mcp_session *s; (s = map_any(&m->sessions));)
        mcp_session_free(m, s);
    map_fini(&m->sessions);
}

static uint64_t mcp_session_tenant(const struct list *node)
{
    return container_of(node, const struct mcp_session, node)->tenant;
}

static void mcp_sessions_make_room(struct mcp *m, const struct call *c)
{
    size_t of_one = 0;
    struct mcp_session *oldest = NULL;
    LIST_FOREACH (struct mcp_session, s, &m->used, node) {
        if (!mcp_session_is_of(s, c))
            continue;
        of_one++;
        oldest = oldest ? oldest : s;
    }
    if (of_one >= SESSIONS_OF_ONE && oldest)
        mcp_session_free(m, oldest);
    for (struct mcp_session *s; (s = LIST_FIRST(struct mcp_session, &m->used, node));)
        if (clock_mono() - s->last > SESSION_IDLE)
            mcp_session_free(m, s);
        else
            break;
    if (map_count(&m->sessions) >= MCP_SESSIONS_MAX)
        mcp_session_free(m, container_of(share_first(&m->used, mcp_session_tenant, NULL), struct mcp_session, node));
}

struct mcp_session *mcp_session_make(struct call *c, const char *version, bool can_ask)
{
    struct mcp *m = mcp_of(c);
    struct mcp_session *s = mem_new(struct mcp_session);
    mcp_sessions_make_room(m, c);
    id_token(s->id, MCP_ID_LEN);
    id_token(s->tag, MCP_ID_LEN);
    s->tenant = c->actor.who.tenant;
    s->actor = mem_strdup(c->actor.name);
    s->version = version;
    s->can_ask = can_ask;
    s->last = clock_mono();
    list_init(&s->node);
    list_init(&s->calls);
    list_append(&m->used, &s->node);
    (void)map_put(&m->sessions, str_of(s->id), s);
    http_add_header(c->req, STR("mcp-session-id"), str_of(s->id));
    return s;
}

struct mcp_session *mcp_session_of(struct call *c)
{
    struct str id = http_header_get(c->req, "mcp-session-id");
    struct mcp *m = mcp_of(c);
    struct mcp_session *s = id.n ? map_get(&m->sessions, id) : NULL;
    if (!id.n) {
        rpc_error(c, 400, RPC_REQUEST, NULL, "the header Mcp-Session-Id is missing: 'initialize' starts a session");
        return NULL;
    }
    if (!s || !mcp_session_is_of(s, c)) {
        rpc_error(c, 404, RPC_REFUSED, NULL, "the session does not exist or has ended: 'initialize' starts one");
        return NULL;
    }
    s->last = clock_mono();
    list_remove(&s->node);
    list_append(&m->used, &s->node);
    return s;
}

struct call *mcp_session_call(struct mcp_session *s, bool (*fits)(const struct call *c, const void *ctx),
                              const void *ctx)
{
    LIST_FOREACH (struct call, c, &s->calls, node)
        if (fits(c, ctx))
            return c;
    return NULL;
}

/* ---- the end ---- */

struct mcp_session_kill {
    const char *tag;
    struct sandbox **found;
    size_t n;
};

static bool mcp_session_finds(void *ctx, struct sandbox *sb)
{
    struct mcp_session_kill *k = ctx;
    if (str_eqc(sandbox_label(sb, STR(MCP_SESSION_LABEL)), k->tag)) {
        k->found = mem_realloc(k->found, (k->n + 1) * sizeof(struct sandbox *));
        k->found[k->n++] = sb;
    }
    return true;
}

void mcp_session_end(struct call *c)
{
    struct mcp_session_kill k = {.tag = NULL};
    struct err err;
    bool is_held = false;
    if (rpc_is_stateless(c)) {
        http_add_header(c->req, STR("allow"), STR("POST"));
        call_fail(c, 405, "this protocol has no sessions: only POST");
        return;
    }
    struct mcp_session *s = mcp_session_of(c);
    if (!s)
        return;
    k.tag = s->tag;
    access_each_sandbox(c, mcp_session_finds, &k);
    for (size_t i = 0; i < k.n && !is_held; i++)
        is_held = sandbox_kill(k.found[i], &c->actor, sandbox_ignore, NULL, &err) < 0 && err.reason == ERR_HELD;
    mem_free(k.found);
    if (is_held) {
        call_fail_err(c, &err); /* it waits, and all of this is begun anew */
        return;
    }
    mcp_session_free(mcp_of(c), s);
    call_empty(c, 204);
}
