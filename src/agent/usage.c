/* SPDX-License-Identifier: Apache-2.0 */
/* USAGE and PING. */
#include "agent/verb.h"
#include "base/dir.h"

#include <ctype.h>
#include <fcntl.h>
#include <sys/statvfs.h>

static uint32_t count_processes(void)
{
    uint32_t n = 0;
    AUTO(dir_close) DIR *proc = dir_open(AT_FDCWD, "/proc");
    for (const struct dirent *e; (e = dir_next(proc));)
        n += isdigit((unsigned char)e->d_name[0]) != 0;
    return n;
}

static void usage_open(struct agent_stream *s, struct wire_reader *r)
{
    struct statvfs fs;
    if (!wire_done(r)) {
        stream_malformed(s);
    } else if (statvfs("/", &fs) < 0) {
        stream_failf(s, ERR_INTERNAL, "error reading disk usage: statfs /: %s", errno_text(errno));
    } else {
        struct buf *b = stream_tail(s);
        wire_put_u64(b, (uint64_t)fs.f_blocks * fs.f_frsize);
        wire_put_u64(b, (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize);
        wire_put_u32(b, count_processes());
        stream_tail_commit(s);
    }
}

static void ping_open(struct agent_stream *s, struct wire_reader *r)
{
    if (wire_done(r))
        stream_end(s);
    else
        stream_malformed(s);
}

const struct verb verb_usage = {.size = sizeof(struct agent_stream), .open = usage_open};
const struct verb verb_ping = {.size = sizeof(struct agent_stream), .open = ping_open};
