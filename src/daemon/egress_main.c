/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cove-egress: the unprivileged worker through which sandboxes reach the world, and which keeps the secrets. coved
 * starts it, and again when it dies; main() reads as its boot sequence.
 *
 *  1. Nothing of it can be read from outside: no core file, no debugger, no /proc/PID/mem of the same user.
 *  2. The filter on system calls is loaded before the first foreign byte, the vault's files among them, is read.
 *  3. SIGTERM ends it in good order, and with it all connections. So does the loss of coved, but as a failure.
 */
#include "base/fault.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "daemon/options.h"
#include "daemon/pulse.h"
#include "egress/egress.h"
#include "egress/vault/vault.h"
#include "egress/vault/vault_server.h"
#include "kernel/seccomp.h"

#include <openssl/crypto.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>

struct egress_worker {
    struct egress_options options;
    uv_loop_t loop;
    struct vault *vault;
    struct vault_server *server;
    uv_signal_t term, interrupt;
    struct pulse pulse;
    struct egress *egress;
    bool stopping;
    int exit_code;
};

/* ---- the end ---- */

static void close_handle(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void egress_main_stop(struct egress_worker *w, int exit_code)
{
    if (w->stopping)
        return;
    w->stopping = true;
    w->exit_code = exit_code;
    vault_server_free(w->server);
    egress_free(TAKE_PTR(w->egress));
    pulse_stop(&w->pulse);
    close_handle((uv_handle_t *)&w->term);
    close_handle((uv_handle_t *)&w->interrupt);
}

static void egress_main_on_signal(uv_signal_t *handle, int signum UNUSED)
{
    egress_main_stop(handle->data, 0);
}

static void on_lost(void *ctx)
{
    egress_main_stop(ctx, 1);
}

/* ---- the beginning ---- */

static int harden(struct err *err)
{
    struct rlimit locked;
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_errno(err, errno, "close this process to others");
    if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur < locked.rlim_max) {
        locked.rlim_cur = locked.rlim_max;
        (void)setrlimit(RLIMIT_MEMLOCK, &locked); /* the vault says it when that is not enough */
    }
    return 0;
}

static int filter(struct err *err)
{
    /* The machine's configuration of OpenSSL may name modules; behind the filter none can be loaded. */
    if (OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL) != 1)
        return err_set(err, ERR_INTERNAL, "OpenSSL does not start: is its configuration right?");
    int r = seccomp_load(SECCOMP_EGRESS);
    return r < 0 ? err_errno(err, r, "load the filter on system calls") : 0;
}

static void on_secret(void *ctx, const char *name, bool is_set, uid_t by)
{
    struct egress_worker *w = ctx;
    egress_tell_secret(w->egress, name, is_set, by);
}

static int open_vault(struct egress_worker *w, struct err *err)
{
    const struct egress_options *o = &w->options;
    int r = vault_open(o->state_fd, &w->vault, err);
    (void)fd_close(o->state_fd);
    if (r == 0)
        r = vault_server_new(&w->loop,
                             &(struct vault_server_config){.vault = w->vault,
                                                           .listen_fd = o->vault_fd,
                                                           .owner_uid = o->owner_uid,
                                                           .group_gid = o->group_gid,
                                                           .on_change = on_secret,
                                                           .ctx = w},
                             &w->server, err);
    return r;
}

static int open_networks(struct egress_worker *w, struct err *err)
{
    const struct egress_options *o = &w->options;
    const struct egress_config config = {
        .control_fd = o->control_fd,
        .vault = w->vault,
        .resolver = o->resolver,
        .trust = o->trust,
        .on_lost = on_lost,
        .ctx = w,
    };
    return egress_new(&w->loop, &config, &w->egress, err);
}

static int egress_main_watch(struct egress_worker *w, struct err *err)
{
    w->term.data = w->interrupt.data = w;
    int r;
    if ((r = uv_signal_init(&w->loop, &w->term)) < 0 || (r = uv_signal_init(&w->loop, &w->interrupt)) < 0 ||
        (r = uv_signal_start(&w->term, egress_main_on_signal, SIGTERM)) < 0 ||
        (r = uv_signal_start(&w->interrupt, egress_main_on_signal, SIGINT)) < 0 ||
        (r = pulse_start(&w->pulse, &w->loop, w->options.pulse_fd)) < 0)
        return err_errno(err, r, "watch signals and coved");
    return 0;
}

static int boot(struct egress_worker *w, struct err *err)
{
    int r = uv_loop_init(&w->loop);
    if (r < 0)
        return err_errno(err, r, "make the event loop");
    if (filter(err) < 0 || egress_main_watch(w, err) < 0 || open_vault(w, err) < 0 || open_networks(w, err) < 0)
        return -1;
    return 0;
}

static void shut_down(struct egress_worker *w)
{
    if (uv_loop_close(&w->loop) < 0)
        log_warn("the loop still has handles at the end");
    vault_close(w->vault);
}

int main(int argc, char **argv)
{
    static struct egress_worker w;
    struct err err;
    log_init("cove-egress", LOG_INFO);
    json_set_alloc_funcs(mem_alloc, mem_free_wiped); /* header values to be sealed come in JSON */
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error of write() */
    fault_open();
    (void)setenv("UV_THREADPOOL_SIZE", "1", 1);
    if (egress_options_parse(argc, argv, &w.options, &err) < 0) {
        log_error("%s", err.msg);
        return 2;
    }
    log_init("cove-egress", w.options.log_level);
    if (harden(&err) < 0 || boot(&w, &err) < 0) {
        log_error("%s", err.msg);
        return 1;
    }
    log_info("ready");
    (void)uv_run(&w.loop, UV_RUN_DEFAULT);
    shut_down(&w);
    return w.exit_code;
}
