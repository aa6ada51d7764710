/* SPDX-License-Identifier: Apache-2.0 */
/* What was kept of a long output, by the action that it is of: for as long as the sandbox's log has it, however the sandbox is. */
#include "api/native/call.h"
#include "base/id.h"
#include "sandbox/core.h"
#include "store/artefact.h"

#include <stdio.h>

static const char *const channels[] = {"stdout", "stderr", "pty"}; /* struct artefact_key, part */

static int channel_of(struct call *c, unsigned *ret_part)
{
    struct str name;
    *ret_part = 0;
    if (!native_query(c, "channel", &name))
        return 0;
    for (unsigned i = 0; i < ARRAY_SIZE(channels); i++) {
        if (str_eqc(name, channels[i])) {
            *ret_part = i;
            return 0;
        }
    }
    native_refuse(c, ERR_INVALID_ARGUMENT, "channel: stdout, stderr or pty");
    return -1;
}

void native_output_get(struct call *c)
{
    char id[ID_SANDBOX_LEN + 1], dropped[32];
    AUTO_BUF struct buf b = BUF_INIT(ARTEFACT_MAX);
    struct artefact_key key = {.sandbox = id};
    struct artefact_info info;
    struct err err;
    struct store *store = core_config(c->native->config.core)->store;
    if (!id_is_sandbox(c->id)) {
        native_refuse(c, ERR_NOT_FOUND, "there is no sandbox %.*s", (int)MIN(c->id.n, 64), c->id.p);
        return;
    }
    (void)snprintf(id, sizeof(id), "%.*s", STR_ARG(c->id));
    if (native_query_u64(c, "seq", &key.seq) < 0 || channel_of(c, &key.part) < 0)
        return;
    if (artefact_stat(store, &key, &info, &err) < 0 || artefact_read(store, &key, 0, ARTEFACT_MAX, &b, &err) < 0) {
        native_error_hint(c, &err,
                          err.code == ERR_NOT_FOUND
                              ? "seq is that of an exec.start; what is short is in its exec.output and exec.exit"
                              : NULL);
        return;
    }
    (void)snprintf(dropped, sizeof(dropped), "%llu", (unsigned long long)info.dropped);
    struct http_header headers[] = {HTTP_HEADER("content-type", "application/octet-stream"),
                                    HTTP_HEADER("cache-control", "no-store"),
                                    HTTP_HEADER_STR("x-cove-dropped", str_of(dropped))};
    (void)http_respond(c->req, 200, headers, ARRAY_SIZE(headers), buf_str(&b));
}
