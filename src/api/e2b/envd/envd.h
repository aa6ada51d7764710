/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The in-sandbox daemon's API, as clients find it on port 49983 of each sandbox. There is no such daemon in our
 * sandboxes: the handlers below translate to the core.
 */
#pragma once

#include "api/e2b/call.h"

extern const struct route envd_routes[];
extern const size_t envd_routes_n;

/* How the caller proved that it may; decided before the handlers run. port: ENVD_PORT, or INTERPRETER_PORT, which has
 * routes of its own. */
void envd_handle(struct e2b *e2b, struct http_request *req, struct sandbox *sb, uint16_t port);

/* Is it a route of the daemon that only its host may use (/init and the like)? */
bool envd_is_internal(struct str path);

/*
 * /files without a sandbox: URLs that were made for one base address. The signature or the token tells which sandbox it
 * is; without either it is the only one there is.
 */
void envd_handle_files(struct e2b *e2b, struct http_request *req);

/*
 * Any of its routes without a sandbox, with an access token: SDKs of 2.7 to 2.26 lose the headers that say which one
 * when they connect to it. False: it is none, or there is no token.
 */
bool envd_handle_by_token(struct e2b *e2b, struct http_request *req);
struct sandbox *envd_find_by_token(struct e2b *e2b, struct http_request *req);     /* NULL: answered */
struct sandbox *envd_find_by_signature(struct e2b *e2b, struct http_request *req); /* NULL: answered */

/* Handlers. process.Process */
route_handler envd_start, envd_connect, envd_list, envd_send_input, envd_stream_input, envd_close_stdin,
    envd_send_signal, envd_update;

/* filesystem.Filesystem */
route_handler envd_stat, envd_make_dir, envd_move, envd_list_dir, envd_remove, envd_watch_dir, envd_create_watcher,
    envd_get_watcher_events, envd_remove_watcher;
void envd_watchers_free(struct e2b *e2b); /* all of them */

/* {"path","recursive","includeEntry","allowNetworkMounts"} as a path and flags of enum wire_watch_flag. */
int watch_request_read(const json_t *message, struct str *ret_path, uint8_t *ret_flags, struct err *err) WARN_UNUSED;

/* {"name":…,"type":"EVENT_TYPE_…"[,"entry":{…}]} */
void watch_event_append(struct buf *b, enum wire_watch_kind kind, struct str name, const struct file_entry *entry);

/* Plain HTTP */
route_handler envd_health, envd_metrics, envd_envs, envd_download, envd_upload, envd_compose;

/* envd_upload.c, one header; exposed for tests. Adds to pairs (room for n + 1) unless the key is there or the header is
 * another one. */
int file_metadata_add(struct http_header header, struct arena *arena, struct pair *pairs, size_t *n,
                      struct err *err) WARN_UNUSED;
