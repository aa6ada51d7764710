/* SPDX-License-Identifier: Apache-2.0 */
/* Every command, each in its cmd_<name>.c. */
#pragma once

#include "cli/command.h"

extern const struct command cmd_run, cmd_ls, cmd_exec, cmd_cp, cmd_rm, cmd_pause, cmd_resume, cmd_snapshot, cmd_fork,
    cmd_diff, cmd_volume, cmd_warm, cmd_gc, cmd_pool, cmd_template, cmd_logs, cmd_log, cmd_events, cmd_evidence,
    cmd_replay, cmd_net, cmd_key, cmd_tenant, cmd_env, cmd_policy, cmd_secret, cmd_mcp, cmd_ps, cmd_stats, cmd_url,
    cmd_timeout, cmd_domain, cmd_doctor, cmd_reload, cmd_version, cmd_completion, cmd_help, cmd_here, cmd_guard,
    cmd_approvals, cmd_approve, cmd_deny, cmd_rewind, cmd_eval, cmd_agent, cmd_shell, cmd_attach, cmd_why, cmd_docker,
    cmd_audit;
