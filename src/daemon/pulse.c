/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pulse.h"
#include "wire/pulse.h"

#include <sys/socket.h>

enum { PATIENCE_USEC = 15 * 1000000 /* three questions */ };

enum pulse_said pulse_said(const struct pulse *p, usec_t now)
{
    if (!p->asked || now - p->asked > PATIENCE_USEC)
        return PULSE_SAYS_NOTHING;
    return p->question == PULSE_NO_ROOM ? PULSE_SAYS_NO_ROOM
           : p->question == PULSE_STOPS ? PULSE_SAYS_STOPS
                                        : PULSE_SAYS_FINE;
}

static void on_question(uv_poll_t *handle, int status, int events UNUSED)
{
    struct pulse *p = container_of(handle, struct pulse, poll);
    char question;
    ssize_t n = status < 0 ? 0 : recv(p->fd, &question, 1, MSG_DONTWAIT);
    if (n > 0) {
        p->question = question;
        p->asked = clock_mono();
        /* One that finds no room is not missed: those before it are unread. */
        ssize_t ignored UNUSED = send(p->fd, "!", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        (void)uv_poll_stop(handle); /* whoever notices the end of coved says so */
    }
}

int pulse_start(struct pulse *p, uv_loop_t *loop, int fd)
{
    *p = (struct pulse){.fd = fd};
    if (fd < 0)
        return 0;
    int r = uv_poll_init(loop, &p->poll, fd);
    if (r < 0) {
        p->fd = -1;
        return r;
    }
    return uv_poll_start(&p->poll, UV_READABLE, on_question);
}

void pulse_stop(struct pulse *p)
{
    if (p->fd >= 0)
        uv_close((uv_handle_t *)&p->poll, NULL);
    p->fd = -1;
}
