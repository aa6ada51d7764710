/* SPDX-License-Identifier: Apache-2.0 */
#include "egress/http/test_h1.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

void h1_open(struct rig *r)
{
    rig_open(r, h1_exchange_timed, NULL, NULL);
}

void h1_again(struct rig *r)
{
    rig_say(r, CLIENT, GET);
    rig_expect(r, UPSTREAM, GET_OUT);
    rig_say(r, UPSTREAM, OK2);
    rig_expect(r, CLIENT, OK2);
}

void h1_expect_log(struct rig *r, const char *text)
{
    assert_int_equal(buf_append_char(&r->log, 0), 0);
    assert_string_equal(buf_data(&r->log), text);
    buf_clear(&r->log);
}

void h1_ended_well(struct rig *r)
{
    RIG_UNTIL(r, r->end_seen);
    assert_false(r->failed);
    assert_int_equal(r->ends, 1);
    rig_close(r);
}

void h1_ended_badly(struct rig *r)
{
    RIG_UNTIL(r, r->end_seen);
    assert_true(r->failed);
    rig_close(r);
}
