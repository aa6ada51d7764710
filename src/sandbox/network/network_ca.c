/* SPDX-License-Identifier: Apache-2.0 */
/* A certificate into a sandbox, behind those of the service: one request to the agent, which puts it wherever programs
 * look. On record it is the writing of the certificate's own file. */
#include "base/mem.h"
#include "sandbox/files/file_call.h"
#include "sandbox/files/files.h"
#include "sandbox/network/network_internal.h"
#include "sandbox/network/network_life.h"

static const struct actor network_ca_actor = {.name = "network", .is_own = true, .sets_up = true};

struct ca_install {
    struct file_call *call;
    network_fn done;
    void *ctx;
};

void ca_install_cancel(struct ca_install *i)
{
    if (!i)
        return;
    file_call_cancel(TAKE_PTR(i->call));
    mem_free(i);
}

static void network_ca_on_end(void *user, struct str tail, const struct err *err)
{
    struct file_call *c = user;
    struct ca_install *i = c->ctx;
    network_fn done = i->done;
    void *ctx = i->ctx;
    struct err why;
    err = file_end(c, !tail.n, err, &why);
    mem_free(i);
    if (err) {
        why = *err;
        (void)err_prefix(&why, "install the certificate");
    }
    done(ctx, err ? &why : NULL);
}

int ca_install(struct sandbox *sb, const char *pem, network_fn done, void *ctx, struct ca_install **ret_install,
               struct err *err)
{
    static const struct stream_ops ops = {.on_end = network_ca_on_end};
    uint64_t cause;
    if (file_action(sb, &network_ca_actor, EVENT_FILE_WRITE, STR("root"), STR(NETWORK_CA_FILE), STR_NULL, &cause, err) <
        0)
        return err_prefix(err, "install the certificate");
    const char *trust = sb->core->config.trust ? sb->core->config.trust : "";
    AUTO_FREE char *all = mem_printf("%s%s", trust, pem ? pem : "");
    struct ca_install *i = mem_new(struct ca_install);
    struct file_call *c = file_call_new(sb, EVENT_FILE_WRITE, cause, i);
    struct buf *b = session_request(sb->session, WIRE_TRUST);
    c->out = strlen(all);
    *i = (struct ca_install){.done = done, .ctx = ctx};
    wire_put_str(b, STR(NETWORK_CA_FILE));
    wire_put_str(b, STR(NETWORK_CA_BUNDLE));
    wire_put_str(b, STR(NETWORK_CA_JAVA));
    wire_put_str(b, str_of(all));
    if (file_call_open(c, b, &ops, &i->call, err) < 0) {
        mem_free(i);
        return err_prefix(err, "install the certificate");
    }
    *ret_install = i;
    return 0;
}
