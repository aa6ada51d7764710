/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/traffic.h"
#include "api/e2b/control/network_body.h"
#include "api/e2b/proxy_error.h"
#include "sandbox/network/network.h"

#define TOKEN_HEADER "e2b-traffic-access-token"
#define TOKEN_MESSAGE "Sandbox is secured with traffic access token. "

static const struct actor traffic_actor = {.name = "e2b:traffic"};

static void traffic_refuse(struct http_request *req, const struct sandbox_info *info, uint16_t port,
                           enum port_trouble why)
{
    struct str id = str_of(info->id);
    switch (why) {
    case PORT_ASLEEP:
        traffic_refuse_asleep(req, info);
        return;
    case PORT_CLOSED:
        proxy_error_port_closed(req, id, port);
        return;
    case PORT_BUSY:
        proxy_error(req, 429, id, "The sandbox has too many open connections", 0);
        return;
    case PORT_DENIED:
        http_respond_error(req, 403, "connections to this port are not allowed");
        return;
    case PORT_BAD_ANSWER:
        proxy_error(req, 502, id, "The server in the sandbox gave no valid answer", port);
    }
}

const struct port_way traffic_way = {&traffic_actor, {"x-api-key", "e2b-traffic-access-token"}, NULL, traffic_refuse};

void traffic_refuse_asleep(struct http_request *req, const struct sandbox_info *info)
{
    if (info->state == SANDBOX_PAUSING)
        proxy_error(req, 409, str_of(info->id), "The sandbox is being paused", 0);
    else if (info->state == SANDBOX_RESUMING)
        proxy_error(req, 409, str_of(info->id), "The sandbox is being resumed", 0);
    else
        proxy_error_not_found(req, str_of(info->id));
}

/* Who comes without one tries nothing: any visitor of what is served there does, and must not use up what may be told
 * of others. */
bool traffic_refuses(struct e2b *e2b, struct http_request *req, const struct sandbox_info *info)
{
    struct str given = http_header_get(req, "e2b-traffic-access-token");
    if (!info->traffic_token || str_eq_secret(given, str_of(info->traffic_token)))
        return false;
    if (given.n)
        facade_note_refusal(&e2b->facade, req, REFUSAL_WRONG_TOKEN);
    proxy_error(req, 403, str_of(info->id),
                given.n ? TOKEN_MESSAGE "Provided token in header '" TOKEN_HEADER "' is invalid"
                        : TOKEN_MESSAGE "Token header '" TOKEN_HEADER "' is missing",
                0);
    return true;
}

static void traffic_go(void *ctx, struct http_request *req, struct sandbox *sb, uint16_t port)
{
    AUTO_BUF struct buf host = BUF_INIT(1024);
    struct e2b *e2b = ctx;
    bool masked = network_mask_host(network_fields(sb), port, &host);
    port_relay(&e2b->facade, &traffic_way, req, sb, port, STR_NULL, masked ? buf_str(&host) : STR_NULL);
}

void traffic_handle(struct e2b *e2b, struct http_request *req, struct sandbox *sb, uint16_t port)
{
    const struct sandbox_info *info = sandbox_info(sb);
    /* One that stays paused is none to whoever asks, token or not. */
    if (info->state != SANDBOX_RUNNING && !info->auto_resume)
        traffic_refuse_asleep(req, info);
    else if (!traffic_refuses(e2b, req, info) && wake_first(&traffic_way, e2b, req, sb, port, true, traffic_go))
        traffic_go(e2b, req, sb, port);
}
