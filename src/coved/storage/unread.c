/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/storage/unread.h"
#include "base/buf.h"
#include "base/fd.h"

#include <stdio.h>

enum { FALL = 128 << 20, FALL_SHORT = 32 << 20, AGAIN_USEC = 5000000, RMEM_COLUMN = 4 };

/* "sk Eth Pid Groups Rmem Wmem ...", aligned with spaces */
static uint64_t rmem(struct str line)
{
    struct str word;
    uint64_t bytes = 0;
    for (int column = 0; str_split(&line, ' ', &word);) {
        if (word.n == 0)
            continue;
        if (column++ == RMEM_COLUMN)
            return str_to_u64(word, &bytes) < 0 ? 0 : bytes;
    }
    return 0;
}

int unread_bytes(int proc_fd, pid_t pid, uint64_t *ret_bytes)
{
    AUTO_BUF struct buf text = BUF_INIT(UNREAD_TEXT_MAX);
    char path[48];
    uint64_t sum = 0;
    (void)snprintf(path, sizeof(path), "%d/net/netlink", (int)pid);
    int r = fd_read_file(proc_fd, path, &text);
    if (r < 0)
        return r;
    struct str rest = buf_str(&text), line;
    while (str_split(&rest, '\n', &line))
        sum += rmem(line);
    *ret_bytes = sum;
    return 0;
}

bool unread_is_due(struct unread_watch *w, bool is_short, uint64_t there, usec_t now)
{
    bool fell = there + FALL <= w->there;
    bool is_due = fell || (is_short && (!w->at || there + FALL_SHORT <= w->since || now - w->at >= AGAIN_USEC));
    w->there = there;
    if (is_due) {
        w->since = there;
        w->at = now;
    }
    return is_due;
}
