/* SPDX-License-Identifier: Apache-2.0 */
#include "kernel/watch/procwatch.h"
#include "base/mem.h"
#include "kernel/watch/proc_record.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

static const unsigned char procwatch_object[] = {
#include "kernel/proc.bpf.inc"
};

static_assert((int)PROCWATCH_TAG_MAX == (int)PROC_TAG_MAX, "tags fit");

struct procwatch {
    struct bpf_object *object;
    struct bpf_link *links[2];
    struct ring_buffer *ring;
    int spaces_fd, ring_fd, wakes_fd;
    uint32_t wakes_at;
    void (*fn)(void *ctx, const struct procwatch_event *e); /* while it is read */
    void *ctx;
    int left;
};

/* "c\0b\0" is /b/c. */
static void join_directory(const char *parts, size_t n, char ret_path[static PROCWATCH_PATH_MAX])
{
    size_t at = 0;
    while (n > 0) {
        size_t begin = n - 1;
        while (begin > 0 && parts[begin - 1])
            begin--;
        size_t length = n - 1 - begin;
        if (at + 1 + length >= PROCWATCH_PATH_MAX)
            break;
        ret_path[at++] = '/';
        memcpy(ret_path + at, parts + begin, length);
        at += length;
        n = begin;
    }
    if (at == 0)
        ret_path[at++] = '/';
    ret_path[at] = 0;
}

static int procwatch_on_record(void *ctx, void *data, size_t size)
{
    struct procwatch *w = ctx;
    const struct proc_record *r = data;
    const char *text = (const char *)(r + 1);
    char directory[PROCWATCH_PATH_MAX];
    directory[0] = 0;
    if (size < sizeof(*r) || sizeof(*r) + r->argv + r->program + r->directory > size)
        return 0; /* not ours */
    if (r->kind == PROC_EXEC)
        join_directory(text + r->argv + r->program, r->directory, directory);
    const struct procwatch_event e = {
        .is_exit = r->kind == PROC_EXIT,
        .at = r->at / 1000,
        .tag = r->tag,
        .host_pid = (pid_t)r->host_pid,
        .pid = (pid_t)r->pid,
        .parent = (pid_t)r->parent,
        .uid = r->uid,
        .status = r->status,
        .lost = r->lost,
        .argv = str_n(text, r->argv),
        .program = str_n(text + r->argv, r->program ? r->program - 1 : 0),
        .argv_bytes = r->argv_bytes,
        .directory = directory,
    };
    w->fn(w->ctx, &e);
    return --w->left > 0 ? 0 : -EAGAIN;
}

static int procwatch_say_nothing(enum libbpf_print_level level UNUSED, const char *format UNUSED, va_list ap UNUSED)
{
    return 0;
}

static int procwatch_load(struct procwatch *w)
{
    (void)libbpf_set_print(procwatch_say_nothing);
    w->object = bpf_object__open_mem(procwatch_object, sizeof(procwatch_object), NULL);
    if (!w->object)
        return -errno;
    int r = bpf_object__load(w->object);
    if (r < 0)
        return r;
    struct bpf_program *program = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(w->links); i++) {
        program = bpf_object__next_program(w->object, program);
        w->links[i] = program ? bpf_program__attach(program) : NULL;
        if (!w->links[i])
            return program ? -errno : -EINVAL;
    }
    w->spaces_fd = bpf_object__find_map_fd_by_name(w->object, "spaces");
    w->wakes_fd = bpf_object__find_map_fd_by_name(w->object, "wakes");
    w->ring_fd = bpf_object__find_map_fd_by_name(w->object, "ring");
    w->ring = ring_buffer__new(w->ring_fd, procwatch_on_record, w, NULL);
    return w->ring ? 0 : -errno;
}

int procwatch_open(struct procwatch **ret_watch)
{
    struct procwatch *w = mem_new(struct procwatch);
    int r = procwatch_load(w);
    if (r < 0) {
        procwatch_close(w);
        return r == -EPERM || r == -ENOMEM ? r : -EOPNOTSUPP;
    }
    *ret_watch = w;
    return 0;
}

void procwatch_close(struct procwatch *w)
{
    if (!w)
        return;
    ring_buffer__free(w->ring);
    for (size_t i = 0; i < ARRAY_SIZE(w->links); i++)
        (void)bpf_link__destroy(w->links[i]);
    bpf_object__close(w->object);
    mem_free(w);
}

int procwatch_fd(struct procwatch *w)
{
    return w->ring_fd;
}

void procwatch_wake(struct procwatch *w, enum procwatch_wakes when)
{
    static const uint32_t bytes[] = {
        [PROCWATCH_AT_ONCE] = 0, [PROCWATCH_WHEN_FULL] = PROC_RING_BYTES / 4, [PROCWATCH_NEVER] = UINT32_MAX};
    const uint32_t key = 0;
    if (w->wakes_at != bytes[when] && bpf_map_update_elem(w->wakes_fd, &key, &bytes[when], BPF_ANY) == 0)
        w->wakes_at = bytes[when];
}

int procwatch_add(struct procwatch *w, ino_t namespace, const char *tag)
{
    const uint32_t key = (uint32_t) namespace;
    struct proc_space space;
    memset(&space, 0, sizeof(space));
    (void)snprintf(space.tag, sizeof(space.tag), "%s", tag);
    return bpf_map_update_elem(w->spaces_fd, &key, &space, BPF_ANY) < 0 ? -errno : 0;
}

uint32_t procwatch_drop(struct procwatch *w, ino_t namespace)
{
    const uint32_t key = (uint32_t) namespace;
    struct proc_space space;
    if (bpf_map_lookup_elem(w->spaces_fd, &key, &space) < 0)
        return 0;
    (void)bpf_map_delete_elem(w->spaces_fd, &key);
    return space.lost;
}

int procwatch_read(struct procwatch *w, int most, void (*fn)(void *ctx, const struct procwatch_event *e), void *ctx)
{
    w->fn = fn;
    w->ctx = ctx;
    w->left = most;
    int r = ring_buffer__consume(w->ring);
    return r < 0 && r != -EAGAIN ? r : most - w->left;
}
