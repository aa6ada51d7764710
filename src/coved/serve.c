/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The boot sequence, the loop, and the way down.
 *
 *  1. Alone on this state directory (lock). What an earlier coved left with the keeper goes on: sandboxes, workers,
 *     sockets, the pool's device. All else that it left is killed and moved to the trash, but for files of sandboxes
 *     that stood still: those are kept.
 *  2. All that needs the host's files is opened or read: sockets, agent, key, the storage pool. Then the stage
 *     (tier/stage.h) is entered for good.
 *  3. The first blanks are made before the workers are started, so that the first request finds one.
 *  4. SIGTERM: sandboxes are killed and their ends reported; when all are gone, the workers are stopped; then the rest
 *     is removed, but for files that take too long to delete: those are the next start's.
 *  5. SIGUSR2: what jobs have begun is finished, for a few seconds; then this process makes way for the next coved,
 *     which finds what a dead one would have left. Workers that were started by other settings than it would start them
 *     by now are replaced, before it says that it is ready. It is ready when cove-api answers.
 *  6. SIGUSR1, which `cove domain` sends: the domain and its certificate are read anew and cove-api is replaced;
 *     sandboxes don't notice.
 */
#include "coved/serve.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/config.h"
#include "coved/arguments.h"
#include "coved/boxes/boxes.h"
#include "coved/diff/diff_queue.h"
#include "coved/groups.h"
#include "coved/identity.h"
#include "coved/listen.h"
#include "coved/requests.h"
#include "coved/state.h"
#include "coved/storage/image.h"
#include "coved/storage/storage.h"
#include "coved/storage/sweeper.h"
#include "coved/workers/job.h"
#include "coved/workers/keeper.h"
#include "coved/workers/network.h"
#include "coved/workers/records.h"
#include "coved/workers/worker.h"
#include "kernel/cgroup/cgroup.h"
#include "kernel/pool/pool.h"
#include "kernel/probe.h"
#include "kernel/watch/filewatch.h"
#include "kernel/watch/procwatch.h"
#include "tier/microvm.h"
#include "tier/process.h"
#include "tier/stage.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SERVE_FIRST_UID = 0x70000000,
    READY_BOXES = 10,
    API_TRIES = 3,
    READY_NETWORKS = READY_BOXES + 4,
    SERVE_OPEN_FILES = 1 << 20,
    OPEN_FILES_LEAST = 16384,
    STOP_USEC = 30 * 1000000,
    HANDOVER_USEC = 5 * 1000000,
    LAST_SWEEP_MS = 20000
};

struct coved {
    const struct config *config;
    struct coved_loop *loop;
    struct tier_host host;
    struct tier_set tiers;
    struct storage storage;
    struct stage stage;
    struct listeners listeners;
    struct identity identity;
    struct coved_network network;
    struct jobs *jobs, *compares; /* compares: their reader can make them wait */
    struct diff_queue *compare_queue;
    struct images *images;
    char *image_program;
    struct boxes *boxes;
    struct procwatch *procwatch; /* owned until the boxes have it; NULL: none. It needs the host's files to begin */
    struct worker *worker;
    struct worker_fd worker_fds[LISTEN_MAX];
    struct requests requests;
    struct sweeper *sweeper;
    struct source signals, keeper;
    struct records *records; /* NULL: not yet */
    struct inherited inherited;
    int signal_fd, lock_fd;
    char key[STATE_KEY_MAX];
    char *program; /* of the worker */
    struct arguments arguments;
    uint8_t settings[SHA1_BYTES]; /* of the worker */
    size_t lost;                  /* boxes of a coved that died */
    bool stopping, is_ready;
    usec_t stop_at;
    usec_t handover_at; /* monotonic: it makes way at the latest; 0: it does not */
};

/*
 * A sealed copy in memory: what runs in the sandboxes can't be changed through /proc/PID/exe or on disk afterwards.
 * Nobody inside may read it, so the kernel makes it not dumpable as it executes it: there is no moment at which another
 * process in there gets at it.
 */
static int load_agent(const char *dir, int *ret_fd, struct err *err)
{
    AUTO_FREE char *path = mem_printf("%s/cove-agent", dir);
    AUTO_CLOSE int from = open(path, O_RDONLY | O_CLOEXEC);
    AUTO_CLOSE int to = memfd_create("cove-agent", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct stat st;
    if (from < 0 || to < 0 || fstat(from, &st) < 0)
        return err_errno(err, errno, "load %s", path);
    for (off_t at = 0; at < st.st_size;) {
        char block[65536];
        ssize_t n = pread(from, block, sizeof(block), at);
        int r = n <= 0 ? (n < 0 ? -errno : -EIO) : fd_write_all(to, block, (size_t)n);
        if (r < 0)
            return err_errno(err, r, "load %s", path);
        at += n;
    }
    if (fchmod(to, 0111) < 0 || fcntl(to, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        return err_errno(err, errno, "seal the agent's program");
    *ret_fd = TAKE_FD(to);
    return 0;
}

static int own_dir(char **ret_dir, struct err *err)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (n < 0)
        return err_errno(err, errno, "find the directory of our programs");
    path[n] = 0;
    char *slash = strrchr(path, '/');
    *ret_dir = mem_strndup(path, (size_t)(slash - path));
    return 0;
}

static void raise_limits(void)
{
    const struct rlimit files = {SERVE_OPEN_FILES, SERVE_OPEN_FILES}, none = {0, 0}, no_core = {1, 1};
    struct rlimit now;
    if (setrlimit(RLIMIT_NOFILE, &files) < 0 && getrlimit(RLIMIT_NOFILE, &now) == 0) {
        now.rlim_cur = now.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &now) < 0 || now.rlim_max < OPEN_FILES_LEAST)
            log_warn("at most %llu files can be open, which limits the number of sandboxes",
                     (unsigned long long)now.rlim_max);
    }
    /*
     * No core files, for us and all sandboxes. Where core_pattern is a pipe, the kernel starts the host's handler as
     * root for whatever crashes, wherever, with any limit but 1. 0 is second best: for that, 1 must be below the hard
     * limit that we were given.
     */
    if (setrlimit(RLIMIT_CORE, &no_core) < 0)
        (void)setrlimit(RLIMIT_CORE, &none);
    if (fd_write_existing(AT_FDCWD, "/proc/self/oom_score_adj", STR("-900")) < 0)
        log_warn("can't protect coved from the out-of-memory killer");
}

static bool spares_name(void *ctx, const char *name)
{
    const struct coved *c = ctx;
    return boxes_left_name(c->records, name);
}

static bool spares_or_counts(void *ctx, const char *name)
{
    struct coved *c = ctx;
    bool goes_on = spares_name(c, name);
    c->lost += !goes_on;
    return goes_on;
}

static bool spares_group(void *ctx, const char *name)
{
    const struct coved *c = ctx;
    size_t it = 0;
    for (const struct record *r;
         strcmp(name, NETWORK_GROUP) == 0 && (r = records_next(c->records, KEEPER_WORKER, &it));)
        if (r->number == STATE_EGRESS)
            return true;
    return boxes_left_group(c->records, name);
}

static int write_down_listener(struct coved *c, uint32_t number, int fd)
{
    if (fd >= 0)
        records_put(c->records, KEEPER_SOCKET, number, 0, NULL, 0, &fd, 1);
    else
        records_drop(c->records, KEEPER_SOCKET, number);
    return fd;
}

/* The vault's, then those of cove-api: whichever a later coved has no use for, it drops. */
static void write_down_listeners(struct coved *c)
{
    (void)write_down_listener(c, 0, c->network.vault.fd);
    for (uint32_t i = 0; i < LISTEN_MAX; i++)
        (void)write_down_listener(c, 1 + i, i < c->listeners.n ? c->listeners.at[i].fd : -1);
}

static void inherit_listeners(struct coved *c)
{
    size_t it = 0;
    for (struct record *r; (r = records_next(c->records, KEEPER_SOCKET, &it));) {
        if (r->n_fds != 1 || c->inherited.n == ARRAY_SIZE(c->inherited.fds))
            continue;
        r->is_taken = true;
        c->inherited.fds[c->inherited.n++] = TAKE_FD(r->fds[0]);
    }
}

static int serve_open_pool(struct coved *c, struct err *err)
{
    if (storage_pool(&c->storage, "/pool", &c->host.pool, err) < 0)
        return -1;
    if (boxes_rescue(&c->host, spares_name, c, err) < 0)
        return -1;
    int r = pool_reset(c->host.pool, spares_or_counts, c);
    return r < 0 ? err_errno(err, r, "clear the storage pool") : 0;
}

static void serve_reload(struct coved *c);

static void serve_on_signal(struct source *s, uint32_t events UNUSED)
{
    struct coved *c = container_of(s, struct coved, signals);
    struct signalfd_siginfo info;
    while (read(c->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD || info.ssi_signo == SIGHUP || c->stopping)
            continue; /* children are watched by their pidfds; what a hang-up means the keeper decides */
        if (info.ssi_signo == SIGUSR1) {
            serve_reload(c);
            continue;
        }
        if (info.ssi_signo == SIGUSR2) {
            log_info("handing over to another coved");
            c->handover_at = clock_mono() + HANDOVER_USEC;
            continue;
        }
        log_info("stopping: %zu sandboxes", boxes_running(c->boxes));
        c->stopping = true;
        c->stop_at = clock_mono() + STOP_USEC;
        images_cancel(c->images);
        boxes_shutdown(c->boxes);
    }
}

/* Nothing of ours outlives it, least of all we. */
static void on_keeper(struct source *s UNUSED, uint32_t events UNUSED)
{
    log_error("the keeper is gone");
    _exit(1);
}

static int serve_watch_signals(struct coved *c, struct err *err)
{
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGHUP);
    (void)sigaddset(&set, SIGUSR1);
    (void)sigaddset(&set, SIGUSR2);
    (void)sigaddset(&set, SIGCHLD);
    (void)signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return err_errno(err, errno, "block signals");
    c->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (c->signal_fd < 0)
        return err_errno(err, errno, "watch signals");
    int r = loop_add(c->loop, &c->signals, c->signal_fd, EPOLLIN, serve_on_signal);
    r = r ? r : loop_add(c->loop, &c->keeper, records_fd(c->records), EPOLLIN, on_keeper);
    return r < 0 ? err_errno(err, r, "watch signals") : 0;
}

static void on_worker_message(void *ctx, const union sup_message *m, int fd)
{
    struct coved *c = ctx;
    requests_handle(&c->requests, m, fd);
}

static void on_worker_adopt(void *ctx)
{
    struct coved *c = ctx;
    requests_adopt_worker(&c->requests);
}

static void on_worker_start(void *ctx)
{
    struct coved *c = ctx;
    requests_new_worker(&c->requests);
    network_link_workers(&c->network);
}

/* Logs, too, when room on the disk begins and ceases to be short. */
static enum pulse_state state_now(void *ctx)
{
    struct coved *c = ctx;
    struct err err;
    return c->stopping ? PULSE_STOPS : reserve_check(&c->requests.reserve, &err) < 0 ? PULSE_NO_ROOM : PULSE_FINE;
}

static struct worker_spec worker_spec(struct coved *c)
{
    for (size_t i = 0; i < c->listeners.n; i++) {
        const struct coved_listener *l = &c->listeners.at[i];
        c->worker_fds[i] = (struct worker_fd){"--listen-fd", l->fd, l->is_unix ? ":unix" : l->is_tls ? ":tls" : ":tcp"};
    }
    arguments_make(&c->arguments, c->config, c->identity.text,
                   reserve_share_of(c->host.pool, c->config->default_disk_bytes), &c->tiers.list);
    arguments_digest(c->config, c->identity.text, c->key, c->identity.domain.pem, c->settings);
    return (struct worker_spec){
        .name = "cove-api",
        .program = c->program,
        .control = "--supervisor-fd",
        .fds = c->worker_fds,
        .n_fds = c->listeners.n,
        .argv = c->arguments.at,
        .uid = state_uid(STATE_API),
        .key = c->key,
        .pem = c->identity.domain.pem,
        .stage = &c->stage,
        .on_message = on_worker_message,
        .state = state_now,
        .on_start = on_worker_start,
        .on_adopt = on_worker_adopt,
        .records = c->records,
        .number = STATE_API,
        .version = SUP_VERSION,
        .settings = c->settings,
        .ctx = c,
    };
}

static void new_worker(struct coved *c, const char *program_dir)
{
    c->program = mem_printf("%s/cove-api", program_dir);
    const struct worker_spec spec = worker_spec(c);
    c->worker = worker_new(c->loop, &spec);
}

static void serve_reload(struct coved *c)
{
    struct err err;
    if (identity_load(&c->identity, c->config, &err) < 0 ||
        identity_listen(&c->identity, c->config, 0, &c->listeners, &err) < 0)
        log_error("reload the domain: %s", err.msg);
    else
        log_info("the domain is now %s", c->identity.text ? c->identity.text : "none");
    write_down_listeners(c);
    /* Also when listening failed: what cove-api borrows of the old text is gone. */
    const struct worker_spec spec = worker_spec(c);
    worker_replace(c->worker, &spec);
}

static int watch_files(struct coved *c, struct err *err)
{
    struct filewatch *files = NULL;
    /* A pool in a directory shares its file system with others, whose files are nobody's business. */
    int r = !c->config->observe_files ? 0
            : c->storage.file_fd < 0  ? -EXDEV
                                      : filewatch_open(pool_fd(c->host.pool), &files);
    if (r < 0)
        log_info("the files that sandboxes write are not recorded: %s",
                 r == -EXDEV ? "the storage pool has no file system of its own" : strerror(-r));
    r = boxes_watch(c->boxes, TAKE_PTR(c->procwatch), files);
    return r < 0 ? err_errno(err, r, "watch what sandboxes do") : 0;
}

/* COVE_OVERLAY=detached or =attached takes that mode or none; it is for tests. */
static int serve_try_overlay(const struct probe_env *env, enum overlay_mode *ret_mode, struct err *err)
{
    const char *forced = getenv("COVE_OVERLAY");
    if (!forced || !*forced) {
        int r = probe_overlay_mode(env, ret_mode);
        return r < 0 ? err_errno(err, r, "overlay of idmapped layers") : 0;
    }
    const bool is_attached = strcmp(forced, "attached") == 0;
    if (!is_attached && strcmp(forced, "detached") != 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "COVE_OVERLAY must be detached or attached");
    *ret_mode = is_attached ? OVERLAY_ATTACHED : OVERLAY_DETACHED;
    int r = probe_overlay(env, *ret_mode);
    return r < 0 ? err_errno(err, r, "overlay of idmapped layers, %s as COVE_OVERLAY says", forced) : 0;
}

/*
 * How root file systems of sandboxes are mounted here: found out by doing it, once, on the pool's own file system.
 * pool_dir: as seen from where we are; what a crash leaves of it lies where pool_reset() looks. state_dir: for people.
 */
static int serve_choose_overlay(const char *pool_dir, const char *state_dir, enum overlay_mode *ret_mode,
                                struct err *err)
{
    AUTO_FREE char *dir = mem_printf("%s/new", pool_dir);
    if (mkdir(dir, 0755) < 0 && errno != EEXIST)
        return err_errno(err, errno, "make %s", dir);
    const struct probe_env env = {dir};
    enum overlay_mode mode = OVERLAY_DETACHED;
    int r = serve_try_overlay(&env, &mode, err);
    if (r < 0 && (err->errnum == ENOSPC || err->errnum == EDQUOT)) {
        log_warn("how root file systems are mounted can't be tried out on a full disk: from attached layers, which "
                 "works everywhere");
        mode = OVERLAY_ATTACHED;
    } else if (r < 0) {
        log_error(
            "sandboxes can't have root file systems in %s: Linux 5.19 and a file system with idmapped mounts (ext4,"
            " xfs, btrfs) are needed; set state_dir or COVE_STATE to a place on one ('coved doctor' says more)",
            state_dir);
        return -1;
    }
    if (mode == OVERLAY_ATTACHED)
        log_info("root file systems are mounted from attached layers (not needed from Linux 6.15 on): creating a "
                 "sandbox takes longer");
    *ret_mode = mode;
    return 0;
}

static int set_up(struct coved *c, int keeper_fd, struct err *err)
{
    AUTO_FREE char *dir = NULL;
    enum overlay_mode mode = OVERLAY_DETACHED;
    if (records_open(keeper_fd, &c->records, err) < 0 || state_prepare(c->config, err) < 0 ||
        state_lock(c->config, STATE_LOCK_COVED, &c->lock_fd, err) < 0 || state_key(c->config, c->key, err) < 0 ||
        config_check_listen(c->config, true, err) < 0 || own_dir(&dir, err) < 0 ||
        identity_prepare(&c->identity, c->config, dir, records_are_new(c->records), err) < 0)
        return -1;
    inherit_listeners(c);
    raise_limits();
    microvm_configure(c->config->microvm_guest, c->config->microvm_emulate);
    process_configure(c->config->process_paths, c->config->n_process_paths);
    int unwatched = c->config->observe_processes ? procwatch_open(&c->procwatch) : 0;
    if (unwatched < 0)
        log_info("the programs that sandboxes execute are not recorded: %s", strerror(-unwatched));
    c->host.run_dir = c->config->run_dir;
    if (load_agent(dir, &c->host.agent_fd, err) < 0 ||
        groups_open(c->config->state_dir, spares_group, c, &c->host.cgroups, err) < 0 ||
        listen_open(c->config, LISTEN_PATIENCE, &c->inherited, &c->listeners, err) < 0 ||
        identity_listen(&c->identity, c->config, LISTEN_PATIENCE, &c->listeners, err) < 0 ||
        network_prepare(&c->network, c->config, dir, &c->inherited, err) < 0 ||
        tier_set_probe(&c->host, c->config->tiers, c->config->n_tiers, c->config->minimum_tier, &c->tiers, err) < 0 ||
        storage_open(c->config, c->records, &c->storage, err) < 0 ||
        stage_enter(c->storage.mount, c->config->run_dir, &c->stage, err) < 0 || serve_open_pool(c, err) < 0 ||
        serve_choose_overlay("/pool", c->config->state_dir, &mode, err) < 0)
        return -1;
    inherited_close(&c->inherited);
    c->listeners.inherited = NULL;
    write_down_listeners(c);
    c->host.overlay_mode = (int)mode;
    c->host.host_paths = c->config->host_paths;
    c->host.n_host_paths = c->config->n_host_paths;
    c->host.stage = &c->stage;
    c->host.proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    c->host.net_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (c->host.proc_fd < 0 || c->host.net_fd < 0)
        return err_errno(err, errno, "open /proc");
    int r = loop_new(&c->loop);
    if (r < 0)
        return err_errno(err, r, "make the event loop");
    if (serve_watch_signals(c, err) < 0 || sweeper_start(c->host.pool, &c->sweeper, err) < 0)
        return -1;
    network_start(&c->network, c->loop, &c->stage, c->host.cgroups, READY_NETWORKS, &c->tiers, c->records);
    c->jobs = jobs_new(c->loop, c->stage.host_root, c->lock_fd);
    c->compares = jobs_new(c->loop, c->stage.host_root, c->lock_fd);
    c->compare_queue = diff_queue_new(c->compares);
    c->image_program = mem_printf("%s/cove-image", dir);
    c->images = images_new(c->loop, c->jobs, &c->host, &c->stage, c->image_program, c->config->run_dir, requests_done,
                           &c->requests);
    const struct boxes_events events = {&c->requests,   requests_created, requests_done, requests_stored,
                                        requests_ended, requests_seen,    requests_see};
    c->boxes = boxes_new(c->loop, &c->tiers, &c->host, READY_BOXES, &events, &c->network, c->jobs, c->records);
    if (boxes_keep_load(c->boxes, err) < 0 || watch_files(c, err) < 0)
        return -1;
    new_worker(c, dir);
    network_connect(&c->network, c->worker, c->boxes);
    c->requests = (struct requests){
        .boxes = c->boxes,
        .worker = c->worker,
        .layers = layers_new(c->host.pool, c->boxes),
        .host = &c->host,
        .compares = c->compare_queue,
        .images = c->images,
        .reserve = {.fd = c->storage.host_fd, .pool = c->host.pool, .bytes = c->config->disk_reserve_bytes},
        .default_pids = c->config->default_pids,
    };
    worker_adopt(c->worker);
    worker_adopt(c->network.egress);
    boxes_adopt(c->boxes);
    records_forget(c->records);
    struct err too_full;
    int ignored UNUSED =
        reserve_check(&c->requests.reserve, &too_full); /* says so now, and not to the first client only */
    return 0;
}

/* A service whose first cove-api can't work has not started. Later ones are tried for ever: what runs goes on. */
static int serve_say_ready(struct coved *c, struct err *err)
{
    if (c->is_ready || c->stopping || worker_is_due(c->worker) || worker_is_due(c->network.egress))
        return 0;
    if (records_are_new(c->records) && worker_stillborn(c->worker) >= API_TRIES)
        return err_set(err, ERR_UNAVAILABLE,
                       "cove-api ended %d times before it could answer requests: the log says why", API_TRIES);
    if (!worker_answers(c->worker))
        return 0;
    records_ready(c->records);
    c->is_ready = true;
    return 0;
}

static int loop_forever(struct coved *c, struct err *err)
{
    usec_t next = 0;
    bool worker_told = false, network_told = false;
    mem_trim(); /* of what starting took (the microvm's images, 5 MiB): each box begins as a copy of us */
    for (;;) {
        int n = loop_turn(c->loop, next);
        if (n < 0)
            return err_errno(err, n, "wait for events");
        next = boxes_tick(c->boxes, n == 0);
        next = MIN(next, jobs_tick(c->jobs));
        next = MIN(next, jobs_tick(c->compares));
        sweeper_tick(c->sweeper);
        next = MIN(next, network_tick(&c->network));
        next = MIN(next, worker_tick(c->worker));
        if (serve_say_ready(c, err) < 0)
            return -1;
        if (c->handover_at && !c->stopping &&
            (jobs_left(c->jobs) + images_left(c->images) == 0 || clock_mono() > c->handover_at))
            return KEEPER_EXIT_AGAIN;
        next = c->handover_at ? MIN(next, c->handover_at) : next;
        if (c->stopping && !worker_told &&
            (boxes_left(c->boxes) + images_left(c->images) == 0 || clock_mono() > c->stop_at)) {
            worker_told = true;
            worker_stop(c->worker);
        }
        /* After who talks to it: else the worker might take its end for a failure. */
        if (worker_told && !network_told && worker_is_gone(c->worker)) {
            network_told = true;
            worker_stop(c->network.egress);
        }
        if (network_told && worker_is_gone(c->worker) && worker_is_gone(c->network.egress))
            return 0;
        if (c->stopping)
            next = MIN(next, clock_mono() + 20 * USEC_PER_MS);
    }
}

static void tear_down(struct coved *c)
{
    worker_free(c->worker);
    network_close(&c->network);
    if (c->sweeper)
        sweeper_stop(c->sweeper);
    if (c->requests.layers)
        layers_free(c->requests.layers);
    if (c->boxes && boxes_left(c->boxes) == 0)
        boxes_free(c->boxes);
    if (c->images && images_left(c->images) == 0)
        images_free(c->images);
    if (c->jobs && jobs_left(c->jobs) == 0)
        jobs_free(c->jobs);
    if (c->compares && jobs_left(c->compares) == 0) {
        diff_queue_free(c->compare_queue);
        jobs_free(c->compares);
    }
    identity_close(&c->identity);
    listen_close(&c->listeners); /* who connects from here on is refused instead of waiting for nobody */
    if (c->host.pool) {
        size_t left =
            c->stopping ? sweeper_last(c->host.pool, LAST_SWEEP_MS) : 0; /* a failed start waits for nothing */
        if (left)
            log_warn("the files of %zu ended sandboxes are not deleted yet: the next start continues in the background",
                     left);
        pool_close(c->host.pool);
    }
    storage_close(&c->storage);
    if (c->host.cgroups)
        cgroup_close(c->host.cgroups, true);
    if (c->loop)
        loop_free(c->loop);
    arguments_clear(&c->arguments);
    MEM_FREE(c->program, c->image_program);
    mem_wipe(c->key, sizeof(c->key));
    (void)fd_close(c->host.agent_fd);
    (void)fd_close(c->host.proc_fd);
    (void)fd_close(c->host.net_fd);
    (void)fd_close(c->stage.host_mount_ns);
    (void)fd_close(c->stage.host_root);
    (void)fd_close(c->signal_fd);
    (void)fd_close(c->lock_fd);
}

int serve(const struct config *config, int keeper_fd, struct err *err)
{
    struct coved c = {
        .config = config,
        .host = {.proc_fd = -1, .agent_fd = -1, .net_fd = -1, .first_uid = SERVE_FIRST_UID},
        .listeners = {.local = LOCAL_SOCKET_NONE},
        .identity = IDENTITY_NONE,
        .network = NETWORK_NONE,
        .storage = STORAGE_NONE,
        .stage = {.host_mount_ns = -1, .host_root = -1},
        .signals = {.fd = -1},
        .keeper = {.fd = -1},
        .signal_fd = -1,
        .lock_fd = -1,
    };
    int r = set_up(&c, keeper_fd, err);
    if (r == 0) {
        if (c.lost && records_are_new(c.records))
            log_warn(
                "an earlier coved died: removed what %zu boxes left behind that belonged to nobody or ended with it",
                c.lost);
        else if (c.lost)
            log_info("removed what %zu boxes left behind that belonged to nobody or ended meanwhile", c.lost);
        log_info("listening on %s%s", config->listen[0].text, config->n_listen > 1 ? " and more" : "");
        r = loop_forever(&c, err);
    }
    /* What goes on without us is not to be taken down. */
    if (r == KEEPER_EXIT_AGAIN || (r < 0 && c.records && !records_are_new(c.records)))
        return r;
    tear_down(&c);
    return r;
}
