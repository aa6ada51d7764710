/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/egress_options.h"
#include "base/fd.h"
#include "base/str.h"

#include <getopt.h>

enum option_id {
    OPT_CONTROL_FD = 256,
    OPT_VAULT_FD,
    OPT_STATE_FD,
    OPT_OWNER_UID,
    OPT_LOG_LEVEL,
    OPT_RESOLVER,
    OPT_TRUST
};

static const struct option known[] = {
    {"control-fd", required_argument, NULL, OPT_CONTROL_FD},
    {"vault-fd", required_argument, NULL, OPT_VAULT_FD},
    {"state-fd", required_argument, NULL, OPT_STATE_FD},
    {"owner-uid", required_argument, NULL, OPT_OWNER_UID},
    {"log-level", required_argument, NULL, OPT_LOG_LEVEL}, /* 0 debug to 3 error */
    {"resolver", required_argument, NULL, OPT_RESOLVER},
    {"trust", required_argument, NULL, OPT_TRUST},
    {NULL, 0, NULL, 0},
};

static int parse_number(const char *text, uint64_t most, uint64_t *ret_value)
{
    uint64_t value;
    int r = str_to_u64(str_of(text), &value);
    if (r < 0)
        return r;
    if (value > most)
        return -ERANGE;
    *ret_value = value;
    return 0;
}

static int parse_fd(const char *text, int *ret_fd)
{
    uint64_t fd = 0;
    int r = parse_number(text, 1 << 20, &fd);
    if (r == 0)
        r = fd_cloexec((int)fd, true);
    if (r == 0)
        *ret_fd = (int)fd;
    return r;
}

static int apply(struct egress_options *o, int id, const char *argument)
{
    uint64_t number = 0;
    int r;
    switch (id) {
    case OPT_CONTROL_FD:
        return parse_fd(argument, &o->control_fd);
    case OPT_VAULT_FD:
        return parse_fd(argument, &o->vault_fd);
    case OPT_STATE_FD:
        return parse_fd(argument, &o->state_fd);
    case OPT_OWNER_UID:
        r = parse_number(argument, UINT32_MAX - 1, &number);
        o->owner_uid = (uid_t)number;
        return r;
    case OPT_LOG_LEVEL:
        r = parse_number(argument, LOG_ERROR, &number);
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
    struct egress_options o = {.control_fd = -1, .vault_fd = -1, .state_fd = -1, .log_level = LOG_INFO};
    opterr = 0;
    optind = 1;
    for (;;) {
        int index = 0;
        int id = getopt_long(argc, argv, "", known, &index);
        if (id < 0)
            break;
        if (id == '?')
            return err_set(err, ERR_INVALID_ARGUMENT, "unknown option or no value: %s", argv[optind - 1]);
        int r = apply(&o, id, optarg);
        if (r < 0)
            return err_errno(err, r, "--%s %.64s", known[index].name, optarg);
    }
    if (optind != argc)
        return err_set(err, ERR_INVALID_ARGUMENT, "not an option: %.64s", argv[optind]);
    if (o.control_fd < 0 || o.vault_fd < 0 || o.state_fd < 0)
        return err_set(err, ERR_INVALID_ARGUMENT,
                       "--control-fd, --vault-fd and --state-fd are needed; coved starts this program, people don't");
    *ret_options = o;
    return 0;
}
