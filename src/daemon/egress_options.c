/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/egress_options.h"
#include "daemon/arguments.h"

enum option_id {
    OPT_CONTROL_FD = 256,
    OPT_PULSE_FD,
    OPT_VAULT_FD,
    OPT_STATE_FD,
    OPT_OWNER_UID,
    OPT_GROUP_GID,
    OPT_LOG_LEVEL,
    OPT_RESOLVER,
    OPT_TRUST
};

static const struct option known[] = {
    {"control-fd", required_argument, NULL, OPT_CONTROL_FD},
    {"pulse-fd", required_argument, NULL, OPT_PULSE_FD},
    {"vault-fd", required_argument, NULL, OPT_VAULT_FD},
    {"state-fd", required_argument, NULL, OPT_STATE_FD},
    {"owner-uid", required_argument, NULL, OPT_OWNER_UID},
    {"group-gid", required_argument, NULL, OPT_GROUP_GID},
    {"log-level", required_argument, NULL, OPT_LOG_LEVEL}, /* 0 debug to 3 error; 4 more: as JSON */
    {"resolver", required_argument, NULL, OPT_RESOLVER},
    {"trust", required_argument, NULL, OPT_TRUST},
    {NULL, 0, NULL, 0},
};

static int egress_options_apply(void *options, int id, const char *argument)
{
    struct egress_options *o = options;
    struct str text = str_of(argument);
    uint64_t number = 0;
    int r;
    switch (id) {
    case OPT_CONTROL_FD:
        return argument_fd(text, &o->control_fd);
    case OPT_PULSE_FD:
        return argument_fd(text, &o->pulse_fd);
    case OPT_VAULT_FD:
        return argument_fd(text, &o->vault_fd);
    case OPT_STATE_FD:
        return argument_fd(text, &o->state_fd);
    case OPT_OWNER_UID:
        r = argument_number(text, UINT32_MAX - 1, &number);
        o->owner_uid = (uid_t)number;
        return r;
    case OPT_GROUP_GID:
        r = argument_number(text, UINT32_MAX - 1, &number);
        o->group_gid = (gid_t)number;
        return r;
    case OPT_LOG_LEVEL:
        r = argument_number(text, LOG_ERROR + LOG_AS_JSON, &number);
        o->log_level = (enum log_level)number;
        return r;
    case OPT_RESOLVER:
        o->resolver = argument;
        return *argument ? 0 : -EINVAL;
    case OPT_TRUST:
        o->trust = argument;
        return *argument ? 0 : -EINVAL;
    default:
        return -EINVAL;
    }
}

int egress_options_parse(int argc, char **argv, struct egress_options *ret_options, struct err *err)
{
    struct egress_options o = {.control_fd = -1, .pulse_fd = -1, .vault_fd = -1, .state_fd = -1, .log_level = LOG_INFO};
    if (arguments_parse(argc, argv, known, egress_options_apply, &o, err) < 0)
        return -1;
    if (o.control_fd < 0 || o.vault_fd < 0 || o.state_fd < 0)
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "--control-fd, --vault-fd and --state-fd are needed; coved starts this program, people don't");
    *ret_options = o;
    return 0;
}
