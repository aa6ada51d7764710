/* SPDX-License-Identifier: Apache-2.0 */
/* A session whose agent is frozen: what it is waited for counts only the time that it runs. */
#include "sandbox/exec/stream.h"

static usec_t session_still_stop(struct session *s, struct loop_alarm *alarm)
{
    usec_t now = clock_mono();
    if (!alarm->slot)
        return 0;
    usec_t left = alarm->at > now ? alarm->at - now : 1;
    loop_alarm_clear(s->loop, alarm);
    return left;
}

void session_stand_still(struct session *s)
{
    s->stands_still = true;
    s->hello_left = session_still_stop(s, &s->hello);
    MAP_FOREACH (struct stream, st, &s->streams)
        st->left = session_still_stop(s, &st->alarm);
}

void session_go_on(struct session *s)
{
    usec_t now = clock_mono();
    s->stands_still = false;
    if (session_is_over(s))
        return;
    if (s->hello_left && !s->ready)
        session_arm_hello(s, s->hello_left);
    MAP_FOREACH (struct stream, st, &s->streams) {
        if (st->left && !st->closed && !(st->ops->long_lived && st->replied))
            stream_arm_in(st, now, st->left);
        st->left = 0;
    }
}
