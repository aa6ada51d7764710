/* SPDX-License-Identifier: Apache-2.0 */
#include "sandbox/nest.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/path.h"
#include "sandbox/exec/exec_life.h"
#include "sandbox/life/life.h"
#include "sandbox/object.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

struct nesting {
    struct sandbox *nest;
    int fd; /* our end of its session */
    sandbox_fn done;
    void *ctx;
};

static const char *const mode_names[] = {[SUP_NEST_RW] = "rw", [SUP_NEST_OVERLAY] = "overlay", [SUP_NEST_RO] = "ro"};

/* ---- its session ---- */

static void nest_gone(struct sandbox *nest)
{
    if (nest->info.state == SANDBOX_ENDED)
        return;
    nest->info.state = SANDBOX_ENDED;
    if (!nest->core->closing)
        action_observe(nest, nest->create_seq, EVENT_SANDBOX_UNNESTED, EVENT_OBSERVED_HOST, STR("{}"));
}

/* The session holds a reference until then. */
static void nest_closed(void *ctx)
{
    struct sandbox *nest = ctx;
    nest->closing = NULL;
    exec_sandbox_gone(nest);
    sandbox_unref(nest);
}

static const struct err nest_why = {.code = ERR_UNAVAILABLE, .msg = "the isolated session has ended"};

static void nest_ready(void *ctx UNUSED)
{
}

void nest_end(struct sandbox *nest)
{
    nest_gone(nest);
    if (nest->session) {
        nest->closing = TAKE_PTR(nest->session);
        session_close(nest->closing, &nest_why);
    }
    sandbox_unref(nest);
}

static void nest_broken(void *ctx, bool violation UNUSED, const struct err *err UNUSED)
{
    nest_end(sandbox_ref(ctx));
}

/* ---- making one ---- */

static void nest_made(void *ctx, const union sup_message *answer, const struct err *err)
{
    static const struct session_ops ops = {.on_ready = nest_ready, .on_broken = nest_broken, .on_closed = nest_closed};
    struct nesting n = *(struct nesting *)ctx;
    struct sandbox *nest = n.nest, *sb = nest->within;
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    struct err local;
    mem_free(ctx);
    if (answer) {
        nest->session = sandbox_session_like(sb, &ops, nest);
        (void)sandbox_ref(nest);
        if (session_start(nest->session, TAKE_FD(n.fd), &local) < 0)
            err = &local;
    }
    (void)fd_close(n.fd);
    if (err)
        event_data_str(&d, "failed", str_of(err->msg));
    if (!nest->core->closing)
        action_observe(nest, nest->create_seq, EVENT_SANDBOX_NESTED, EVENT_OBSERVED_HOST, event_data_end(&d));
    n.done(n.ctx, err ? NULL : nest, err);
    if (err) {
        nest->info.state = SANDBOX_ENDED;
        nest_end(nest);
    }
}

static bool nest_path(struct str path, char to[static SUP_NEST_PATH_MAX])
{
    static const char *const kept[] = {"/proc", "/sys", "/dev"};
    char clean[PATH_TEXT_MAX];
    if (path.n < 2 || path.n >= SUP_NEST_PATH_MAX || path.p[0] != '/' || str_has_nul(path) ||
        path_clean(path, clean) < 0 || !str_eqc(path, clean))
        return false;
    memcpy(to, path.p, path.n);
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        if (str_starts(path, str_of(kept[i])) && (!to[strlen(kept[i])] || to[strlen(kept[i])] == '/'))
            return false;
    return true;
}

static int nest_message(const struct nest_spec *spec, struct sup_nest *m, struct err *err)
{
    if (spec->root) {
        m->head.type = SUP_NEST;
        (void)snprintf(m->root, sizeof(m->root), "%s", spec->root->layer);
        (void)snprintf(m->name, sizeof(m->name), "%s", spec->root->name);
        return 0;
    }
    bool is_good = spec->n_binds <= SUP_NEST_BINDS_MAX && nest_path(spec->workspace, m->workspace);
    for (size_t i = 0; is_good && i < spec->n_binds; i++) {
        is_good =
            nest_path(spec->binds[i].source, m->binds[i].source) && nest_path(spec->binds[i].path, m->binds[i].path);
        m->binds[i].read_only = spec->binds[i].read_only;
    }
    m->head.type = SUP_NEST;
    m->mode = spec->mode;
    m->own_tmp = spec->own_tmp;
    m->own_network = spec->own_network;
    m->n_binds = (uint32_t)spec->n_binds;
    return is_good ? 0
                   : err_set(err, ERR_INVALID_ARGUMENT,
                             "a workspace, and what is bound (%d at most), is a directory with an absolute, clean path "
                             "of less than %d bytes, and not /, /proc, /sys, /dev or below these",
                             SUP_NEST_BINDS_MAX, SUP_NEST_PATH_MAX);
}

int nest_check(const struct sandbox *sb, const struct nest_spec *spec, struct err *err)
{
    union sup_message m = {.nest = {.mode = SUP_NEST_RW}};
    if (strcmp(sb->info.tier, "container") != 0)
        return err_set(err, ERR_UNIMPLEMENTED, "sandboxes of the tier '%s' have no isolated sessions and no services",
                       sb->info.tier);
    return nest_message(spec, &m.nest, err);
}

static void nest_describe(const struct nest_spec *spec, struct event_data *d)
{
    if (spec->root) {
        EVENT_DATA_PUT(d, DATA_STR("service", spec->root->name), DATA_STR("template", spec->root->template_id),
                       DATA_STR("layer", spec->root->layer));
        return;
    }
    EVENT_DATA_PUT(d, DATA_STR("workspace", spec->workspace), DATA_STR("mode", mode_names[spec->mode]),
                   DATA_FLAG("own_tmp", spec->own_tmp), DATA_FLAG("own_network", spec->own_network),
                   DATA_COUNT("binds", spec->n_binds));
}

static void nest_take_root(struct sandbox *nest, const struct nest_root *root)
{
    nest->user = arena_strdup(&nest->arena, root->user);
    nest->workdir = arena_strdup(&nest->arena, root->workdir);
    nest->has_own_root = true;
}

int nest_make(struct sandbox *sb, const struct actor *actor, const struct nest_spec *spec, sandbox_fn done, void *ctx,
              struct err *err)
{
    union sup_message m = {.nest = {.mode = SUP_NEST_RW}};
    AUTO_EVENT_DATA struct event_data d = EVENT_DATA_INIT;
    uint64_t seq;
    int pair[2];
    if (nest_check(sb, spec, err) < 0 || nest_message(spec, &m.nest, err) < 0)
        return -1;
    nest_describe(spec, &d);
    if (action_begin(sb, actor, EVENT_SANDBOX_NEST, event_data_end(&d), &seq, err) < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return err_errno(err, errno, "make a socket pair");
    struct nesting *n = mem_new(struct nesting);
    *n = (struct nesting){sandbox_new_within(sb), pair[0], done, ctx};
    n->nest->create_seq = seq;
    n->nest->info.envs = pairs_copy(&n->nest->arena, spec->envs, spec->n_envs);
    n->nest->info.n_envs = spec->n_envs;
    if (spec->root)
        nest_take_root(n->nest, spec->root);
    memcpy(m.nest.id, sb->info.id, ID_SANDBOX_LEN);
    if (supervisor_call_with(sb->core->supervisor, &m, pair[1], NULL, nest_made, n, err) == 0)
        return 0;
    sandbox_unref(n->nest);
    (void)fd_close(n->fd);
    mem_free(n);
    return -1;
}
