/* SPDX-License-Identifier: Apache-2.0 */
#include "agent/verb.h"

static const struct verb *const verbs[] = {
    [WIRE_EXEC] = &verb_exec,
    [WIRE_ATTACH] = &verb_attach,
    [WIRE_PROCESSES] = &verb_processes,
    [WIRE_INPUT] = &verb_input,
    [WIRE_CLOSE_STDIN] = &verb_close_stdin,
    [WIRE_SIGNAL] = &verb_signal,
    [WIRE_RESIZE] = &verb_resize,
    [WIRE_STAT] = &verb_stat,
    [WIRE_MKDIR] = &verb_mkdir,
    [WIRE_MOVE] = &verb_move,
    [WIRE_LIST] = &verb_list,
    [WIRE_REMOVE] = &verb_remove,
    [WIRE_READ] = &verb_read,
    [WIRE_WRITE] = &verb_write,
    [WIRE_WATCH] = &verb_watch,
    [WIRE_TRUST] = &verb_trust,
    [WIRE_CONFINE] = &verb_confine,
    [WIRE_CHANGE] = &verb_change,
    [WIRE_PACK] = &verb_pack,
    [WIRE_UNPACK] = &verb_unpack,
    [WIRE_PACK_NAMED] = &verb_pack_named,
    [WIRE_DIAL] = &verb_dial,
    [WIRE_USAGE] = &verb_usage,
    [WIRE_PING] = &verb_ping,
    [WIRE_ANSWERS] = &verb_answers,
};

const struct verb *verb_get(uint8_t number)
{
    return number < ARRAY_SIZE(verbs) ? verbs[number] : NULL;
}
