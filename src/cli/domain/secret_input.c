/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/domain/secret_input.h"
#include "base/fd.h"
#include "base/mem.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <termios.h>
#include <unistd.h>

enum { TERMINAL_LINE_MAX = 4095 }; /* of a line on a Linux terminal, with its end; what comes after is lost */

static const int interrupts[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};

static volatile sig_atomic_t caught;

static void secret_input_on_signal(int signum)
{
    caught = signum;
}

/* To end of file, or of the line. -ECANCELED: a signal. -EMSGSIZE: it is longer than a value can be. */
static int read_bytes(int fd, bool until_line_end, struct secret_input *to)
{
    for (;;) {
        if (to->n == SECRET_INPUT_ROOM)
            return -EMSGSIZE;
        if (caught)
            return -ECANCELED;
        ssize_t n = read(fd, to->bytes + to->n, SECRET_INPUT_ROOM - to->n);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        to->n += (size_t)n;
        if (n == 0 || (until_line_end && to->bytes[to->n - 1] == '\n'))
            return 0;
    }
}

/* Whatever ends it, the terminal is as it was before; then the signal does what it would have done. */
static int read_terminal(const char *name, struct secret_input *to)
{
    struct termios before, silent;
    struct sigaction action = {.sa_handler = secret_input_on_signal}, saved[ARRAY_SIZE(interrupts)];
    if (tcgetattr(STDIN_FILENO, &before) < 0)
        return -errno;
    silent = before;
    silent.c_lflag &= ~(tcflag_t)(ECHO | ECHOE | ECHOK | ECHONL);
    silent.c_lflag |= ICANON | ISIG;
    caught = 0;
    for (size_t i = 0; i < ARRAY_SIZE(interrupts); i++)
        (void)sigaction(interrupts[i], &action, &saved[i]);
    int r = tcsetattr(STDIN_FILENO, TCSAFLUSH, &silent) < 0 ? -errno : 0;
    if (r == 0) {
        (void)fprintf(stderr, "Value of %s (not shown): ", name);
        (void)fflush(stderr);
        r = read_bytes(STDIN_FILENO, true, to);
        (void)fputc('\n', stderr);
        (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &before);
    }
    for (size_t i = 0; i < ARRAY_SIZE(interrupts); i++)
        (void)sigaction(interrupts[i], &saved[i], NULL);
    if (caught)
        (void)raise(caught);
    return r == 0 && to->n >= TERMINAL_LINE_MAX ? -E2BIG : r;
}

static int secret_input_failed(struct context *ctx, int r, const char *name, const char *from)
{
    if (r == -EMSGSIZE)
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "the value of %s is longer than %d bytes", name,
                       VAULT_VALUE_MAX);
    if (r == -ECANCELED)
        return err_set(&ctx->err, ERR_CANCELED, "nothing was set");
    if (r == -E2BIG)
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT,
                       "the value is too long for a terminal line: use a pipe or --file");
    return err_errno(&ctx->err, r, "read the value of %s from %s", name, from);
}

int secret_input_read(struct context *ctx, const char *name, const char *path, struct secret_input *ret_input)
{
    AUTO_SECRET_INPUT struct secret_input in = {NULL, 0};
    AUTO_CLOSE int file = -1;
    void *p = mmap(NULL, SECRET_INPUT_ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_errno(&ctx->err, errno, "take memory");
    in.bytes = p;
    if (madvise(p, SECRET_INPUT_ROOM, MADV_DONTDUMP) < 0 || mlock(p, SECRET_INPUT_ROOM) < 0)
        return err_errno(&ctx->err, errno, "lock memory for the value (raise the limit, ulimit -l)");
    if (path && (file = open(path, O_RDONLY | O_CLOEXEC)) < 0)
        return err_errno(&ctx->err, errno, "open %s", path);
    int r = path                        ? read_bytes(file, false, &in)
            : isatty(STDIN_FILENO) == 1 ? read_terminal(name, &in)
                                        : read_bytes(STDIN_FILENO, false, &in);
    if (r < 0)
        return secret_input_failed(ctx, r, name, path ? path : "stdin");
    if (in.n > 0 && in.bytes[in.n - 1] == '\n')
        in.n--;
    if (in.n == 0)
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "the value of %s is empty: nothing was set", name);
    if (in.n > VAULT_VALUE_MAX)
        return secret_input_failed(ctx, -EMSGSIZE, name, NULL);
    *ret_input = in;
    in.bytes = NULL;
    return 0;
}

void secret_input_wipe(struct secret_input *input)
{
    if (!input->bytes)
        return;
    mem_wipe(input->bytes, SECRET_INPUT_ROOM);
    (void)munmap(input->bytes, SECRET_INPUT_ROOM);
    input->bytes = NULL;
}
