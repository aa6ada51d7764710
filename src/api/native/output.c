/* SPDX-License-Identifier: Apache-2.0 */
/* What was kept of a long output, by the action that it is of: for as long as the sandbox's log has it, however the sandbox is. */
#include "api/native/handlers.h"
#include "base/id.h"
#include "sandbox/exec.h"

#include <stdio.h>

static int channel_of(struct call *c, enum wire_channel *ret_channel)
{
    static const char *const names[] = {[WIRE_STDOUT] = "stdout", [WIRE_STDERR] = "stderr", [WIRE_PTY] = "pty"};
    struct str name;
    *ret_channel = WIRE_STDOUT;
    if (!call_query(c, "channel", &name))
        return 0;
    for (unsigned i = WIRE_STDOUT; i < ARRAY_SIZE(names); i++) {
        if (str_eqc(name, names[i])) {
            *ret_channel = (enum wire_channel)i;
            return 0;
        }
    }
    call_refuse(c, ERR_INVALID_ARGUMENT, "channel: stdout, stderr or pty");
    return -1;
}

void native_output_get(struct call *c)
{
    char id[ID_SANDBOX_LEN + 1], text[32];
    AUTO_BUF struct buf b = BUF_INIT(EXEC_KEPT_MAX);
    enum wire_channel channel;
    uint64_t seq, dropped;
    struct err err;
    if (!id_is_sandbox(c->args[0]) || !access_has_log(c, c->args[0].p)) {
        call_refuse(c, ERR_NOT_FOUND, "there is no sandbox %.*s", (int)MIN(c->args[0].n, 64), c->args[0].p);
        return;
    }
    (void)snprintf(id, sizeof(id), "%.*s", STR_ARG(c->args[0]));
    if (call_query_u64(c, "seq", &seq) < 0 || channel_of(c, &channel) < 0)
        return;
    if (exec_kept_output(call_core(c), id, seq, channel, &b, &dropped, &err) < 0) {
        call_fail_hint(c, &err,
                       err.code == ERR_NOT_FOUND
                           ? "seq is that of an exec.start; what is short is in its exec.output and exec.exit"
                           : NULL);
        return;
    }
    (void)snprintf(text, sizeof(text), "%llu", (unsigned long long)dropped);
    struct http_header headers[] = {HTTP_HEADER("content-type", "application/octet-stream"),
                                    HTTP_HEADER("cache-control", "no-store"),
                                    HTTP_HEADER_STR("x-cove-dropped", str_of(text))};
    (void)http_respond(c->req, 200, headers, ARRAY_SIZE(headers), buf_str(&b));
}
