/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's end of a WebSocket (RFC 6455, version 13): messages of ours are whole, one frame each, text is UTF-8.
 * What the client says is put together by wslay, up to WEBSOCKET_MESSAGE_MAX, and given to whoever wants it; pings are
 * answered, and so is its close.
 */
#pragma once

#include "base/buf.h"
#include "http/request.h"

struct websocket;

enum { WEBSOCKET_MESSAGE_MAX = 64 * 1024 };
typedef void (*websocket_fn)(void *ctx, bool is_text, struct str message); /* it must not free the socket */

bool websocket_is_wanted(const struct http_request *req); /* an upgrade to one */

/* Answers 101; -EPROTO: its handshake is none, and nothing was answered. Free it when the request is over, or
 * before. */
int websocket_accept(struct http_request *req, websocket_fn fn, void *ctx,
                     struct websocket **ret_socket) WARN_UNUSED; /* fn NULL: what it says is dropped */
void websocket_free(struct websocket *w);                        /* NULL is fine */

void websocket_append(struct buf *b, struct str text); /* as a frame, for http_response_write() */
void websocket_append_binary(struct buf *b, struct str head, struct str rest); /* both in one */
void websocket_ping(struct websocket *w);
bool websocket_heard(struct websocket *w); /* has anything come since this was asked last? */
void websocket_close(struct websocket *w); /* says so, and ends our side */
void websocket_close_as(struct websocket *w, uint16_t code, const char *reason);
