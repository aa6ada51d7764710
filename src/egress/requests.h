/* SPDX-License-Identifier: Apache-2.0 */
/* What cove-api asks for (wire/egress.h). Internal to src/egress. */
#pragma once

#include "egress/internal.h"

/* False: it makes no sense, the socket should be closed. An answer goes through link_answer(), now or later. */
bool requests_handle(struct egress *e, json_t *request);

void link_answer(struct link *l, json_t *answer); /* steals it */

json_t *requests_answer(const json_t *request, const char *op); /* its tag and this op */
void requests_fail(struct egress *e, const json_t *request, const struct err *err);

/* post.c: "post" */
void post_begin(struct egress *e, json_t *request);
void posts_free(struct egress *e); /* what is under way is answered to nobody */

/* The resolutions that a "check" waits for end with the egress. */
void requests_stop(struct egress *e);
