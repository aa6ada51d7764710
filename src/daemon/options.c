/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/options.h"
#include "daemon/arguments.h"
#include "wire/supervisor.h"

enum option_id {
    OPT_SUPERVISOR_FD = 256,
    OPT_PULSE_FD,
    OPT_KEY_FD,
    OPT_TLS_FD,
    OPT_LISTEN_FD,
    OPT_STATE,
    OPT_DATA,
    OPT_DOMAIN,
    OPT_VERSION,
    OPT_OWNER_UID,
    OPT_GROUP_GID,
    OPT_LOG_LEVEL,
    OPT_DEFAULT_MEMORY,
    OPT_DEFAULT_DISK,
    OPT_DEFAULT_CPU,
    OPT_DEFAULT_TIMEOUT,
    OPT_MAX_TIMEOUT,
    OPT_MAX_SANDBOXES,
    OPT_KEEP,
    OPT_BUILDS,
    OPT_TRUST,
    OPT_PROTOCOL,
    OPT_TIERS,
    OPT_DEFAULT_TIER,
    OPT_RUN_CODE_OPEN,
};

static const struct option known[] = {
    {"supervisor-fd", required_argument, NULL, OPT_SUPERVISOR_FD},
    {"pulse-fd", required_argument, NULL, OPT_PULSE_FD},
    {"key-fd", required_argument, NULL, OPT_KEY_FD},
    {"tls-fd", required_argument, NULL, OPT_TLS_FD},
    {"listen-fd", required_argument, NULL,
     OPT_LISTEN_FD}, /* "7", "7:tcp", "8:unix": who connects is asked of the socket; "9:tls" */
    {"state", required_argument, NULL, OPT_STATE},
    {"data", required_argument, NULL, OPT_DATA},
    {"domain", required_argument, NULL, OPT_DOMAIN},
    {"version", required_argument, NULL, OPT_VERSION},
    {"owner-uid", required_argument, NULL, OPT_OWNER_UID},
    {"group-gid", required_argument, NULL, OPT_GROUP_GID},           /* whose members are tenants of their own */
    {"log-level", required_argument, NULL, OPT_LOG_LEVEL},           /* 0 debug to 3 error; 4 more: as JSON */
    {"default-memory", required_argument, NULL, OPT_DEFAULT_MEMORY}, /* bytes */
    {"default-disk", required_argument, NULL, OPT_DEFAULT_DISK},     /* bytes; 0: no limit */
    {"default-cpu-milli", required_argument, NULL, OPT_DEFAULT_CPU}, /* thousandths */
    {"default-timeout-ms", required_argument, NULL, OPT_DEFAULT_TIMEOUT},
    {"max-timeout-ms", required_argument, NULL, OPT_MAX_TIMEOUT},
    {"max-sandboxes", required_argument, NULL, OPT_MAX_SANDBOXES},
    {"keep", required_argument, NULL, OPT_KEEP}, /* events:ended:ended-ms; 0: the default */
    {"builds", required_argument, NULL, OPT_BUILDS},
    {"trust", required_argument, NULL, OPT_TRUST},
    {"run-code-open", no_argument, NULL, OPT_RUN_CODE_OPEN},
    {"protocol", required_argument, NULL, OPT_PROTOCOL}, /* SUP_VERSION of who starts it */
    {"tiers", required_argument, NULL, OPT_TIERS},       /* wire/tiers.h */
    {"default-tier", required_argument, NULL, OPT_DEFAULT_TIER},
    {NULL, 0, NULL, 0},
};

static int options_keep(struct str text, struct options *o)
{
    uint64_t numbers[3];
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
        struct str one;
        int r =
            str_split(&text, ':', &one) ? argument_number(one, i < 2 ? UINT32_MAX : UINT64_MAX, &numbers[i]) : -EINVAL;
        if (r < 0)
            return r;
    }
    o->keep_events = (uint32_t)numbers[0];
    o->keep_ended = (uint32_t)numbers[1];
    o->keep_ended_ms = numbers[2];
    return text.p ? -EINVAL : 0;
}

static int options_apply(void *options, int id, const char *argument)
{
    struct options *o = options;
    struct str text = str_of(argument), head;
    uint64_t number = 0;
    int r = 0;
    switch (id) {
    case OPT_SUPERVISOR_FD:
        return argument_fd(text, &o->supervisor_fd);
    case OPT_PULSE_FD:
        return argument_fd(text, &o->pulse_fd);
    case OPT_KEY_FD:
        return argument_fd(text, &o->key_fd);
    case OPT_TLS_FD:
        return argument_fd(text, &o->tls_fd);
    case OPT_LISTEN_FD:
        if (o->n_listen == OPTIONS_LISTEN_MAX)
            return -E2BIG;
        (void)str_split(&text, ':', &head);
        if (text.p && !str_eqc(text, "tcp") && !str_eqc(text, "unix") && !str_eqc(text, "tls"))
            return -EINVAL;
        o->listen_tls[o->n_listen] = str_eqc(text, "tls");
        r = argument_fd(head, &o->listen_fd[o->n_listen]);
        o->n_listen += r == 0;
        return r;
    case OPT_STATE:
        o->state_dir = argument;
        return 0;
    case OPT_DATA:
        o->data_dir = argument;
        return 0;
    case OPT_DOMAIN:
        o->domain = *argument ? argument : NULL;
        return 0;
    case OPT_VERSION:
        o->version = argument;
        return 0;
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
    case OPT_DEFAULT_MEMORY:
        return argument_number(text, UINT64_MAX, &o->default_memory_bytes);
    case OPT_DEFAULT_DISK:
        return argument_number(text, UINT64_MAX, &o->default_disk_bytes);
    case OPT_DEFAULT_CPU:
        r = argument_number(text, UINT32_MAX, &number);
        o->default_cpu_milli = (uint32_t)number;
        return r;
    case OPT_DEFAULT_TIMEOUT:
        return argument_number(text, UINT64_MAX, &o->default_timeout_ms);
    case OPT_MAX_TIMEOUT:
        return argument_number(text, UINT64_MAX, &o->max_timeout_ms);
    case OPT_MAX_SANDBOXES:
        r = argument_number(text, UINT32_MAX, &number);
        o->max_sandboxes = (uint32_t)number;
        return r;
    case OPT_KEEP:
        return options_keep(text, o);
    case OPT_BUILDS:
        o->builds = argument;
        return 0;
    case OPT_TRUST:
        o->trust = argument;
        return 0;
    case OPT_TIERS:
        return tier_list_parse(text, &o->tiers);
    case OPT_DEFAULT_TIER:
        o->default_tier = argument;
        return 0;
    case OPT_RUN_CODE_OPEN:
        o->run_code_is_open = true;
        return 0;
    case OPT_PROTOCOL:
        r = argument_number(text, UINT32_MAX, &number);
        o->protocol = (uint32_t)number;
        return r;
    default:
        return -EINVAL;
    }
}

int options_parse(int argc, char **argv, struct options *ret_options, struct err *err)
{
    struct options o = {
        .protocol = SUP_VERSION,
        .group_gid = (gid_t)-1,
        .supervisor_fd = -1,
        .pulse_fd = -1,
        .key_fd = -1,
        .tls_fd = -1,
        .version = COVE_VERSION,
        .log_level = LOG_INFO,
        .default_memory_bytes = 512ULL << 20,
        .default_cpu_milli = 2000,
        .default_timeout_ms = 300000,
        .max_timeout_ms = 86400000,
        .max_sandboxes = 1000,
    };
    if (arguments_parse(argc, argv, known, options_apply, &o, err) < 0)
        return -1;
    if (o.protocol != SUP_VERSION)
        return err_set(err, ERR_FAILED_PRECONDITION,
                       "coved is of another version (it speaks protocol %u, this program %d): restart the service",
                       o.protocol, SUP_VERSION);
    if (o.supervisor_fd < 0 || o.n_listen == 0 || !o.state_dir || !o.data_dir)
        return err_set(
            err, ERR_INVALID_ARGUMENT,
            "--supervisor-fd, --listen-fd, --state and --data are needed; coved starts this program, people don't");
    for (size_t i = 0; i < o.n_listen; i++)
        if (o.listen_tls[i] && o.tls_fd < 0)
            return err_set(err, ERR_INVALID_ARGUMENT, "a listener with TLS needs a certificate: --tls-fd");
    *ret_options = o;
    return 0;
}
