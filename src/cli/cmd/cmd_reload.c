/* SPDX-License-Identifier: Apache-2.0 */
/*
 * coved checks the configuration first, so that what is wrong with it is said here; the keeper (coved/workers/keeper.h)
 * does the rest when it gets a signal. Both write their process id into the lock that they hold.
 */
#include "base/buf.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "config/config.h"
#include "wire/keeper.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { RELOAD_MS = 30000, RELOAD_AGAIN_MS = 20 };

/* 0: nobody holds it. -errno: it can't be looked at. */
static pid_t reload_holder(const struct config *config, const char *lock)
{
    AUTO_FREE char *path = mem_printf("%s/%s", config->state_dir, lock);
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    AUTO_BUF struct buf text = BUF_INIT(32);
    uint64_t pid;
    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    bool is_held = flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    int r = fd_read_all(fd, &text);
    return r < 0 || !is_held || str_to_u64(str_trim(buf_str(&text)), &pid) < 0 || pid < 2 || pid > INT32_MAX
               ? (pid_t)MIN(r, 0)
               : (pid_t)pid;
}

/* What it does not like, coved says on stderr. */
static int reload_check(struct context *ctx)
{
    AUTO_FREE char *path = NULL, *version = mem_printf("%d", KEEPER_VERSION);
    if (context_find_coved(ctx, &path) < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0) {
        (void)unsetenv("COVE_API_KEY"); /* ours, as a client */
        (void)execl(path, "coved", "run", "--fits", version, (char *)NULL);
        _exit(CHILD_NO_PROGRAM);
    }
    int status = pid < 0 ? -errno : child_wait(pid);
    if (status < 0)
        return err_errno(&ctx->err, status, "run %s", path);
    return status == 0 ? 0
                       : err_set(&ctx->err, ERR_FAILED_PRECONDITION,
                                 "nothing was reloaded: coved refuses the configuration, see above");
}

static bool reload_is_over(const struct config *config, pid_t before)
{
    AUTO_FREE char *trial = mem_printf("%s/" KEEPER_CONFIG_BEFORE, config->run_dir);
    pid_t now = reload_holder(config, "coved.lock");
    return now > 0 && now != before && access(trial, F_OK) < 0;
}

/* Is the copy in force what the file says? */
static bool reload_took(const struct config *config)
{
    AUTO_BUF struct buf wanted = BUF_INIT(CONFIG_FILE_MAX), has = BUF_INIT(CONFIG_FILE_MAX);
    AUTO_FREE char *copy = mem_printf("%s/" KEEPER_CONFIG, config->run_dir);
    bool may_be_missing;
    int r = fd_read_file(AT_FDCWD, config_path(&may_be_missing), &wanted);
    return (r == 0 || (r == -ENOENT && may_be_missing)) && fd_read_file(AT_FDCWD, copy, &has) == 0 &&
           str_eq(buf_str(&wanted), buf_str(&has));
}

static int reload_await(struct context *ctx, const struct config *config, pid_t before)
{
    const struct timespec pause = {.tv_nsec = RELOAD_AGAIN_MS * 1000000L};
    const usec_t end = clock_mono() + RELOAD_MS * USEC_PER_MS;
    bool is_over;
    context_hint(ctx, "its log says why: journalctl -u cove, or %s/coved.log", config->state_dir);
    while (!(is_over = reload_is_over(config, before)) && clock_mono() < end)
        (void)nanosleep(&pause, NULL);
    if (!is_over)
        return err_set(&ctx->err, ERR_DEADLINE_EXCEEDED, "the service has not reloaded within %d s", RELOAD_MS / 1000);
    if (!reload_took(config))
        return err_set(&ctx->err, ERR_FAILED_PRECONDITION,
                       "the service can't run with this configuration: the previous one is in force again");
    return 0;
}

/* Whether the worker of that name, a child of the keeper, runs a program that has been replaced since. */
static bool reload_leaves(pid_t keeper, const char *name)
{
    AUTO_FREE char *path = mem_printf("/proc/%d/task/%d/children", (int)keeper, (int)keeper);
    AUTO_FREE char *suffix = mem_printf("/%s (deleted)", name);
    AUTO_BUF struct buf children = BUF_INIT(1 << 20);
    if (fd_read_file(AT_FDCWD, path, &children) < 0)
        return false;
    for (struct str pid, rest = buf_str(&children); str_split(&rest, ' ', &pid);) {
        AUTO_FREE char *exe = mem_printf("/proc/%.*s/exe", STR_ARG(pid));
        char target[PATH_MAX];
        ssize_t n = readlink(exe, target, sizeof(target));
        if (n > 0 && str_ends(str_n(target, (size_t)n), str_of(suffix)))
            return true;
    }
    return false;
}

static int reload_run(struct context *ctx, pid_t *ret_keeper)
{
    const struct config *config = context_config(ctx);
    if (!config)
        return -1;
    pid_t keeper = reload_holder(config, "lock"), coved = reload_holder(config, "coved.lock");
    if (keeper < 0)
        return err_errno(&ctx->err, keeper, "look for the service in %s", config->state_dir);
    if (keeper > 0 && coved <= 0) {
        context_hint(ctx,
                     "its log says why: journalctl -u cove, or %s/coved.log; if it doesn't come back by itself, "
                     "systemctl restart cove, which ends its sandboxes",
                     config->state_dir);
        return err_set(&ctx->err, ERR_UNAVAILABLE, "the service on the state in %s is starting again",
                       config->state_dir);
    }
    if (keeper <= 0) {
        context_hint(ctx, "start it: systemctl start cove, or make start");
        return err_set(&ctx->err, ERR_UNAVAILABLE, "no service runs on the state in %s", config->state_dir);
    }
    if (reload_check(ctx) < 0)
        return -1;
    if (kill(keeper, SIGUSR2) < 0)
        return err_errno(&ctx->err, errno, "signal the service, process %d", (int)keeper);
    *ret_keeper = keeper;
    return reload_await(ctx, config, coved);
}

static void reload_tell(pid_t keeper)
{
    bool has_api = reload_leaves(keeper, "cove-api"), has_egress = reload_leaves(keeper, "cove-egress");
    (void)puts("The service runs with the configuration and the coved that are there now.");
    if (has_api)
        (void)printf("cove-api is still the program of before. To replace it, which drops its clients' connections: "
                     "kill -USR1 %d\n",
                     (int)keeper);
    if (has_egress)
        (void)puts("cove-egress is still the program of before: a restart of the service replaces it.");
}

static int reload_command(struct context *ctx)
{
    if (context_read_all(ctx, NULL) < 0)
        return context_exit(ctx);
    pid_t keeper = 0;
    if (reload_run(ctx, &keeper) < 0)
        return context_fail(ctx, STATUS_FAILED);
    if (ctx->json)
        (void)puts("{\"reloaded\":true}");
    else
        reload_tell(keeper);
    return STATUS_OK;
}

const struct command cmd_reload = {
    .name = "reload",
    .summary = "apply a changed configuration while sandboxes keep running",
    .text = &text_reload,
    .operands = "",
    .is_local = true,
    .run = reload_command,
};
