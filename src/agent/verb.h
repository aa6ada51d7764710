/* SPDX-License-Identifier: Apache-2.0 */
/* What the session calls for each kind of request. Members that are NULL are not needed by the verb. */
#pragma once

#include "agent/session.h"
#include "wire/frame.h"

struct verb {
    size_t size; /* of the stream's object, zeroed; begins with struct agent_stream */

    /* The request. May end the stream. A request that can't be parsed is refused with stream_malformed(). */
    void (*open)(struct agent_stream *s, struct wire_reader *request);

    void (*data)(struct agent_stream *s,
                 struct str bytes);      /* NULL: DATA is a violation. May end the stream, as may eof(). */
    void (*eof)(struct agent_stream *s); /* no more data() */
    /* s->credit has grown already. NULL: what it produces goes on. */
    void (*credit)(struct agent_stream *s, uint32_t bytes, bool delivered);
    bool (*produce)(
        struct agent_stream *s); /* at most one frame; true: there is more. False when it ended the stream. */
    void (*fini)(struct agent_stream *s);
};

/* NULL for a number that is no verb. */
const struct verb *verb_get(uint8_t number);

void stream_malformed(struct agent_stream *s);

extern const struct verb verb_exec, verb_attach, verb_processes, verb_input, verb_close_stdin, verb_signal, verb_resize;
extern const struct verb verb_stat, verb_mkdir, verb_move, verb_list, verb_remove, verb_read, verb_write, verb_watch,
    verb_pack, verb_unpack, verb_pack_named;
extern const struct verb verb_change, verb_confine, verb_dial, verb_trust, verb_usage, verb_ping, verb_answers;
