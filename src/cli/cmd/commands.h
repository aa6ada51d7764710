/* SPDX-License-Identifier: Apache-2.0 */
/* Every command, each in its cmd_<name>.c, with its text in src/cli/help/<name>.txt. */
#pragma once

#include "cli/command.h"

#define COMMANDS(each)                                                                                                 \
    each(run) each(agent) each(why) each(shell) each(attach) each(env) each(docker) each(ls) each(exec) each(cp)       \
        each(rm) each(pause) each(resume) each(here) each(snapshot) each(fork) each(rewind) each(diff) each(volume)    \
            each(logs) each(log) each(events) each(evidence) each(audit) each(replay) each(net) each(key) each(tenant) \
                each(policy) each(guard) each(approvals) each(approve) each(deny) each(secret) each(url) each(timeout) \
                    each(eval) each(mcp) each(ps) each(stats) each(domain) each(template) each(pool) each(warm)        \
                        each(gc) each(doctor) each(reload) each(version) each(completion) each(help)

#define COMMAND_DECLARE(name)                                                                                          \
    extern const struct command cmd_##name;                                                                            \
    extern const struct command_text text_##name;
COMMANDS(COMMAND_DECLARE)
