/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/options.h"
#include "daemon/arguments.h"
#include "wire/supervisor.h"

/* "7", "7:tcp", "8:unix": who connects is asked of the socket; "9:tls" */
static int options_listen(void *options, const char *argument)
{
    struct options *o = options;
    struct str text = str_of(argument), head;
    if (o->n_listen == OPTIONS_LISTEN_MAX)
        return -E2BIG;
    (void)str_split(&text, ':', &head);
    if (text.p && !str_eqc(text, "tcp") && !str_eqc(text, "unix") && !str_eqc(text, "tls"))
        return -EINVAL;
    o->listen_tls[o->n_listen] = str_eqc(text, "tls");
    int r = argument_fd(head, &o->listen_fd[o->n_listen]);
    o->n_listen += r == 0;
    return r;
}

static int options_domain(void *options, const char *argument)
{
    ((struct options *)options)->domain = *argument ? argument : NULL;
    return 0;
}

/* events:ended:ended-ms; 0: the default */
static int options_keep(void *options, const char *argument)
{
    struct options *o = options;
    struct str text = str_of(argument), one;
    uint64_t numbers[3];
    for (size_t i = 0; i < ARRAY_SIZE(numbers); i++) {
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

static int options_tiers(void *options, const char *argument)
{
    return tier_list_parse(str_of(argument), &((struct options *)options)->tiers);
}

#define OPTIONS_AT(member) .at = offsetof(struct options, member)

static const struct argument options_known[] = {
    {"supervisor-fd", ARGUMENT_FD, OPTIONS_AT(supervisor_fd)},
    {"pulse-fd", ARGUMENT_FD, OPTIONS_AT(pulse_fd)},
    {"key-fd", ARGUMENT_FD, OPTIONS_AT(key_fd)},
    {"tls-fd", ARGUMENT_FD, OPTIONS_AT(tls_fd)},
    {"listen-fd", ARGUMENT_TAKEN, .take = options_listen},
    {"state", ARGUMENT_TEXT, OPTIONS_AT(state_dir)},
    {"data", ARGUMENT_TEXT, OPTIONS_AT(data_dir)},
    {"domain", ARGUMENT_TAKEN, .take = options_domain},
    {"version", ARGUMENT_TEXT, OPTIONS_AT(version)},
    {"owner-uid", ARGUMENT_U32, OPTIONS_AT(owner_uid), .most = UINT32_MAX - 1},
    {"group-gid", ARGUMENT_U32, OPTIONS_AT(group_gid),
     .most = UINT32_MAX - 1}, /* whose members are tenants of their own */
    {"log-level", ARGUMENT_U32, OPTIONS_AT(log_level),
     .most = LOG_ERROR + LOG_AS_JSON}, /* 0 debug to 3 error; 4 more: as JSON */
    {"default-memory", ARGUMENT_U64, OPTIONS_AT(default_memory_bytes)},
    {"default-disk", ARGUMENT_U64, OPTIONS_AT(default_disk_bytes)},     /* 0: no limit */
    {"default-cpu-milli", ARGUMENT_U32, OPTIONS_AT(default_cpu_milli)}, /* thousandths */
    {"default-timeout-ms", ARGUMENT_U64, OPTIONS_AT(default_timeout_ms)},
    {"max-timeout-ms", ARGUMENT_U64, OPTIONS_AT(max_timeout_ms)},
    {"max-sandboxes", ARGUMENT_U32, OPTIONS_AT(max_sandboxes)},
    {"keep", ARGUMENT_TAKEN, .take = options_keep},
    {"builds", ARGUMENT_TEXT, OPTIONS_AT(builds)},
    {"trust", ARGUMENT_TEXT, OPTIONS_AT(trust)},
    {"run-code-open", ARGUMENT_FLAG, OPTIONS_AT(run_code_is_open)},
    {"protocol", ARGUMENT_U32, OPTIONS_AT(protocol)}, /* SUP_VERSION of who starts it */
    {"tiers", ARGUMENT_TAKEN, .take = options_tiers}, /* wire/tiers.h */
    {"default-tier", ARGUMENT_TEXT, OPTIONS_AT(default_tier)},
    {0},
};

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
    if (arguments_parse(argc, argv, options_known, &o, err) < 0)
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
