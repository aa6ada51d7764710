/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: probe VERB[,ARGUMENT]...     for each, in a process of its own, prints  VERB[,ARGUMENT]... TAB RESULT TAB NOTE
 *        probe -x VERB[,ARGUMENT]...  the one in this process, whose exit code is the errno
 *
 * RESULT: 0 (reached), an errno, "absent", "signal N" or "timeout".
 */
#include "probe.h"

#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOTE_MAX = 4096, ARGS_MAX = 16, TIMEOUT_MS = 8000, WRONG_USAGE = 254 };

struct shared {
    int result;
    char note[NOTE_MAX];
};

static struct shared *shared;

void note(const char *fmt, ...)
{
    size_t n = strlen(shared->note);
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(shared->note + n, NOTE_MAX - n, fmt, ap);
    va_end(ap);
}

int result_of(long r)
{
    return r < 0 ? errno : REACHED;
}

int reached_if(long r, const int *errors)
{
    int e = r < 0 ? errno : 0;
    for (; e && *errors; errors++)
        if (e == *errors) {
            note("%s", strerror(e));
            return REACHED;
        }
    return e;
}

static void wrong(const char *what)
{
    (void)fprintf(stderr, "probe: %s\n", what);
    _exit(WRONG_USAGE);
}

long number(const char *text)
{
    char *end;
    errno = 0;
    unsigned long v = strtoul(text, &end, 0);
    if (errno || end == text || *end)
        wrong(text);
    return (long)v;
}

const char *argument(int argc, char **argv, int n)
{
    if (n >= argc)
        wrong("an argument is missing");
    return argv[n];
}

void say_and_hold(const char *what, long count, unsigned seconds)
{
    (void)printf("%s %ld\n", what, count);
    (void)fflush(stdout);
    (void)alarm(seconds);
    for (;;)
        (void)pause();
}

static const struct verb *find(const char *name)
{
    const struct {
        const struct verb *verbs;
        size_t n;
    } tables[] = {{kernel_verbs, n_kernel_verbs},
                  {process_verbs, n_process_verbs},
                  {file_verbs, n_file_verbs},
                  {network_verbs, n_network_verbs},
                  {hog_verbs, n_hog_verbs}};
    for (size_t i = 0; i < COUNT(tables); i++)
        for (size_t j = 0; j < tables[i].n; j++)
            if (strcmp(tables[i].verbs[j].name, name) == 0)
                return &tables[i].verbs[j];
    return NULL;
}

static int run(const char *text)
{
    static char copy[NOTE_MAX];
    char *argv[ARGS_MAX];
    int argc = 0;
    if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy))
        wrong("too long");
    for (char *rest = copy, *next; rest && argc < ARGS_MAX; rest = next) {
        next = strchr(rest, ',');
        if (next)
            *next++ = 0;
        argv[argc++] = rest;
    }
    const struct verb *v = find(argv[0]);
    if (!v)
        wrong(argv[0]);
    return v->run(argc - 1, argv + 1);
}

/* Its whole group is killed in the end: a verb may have left children. */
static int wait_for(pid_t pid, int pipe_fd)
{
    struct pollfd p = {.fd = pipe_fd, .events = POLLIN};
    int status = 0, ready = poll(&p, 1, TIMEOUT_MS);
    if (ready == 0)
        (void)kill(-pid, SIGKILL);
    while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
        ;
    (void)kill(-pid, SIGKILL);
    return ready == 0 ? -1 : status;
}

static void run_apart(const char *text)
{
    int p[2];
    memset(shared, 0, sizeof(*shared));
    if (pipe(p) < 0)
        wrong("no pipe");
    (void)fflush(stdout);
    pid_t pid = fork();
    if (pid < 0)
        wrong("no process");
    if (pid == 0) {
        (void)setsid();
        (void)close(p[0]);
        shared->result = run(text);
        (void)fflush(stdout);
        _exit(0);
    }
    (void)close(p[1]); /* the other end closes with the verb's process */
    int status = wait_for(pid, p[0]);
    (void)close(p[0]);
    if (status == -1)
        (void)printf("%s\ttimeout\t%s\n", text, shared->note);
    else if (WIFSIGNALED(status))
        (void)printf("%s\tsignal %d\t%s\n", text, WTERMSIG(status), shared->note);
    else if (WEXITSTATUS(status) == WRONG_USAGE)
        (void)printf("%s\twrong usage\t\n", text);
    else if (shared->result == ABSENT)
        (void)printf("%s\tabsent\t%s\n", text, shared->note);
    else
        (void)printf("%s\t%d\t%s\n", text, shared->result, shared->note);
}

int main(int argc, char **argv)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return WRONG_USAGE;
    if (argc == 3 && strcmp(argv[1], "-x") == 0) {
        int r = run(argv[2]);
        (void)printf("%s\n", shared->note);
        return r == ABSENT ? WRONG_USAGE : r;
    }
    for (int i = 1; i < argc; i++)
        run_apart(argv[i]);
    return 0;
}
