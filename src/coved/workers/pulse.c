/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/workers/pulse.h"
#include "coved/foreign.h"
#include "kernel/rights.h"

#include <sys/socket.h>

enum { LATE_USEC = 1000000, READS_MAX = 16 };

const struct pulse_patience pulse_usual = {
    .every = 5 * USEC_PER_SEC, .first = 600 * USEC_PER_SEC, .silent = 60 * USEC_PER_SEC};

int pulse_open(struct worker_pulse *p, const struct pulse_patience *patience, usec_t now, int *ret_theirs)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return -errno;
    rights_refuse(pair[0]);
    *p = (struct worker_pulse){.fd = pair[0], .patience = *patience, .due = now};
    *ret_theirs = pair[1];
    return 0;
}

void pulse_close(struct worker_pulse *p)
{
    p->fd = foreign_close(p->fd); /* with what is left in it */
}

bool pulse_turn(struct worker_pulse *p, usec_t now, enum pulse_state state)
{
    if (p->fd < 0 || now < p->due)
        return true;
    bool is_late = now - p->due > LATE_USEC;
    p->due = now + p->patience.every;
    if (!p->is_asked) {
        p->silent = 0;
        /*
         * One that has closed its end can't be asked and does not answer: that comes to the same. Where there is no
         * memory for a question, it has heard none, and is asked the next time.
         */
        const char question = (char)state;
        ssize_t n = send(p->fd, &question, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        p->is_asked = n > 0 || errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN;
        return true;
    }
    p->silent += is_late ? 0 : p->patience.every;
    return p->silent < (p->has_answered ? p->patience.silent : p->patience.first);
}

bool pulse_heard(struct worker_pulse *p)
{
    for (int i = 0; i < READS_MAX; i++) {
        char answer[16];
        foreign_begin(); /* older kernels can't refuse descriptors, which are closed here */
        ssize_t n = recv(p->fd, answer, sizeof(answer), MSG_DONTWAIT);
        int why = errno;
        foreign_end();
        if (n < 0 && why == EINTR)
            continue;
        if (n <= 0)
            return n < 0 && why == EAGAIN;
        p->is_asked = false;
        p->has_answered = true;
        p->silent = 0;
    }
    return true;
}
