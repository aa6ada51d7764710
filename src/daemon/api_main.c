/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cove-api: the unprivileged worker that speaks HTTP, decides and remembers. coved starts it, without privileges, and
 * again when it dies; main() reads as its boot sequence.
 *
 *  1. Nothing is accepted before the filter on system calls is loaded.
 *  2. The core ends the store's batches and folds its log back (sandbox/record/keeper.c); this file opens the store and
 *     closes it.
 *  3. SIGTERM ends this process, not the sandboxes. So does the loss of coved, but as a failure.
 */
#include "api/e2b/names.h"
#include "api/kit/refusals.h"
#include "base/buf.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/mem.h"
#include "build/builder.h"
#include "daemon/build_options.h"
#include "daemon/facades.h"
#include "daemon/notary.h"
#include "daemon/options.h"
#include "daemon/pulse.h"
#include "event/verify.h"
#include "http/server.h"
#include "http/tls/tls.h"
#include "kernel/seccomp.h"
#include "sandbox/action.h"
#include "sandbox/key.h"
#include "sandbox/sandbox.h"
#include "sandbox/templates.h"
#include "store/artefact.h"
#include "store/store.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>

enum { KEY_MAX = 512, PEM_MAX = 64 * 1024, DRAIN_MS = 1000 };

struct api_worker {
    struct options options;
    uv_loop_t loop;
    struct buf key;
    char *store_path;
    struct store *store;
    struct event_log *events;
    struct artefacts *artefacts;
    struct core *core;
    struct arena builds; /* the builder's settings */
    struct builder_config builder_config;
    json_t *webhook_policy; /* NULL: none */
    struct builder *builder;
    struct http_tls *tls; /* NULL: no listener has it */
    struct http_server *server;
    struct notary *notary;
    struct refusals *refusals;
    struct facades facades;

    uv_timer_t patience; /* once it ends, clients that are still connected are cut */
    uv_signal_t term, interrupt;
    struct pulse pulse;
    uv_work_t first_work;
    /* Sees its end only; the core owns the conversation, over another descriptor of the same socket. */
    uv_poll_t supervisor;
    int supervisor_fd;
    bool stopping;
    int exit_code;
};

/* ---- requests ---- */

static void on_request(struct http_request *req, void *ctx)
{
    struct api_worker *w = ctx;
    if (!facades_serve(&w->facades, req))
        (void)http_respond_error(req, 404, "there is no such route");
}

/* ---- the end ---- */

static void close_handle(uv_handle_t *handle)
{
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void server_closed(void *ctx)
{
    struct api_worker *w = ctx;
    facades_free(&w->facades);
    refusals_free(w->refusals);
    builder_free(w->builder);
    core_close(w->core);
    notary_stop(w->notary);
    pulse_stop(&w->pulse);
    close_handle((uv_handle_t *)&w->patience);
    close_handle((uv_handle_t *)&w->term);
    close_handle((uv_handle_t *)&w->interrupt);
    close_handle((uv_handle_t *)&w->supervisor);
}

static void on_patience(uv_timer_t *handle)
{
    struct api_worker *w = container_of(handle, struct api_worker, patience);
    http_server_close(w->server, server_closed, w);
}

static void api_main_stop(struct api_worker *w, int exit_code, unsigned patience_ms)
{
    if (w->stopping)
        return;
    w->stopping = true;
    w->exit_code = exit_code;
    http_server_drain(w->server);
    (void)uv_timer_start(&w->patience, on_patience, http_server_connections(w->server) ? patience_ms : 0, 0);
}

static void api_main_on_signal(uv_signal_t *handle, int signum UNUSED)
{
    api_main_stop(handle->data, 0, DRAIN_MS);
}

static void on_supervisor(uv_poll_t *handle, int status, int events UNUSED)
{
    struct api_worker *w = container_of(handle, struct api_worker, supervisor);
    (void)uv_poll_stop(handle);
    log_error("coved is gone (%s)", status < 0 ? uv_strerror(status) : "its socket is closed");
    api_main_stop(w, 1, 0);
}

/* ---- the beginning ---- */

static int read_key(struct api_worker *w, struct err *err)
{
    int fd = w->options.key_fd;
    buf_init(&w->key, KEY_MAX);
    if (fd < 0)
        return 0;
    int r = fd_read_all(fd, &w->key);
    (void)fd_close(fd);
    if (r < 0)
        return err_errno(err, r, "read the API key");
    while (buf_len(&w->key) > 0 && buf_data(&w->key)[buf_len(&w->key) - 1] == '\n')
        w->key.end--;
    return 0;
}

/* Here and not later: OpenSSL reads its own configuration when it is first used. */
static int read_certificate(struct api_worker *w, struct err *err)
{
    if (w->options.tls_fd < 0)
        return 0;
    AUTO_BUF struct buf pem = BUF_INIT(PEM_MAX);
    int r = fd_read_all(w->options.tls_fd, &pem);
    (void)fd_close(w->options.tls_fd);
    if (r == 0)
        r = http_tls_new(buf_str(&pem), buf_str(&pem), &w->tls);
    if (pem.data)
        mem_wipe(pem.data, pem.cap);
    return r < 0 ? err_errno(err, r, "the domain's certificate: 'cove domain show' says more") : 0;
}

static int open_store(struct api_worker *w, struct err *err)
{
    w->store_path = mem_printf("%s/cove.db", w->options.data_dir);
    if (store_open(w->store_path, &w->store, err) < 0)
        return err_prefix(err, "open the store");
    if (event_log_open(w->store, &w->events, err) < 0)
        return err_prefix(err, "open the event log");
    AUTO_FREE char *outputs = mem_printf("%s/artefacts", w->options.data_dir);
    return artefacts_open(w->store, outputs, 0, 0, &w->artefacts, err);
}

static int open_core(struct api_worker *w, struct err *err)
{
    const struct options *o = &w->options;
    w->supervisor_fd = fcntl(o->core.engine.supervisor_fd, F_DUPFD_CLOEXEC, 3);
    if (w->supervisor_fd < 0)
        return err_errno(err, errno, "duplicate the supervisor's socket");
    struct core_config config = o->core;
    config.engine.tiers = &o->tiers;
    config.store = w->store;
    config.events = w->events;
    config.artefacts = w->artefacts;
    config.answers = &e2b_answers;
    config.guest = &e2b_guest;
    config.webhooks = &e2b_webhooks;
    if (build_options_parse(str_of(o->builds), &w->builds, &w->builder_config, &config, &w->webhook_policy, err) < 0)
        return -1;
    config.webhook_policy = w->webhook_policy;
    return core_open(&w->loop, &config, &w->core, err);
}

/* A service that goes on without it answers all that names another one. */
static void look_for_base(struct api_worker *w)
{
    const struct template *base;
    struct err err;
    if (core_template_find(w->core, TENANT_DEFAULT, STR("base"), &base, &err) < 0 && err.code == ERR_NOT_FOUND)
        log_warn(
            "there is no base template, which sandboxes are made from that name none: stop the service, run 'coved "
            "prepare' and start it again ('systemctl restart cove', or 'make stop' and 'make start', do so)");
}

static int open_builder(struct api_worker *w, struct err *err)
{
    struct builder_config *config = &w->builder_config;
    config->core = w->core;
    config->data_dir = w->options.data_dir;
    config->base_image = E2B_BASE_IMAGE;
    return builder_new(config, &w->builder, err);
}

/* In a thread of its own. */
static int api_main_verify(void *ctx, const char *sandbox, struct event_verdict *ret_verdict, struct err *err)
{
    const struct api_worker *w = ctx;
    AUTO(store_close) struct store *store = NULL;
    AUTO(event_log_close) struct event_log *log = NULL;
    if (store_open_reader(w->store_path, &store, err) < 0 || event_log_open(store, &log, err) < 0)
        return -1;
    return event_verify(log, sandbox, ret_verdict, err);
}

/* Never what was sent: whoever mistypes a key has nearly told it. */
static void on_refusal(void *ctx, const char *api, enum refusal why, const char *from, uint64_t count)
{
    static const char *const reasons[] = {
        [REFUSAL_NO_KEY] = "no key",     [REFUSAL_WRONG_KEY] = "wrong key",     [REFUSAL_WRONG_USER] = "wrong user",
        [REFUSAL_NO_TOKEN] = "no token", [REFUSAL_WRONG_TOKEN] = "wrong token",
    };
    struct api_worker *w = ctx;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA(DATA_STR("from", from));
    if (*api) {
        EVENT_DATA_PUT(&d, DATA_STR("api", api), DATA_STR("why", reasons[why]));
    }
    event_data_u64(&d, "count", count);
    (void)action_note(w->core, SERVICE_LOG_ID, NULL, 0, EVENT_SERVICE_DENIED, event_data_end(&d));
}

/* For anybody who asks: no figures and no names. */
static struct native_obstacle supervisor_says(void *ctx)
{
    static const struct native_obstacle obstacles[] = {
        [PULSE_SAYS_NOTHING] = {"supervisor", "coved does not say that it is well: the service's log may say more"},
        [PULSE_SAYS_FINE] = {NULL, NULL},
        [PULSE_SAYS_NO_ROOM] = {"disk", "there is not enough room for another sandbox: 'cove doctor' and the service's"
                                        " log say more"},
        [PULSE_SAYS_STOPS] = {"stopping", "the service is stopping"},
    };
    const struct api_worker *w = ctx;
    return obstacles[w->stopping ? PULSE_SAYS_STOPS : pulse_said(&w->pulse, clock_mono())];
}

static void open_facades(struct api_worker *w)
{
    const struct options *o = &w->options;
    key_set_builtin(w->core, buf_str(&w->key));
    w->refusals = refusals_new(&w->loop, on_refusal, w);
    const struct native_config native = {
        .core = w->core,
        .builder = w->builder,
        .events = w->events,
        .verify = api_main_verify,
        .verify_ctx = w,
        .sign = notary_sign,
        .sign_ctx = w->notary,
        .refusals = w->refusals,
        .supervisor = supervisor_says,
        .supervisor_ctx = w,
        .owner_uid = o->owner_uid,
        .domain_has_tls = o->tls_fd >= 0,
        .default_timeout_ms = o->default_timeout_ms,
        .version = o->core.version,
    };
    facades_open(&w->facades, &native, o->core.domain, o->run_code_is_open);
    mem_wipe(buf_data(&w->key), buf_len(&w->key));
    buf_fini(&w->key);
}

static int listen_all(struct api_worker *w, struct err *err)
{
    w->server = http_server_new(&w->loop, &HTTP_LIMITS_DEFAULT, on_request, w);
    if (!w->server)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "make the HTTP server: out of descriptors");
    for (size_t i = 0; i < w->options.n_listen; i++) {
        int fd = w->options.listen_fd[i];
        int r = w->options.listen_tls[i] ? http_server_listen_tls(w->server, fd, w->tls)
                                         : http_server_listen(w->server, fd);
        if (r < 0)
            return err_errno(err, r, "listen on descriptor %d", w->options.listen_fd[i]);
    }
    return 0;
}

static int api_main_watch(struct api_worker *w, struct err *err)
{
    (void)uv_timer_init(&w->loop, &w->patience);
    w->term.data = w->interrupt.data = w;
    int r;
    if ((r = uv_signal_init(&w->loop, &w->term)) < 0 || (r = uv_signal_init(&w->loop, &w->interrupt)) < 0 ||
        (r = uv_poll_init(&w->loop, &w->supervisor, w->supervisor_fd)) < 0 ||
        (r = uv_signal_start(&w->term, api_main_on_signal, SIGTERM)) < 0 ||
        (r = uv_signal_start(&w->interrupt, api_main_on_signal, SIGINT)) < 0 ||
        (r = uv_poll_start(&w->supervisor, UV_DISCONNECT, on_supervisor)) < 0 ||
        (r = pulse_start(&w->pulse, &w->loop, w->options.pulse_fd)) < 0)
        return err_errno(err, r, "watch signals and coved");
    return 0;
}

static void no_work(uv_work_t *work UNUSED)
{
}

/* libuv ends the process that has no room for its threads when they are needed first: before anybody relies on it. */
static int start_threads(struct api_worker *w, struct err *err)
{
    int r = uv_queue_work(&w->loop, &w->first_work, no_work, NULL);
    return r < 0 ? err_errno(err, r, "start threads") : 0;
}

static int boot(struct api_worker *w, struct err *err)
{
    if (read_key(w, err) < 0 || read_certificate(w, err) < 0)
        return -1;
    int r = uv_loop_init(&w->loop);
    if (r < 0)
        return err_errno(err, r, "make the event loop");
    if (open_store(w, err) < 0)
        return -1;
    r = seccomp_load(SECCOMP_WORKER);
    if (r < 0)
        return err_errno(err, r, "load the filter on system calls");
    if (start_threads(w, err) < 0 || open_core(w, err) < 0 || open_builder(w, err) < 0)
        return -1;
    if (notary_start(&w->loop, w->store_path, w->options.data_dir, &w->notary, err) < 0)
        return -1;
    open_facades(w);
    if (api_main_watch(w, err) < 0 || listen_all(w, err) < 0)
        return -1;
    return 0;
}

static void shut_down(struct api_worker *w)
{
    int r = uv_loop_close(&w->loop);
    if (r < 0)
        log_warn("the loop still has handles at the end");
    notary_free(w->notary);
    artefacts_close(w->artefacts);
    event_log_close(w->events);
    store_close(w->store);
    json_decref((json_t *)(uintptr_t)w->builder_config.network);
    arena_fini(&w->builds);
    json_decref(w->webhook_policy);
    http_tls_free(w->tls);
    mem_free(w->store_path);
    (void)fd_close(w->supervisor_fd);
}

int main(int argc, char **argv)
{
    static struct api_worker w = {.supervisor_fd = -1};
    struct err err;
    log_init("cove-api", LOG_INFO);
    json_set_alloc_funcs(mem_alloc, mem_free_wiped); /* header values to be sealed come in JSON */
    (void)signal(SIGPIPE, SIG_IGN);
    fault_open();
    (void)setenv("UV_THREADPOOL_SIZE", "2", 1); /* checkpoints and verifications, nothing else */
    if (options_parse(argc, argv, &w.options, &err) < 0) {
        log_error("%s", err.msg);
        return 2;
    }
    log_init("cove-api", w.options.log_level);
    if (boot(&w, &err) < 0) {
        log_error("%s", err.msg);
        return 1;
    }
    look_for_base(&w);
    log_info("ready: %zu listeners, %zu sandboxes", w.options.n_listen, sandbox_count(w.core));
    (void)uv_run(&w.loop, UV_RUN_DEFAULT);
    shut_down(&w);
    return w.exit_code;
}
