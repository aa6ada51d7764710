/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/foreign.h"
#include "base/fd.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/time.h>

enum { PATIENCE_USEC = 50000 };

static volatile sig_atomic_t rang;
static long waits; /* before it began */
static unsigned cuts;

static void foreign_on_alarm(int signal UNUSED)
{
    rang = 1;
}

/* A signal is what interrupts it: this one must not be blocked, and calls must not go on after it. Children have
 * neither the timer nor, once they execute, this. */
static void listen_to_alarm(void)
{
    static bool done;
    struct sigaction action = {.sa_handler = foreign_on_alarm};
    sigset_t set;
    if (done)
        return;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGALRM);
    int r = sigaction(SIGALRM, &action, NULL);
    assert(r == 0);
    r = sigprocmask(SIG_UNBLOCK, &set, NULL);
    assert(r == 0);
    done = true;
}

static void set_timer(suseconds_t usec)
{
    const struct itimerval each = {.it_interval.tv_usec = usec, .it_value.tv_usec = usec};
    int r = setitimer(ITIMER_REAL, &each, NULL);
    assert(r == 0);
}

static long count_waits(void)
{
    struct rusage usage;
    int r = getrusage(RUSAGE_SELF, &usage);
    assert(r == 0);
    return usage.ru_nvcsw;
}

void foreign_begin(void)
{
    listen_to_alarm();
    rang = 0;
    waits = count_waits();
    set_timer(PATIENCE_USEC); /* again and again: there may be several, and one may ring before the wait has begun */
}

void foreign_end(void)
{
    set_timer(0);
    cuts += rang && count_waits() != waits; /* else others had the processor meanwhile */
}

int foreign_close(int fd)
{
    if (fd < 0)
        return -1;
    foreign_begin();
    (void)fd_close(fd);
    foreign_end();
    return -1;
}

unsigned foreign_cuts(void)
{
    return cuts;
}
