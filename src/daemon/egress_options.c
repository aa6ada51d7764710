/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/egress_options.h"
#include "daemon/arguments.h"

#define EGRESS_OPTIONS_AT(member) .at = offsetof(struct egress_options, member)

static const struct argument egress_options_known[] = {
    {"control-fd", ARGUMENT_FD, EGRESS_OPTIONS_AT(control_fd)},
    {"pulse-fd", ARGUMENT_FD, EGRESS_OPTIONS_AT(pulse_fd)},
    {"vault-fd", ARGUMENT_FD, EGRESS_OPTIONS_AT(vault_fd)},
    {"state-fd", ARGUMENT_FD, EGRESS_OPTIONS_AT(state_fd)},
    {"owner-uid", ARGUMENT_U32, EGRESS_OPTIONS_AT(owner_uid), .most = UINT32_MAX - 1},
    {"group-gid", ARGUMENT_U32, EGRESS_OPTIONS_AT(group_gid), .most = UINT32_MAX - 1},
    {"log-level", ARGUMENT_U32, EGRESS_OPTIONS_AT(log_level),
     .most = LOG_ERROR + LOG_AS_JSON}, /* 0 debug to 3 error; 4 more: as JSON */
    {"resolver", ARGUMENT_TEXT, EGRESS_OPTIONS_AT(resolver), .is_never_empty = true},
    {"trust", ARGUMENT_TEXT, EGRESS_OPTIONS_AT(trust), .is_never_empty = true},
    {0},
};

int egress_options_parse(int argc, char **argv, struct egress_options *ret_options, struct err *err)
{
    struct egress_options o = {.control_fd = -1, .pulse_fd = -1, .vault_fd = -1, .state_fd = -1, .log_level = LOG_INFO};
    if (arguments_parse(argc, argv, egress_options_known, &o, err) < 0)
        return -1;
    if (o.control_fd < 0 || o.vault_fd < 0 || o.state_fd < 0)
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "--control-fd, --vault-fd and --state-fd are needed; coved starts this program, people don't");
    *ret_options = o;
    return 0;
}
