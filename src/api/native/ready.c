/* SPDX-License-Identifier: Apache-2.0 */
/* Can a sandbox be made now? Answered from what is known here: whoever asks often, without a key, costs coved nothing. */
#include "api/native/call.h"
#include "sandbox/templates.h"

static void add(struct buf *b, bool *any, struct native_obstacle obstacle)
{
    buf_append_cstr(b, *any ? ",{\"code\":" : "{\"status\":\"not ready\",\"reasons\":[{\"code\":");
    buf_append_json_string(b, str_of(obstacle.code));
    buf_append_cstr(b, ",\"message\":");
    buf_append_json_string(b, str_of(obstacle.message));
    buf_append_cstr(b, "}");
    *any = true;
}

void native_ready(struct call *c)
{
    static const struct native_obstacle no_template = {
        "template", "there is no base template: 'coved prepare' makes it while the service is down"};
    const struct native_config *k = &c->native->config;
    const struct template *base;
    struct native_obstacle supervisor = {NULL, NULL};
    AUTO_BUF struct buf b = BUF_INIT(2048);
    struct err err;
    bool any = false;
    if (k->supervisor)
        supervisor = k->supervisor(k->supervisor_ctx);
    if (supervisor.message)
        add(&b, &any, supervisor);
    if (core_template_find(k->core, STR("base"), &base, &err) < 0)
        add(&b, &any, no_template);
    buf_append_cstr(&b, any ? "]}" : "{\"status\":\"ready\"}");
    native_json(c, any ? 503 : 200, &b);
}
