/* SPDX-License-Identifier: Apache-2.0 */
/* CONFINE: the agent's root becomes a directory, for good. The kernel then resolves every path, and each link on the
 * way, below it, even while others change the tree. */
#include "agent/files/file.h"

#include <unistd.h>

static void confine_open(struct agent_stream *s, struct wire_reader *r)
{
    struct agent *a = s->session->agent;
    char path[PATH_TEXT_MAX];
    struct str dir = wire_get_str(r);
    if (!wire_done(r) || !dir.n || dir.p[0] != '/' || path_clean(dir, path) < 0) {
        stream_malformed(s);
        return;
    }
    if (chroot(path) < 0 || chdir("/") < 0) {
        stream_failf(s, failure_code(ERR_INTERNAL, errno), "confine to %s: %s", path, errno_text(errno));
        return;
    }
    /* Accounts that are found in there are no accounts: whoever can write there could have made them. */
    a->is_confined = true;
    a->config.users = (struct user_files){"", ""};
    stream_end(s);
}

const struct verb verb_confine = {.size = sizeof(struct agent_stream), .open = confine_open};
