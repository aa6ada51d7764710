/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent answers to programs inside (WIRE_ANSWERS), as the façade has it: given to each session, and again when
 * the sandbox becomes somebody's. */
#include "base/log.h"
#include "sandbox/exec/stream.h"
#include "sandbox/object.h"

static void answers_on_end(void *user UNUSED, struct str tail UNUSED, const struct err *err)
{
    if (err)
        log_debug("the answers to programs inside: %s", err->msg); /* one of them has the port: it does without */
}

void answers_give(struct sandbox *sb)
{
    static const struct stream_ops ops = {.on_end = answers_on_end};
    const struct core_answers *table = sb->core->config.answers;
    AUTO_ARENA struct arena arena = ARENA_INIT;
    struct core_answer *all;
    struct stream *stream;
    struct err err;
    if (!table || !sb->session || !session_is_ready(sb->session))
        return;
    size_t n = table->list(&sb->info, &arena, &all);
    struct buf *b = session_request(sb->session, WIRE_ANSWERS);
    wire_put_u16(b, table->port);
    wire_put_u32(b, (uint32_t)n);
    for (size_t i = 0; i < n; i++) {
        wire_put_str(b, all[i].path);
        wire_put_str(b, all[i].type);
        wire_put_str(b, all[i].body);
        wire_put_u8(b, all[i].has_figures);
    }
    if (stream_open(sb->session, b, &ops, NULL, SESSION_UNARY_MS, &stream, &err) < 0)
        answers_on_end(NULL, STR_NULL, &err);
}
