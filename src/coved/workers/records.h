/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What outlives coved, as coved keeps it with its keeper (coved/workers/keeper.h): written down here while it runs,
 * found here by the next coved.
 *
 * What was put is recorded from the moment of the call, whatever becomes of coved afterwards. Records of a kind are
 * told apart by number.
 */
#pragma once

#include "base/err.h"
#include "wire/keeper.h"

struct records;

/* One that an earlier coved left. */
struct record {
    uint32_t kind, number;
    pid_t pid;               /* 0: none */
    int fds[KEEPER_FDS_MAX]; /* owned, until they are taken */
    size_t n_fds;
    bool is_taken; /* to be set by whoever takes it over */
    uint32_t size;
    char data[KEEPER_DATA_MAX];
};

/* fd: the socket to the keeper; owned from here on. Fetches all that there is. */
int records_open(int fd, struct records **ret_records, struct err *err) WARN_UNUSED;
int records_fd(const struct records *r);       /* at its end of file the keeper is gone, and everything with it */
bool records_are_new(const struct records *r); /* there was no coved before under this keeper */

/* The next one of the kind that was left: *it begins as 0. Valid until records_forget(). */
struct record *records_next(struct records *r, enum keeper_kind kind, size_t *it);
void records_forget(struct records *r); /* drops what nobody took over, and kills its children */

/* fds: copied; none: those stay that were put before. */
void records_put(struct records *r, enum keeper_kind kind, uint32_t number, pid_t pid, const void *data, size_t size,
                 const int *fds, size_t n_fds);
void records_drop(struct records *r, enum keeper_kind kind, uint32_t number);

/* How a child that is recorded has ended; it stays to be asked for until its record is dropped. False: nobody knows. */
bool records_exit(struct records *r, pid_t pid, int *ret_code, int *ret_status);

void records_ready(struct records *r);
