/* SPDX-License-Identifier: Apache-2.0 */
/* How boxes end: killed, reaped, taken apart; reported when they were somebody's. */
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "coved/boxes/boxes_internal.h"
#include "coved/workers/network.h"
#include "coved/workers/records.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLEAN_AGAIN_MS = 2, KERNEL_ENOTSUPP = 524 /* the kernel's own; seccomp(2) lets it out */ };

void boxes_kill_body(struct box_entry *e)
{
    if (e->box.pidfd < 0 || e->state == BOX_CLEANING)
        return;
    (void)pidfd_send_signal(e->box.pidfd, SIGKILL, NULL, 0);
    boxes_thaw(e);
}

static void boxes_end_forget(struct box_entry *e)
{
    struct boxes *b = e->owner;
    b->counts[e->state]--;
    list_remove(&e->node);
    b->slot_used[e->box.slot] = false;
    if (e->id[0] && !e->is_silent)
        b->events.ended(b->events.ctx, &e->ended);
    fault_point("coved.ended.told");
    if (e->id[0] && !e->is_silent)
        boxes_memory_drop(b, e->id);
    boxes_unrecord(e);
    mem_free(e);
}

/* Reaped: get rid of the rest, now or a little later (a group may be busy until the kernel has let its last task
 * go). */
void boxes_clean(struct box_entry *e)
{
    struct boxes *b = e->owner;
    int r = e->tier->clean(b->host, &e->box);
    if (r == -EBUSY) {
        if (!b->clean_at)
            b->clean_at = clock_mono() + CLEAN_AGAIN_MS * USEC_PER_MS;
        return;
    }
    if (r < 0)
        log_error("clean up slot %u (%s): %s", e->box.slot, e->box.name, strerror(-r));
    boxes_end_forget(e);
}

static void set_cause(struct box_entry *e, int code, int status)
{
    struct sup_ended *end = &e->ended;
    if (e->id[0])
        end->oom_kills = e->tier->oom_kills(e->owner->host, &e->box);
    end->status = (uint32_t)status;
    if (end->cause || (e->state != BOX_RUNNING && e->state != BOX_FROZEN))
        return;
    /*
     * What starts a sentry, and waits for it, tells of its signal as a shell does, or, when that was made ahead, only
     * that it is gone.
     */
    const bool was_killed = code == CLD_EXITED ? status == 128 + SIGKILL || status == 128 : status == SIGKILL;
    end->cause = was_killed && end->oom_kills ? SUP_CAUSE_OOM
                 : code == CLD_EXITED         ? SUP_CAUSE_EXITED
                                              : SUP_CAUSE_SIGNALED;
}

/* Its end comes before theirs. */
static void abort_tasks(struct box_entry *e)
{
    struct err err;
    (void)err_set(&err, ERR_ABORTED, "sandbox %s ended meanwhile", e->id);
    boxes_tasks_abort(e, &err);
}

/* It failed before it was anybody's. It says why in words alone, of the same C library as ours. */
static void say_why(const struct box_entry *e, struct err *err)
{
    if (e->reason_errno == KERNEL_ENOTSUPP)
        (void)err_set(err, ERR_RESOURCE_EXHAUSTED,
                      "the kernel has no room for another system call filter: raise the limit (sysctl "
                      "net.core.bpf_jit_limit), or end sandboxes or other programs that have loaded many filters");
    else if (e->tier == &tier_process && e->reason[0] == '/' &&
             (e->reason_errno == ENOENT || e->reason_errno == ELOOP || e->reason_errno == ENOTDIR))
        (void)err_set(err, ERR_FAILED_PRECONDITION, "the template has no place to show the host's: %s", e->reason);
    else
        (void)err_set(err, ERR_INTERNAL, "the sandbox's first process ended early%s%s", e->reason[0] ? ": " : "",
                      e->reason);
}

void boxes_on_pidfd(struct source *s, uint32_t events UNUSED)
{
    struct box_entry *e = container_of(s, struct box_entry, pidfd);
    struct boxes *b = e->owner;
    int code = CLD_KILLED, status = SIGKILL;
    if (e->is_recorded && !e->ended.cause) /* the keeper's answer takes two wake-ups */
        (void)records_exit(b->records, e->box.pid, &code, &status);
    fault_point("coved.ended.seen");
    if (boxes_is_stopping(e) || (e->may_return && !e->ended.cause))
        boxes_stop_reaped(e);
    else if (!e->is_silent)
        boxes_copy_is_stale(e);
    boxes_memory_stays(e);
    if (e->copy)
        e->copy->entry = NULL;
    set_cause(e, code, status);
    abort_tasks(e);
    boxes_unmounted(e);
    list_remove(&e->to_copy);
    list_remove(&e->freezing);
    loop_remove(b->loop, &e->pidfd);
    loop_remove(b->loop, &e->sock);
    struct err err;
    const bool again = e->request && e->warm_since && !e->request->again && !b->stopping;
    if (again) {
        say_why(e, &err);
        log_warn("a sandbox that waited could not be used: %s", err.msg);
        boxes_wait_again(b, TAKE_PTR(e->request));
    } else if (e->request) {
        say_why(e, &err);
        boxes_refuse(b, TAKE_PTR(e->request), &err);
    } else if (!e->id[0] && !b->stopping && !e->ended.cause) {
        say_why(e, &err);
        if (e->outfit.memory) /* the next one would fare as this one */
            b->last.layer[0] = 0;
        boxes_ahead_failed(b, &err);
    }
    if (e->kept)
        boxes_give_back(e);
    if (e->id[0]) {
        boxes_seen_end(e);
        (void)map_del(&b->by_id, str_of(e->id));
        network_drop_box(b->network, e->id);
    }
    memcpy(e->ended.id, e->id, sizeof(e->ended.id));
    e->box.pid = 0;
    boxes_enter(e, BOX_CLEANING);
    boxes_clean(e);
    if (again)
        boxes_serve(b);
}

void boxes_kill_unused(struct box_entry *e)
{
    e->ended.cause = SUP_CAUSE_KILLED;
    loop_remove(e->owner->loop, &e->sock);
    boxes_kill_body(e);
    if (e->state == BOX_WARM)
        boxes_enter(e, BOX_DRESSING); /* not to be given to anybody on its way out */
}

/*
 * A process that dies has closed its descriptors, and a first one ends all others of its namespace, before anybody can
 * reap it: whoever noticed that its socket is closed may ask for its end meanwhile. Bit 2 of its flags says so
 * (PF_EXITING of linux/sched.h, field 9 of proc_pid_stat(5)).
 */
static bool body_is_dying(const struct box_entry *e)
{
    char path[32], text[512];
    struct str field = STR("");
    uint64_t flags;
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)e->box.pid);
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = read(fd, text, sizeof(text) - 1);
    text[MAX(n, (ssize_t)0)] = 0;
    const char *name_end = strrchr(text, ')'); /* a name may hold any byte */
    struct str rest = str_of(name_end ? name_end : "");
    for (int i = 2; i <= 9; i++)
        if (!str_split(&rest, ' ', &field))
            return false;
    return str_to_u64(field, &flags) == 0 && (flags & 0x4);
}

bool boxes_body_is_gone(const struct box_entry *e)
{
    struct pollfd p = {.fd = e->box.pidfd, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

bool boxes_body_dies(const struct box_entry *e)
{
    return boxes_body_is_gone(e) || body_is_dying(e);
}

int boxes_kill(struct boxes *b, const char *id, struct err *err)
{
    struct kept *k = boxes_kept_find(b, id);
    if (k) {
        boxes_kept_doom(k);
        return 0;
    }
    struct box_entry *e = boxes_find(b, id, err);
    if (!e)
        return -1;
    e->may_return = false;
    if (!e->ended.cause && !boxes_body_dies(e))
        e->ended.cause = SUP_CAUSE_KILLED;
    abort_tasks(e);
    boxes_kill_body(e);
    return 0;
}

void boxes_clean_again(struct boxes *b)
{
    b->clean_at = 0;
    LIST_FOREACH (struct box_entry, e, &b->lists[BOX_CLEANING], node) {
        boxes_clean(e);
    }
}

void boxes_shutdown(struct boxes *b)
{
    struct err err;
    b->stopping = true;
    (void)err_set(&err, ERR_UNAVAILABLE, "the service is stopping");
    boxes_refuse_waiting(b, NULL, &err);
    for (size_t i = 0; i < BOX_CLEANING; i++)
        LIST_FOREACH (struct box_entry, e, &b->lists[i], node) {
            if (boxes_is_stopping(e))
                continue; /* its files will be kept */
            abort_tasks(e);
            if (((i == BOX_FROZEN && !e->has_copy) || e->may_return) && !e->ended.cause) {
                (void)boxes_task_stop(e);
                continue;
            }
            e->is_silent = i == BOX_FROZEN && e->has_copy && !e->ended.cause;
            if (!e->ended.cause)
                e->ended.cause = SUP_CAUSE_SHUTDOWN;
            boxes_kill_body(e);
        }
}
