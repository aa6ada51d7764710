/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/workers/records.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"

#include <signal.h>
#include <unistd.h>

struct records {
    int fd;
    struct record **left; /* owned */
    size_t n_left;
    bool are_new;
};

/* Without the keeper there is nothing to be coved of. */
static void records_must(int r, const char *what)
{
    if (r >= 0)
        return;
    log_error("%s: %s: the keeper is gone", what, strerror(-r));
    _exit(1);
}

static void send_to(struct records *r, const struct keeper_message *m, const int *fds, size_t n_fds)
{
    records_must(fd_send(r->fd, m, sizeof(*m), fds, n_fds), "tell the keeper");
}

static void records_receive(struct records *r, struct keeper_message *m, int *ret_fds, size_t *ret_n_fds)
{
    ssize_t n = fd_recv(r->fd, m, sizeof(*m), ret_fds, KEEPER_FDS_MAX, ret_n_fds);
    records_must(n == (ssize_t)sizeof(*m) && m->size <= sizeof(m->data) ? 0
                 : n < 0                                                ? (int)n
                                                                        : -EPIPE,
                 "ask the keeper");
}

int records_open(int fd, struct records **ret_records, struct err *err)
{
    struct records *r = mem_new(struct records);
    const struct keeper_message ask = {.type = KEEPER_LIST};
    r->fd = fd;
    int failed = fd_cloexec(fd, true);
    if (failed < 0) {
        mem_free(r);
        return err_errno(err, failed, "use the keeper's socket");
    }
    send_to(r, &ask, NULL, 0);
    for (;;) {
        struct keeper_message m;
        struct record *one = mem_new(struct record);
        records_receive(r, &m, one->fds, &one->n_fds);
        if (m.type == KEEPER_DONE) {
            mem_free(one);
            if (m.number == KEEPER_VERSION)
                break;
            return err_set(err, ERR_FAILED_PRECONDITION,
                           "the service was started by another version, which can't hand over to this one: restart it");
        }
        for (size_t i = 0; i < one->n_fds; i++)
            one->fds[i] = fd_lasting(one->fds[i]);
        one->kind = m.kind;
        one->number = m.number;
        one->pid = m.pid;
        one->size = m.size;
        memcpy(one->data, m.data, sizeof(one->data));
        r->left = mem_realloc(r->left, (r->n_left + 1) * sizeof(struct record *));
        r->left[r->n_left++] = one;
    }
    r->are_new = r->n_left == 0;
    *ret_records = r;
    return 0;
}

int records_fd(const struct records *r)
{
    return r->fd;
}

bool records_are_new(const struct records *r)
{
    return r->are_new;
}

struct record *records_next(struct records *r, enum keeper_kind kind, size_t *it)
{
    while (*it < r->n_left)
        if (r->left[(*it)++]->kind == kind)
            return r->left[*it - 1];
    return NULL;
}

void records_forget(struct records *r)
{
    for (size_t i = 0; i < r->n_left; i++) {
        struct record *one = r->left[i];
        for (size_t k = 0; k < one->n_fds; k++)
            (void)fd_close(one->fds[k]);
        if (!one->is_taken && one->pid)
            (void)kill(one->pid, SIGKILL); /* the keeper has not reaped it: the number is its */
        if (!one->is_taken)
            records_drop(r, (enum keeper_kind)one->kind, one->number);
        mem_free(one);
    }
    mem_free(TAKE_PTR(r->left));
    r->n_left = 0;
}

void records_put(struct records *r, enum keeper_kind kind, uint32_t number, pid_t pid, const void *data, size_t size,
                 const int *fds, size_t n_fds)
{
    struct keeper_message m = {.type = KEEPER_PUT, .kind = kind, .number = number, .pid = pid, .size = (uint32_t)size};
    assert(size <= sizeof(m.data) && n_fds <= KEEPER_FDS_MAX);
    if (size)
        memcpy(m.data, data, size);
    send_to(r, &m, fds, n_fds);
}

void records_drop(struct records *r, enum keeper_kind kind, uint32_t number)
{
    const struct keeper_message m = {.type = KEEPER_DROP, .kind = kind, .number = number};
    send_to(r, &m, NULL, 0);
}

bool records_exit(struct records *r, pid_t pid, int *ret_code, int *ret_status)
{
    struct keeper_message m = {.type = KEEPER_EXIT, .pid = pid};
    int fds[KEEPER_FDS_MAX];
    size_t n_fds = 0;
    send_to(r, &m, NULL, 0);
    records_receive(r, &m, fds, &n_fds);
    if (!m.found)
        return false;
    *ret_code = m.code;
    *ret_status = m.status;
    return true;
}

void records_ready(struct records *r)
{
    const struct keeper_message m = {.type = KEEPER_READY};
    send_to(r, &m, NULL, 0);
}
