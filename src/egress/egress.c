/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "egress/dns/resolver.h"
#include "egress/flow/flow.h"
#include "egress/flow/relay.h"
#include "egress/requests.h"
#include "egress/tls/tls_context.h"

static void egress_let_go(struct egress *e)
{
    relay_pool_free(e->pipes);
    MEM_FREE(e->own, e);
}

/* The last handle goes in a turn of the loop after egress_free(). */
void egress_handle_gone(struct egress *e)
{
    e->handles--;
    if (e->closing && !e->handles)
        egress_let_go(e);
}

int egress_new(uv_loop_t *loop, const struct egress_config *config, struct egress **ret_egress, struct err *err)
{
    struct egress *e = mem_new(struct egress);
    e->loop = loop;
    e->config = *config;
    e->config.still_ms = config->still_ms ? config->still_ms : FLOW_STILL_MS;
    e->nets = MAP_INIT;
    list_init(&e->checks);
    list_init(&e->posts);
    list_init(&e->asks);
    e->pipes = relay_pool_new();
    e->link = link_new(e);
    report_start(e);
    flow_turns_start(e);
    if (tls_context_world(config->trust, &e->world, err) < 0 || tls_context_sandbox(&e->sandboxes, err) < 0 ||
        resolver_new(loop, config->resolver, &e->resolver, err) < 0 || control_start(e, err) < 0) {
        egress_free(e);
        return -1;
    }
    *ret_egress = e;
    return 0;
}

void egress_free(struct egress *e)
{
    e->closing = true;
    control_stop(e);
    requests_stop(e);
    asks_free(e);
    for (struct net *n; (n = map_any(&e->nets));)
        net_drop(n);
    map_fini(&e->nets);
    link_free(TAKE_PTR(e->link));
    if (e->resolver)
        resolver_free(e->resolver);
    tls_context_free(e->world);
    tls_context_free(e->sandboxes);
    report_stop(e);
    flow_turns_stop(e);
}

void egress_tell_secret(struct egress *e, const char *name, bool is_set, uid_t by)
{
    link_tell(e->link, json_pack("{s:s,s:s,s:s,s:I}", "op", "secret", "name", name, "what", is_set ? "set" : "removed",
                                 "uid", (json_int_t)by));
}
