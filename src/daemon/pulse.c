/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/pulse.h"

#include <sys/socket.h>

static void on_question(uv_poll_t *handle, int status, int events)
{
    const struct pulse *p = container_of(handle, struct pulse, poll);
    char question[16];
    (void)events;
    ssize_t n = status < 0 ? 0 : recv(p->fd, question, sizeof(question), MSG_DONTWAIT);
    if (n > 0)
        n = send(p->fd, "!", 1,
                 MSG_DONTWAIT | MSG_NOSIGNAL); /* one that finds no room is not missed: those before it are unread */
    else if (n == 0 || (errno != EAGAIN && errno != EINTR))
        (void)uv_poll_stop(handle); /* whoever notices the end of coved says so */
}

int pulse_start(struct pulse *p, uv_loop_t *loop, int fd)
{
    p->fd = fd;
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
