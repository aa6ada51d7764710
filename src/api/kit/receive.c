/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/receive.h"

struct receive {
    struct upload *up; /* owned */
    int status;
};

static void receive_gone(struct call *c)
{
    struct receive *r = c->state;
    upload_cancel(TAKE_PTR(r->up));
}

static void receive_data(struct call *c, struct str data)
{
    const struct receive *r = c->state;
    if (upload_write(r->up, data, &c->err) == 0)
        return;
    receive_gone(c);
    call_fail_err(c, &c->err);
}

static void receive_end(struct call *c)
{
    struct receive *r = c->state;
    if (call_ok(c, upload_end(TAKE_PTR(r->up), &c->err)))
        call_empty(c, r->status);
}

void call_receive(struct call *c, struct upload *up, int status)
{
    static const struct call_body_ops ops = {receive_data, receive_end};
    struct receive *r = call_state(c, sizeof(*r), receive_gone);
    *r = (struct receive){up, status};
    call_stream_body(c, &ops);
}
