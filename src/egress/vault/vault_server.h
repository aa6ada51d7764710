/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Serves RUN/vault.sock (wire/vault.h).
 *
 *  1. Root and the owner are served, by the credentials that the kernel noted when they connected, and members of the
 *     group with what is called "_uid-<theirs>."; others are told so and cut.
 *  2. A client has one request and VAULT_SERVER_TIMEOUT_MS from its connection to its end. At most VAULT_SERVER_CLIENTS
 *     at a time; more wait in the backlog.
 *  3. Requests are read into locked memory, which is wiped when the request was carried out. No answer has a value in
 *     it.
 *  4. A change blocks the loop until it is on disk: people make few of them.
 */
#pragma once

#include "base/err.h"

#include <uv.h>

struct vault;
struct vault_server;

enum { VAULT_SERVER_CLIENTS = 8, VAULT_SERVER_TIMEOUT_MS = 5000 };

struct vault_server_config {
    struct vault *vault; /* borrowed */
    int listen_fd;       /* a listening SOCK_STREAM unix socket; taken when it works */
    uid_t owner_uid;
    gid_t group_gid; /* whose members have secrets of their own; 0 or (gid_t)-1: nobody's */
    void (*on_change)(void *ctx, const char *name, bool is_set, uid_t by); /* is on disk; may be NULL */
    void *ctx;
};

int vault_server_new(uv_loop_t *loop, const struct vault_server_config *config, struct vault_server **ret_server,
                     struct err *err) WARN_UNUSED;

/* Cuts all clients. The vault is not used any more; the loop must run once more to free the rest. NULL is fine. */
void vault_server_free(struct vault_server *s);
