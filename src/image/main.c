/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cove-image: fetches one image and unpacks it into a directory (job.h). It splits itself in two, each in a jail of its
 * own, and reads nothing foreign here:
 *
 *  1. What comes from a registry, an archive or the client is parsed by the half that fetches, which has no files; tars
 *     by the half that unpacks, which has no network and nothing but the layer's directory.
 *  2. Exit code 0 means that both said so. Whatever else happens, both are dead when this process is.
 */
#include "base/buf.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "image/jail.h"
#include "image/link.h"
#include "image/options.h"
#include "image/registry/fetch.h"
#include "image/report.h"

#include <fcntl.h>
#include <locale.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { CA_MAX = 8 << 20, GRACE_S = 5, EXIT_TOLD = 1, EXIT_BROKEN = 3 };

#define CA_DEFAULT "/etc/ssl/certs/ca-certificates.crt"

struct links {
    int data[2], notes[2], spool; /* reading and writing end; unpack's and fetch's end */
};

struct half {
    const char *name;
    pid_t pid;
    int pidfd;
    bool ended;
    int code; /* of its exit; -1: killed */
};

/* ---- the halves ---- */

static void close_others(const int *keep, size_t n)
{
    unsigned from = 3;
    for (;;) {
        unsigned next = ~0U;
        for (size_t i = 0; i < n; i++)
            if ((unsigned)keep[i] >= from)
                next = MIN(next, (unsigned)keep[i]);
        if (next > from)
            (void)close_range(from, next == ~0U ? next : next - 1, 0);
        if (next == ~0U)
            return;
        from = next + 1;
    }
}

NORETURN static void broken(const char *half, const struct err *err)
{
    log_error("%s: %s", half, err->msg);
    _exit(EXIT_BROKEN);
}

NORETURN static void fetch_main(const struct image_options *o, const struct links *l, pid_t parent)
{
    static struct buf ca = BUF_INIT(CA_MAX);
    const int keep[] = {o->job_fd, l->data[1], l->notes[1], l->spool};
    const struct http_config none = {.stall_s = o->stall_s};
    struct fetch_config config = {.job_fd = o->job_fd,
                                  .data_fd = l->data[1],
                                  .notes_fd = l->notes[1],
                                  .spool_fd = l->spool,
                                  .max_bytes = o->max_bytes,
                                  .until = clock_mono() + o->timeout_s * USEC_PER_SEC,
                                  .stall_s = o->stall_s};
    struct err err;
    fault_point("image.fetch.begin");
    close_others(keep, ARRAY_SIZE(keep));
    int r = fd_read_file(AT_FDCWD, o->ca ? o->ca : CA_DEFAULT, &ca);
    if (r < 0 && (o->ca || r != -ENOENT)) { /* without any, registries with TLS are not trusted, and say so */
        (void)err_errno(&err, r, "read the certificates of trusted authorities");
        broken("fetch", &err);
    }
    config.ca = buf_str(&ca);
    if (OPENSSL_init_crypto(OPENSSL_INIT_LOAD_CONFIG, NULL) != 1)
        log_warn("OpenSSL's configuration could not be read");
    if (http_new(&none, &config.http, &err) < 0 || jail_fetch(o->uid, parent, &err) < 0)
        broken("fetch", &err);
    _exit(fetch_run(&config));
}

NORETURN static void unpack_main(const struct image_options *o, const struct links *l, const struct jail_door *door)
{
    const int keep[] = {l->data[0], l->notes[0], door->theirs};
    struct unpack_config config = {
        .data_fd = l->data[0], .notes_fd = l->notes[0], .max_bytes = o->max_bytes, .max_entries = o->max_entries};
    struct err err;
    fault_point("image.unpack.begin");
    close_others(keep, ARRAY_SIZE(keep));
    if (jail_unpack(door, o->max_bytes, &config.root_fd, &err) < 0)
        broken("unpack", &err);
    _exit(unpack_run(&config));
}

/* ---- starting ---- */

static int open_spool(int root_fd, struct err *err)
{
    int fd = openat(root_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && errno != ENOSPC && errno != EDQUOT) {
        fd = openat(root_fd, ".spool", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd >= 0 && unlinkat(root_fd, ".spool", 0) < 0)
            return err_errno(err, errno, "remove the name of a temporary file");
    }
    return fd < 0 ? err_errno(err, errno, "make a temporary file beside the layer") : fd;
}

static int open_links(const struct image_options *o, struct links *l, struct err *err)
{
    if (pipe2(l->data, O_CLOEXEC) < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, l->notes) < 0)
        return err_errno(err, errno, "make the link between the halves");
    (void)fcntl(l->data[1], F_SETPIPE_SZ, LINK_PIPE_BYTES);
    l->spool = open_spool(o->root_fd, err);
    return l->spool < 0 ? -1 : 0;
}

static int start_unpack(const struct image_options *o, const struct links *l, struct half *h, struct err *err)
{
    struct jail_door door;
    if (jail_door_open(&door, err) < 0)
        return -1;
    h->pid = jail_spawn_unpack(&door, o->ids_base, &h->pidfd, err);
    if (h->pid == 0)
        unpack_main(o, l, &door);
    (void)fd_close(door.theirs);
    int r = h->pid < 0 ? -1 : jail_admit(&door, h->pid, o->ids_base, o->root_fd, err);
    if (r < 0)
        (void)fd_close(door.ours);
    return r; /* it stays open as long as we live */
}

static int start_fetch(const struct image_options *o, const struct links *l, struct half *h, struct err *err)
{
    pid_t parent = getpid();
    h->pid = fork();
    if (h->pid == 0)
        fetch_main(o, l, parent);
    if (h->pid > 0)
        h->pidfd = (int)syscall(SYS_pidfd_open, h->pid, 0);
    return h->pid < 0 || h->pidfd < 0 ? err_errno(err, errno, "start the half that fetches") : 0;
}

/* ---- the end ---- */

static void image_main_reap(struct half *h, bool kill_it)
{
    if (h->pid <= 0 || h->ended)
        return;
    if (kill_it)
        (void)kill(h->pid, SIGKILL);
    int status = child_wait(h->pid);
    h->ended = true;
    h->code = status < CHILD_SIGNAL ? status : -1;
    if (status > CHILD_SIGNAL && !kill_it)
        log_error("the half that %s was killed by signal %d", h->name, status - CHILD_SIGNAL);
}

/* Until fetch has ended; unpack is nothing without it. Returns false when the time is over. */
static bool image_main_await(struct half *fetch, struct half *unpack, unsigned timeout_s)
{
    usec_t until = clock_mono() + (timeout_s + GRACE_S) * USEC_PER_SEC, now;
    while (!fetch->ended && (now = clock_mono()) < until) {
        struct pollfd polls[2] = {{.fd = fetch->pidfd, .events = POLLIN},
                                  {.fd = unpack->ended ? -1 : unpack->pidfd, .events = POLLIN}};
        if (poll(polls, 2, (int)MIN((until - now) / USEC_PER_MS + 1, 60000ULL)) < 0)
            continue;
        if (polls[1].revents)
            image_main_reap(unpack, false);
        if (polls[0].revents)
            image_main_reap(fetch, false);
    }
    return fetch->ended;
}

static int image_main_finish(const struct image_options *o, struct half *fetch, struct half *unpack, bool in_time)
{
    struct err err;
    bool good = in_time && fetch->code == 0;
    image_main_reap(fetch, true);
    if (good) { /* it has said that it finished; it is about to end */
        struct pollfd p = {.fd = unpack->pidfd, .events = POLLIN};
        good = unpack->ended || poll(&p, 1, GRACE_S * 1000) > 0;
    }
    image_main_reap(unpack, !good);
    fault_point("image.job.unpacked");
    if (good && unpack->code == 0)
        return 0;
    if (fetch->code != EXIT_TOLD && fetch->code != 0) {
        AUTO(report_free) struct report *r = report_new(o->job_fd);
        (void)(in_time
                   ? err_set(&err, ERR_INTERNAL, "a process of cove-image ended unexpectedly: see the service's log")
                   : err_set(&err, ERR_DEADLINE_EXCEEDED, "the image took too long: allow more time, or try again"));
        report_error(r, &err);
    }
    return 1;
}

/* What the halves inherit is theirs alone, and stderr. */
static void settle_streams(void)
{
    AUTO_CLOSE int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 2; fd++)
        if (null < 0 || dup2(null, fd) < 0)
            (void)close(fd);
}

static int image_main_run(const struct image_options *o, struct err *err)
{
    struct links l = {.data = {-1, -1}, .notes = {-1, -1}, .spool = -1};
    struct half fetch = {.name = "fetches", .pidfd = -1}, unpack = {.name = "unpacks", .pidfd = -1};
    if (open_links(o, &l, err) < 0)
        return -1;
    if (start_unpack(o, &l, &unpack, err) < 0 || start_fetch(o, &l, &fetch, err) < 0) {
        image_main_reap(&unpack, true);
        return -1;
    }
    const int theirs[] = {l.data[0], l.data[1], l.notes[0], l.notes[1], l.spool};
    for (size_t i = 0; i < ARRAY_SIZE(theirs); i++)
        (void)fd_close(theirs[i]);
    return image_main_finish(o, &fetch, &unpack, image_main_await(&fetch, &unpack, o->timeout_s));
}

int main(int argc, char **argv)
{
    struct image_options o;
    struct err err;
    log_init("cove-image", LOG_INFO);
    fault_open();
    if (image_options_parse(argc, argv, &o, &err) < 0) {
        log_error("%s", err.msg);
        return 2;
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);       /* a limit on file sizes is an error of write() */
    (void)setlocale(LC_CTYPE, "C.UTF-8"); /* in which names of tars are written; else they pass as they are */
    (void)umask(0);
    (void)clearenv();
    settle_streams();
    int r = image_main_run(&o, &err);
    if (r < 0) {
        AUTO(report_free) struct report *report = report_new(o.job_fd);
        log_error("%s", err.msg);
        report_error(report, &err);
    }
    return r < 0 ? 1 : r;
}
