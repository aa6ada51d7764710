/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What coved asks each worker now and then, over a socket of its own (--pulse-fd): does your loop turn? One byte in a
 * message says how coved is itself; the worker answers from its loop, with any byte.
 */
#pragma once

enum pulse_state {
    PULSE_FINE = '?',
    PULSE_NO_ROOM = 'r', /* no sandbox is made for want of room on the disk */
    PULSE_STOPS = 's',
};
