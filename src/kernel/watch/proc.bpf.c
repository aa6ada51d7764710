/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Runs in the kernel: tells of programs that the processes of known process namespaces execute, and of their ends. A
 * namespace can't be left, and a new one below it is still in it, so nothing in a sandbox gets out of sight. Fields of
 * the kernel's structures are found by their names when this is loaded (BTF).
 */
#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "kernel/watch/proc_record.h"

enum { PARTS_MAX = 24, PART_MAX = 256, CROSSINGS_MAX = 4, LEVELS_MAX = 4, LEVEL_MASK = 31, GROUP_EXIT = 4 };

#define KERNELS __attribute__((preserve_access_index))

struct ns_common {
    unsigned int inum;
} KERNELS;
struct pid_namespace {
    struct ns_common ns;
} KERNELS;
struct upid {
    int nr;
    struct pid_namespace *ns;
} KERNELS;
struct pid {
    unsigned int level;
    struct upid numbers[1];
} KERNELS;
typedef struct {
    unsigned int val;
} kuid_t;
struct cred {
    kuid_t uid;
} KERNELS;
struct qstr {
    const unsigned char *name;
} KERNELS;
struct dentry {
    struct dentry *d_parent;
    struct qstr d_name;
} KERNELS;
struct vfsmount {
    struct dentry *mnt_root;
} KERNELS;
struct mount {
    struct mount *mnt_parent;
    struct dentry *mnt_mountpoint;
    struct vfsmount mnt;
} KERNELS;
struct path {
    struct vfsmount *mnt;
    struct dentry *dentry;
} KERNELS;
struct fs_struct {
    struct path root, pwd;
} KERNELS;
struct mm_struct {
    unsigned long arg_start, arg_end;
} KERNELS;
struct linux_binprm {
    const char *filename;
} KERNELS;
typedef struct {
    int counter;
} atomic_t;
struct signal_struct {
    atomic_t live;
    unsigned int flags;
    int group_exit_code;
} KERNELS;
struct task_struct {
    int tgid, exit_code;
    unsigned int parent_exec_id, self_exec_id;
    struct mm_struct *mm;
    struct fs_struct *fs;
    const struct cred *cred;
    struct pid *thread_pid;
    struct signal_struct *signal;
    struct task_struct *group_leader, *real_parent;
} KERNELS;

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, PROC_SPACES_MAX);
    __type(key, unsigned int);
    __type(value, struct proc_space);
} spaces SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_RINGBUF);
    __uint(max_entries, PROC_RING_BYTES);
} ring SEC(".maps");

/* So many bytes that nobody has read wake the reader. */
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, unsigned int);
    __type(value, unsigned int);
} wakes SEC(".maps");

struct draft {
    volatile unsigned int
        at; /* here, and not in a register: the verifier follows each value that it knows, and gives up */
    struct proc_record record;
    char text[PROC_TEXT_MAX + PART_MAX];
};

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 1);
    __type(key, unsigned int);
    __type(value, struct draft);
} drafts SEC(".maps");

static __always_inline int number_at(struct pid *pid, unsigned int level, struct upid *ret_number)
{
    const char *numbers = (const char *)pid + bpf_core_field_offset(struct pid, numbers);
    return bpf_probe_read_kernel(ret_number, sizeof(*ret_number), numbers + (level & LEVEL_MASK) * sizeof(*ret_number));
}

/*
 * The namespace of this process that is somebody's: its own, or one above it, but not the machine's. And its number
 * there.
 */
static __always_inline struct proc_space *space_of(struct task_struct *task, struct upid *ret_number)
{
    struct pid *pid = task->thread_pid;
    unsigned int level = pid ? pid->level : 0;
    for (int i = 0; i < LEVELS_MAX && level; i++, level--) {
        if (number_at(pid, level, ret_number))
            return 0;
        unsigned int inode = BPF_CORE_READ(ret_number->ns, ns.inum);
        struct proc_space *space = bpf_map_lookup_elem(&spaces, &inode);
        if (space)
            return space;
    }
    return 0;
}

/* Of a process in this namespace, or in one below it; 0: it is elsewhere. */
static __always_inline int number_in(struct pid_namespace *ns, struct task_struct *task)
{
    struct pid *pid = task->thread_pid;
    unsigned int level = pid ? pid->level : 0;
    struct upid number;
    for (int i = 0; i < LEVELS_MAX && pid; i++, level--) {
        if (number_at(pid, level, &number))
            return 0;
        if (number.ns == ns)
            return number.nr;
        if (level == 0)
            return 0;
    }
    return 0;
}

/* There were too many in this second: this one is only counted. */
static __always_inline int is_too_much(struct proc_space *space, enum proc_kind kind, unsigned long long now)
{
    unsigned long long second = now >> 30;
    if (space->second != second) {
        space->second = second;
        space->used[PROC_EXEC] = space->used[PROC_EXIT] = 0;
    }
    if (space->used[kind]++ < PROC_PER_SEC)
        return 0;
    __sync_fetch_and_add(&space->lost, 1);
    return 1;
}

static __always_inline void record_begin(struct proc_record *r, struct proc_space *space, struct task_struct *task,
                                         const struct upid *number, unsigned int kind, unsigned long long now)
{
    __builtin_memcpy(r->tag, space->tag, sizeof(r->tag));
    r->at = now;
    r->kind = kind;
    r->host_pid = task->tgid;
    r->pid = number->nr;
    r->lost = space->lost;
}

static __always_inline void record_end(struct proc_space *space, struct proc_record *r, unsigned int text)
{
    unsigned int zero = 0, *wakes_at = bpf_map_lookup_elem(&wakes, &zero);
    int flags =
        wakes_at && bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) >= *wakes_at ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
    if (bpf_ringbuf_output(&ring, r, sizeof(*r) + (text & (PROC_TEXT_MAX - 1)), flags))
        __sync_fetch_and_add(&space->lost, 1);
    else if (r->lost)
        __sync_fetch_and_add(&space->lost, -r->lost);
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(proc_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
    struct upid number = {};
    unsigned int zero = 0;
    struct proc_space *space = space_of(task, &number);
    unsigned long long now = space ? bpf_ktime_get_ns() : 0;
    if (!space || is_too_much(space, PROC_EXEC, now))
        return 0;
    struct draft *d = bpf_map_lookup_elem(&drafts, &zero);
    if (!d)
        return 0;
    struct proc_record *r = &d->record;
    record_begin(r, space, task, &number, PROC_EXEC, now);
    r->parent = number_in(number.ns, task->group_leader->real_parent);
    r->uid = task->cred->uid.val;
    r->status = 0;

    unsigned long start = task->mm->arg_start;
    r->argv_bytes = task->mm->arg_end - start;
    d->at = r->argv_bytes < PROC_ARGV_MAX ? r->argv_bytes : PROC_ARGV_MAX;
    unsigned int n = d->at & (PROC_TEXT_MAX - 1);
    r->argv = bpf_probe_read_user(d->text, n, (const void *)start) == 0 ? n : 0;
    long got = bpf_probe_read_kernel_str(d->text + (r->argv & (PROC_TEXT_MAX - 1)), PART_MAX, bprm->filename);
    r->program = got > 0 ? got : 0;
    d->at = r->argv + r->program;

    struct dentry *dentry = task->fs->pwd.dentry, *root = task->fs->root.dentry;
    struct mount *mount = (void *)task->fs->pwd.mnt - bpf_core_field_offset(struct mount, mnt);
    for (int i = 0; i < PARTS_MAX + CROSSINGS_MAX && dentry != root; i++) {
        if (dentry == BPF_CORE_READ(mount, mnt.mnt_root)) {
            struct mount *below = BPF_CORE_READ(mount, mnt_parent);
            if (below == mount)
                break;
            dentry = BPF_CORE_READ(mount, mnt_mountpoint);
            mount = below;
            continue;
        }
        unsigned int at = d->at;
        if (at >= PROC_TEXT_MAX - PART_MAX)
            break;
        got = bpf_probe_read_kernel_str(d->text + at, PART_MAX, BPF_CORE_READ(dentry, d_name.name));
        if (got <= 0)
            break;
        d->at += got;
        dentry = BPF_CORE_READ(dentry, d_parent);
    }
    unsigned int at = d->at;
    r->directory = at - r->argv - r->program;
    record_end(space, r, at);
    return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(proc_exit, struct task_struct *task)
{
    struct upid number = {};
    /* A thread of several, or a copy of another process that executed nothing. */
    if (task->signal->live.counter || task->self_exec_id == task->parent_exec_id)
        return 0;
    struct proc_space *space = space_of(task->group_leader, &number);
    unsigned long long now = space ? bpf_ktime_get_ns() : 0;
    if (!space || is_too_much(space, PROC_EXIT, now))
        return 0;
    struct proc_record r = {};
    record_begin(&r, space, task, &number, PROC_EXIT, now);
    r.status = task->signal->flags & GROUP_EXIT ? task->signal->group_exit_code : task->exit_code;
    record_end(space, &r, 0);
    return 0;
}

char LICENSE[] SEC("license") = "GPL";
