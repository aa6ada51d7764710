/* SPDX-License-Identifier: Apache-2.0 */
#include "store/ballast.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum {
    BALLAST_BYTES = 4 << 20,
    SLICE_BYTES = 512 << 10, /* a removal is a few pages */
    STEP_BYTES = 4096,
    PLENTY = 2, /* so many times its size is free before it takes anything */
    LOAN_USEC = 1000000,
};

struct ballast {
    int fd;         /* -1: there is none */
    off_t has;      /* bytes */
    off_t lent_of;  /* what it had before the loan; 0: nothing is lent */
    usec_t lent_at; /* monotonic */
};

struct ballast *ballast_open(const char *store_path)
{
    AUTO_FREE char *path = mem_printf("%s.reserve", store_path);
    struct ballast *b = mem_new(struct ballast);
    struct stat st;
    b->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (b->fd >= 0 && fstat(b->fd, &st) == 0 && S_ISREG(st.st_mode)) /* a copy of it may have holes */
        b->has = MIN(MIN(st.st_size, (off_t)st.st_blocks * 512), BALLAST_BYTES) / STEP_BYTES * STEP_BYTES;
    else
        b->fd = fd_close(b->fd);
    ballast_tick(b);
    return b;
}

void ballast_close(struct ballast *b)
{
    if (b)
        (void)fd_close(b->fd);
    mem_free(b);
}

bool ballast_is_lent(const struct ballast *b)
{
    return b->lent_of != 0;
}

bool ballast_lend(struct ballast *b)
{
    off_t rest = MAX(b->has - SLICE_BYTES, 0);
    if (b->has == 0 || ftruncate(b->fd, rest) < 0)
        return false;
    b->lent_of = MAX(b->lent_of, b->has);
    b->lent_at = clock_mono();
    b->has = rest;
    return true;
}

/* Never asks for more than it is to have: of a call that fails something may stay. */
static void ballast_take(struct ballast *b, off_t up_to, off_t step)
{
    while (b->has < up_to && fallocate(b->fd, 0, b->has, MIN(step, up_to - b->has)) == 0)
        b->has = MIN(b->has + step, up_to);
}

void ballast_tick(struct ballast *b)
{
    struct statvfs fs;
    if (b->lent_of) {
        if (clock_mono() - b->lent_at < LOAN_USEC)
            return;
        ballast_take(b, b->lent_of, STEP_BYTES);
        b->lent_of = 0;
    } else if (b->fd >= 0 && b->has < BALLAST_BYTES && fstatvfs(b->fd, &fs) == 0 &&
               (uint64_t)fs.f_bavail * fs.f_frsize >= (uint64_t)PLENTY * BALLAST_BYTES) {
        ballast_take(b, BALLAST_BYTES, BALLAST_BYTES);
    }
}
