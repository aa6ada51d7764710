/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Volumes into a sandbox: for each a directory, which the agent makes, then the mount, which coved makes; before
 * anybody hears of the sandbox.
 *
 * Where a volume can't be put the way the path is now, a new sandbox is refused. One that starts anew on its files is
 * not: it may have put a link or a file in the way itself, and nobody could ever take that away. It comes back without
 * this volume and those behind it, and without its start command, which would write where the volume is not.
 */
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/path.h"
#include "sandbox/life/sleep.h"
#include "sandbox/session/session.h"
#include "sandbox/tenant.h"
#include "sandbox/volume/mounts.h"
#include "sandbox/volume/volume_internal.h"

struct mounting {
    struct sandbox *sb; /* a reference */
    uint64_t start;     /* which of its starts */
    size_t i;
    struct stream *stream;
    struct loop_job job;
    struct err err;
};

static bool is_below(struct str path, const char *dir)
{
    struct str d = str_of(dir);
    return str_starts(path, d) && (path.n == d.n || path.p[d.n] == '/');
}

/* Without ".." and the like; relative or not. */
static bool mount_is_clean(struct str path)
{
    char clean[PATH_TEXT_MAX], whole[SUP_PATH_MAX + 1] = "/";
    if (path.n >= SUP_PATH_MAX || str_has_nul(path))
        return false;
    size_t skip = path.p[0] == '/';
    memcpy(whole + 1, path.p + skip, path.n - skip);
    whole[1 + path.n - skip] = 0;
    return path_clean(str_of(whole), clean) >= 0 && strcmp(clean, whole) == 0 && whole[1];
}

static int mount_check(struct core *core, uint64_t view, const struct volume_mount *m, struct err *err)
{
    char clean[PATH_TEXT_MAX];
    struct str path = m->path;
    const struct vol *v = m->is_host ? NULL : vol_find(core, view, m->name);
    uid_t uid;
    if (m->is_host && view != TENANT_DEFAULT && view != TENANT_ANY && !tenant_is_uid(tenant_name(core, view), &uid))
        return err_set(err, ERR_PERMISSION_DENIED,
                       "only users of the default tenant can mount directories of the host");
    if (!v && !m->is_host)
        return err_set(err, ERR_INVALID_ARGUMENT, "there is no volume '%.*s'", STR_ARG_MAX(m->name, 64));
    if (v && vol_check_there(v, err) < 0)
        return -1;
    if (m->is_host && (!m->name.n || m->name.p[0] != '/' || !mount_is_clean(m->name)))
        return err_set(err, ERR_INVALID_ARGUMENT, "the path of a directory of the host must be absolute and clean");
    if (m->sub.n && (m->sub.p[0] == '/' || !mount_is_clean(m->sub) || m->name.n + m->sub.n + 2 > SUP_PATH_MAX))
        return err_set(err, ERR_INVALID_ARGUMENT, "the path of a part of a volume must be relative and clean");
    if (path.n >= SUP_PATH_MAX || str_has_nul(path) || !path.n || path.p[0] != '/' || path_clean(path, clean) < 0 ||
        !str_eqc(path, clean) || path.n == 1)
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "a volume's mount point must be an absolute, clean path: '%.*s' is "
                       "not",
                       STR_ARG_MAX(path, 80));
    if (is_below(path, "/proc") || is_below(path, "/sys") || is_below(path, "/dev"))
        return err_set(err, ERR_INVALID_ARGUMENT, "no volume can be mounted at '%.*s'", STR_ARG(path));
    return 0;
}

int mounts_check(struct core *core, uint64_t view, const struct volume_mount *mounts, size_t n, struct err *err)
{
    if (n > VOLUME_MOUNTS_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "more than %d volumes", VOLUME_MOUNTS_MAX);
    for (size_t i = 0; i < n; i++) {
        if (mount_check(core, view, &mounts[i], err) < 0)
            return -1;
        for (size_t k = 0; k < i; k++)
            if (str_eq(mounts[i].path, mounts[k].path))
                return err_set(err, ERR_INVALID_ARGUMENT, "two volumes have the path '%.*s'", STR_ARG(mounts[i].path));
    }
    return 0;
}

static void next(struct mounting *m);

/* The path can't be one to mount at: a file, a link, a place where the user may make nothing. */
static bool is_callers(const struct err *err)
{
    return err->code == ERR_INVALID_ARGUMENT || err->code == ERR_FAILED_PRECONDITION ||
           err->code == ERR_PERMISSION_DENIED;
}

/* Who asked for it hears that the request was wrong, and not, from its end, that the sandbox failed. */
static void mount_refuse(struct sandbox *sb, struct err *why)
{
    if (sb->info.state != SANDBOX_CREATING || sb->core->closing)
        return;
    why->code = ERR_INVALID_ARGUMENT;
    waiters_tell(&sb->starters, NULL, why);
}

static bool is_over(const struct mounting *m)
{
    return m->sb->core->closing || sandbox_state_is_over(m->sb->info.state) || !m->sb->session ||
           m->start != m->sb->n_starts;
}

/* True: it is not to be kept from running by that. */
static bool goes_without(const struct mounting *m, const struct err *why)
{
    struct sandbox *sb = m->sb;
    if (sb->info.state != SANDBOX_RESUMING || is_over(m) || (!is_callers(why) && why->code != ERR_NOT_FOUND))
        return false;
    log_warn("resume sandbox %s: %s", sb->info.id, why->msg);
    sb->info.volumes_failed = arena_strdup(&sb->arena, why->msg);
    return true;
}

static void mount_finish(struct mounting *m, const struct err *err)
{
    struct sandbox *sb = m->sb;
    struct err why = err ? *err : (struct err){0};
    bool fails = err != NULL, is_ours = m->start == sb->n_starts;
    if (err) {
        const struct volume_mount *at = &sb->info.mounts[m->i];
        volume_log_refused(sb, at, err);
        (void)err_prefix(&why, "mount volume %.*s", STR_ARG(at->name));
        fails = !goes_without(m, &why);
    }
    mem_free(m);
    if (fails && is_ours && is_callers(&why))
        mount_refuse(sb, &why);
    if (is_ours)
        start_done(sb, START_VOLUMES, fails ? &why : NULL);
    sandbox_unref(sb);
}

static void mount_on_job(struct loop_job *job)
{
    struct mounting *m = container_of(job, struct mounting, job);
    struct err why = m->err;
    mount_finish(m, why.code ? &why : NULL);
}

/* Nothing is told from within. */
static void finish_later(struct mounting *m, const struct err *err)
{
    m->err = *err;
    loop_later(m->sb->core->loop, &m->job);
}

static void on_mounted(void *ctx, const union sup_message *answer, const struct err *err)
{
    struct mounting *m = ctx;
    fault_point("core.mount.answered");
    if (!answer || is_over(m)) {
        mount_finish(m, err ? err : &(struct err){.code = ERR_UNAVAILABLE, .msg = "the sandbox has ended"});
        return;
    }
    m->i++;
    volume_log_mounted(m->sb);
    next(m);
}

static void on_dir(void *user, struct str tail UNUSED, const struct err *err)
{
    struct mounting *m = user;
    struct sandbox *sb = m->sb;
    const struct volume_mount *at = &sb->info.mounts[m->i];
    const struct vol *v = at->is_host ? NULL : vol_find(sb->core, sb->info.tenant, at->name);
    union sup_message q = {.volume_mount = {.head = {.type = SUP_VOLUME_MOUNT}, .read_only = at->read_only}};
    struct err local;
    m->stream = NULL;
    if ((err && err->code != ERR_ALREADY_EXISTS) || is_over(m)) {
        finish_later(m, err ? err : &(struct err){.code = ERR_UNAVAILABLE, .msg = "the sandbox has ended"});
        return;
    }
    if (!at->is_host && (!v || vol_check_there(v, &local) < 0)) {
        if (!v)
            (void)err_set(&local, ERR_NOT_FOUND, "it no longer exists");
        finish_later(m, &local);
        return;
    }
    memcpy(q.volume_mount.id, sb->info.id, ID_SANDBOX_LEN);
    uid_t uid;
    q.volume_mount.uid = !v && tenant_is_uid(tenant_name(sb->core, sb->info.tenant), &uid) ? uid : UINT32_MAX;
    if (v)
        memcpy(q.volume_mount.volume, v->v.id, strlen(v->v.id));
    (void)snprintf(q.volume_mount.source, SUP_PATH_MAX, "%.*s%s%.*s", v ? 0 : (int)at->name.n, at->name.p,
                   !v && at->sub.n ? "/" : "", (int)at->sub.n, at->sub.n ? at->sub.p : "");
    memcpy(q.volume_mount.path, at->path.p, at->path.n);
    if (supervisor_call(sb->core->supervisor, &q, on_mounted, m, &local) < 0)
        finish_later(m, &local);
    else
        fault_point("core.mount.asked");
}

static const struct stream_ops dir_ops = {.on_end = on_dir};

static void next(struct mounting *m)
{
    struct sandbox *sb = m->sb;
    struct err err;
    if (m->i == sb->info.n_mounts) {
        mount_finish(m, NULL);
        return;
    }
    struct str path = sb->info.mounts[m->i].path;
    struct buf *b = session_request(sb->session, WIRE_MKDIR);
    wire_put_str(b, is_below(path, "/home") ? sandbox_user(sb, STR("")) : STR("root"));
    wire_put_str(b, path);
    if (stream_open(sb->session, b, &dir_ops, m, SESSION_UNARY_MS, &m->stream, &err) < 0)
        finish_later(m, &err);
}

void mounts_begin(struct sandbox *sb)
{
    struct mounting *m = mem_new(struct mounting);
    m->sb = sandbox_ref(sb);
    m->start = sb->n_starts;
    loop_job_init(&m->job, mount_on_job);
    next(m);
}
