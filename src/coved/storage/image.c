/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/storage/image.h"
#include "base/child.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "coved/foreign.h"
#include "coved/workers/job.h"
#include "coved/workers/worker.h"
#include "kernel/mount.h"
#include "kernel/namespace.h"
#include "kernel/pool/pool.h"
#include "tier/tier.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ids that nothing else has, one set for each at a time: below those of sandboxes and of what runs beside us. */
enum { FETCHER_UID = 0x6fff0100, UNPACKER_IDS = 0x6f000000, IDS_EACH = 0x10000, ROOT_FD = 3, JOB_FD = 4 };

/* What a stranger's image makes it use is given back before any sandbox is killed for it, let alone what else is on the
 * machine. */
enum { OOM_SCORE = 1000 };

struct image {
    struct list node;
    struct images *images;
    struct source pidfd;
    int pid_fd; /* owned; -1 once it was reaped */
    uint32_t slot;
    uint64_t asked;
    char job[32], layer[SUP_DIGEST_MAX];
    bool canceled;
};

struct images {
    struct coved_loop *loop;
    struct jobs *jobs;
    const struct tier_host *host;
    const struct stage *stage;
    const char *program, *mount_on;
    void (*done)(void *ctx, uint64_t asked, const struct err *err);
    void *ctx;
    struct list list;
    size_t n;
    bool slot_used[IMAGES_MAX];
    uint64_t serial;
};

struct images *images_new(struct coved_loop *loop, struct jobs *jobs, const struct tier_host *host,
                          const struct stage *stage, const char *program, const char *mount_on,
                          void (*done)(void *ctx, uint64_t asked, const struct err *err), void *ctx)
{
    struct images *images = mem_new(struct images);
    *images = (struct images){.loop = loop,
                              .jobs = jobs,
                              .host = host,
                              .stage = stage,
                              .program = program,
                              .mount_on = mount_on,
                              .done = done,
                              .ctx = ctx};
    list_init(&images->list);
    return images;
}

void images_free(struct images *images)
{
    assert(images->n == 0);
    mem_free(images);
}

size_t images_left(const struct images *images)
{
    return images->n;
}

/* ---- the process ---- */

/* To where the host's files are, with the layer mounted there for this process alone: a mount can be cloned only where
 * it can be seen. */
static int take_along(const struct images *images, int root_fd, int *ret_fd)
{
    AUTO_CLOSE int mount = -1;
    int r = mount_clone(root_fd, "", &mount);
    r = r ? r : worker_go_to_host(images->stage);
    r = r ? r : mount_unshare();
    r = r ? r : mount_attach(mount, AT_FDCWD, images->mount_on);
    int fd = r ? -1 : openat(mount, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return r ? r : -errno;
    *ret_fd = fd;
    return 0;
}

NORETURN static void image_run(const struct images *images, const struct image *i, int root_fd, int job_fd, pid_t coved)
{
    char fetcher[16], ids[16];
    char *const *argv =
        CHILD_ARGV("cove-image", "--root-fd", "3", "--job-fd", "4", "--uid", fetcher, "--ids-base", ids);
    char *const environment[] = {fault_environment(), NULL};
    (void)snprintf(fetcher, sizeof(fetcher), "%u", FETCHER_UID + i->slot);
    (void)snprintf(ids, sizeof(ids), "%u", UNPACKER_IDS + i->slot * IDS_EACH);
    child_unblock();
    (void)signal(SIGPIPE, SIG_DFL);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0 || getppid() != coved ||
        namespace_set_oom_score(images->host->proc_fd, getpid(), OOM_SCORE) < 0 ||
        take_along(images, root_fd, &root_fd) < 0)
        _exit(126);
    int root = fcntl(root_fd, F_DUPFD, 64), job = fcntl(job_fd, F_DUPFD, 64);
    if (root < 0 || job < 0 || dup2(root, ROOT_FD) < 0 || dup2(job, JOB_FD) < 0 || close_range(JOB_FD + 1, ~0U, 0) < 0)
        _exit(126);
    (void)umask(022);
    (void)execve(images->program, argv, environment);
    _exit(127);
}

/* ---- its end ---- */

static void image_forget(struct image *i, const struct err *err)
{
    struct images *images = i->images;
    const uint64_t asked = i->asked;
    list_remove(&i->node);
    images->slot_used[i->slot] = false;
    images->n--;
    mem_free(i);
    images->done(images->ctx, asked, err);
}

static void abandon(struct image *i, const struct err *err)
{
    int r = pool_layer_abandon(i->images->host->pool, i->job);
    if (r < 0 && r != -ENOENT)
        log_error("clean up after an image: %s", strerror(-r));
    image_forget(i, err);
}

static int image_commit(void *ctx)
{
    const struct image *i = ctx;
    const struct pool_chain none = {.n = 0};
    fault_point("coved.image.commit");
    int r = fault_error("coved.image");
    return r ? r : pool_layer_commit(i->images->host->pool, i->job, i->layer, &none);
}

static void committed(void *ctx, int r)
{
    struct image *i = ctx;
    struct err err;
    if (r == 0) {
        image_forget(i, NULL);
        return;
    }
    (void)err_errno(&err, r, "store the image as layer %s", i->layer);
    abandon(i, &err);
}

static void image_on_pidfd(struct source *s, uint32_t events UNUSED)
{
    struct image *i = container_of(s, struct image, pidfd);
    siginfo_t info = {0};
    if (waitid(P_PIDFD, (id_t)i->pid_fd, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
        return;
    loop_remove(i->images->loop, &i->pidfd);
    i->pid_fd = fd_close(i->pid_fd);
    if (!i->canceled && info.si_code == CLD_EXITED && info.si_status == 0) {
        const struct job_spec spec = {.name = "store an image", .run = image_commit, .done = committed, .ctx = i};
        (void)job_add(i->images->jobs, &spec);
        return;
    }
    struct err err;
    if (i->canceled)
        (void)err_set(&err, ERR_CANCELED, "the image was canceled");
    else if (info.si_code == CLD_EXITED && info.si_status == 127)
        (void)err_set(&err, ERR_UNIMPLEMENTED, "%s can't be started", i->images->program);
    else
        (void)err_set(&err, ERR_ABORTED, "cove-image ended with %s %d",
                      info.si_code == CLD_EXITED ? "exit code" : "signal", info.si_status);
    abandon(i, &err);
}

static int image_spawn(struct image *i, uint64_t owner, int job_fd, struct err *err)
{
    struct images *images = i->images;
    AUTO_CLOSE int root = -1;
    int r = pool_layer_begin(images->host->pool, i->job, &root);
    r = r ? r : pool_own(images->host->pool, POOL_JOB, i->job, owner);
    if (r < 0)
        return err_errno(err, r, "begin a layer");
    pid_t coved = getpid(), pid = fork();
    if (pid == 0)
        image_run(images, i, root, job_fd, coved);
    if (pid < 0)
        return err_errno(err, errno, "start cove-image");
    i->pid_fd = pidfd_open(pid, 0);
    r = i->pid_fd < 0 ? -errno : loop_add(images->loop, &i->pidfd, i->pid_fd, EPOLLIN, image_on_pidfd);
    if (r == 0)
        return 0;
    child_kill(pid);
    i->pid_fd = fd_close(i->pid_fd);
    return err_errno(err, r, "watch cove-image");
}

int image_start(struct images *images, const char *layer, uint64_t owner, int fd, uint64_t asked, struct err *err)
{
    AUTO_FOREIGN int job_fd = fd;
    uint32_t slot = 0;
    while (slot < IMAGES_MAX && images->slot_used[slot])
        slot++;
    if (slot == IMAGES_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED, "%d images are already being unpacked", IMAGES_MAX);
    struct image *i = mem_new(struct image);
    *i = (struct image){.images = images, .pid_fd = -1, .slot = slot, .asked = asked, .pidfd = {.fd = -1}};
    (void)snprintf(i->job, sizeof(i->job), "image-%llu", (unsigned long long)images->serial++);
    (void)snprintf(i->layer, sizeof(i->layer), "%s", layer);
    if (image_spawn(i, owner, job_fd, err) < 0) {
        int ignored UNUSED = pool_layer_abandon(images->host->pool, i->job);
        mem_free(i);
        return -1;
    }
    images->slot_used[slot] = true;
    images->n++;
    list_init(&i->node);
    list_append(&images->list, &i->node);
    return 0;
}

void images_cancel(struct images *images)
{
    LIST_FOREACH (struct image, i, &images->list, node) {
        i->canceled = true;
        if (i->pid_fd >= 0)
            (void)pidfd_send_signal(i->pid_fd, SIGKILL, NULL, 0);
    }
}
