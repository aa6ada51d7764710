/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's end of a WebSocket (RFC 6455, version 13) that only sends: texts of ours, whole, one frame each. What the client says is read and dropped; pings are answered,
 * and so is its close. Text must be UTF-8. Frames of clients are wslay's to read.
 */
#pragma once

#include "base/buf.h"
#include "http/request.h"

struct websocket;

bool websocket_is_wanted(const struct http_request *req); /* an upgrade to one */

/* Answers 101; -EPROTO: its handshake is none, and nothing was answered. Free it when the request is over, or before. */
int websocket_accept(struct http_request *req, struct websocket **ret_socket) WARN_UNUSED;
void websocket_free(struct websocket *w); /* NULL is fine */

void websocket_append(struct buf *b, struct str text); /* as a frame, for http_response_write() */
void websocket_ping(struct websocket *w);
void websocket_close(struct websocket *w); /* says so, and ends our side */
