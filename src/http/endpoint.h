/* SPDX-License-Identifier: Apache-2.0 */
/* Where the client connects to, and how. Private to the client. Blocks, bounded. */
#pragma once

#include "base/def.h"

struct endpoint {
    char *path;        /* unix; else NULL, and: */
    char *host, *port; /* TCP */
    bool has_tls;
    char *authority; /* what Host says */
};

int endpoint_parse(const char *text, struct endpoint *ret) WARN_UNUSED; /* as http_client_open() says */
void endpoint_fini(struct endpoint *e);

int endpoint_connect(const struct endpoint *e, int timeout_ms, int *ret_fd) WARN_UNUSED;

/* Waits for the events of poll(2), timeout_ms -1: for ever. 0 with what is there, or -ETIMEDOUT. */
int endpoint_wait(int fd, short events, int timeout_ms, short *ret_events) WARN_UNUSED;
