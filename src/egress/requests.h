/* SPDX-License-Identifier: Apache-2.0 */
/* What cove-api asks for (wire/egress.h). Internal to src/egress. */
#pragma once

#include "egress/internal.h"

/* False: it makes no sense, the socket should be closed. An answer goes through link_answer(), now or later. */
bool requests_handle(struct egress *e, json_t *request);

/* An answer with the request's tag; and that of one that failed, sent. */
json_t *requests_answer(const json_t *request, const char *op);
void requests_fail(struct egress *e, const json_t *request, const struct err *err);

struct requests_url {
    char name[HOSTNAME_MAX + 1]; /* "": *ret_literal */
    uint16_t port;
    bool secure;
    struct str path; /* in what was parsed, with its query */
};
int requests_parse_url(struct requests_url *u, struct str url, struct netaddr *ret_literal,
                       struct err *err) WARN_UNUSED;

/* post.c */
int post_begin(struct egress *e, json_t *request, struct err *err) WARN_UNUSED;
void post_stop(struct egress *e);

void link_answer(struct link *l, json_t *answer); /* steals it */

/* ask.c: "ask" */
int ask_begin(struct egress *e, json_t *request, struct err *err) WARN_UNUSED;
void asks_free(struct egress *e); /* what is under way is answered to nobody */

/* The resolutions that a "check" waits for end with the egress. */
void requests_stop(struct egress *e);
