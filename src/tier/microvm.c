/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/microvm.h"
#include "base/fd.h"
#include "base/log.h"
#include "kernel/cgroup/cgroup.h"
#include "kernel/namespace.h"
#include "kernel/pool/pool.h"
#include "tier/container.h"
#include "tier/files.h"
#include "tier/group.h"
#include "tier/root.h"
#include "tier/vm/body.h"
#include "tier/vm/guest.h"
#include "tier/vm/ram.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CPUS_MOST = 8, MONITOR_PIDS = 512, CHECKPOINT_USEC = 10 * 1000000, CHECKPOINT_LOOK_USEC = 500 };
enum { MICROVM_SHARED_FROM = 8, MICROVM_SHARE_USEC = 300 * 1000 }; /* when it wrote an eighth of its memory */

#define MIB (1ULL << 20)
#define MEMORY_LEAST (192 * MIB)
#define MEMORY_DEFAULT (1024 * MIB)
#define MEMORY_MONITOR                                                                                                 \
    (192 * MIB) /* beside the machine's own: what the monitor itself, and its translations, take at most */

/* What the machine that this runs on has for it; for coved's whole life, as the table itself. */
static struct {
    const char *guest;
    bool may_emulate;
    struct guest_host host;
    bool is_staged;
} microvm;

void microvm_configure(const char *guest, bool may_emulate)
{
    microvm.guest = guest;
    microvm.may_emulate = may_emulate;
}

static int microvm_probe(const struct tier_host *host, struct tier_powers *ret_powers, struct err *err)
{
    *ret_powers = (struct tier_powers){.reclaim = host && cgroup_features(host->cgroups)->reclaim,
                                       .memory = true,
                                       .version = "2"}; /* of the form; the monitor's is looked at when it is there */
    if (!microvm.guest)
        return err_set(err, ERR_FAILED_PRECONDITION, "no kernel for it is configured: microvm.guest");
    return guest_host_open(microvm.guest, microvm.may_emulate, host ? host->agent_fd : -1, &microvm.host, err);
}

/* Boots a kernel as far as its first words. */
static int microvm_try_out(char *ret_seen, size_t size, struct err *err)
{
    usec_t took = 0;
    if (guest_host_try(microvm.guest, !microvm.host.emulated, &took, err) < 0)
        return -1;
    (void)snprintf(ret_seen, size, "%s, a kernel spoke after %llu ms",
                   microvm.host.emulated ? "emulated, as configured, and so slow" : "KVM",
                   (unsigned long long)(took / USEC_PER_MS));
    return 0;
}

static int microvm_spawn(const struct tier_host *host, struct box *box, struct err *err)
{
    struct container_birth b;
    if (container_birth_begin(host, box, &b, err) < 0)
        return -1;
    AUTO_CLOSE int tap = -1;
    int r = box->net.ns < 0 ? 0 : netns_gate_tap(&box->net, host->net_fd, host->proc_fd, microvm.host.tun, &tap);
    pid_t pid = r < 0 ? r : namespace_spawn_root(b.door.group_fd, &box->pidfd);
    if (pid == 0)
        vm_body(b.theirs, box->carried_fd, tap, &b.door, root_base(host, box));
    return container_birth_end(host, box, &b, pid, false, err);
}

static int microvm_blank(const struct tier_host *host, struct box *box, struct err *err)
{
    static const struct vm_state none;
    root_name(box);
    int r = microvm.is_staged ? 0 : guest_host_stage(&microvm.host);
    if (r < 0)
        return err_errno(err, r, "show the kernel and programs to machines");
    microvm.is_staged = true;
    r = group_make(host, box);
    if (r < 0)
        return err_errno(err, r, "make control group %s", box->group);
    box->carried_fd = memfd_create("cove-machine", MFD_CLOEXEC);
    if (box->carried_fd < 0 || pwrite(box->carried_fd, &none, sizeof(none), 0) != sizeof(none))
        return err_errno(err, errno, "make a file for its state");
    return microvm_spawn(host, box, err);
}

static uint64_t microvm_memory(const struct tier_limits *l)
{
    return (l->memory_bytes ? l->memory_bytes : MEMORY_DEFAULT) / MIB * MIB;
}

static int microvm_limit(const struct tier_host *host, struct box *box, const struct tier_limits *l, struct err *err)
{
    const struct tier_limits outside = {
        .memory_bytes = microvm_memory(l) + MEMORY_MONITOR, .cpu_milli = l->cpu_milli, .pids = MONITOR_PIDS};
    int r = group_limit(host, box, &outside);
    if (r < 0)
        return err_errno(err, r, "set limits");
    box->limits = *l;
    return 0;
}

static int microvm_make_files(const struct tier_host *host, struct box *box, const struct tier_dress *how,
                              struct vm_order *o, struct err *err)
{
    const struct pool_box spec = {.name = box->name,
                                  .from_layer = how->files->from_layer,
                                  .from_kept = how->files->from_kept,
                                  .chain = how->files->chain};
    AUTO_CLOSE int fd = -1;
    char link[32];
    int r = pool_box_make(host->pool, &spec, &fd);
    if (r < 0)
        return err_errno(err, r, "make the private directory in the storage pool");
    box->has_files = true;
    if (how->files->from_layer && faccessat(fd, "u/" FILES_DISK, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return err_set(err, ERR_FAILED_PRECONDITION,
                       "its template has more layers than a microvm can stand on: build it anew");
    (void)snprintf(link, sizeof(link), "self/fd/%d", fd);
    ssize_t n = readlinkat(host->proc_fd, link, o->path, sizeof(o->path) - 1);
    if (n <= 0 || o->path[0] != '/')
        return err_errno(err, n < 0 ? errno : ENAMETOOLONG, "find the private directory");
    o->path[n] = 0;
    return 0;
}

static int microvm_dress(const struct tier_host *host, struct box *box, const struct tier_dress *how, struct err *err)
{
    static struct vm_order o; /* coved has one thread */
    const struct tier_limits *l = &how->limits;
    o = (struct vm_order){.what = TIER_DRESS,
                          .memory_bytes = microvm_memory(l),
                          .disk_bytes = how->disk_bytes,
                          .cpus = l->cpu_milli ? MIN((l->cpu_milli + 999) / 1000, (uint32_t)CPUS_MOST) : 1,
                          .pids = l->pids,
                          .guest = microvm.host.id,
                          .tsc_khz = microvm.host.tsc_khz,
                          .emulated = microvm.host.emulated,
                          .is_ahead = how->is_ahead,
                          .awaits = how->awaits_memory,
                          .chain = *how->files->chain};
    if (o.memory_bytes < MEMORY_LEAST)
        return err_set(err, ERR_INVALID_ARGUMENT, "a microvm needs %llu MiB of memory at least",
                       (unsigned long long)(MEMORY_LEAST / MIB));
    memcpy(o.name, box->name, sizeof(o.name));
    /* Others may wait for what it makes, an image of a layer: until it is somebody's, it is as fast as one
     * processor. */
    struct tier_limits first = *l;
    first.cpu_milli = l->cpu_milli ? MAX(l->cpu_milli, 1000U) : 0;
    if (microvm_limit(host, box, &first, err) < 0)
        return -1;
    /* One that has waited for memory has its own. */
    if (!box->awaits && microvm_make_files(host, box, how, &o, err) < 0)
        return -1;
    box->awaits = how->awaits_memory;
    box->disk_bytes = how->disk_bytes;
    int r = fd_send(box->sock, &o, sizeof(o), &how->memory_fd, how->memory_fd >= 0);
    return r < 0 ? err_errno(err, r, "send the order to dress") : 0;
}

static int microvm_start(const struct tier_host *host, struct box *box, const struct tier_spec *spec, int *ret_fd,
                         struct err *err)
{
    if (spec->limits.memory_bytes != box->limits.memory_bytes)
        return err_set(err, ERR_INTERNAL, "the machine was made with another size of memory");
    if (microvm_limit(host, box, &spec->limits, err) < 0)
        return -1;
    box->is_restored = false; /* its body tells the agent */
    return container_session(box, spec->id, spec->template_id, ret_fd, err);
}

/* ---- standing still: the machine is halted first, with what it has written on its disk ---- */

static int microvm_read(const struct box *box, struct vm_state *ret_state)
{
    return pread(box->carried_fd, ret_state, sizeof(*ret_state), 0) == sizeof(*ret_state) ? 0 : -EIO;
}

static int microvm_write(const struct box *box, uint32_t value, size_t at)
{
    return pwrite(box->carried_fd, &value, sizeof(value), (off_t)at) == sizeof(value) ? 0 : -EIO;
}

static int microvm_freeze(const struct tier_host *host, struct box *box, bool frozen)
{
    struct vm_state s;
    const char order = frozen ? VM_SETTLE : VM_GO;
    int r = microvm_write(box, 0, offsetof(struct vm_state, held));
    if (!frozen) { /* whatever the file says: what can't be read must not keep a box from its end */
        r = group_freeze(host, box, false);
        int sent = fd_send(box->sock, &order, 1, NULL, 0);
        return r ? r : sent;
    }
    r = r ? r : microvm_read(box, &s);
    r = r ? r : microvm_write(box, s.asked + 1, offsetof(struct vm_state, asked));
    return r ? r : fd_send(box->sock, &order, 1, NULL, 0);
}

static int microvm_is_frozen(const struct tier_host *host, struct box *box)
{
    struct vm_state s;
    int r = microvm_read(box, &s);
    if (r < 0)
        return r;
    if (s.failed == s.asked)
        return -ETIMEDOUT;
    if (s.settled != s.asked)
        return 0;
    if (!s.held) {
        r = group_freeze(host, box, true);
        r = r ? r : microvm_write(box, 1, offsetof(struct vm_state, held));
    }
    return r ? r : group_is_frozen(host, box);
}

/* ---- its memory: of a machine that stands still nothing is asked ---- */

static int microvm_store(const struct tier_host *host, const struct box *box, const struct tier_saving *saving,
                         uint64_t *ret_own)
{
    const uint64_t bytes = microvm_memory(&box->limits);
    struct vm_devices d;
    struct saved_machine now = {.cpus = 0};
    saved_describe(&now);
    if (pread(box->carried_fd, &d, sizeof(d), VM_DEVICES_AT) != sizeof(d) || d.machine.memory_bytes != bytes ||
        memcmp(d.machine.magic, now.magic, sizeof(now.magic)) != 0)
        return -ENODATA; /* of an earlier version */
    int r = saved_write(saving->dir_fd, &d.machine, box->carried_fd, VM_DEVICES_DATA, d.bytes);
    r = r ? r : ram_save(host->proc_fd, box->pid, root_base(host, box), bytes, saving->dir_fd, SAVED_MEMORY, ret_own);
    return r || !saving->files ? r : saving->files(saving->ctx);
}

static int microvm_go_on(const struct tier_host *host, const struct box *box)
{
    struct box b = *box;
    return microvm_freeze(host, &b, false);
}

/*
 * What it wrote is in a file now. From that it can go on as its copies do, which halves what the machine has of it, and
 * the next time there is less to copy. It stays halted, and must be able to run for that. If it can't be had, it goes
 * on as it is.
 */
static void microvm_share(const struct tier_host *host, const struct box *box, int dir_fd)
{
    struct box b = *box;
    const char order = VM_TAKE;
    AUTO_CLOSE int fd = openat(dir_fd, SAVED_MEMORY, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    int r = fd < 0 ? -errno : group_freeze(host, &b, false);
    r = r ? r : fd_send(box->sock, &order, 1, &fd, 1);
    r = r ? r
          : ram_share(host->proc_fd, box->pid, root_base(host, box), microvm_memory(&box->limits), fd,
                      MICROVM_SHARE_USEC);
    if (r < 0)
        log_warn("box %s keeps its memory for itself: %s", box->name, strerror(-r));
}

static int microvm_checkpoint(const struct tier_host *host, const struct box *box, const struct tier_saving *saving)
{
    struct box b = *box;
    uint64_t own = 0;
    const usec_t until = clock_mono() + CHECKPOINT_USEC;
    int stands = 0, r = microvm_freeze(host, &b, true);
    while (r == 0 && (stands = microvm_is_frozen(host, &b)) == 0 && clock_mono() < until)
        (void)usleep(CHECKPOINT_LOOK_USEC);
    r = r ? r : stands > 0 ? microvm_store(host, box, saving, &own) : stands ? stands : -ETIMEDOUT;
    if (r == 0 && !saving->ends && own >= microvm_memory(&box->limits) / MICROVM_SHARED_FROM)
        microvm_share(host, box, saving->dir_fd);
    /* One that ends stays halted, but not frozen: it can be killed. */
    int let_go = r < 0 || !saving->ends ? microvm_go_on(host, box) : group_freeze(host, &b, false);
    return r ? r : let_go;
}

static int microvm_usage(const struct tier_host *host, struct box *box, usec_t age UNUSED, struct tier_usage *ret_usage)
{
    struct cgroup_usage raw;
    int r = group_usage(host, box, ret_usage, &raw);
    ret_usage->pids = ret_usage->pids_refused = 0; /* the monitor's; the machine's own are its agent's to tell */
    return r;
}

const struct tier tier_microvm = {
    .name = "microvm",
    .summary = "a virtual machine with a kernel of its own",
    .ready = 2,
    .is_sized = true,
    .halts = true,
    .waits_for_memory = true,
    .writes_late = true,
    .network = NETNS_TAP,
    .probe = microvm_probe,
    .try_out = microvm_try_out,
    .blank = microvm_blank,
    .dress = microvm_dress,
    .start = microvm_start,
    .session = container_session,
    .adopt = container_adopt_carried,
    .clean = container_clean_carried,
    .freeze = microvm_freeze,
    .is_frozen = microvm_is_frozen,
    .yield = group_yield,
    .reclaim = group_reclaim,
    .usage = microvm_usage,
    .oom_kills = group_oom_kills,
    .snapshot = files_snapshot,
    .checkpoint = microvm_checkpoint,
    .go_on = microvm_go_on,
};
