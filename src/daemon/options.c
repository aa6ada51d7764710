/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/options.h"
#include "base/fd.h"
#include "wire/supervisor.h"

#include <getopt.h>

/* ---- what the command lines of both workers have in common ---- */

enum { ARGUMENTS_MAX = 40 };

/* One of them, and the member of the options that it goes to. The last of a table has no name. */
struct argument {
    const char *name;
    enum { ARGUMENT_TEXT, ARGUMENT_FD, ARGUMENT_U32, ARGUMENT_U64, ARGUMENT_FLAG, ARGUMENT_TAKEN } kind;
    size_t at;
    uint64_t most;                                    /* ARGUMENT_U32; 0: all of them */
    bool is_never_empty;                              /* ARGUMENT_TEXT */
    int (*take)(void *options, const char *argument); /* ARGUMENT_TAKEN: 0 or -errno */
};

/* 0 or -errno: -EINVAL is no number, -ERANGE more than `most`. */
static int argument_number(struct str text, uint64_t most, uint64_t *ret_value)
{
    uint64_t value;
    int r = str_to_u64(text, &value);
    if (r < 0)
        return r;
    if (value > most)
        return -ERANGE;
    *ret_value = value;
    return 0;
}

/* An open one; close-on-exec from then on. */
static int argument_fd(struct str text, int *ret_fd)
{
    uint64_t fd = 0;
    int r = argument_number(text, 1 << 20, &fd);
    if (r == 0)
        r = fd_cloexec((int)fd, true);
    if (r == 0)
        *ret_fd = (int)fd;
    return r;
}

static int argument_take(const struct argument *a, void *options, const char *argument)
{
    void *member = (char *)options + a->at;
    uint64_t number = 0;
    int r;
    switch (a->kind) {
    case ARGUMENT_FD:
        return argument_fd(str_of(argument), member);
    case ARGUMENT_U32:
        r = argument_number(str_of(argument), a->most ? a->most : UINT32_MAX, &number);
        if (r == 0)
            *(uint32_t *)member = (uint32_t)number;
        return r;
    case ARGUMENT_U64:
        return argument_number(str_of(argument), UINT64_MAX, member);
    case ARGUMENT_FLAG:
        *(bool *)member = true;
        return 0;
    case ARGUMENT_TEXT:
        *(const char **)member = argument;
        return *argument || !a->is_never_empty ? 0 : -EINVAL;
    case ARGUMENT_TAKEN:
        return a->take(options, argument);
    }
    return -EINVAL;
}

static int arguments_parse(int argc, char **argv, const struct argument *known, void *options, struct err *err)
{
    struct option all[ARGUMENTS_MAX + 1] = {0};
    for (int i = 0; known[i].name; i++) {
        assert(i < ARGUMENTS_MAX);
        all[i] = (struct option){.name = known[i].name, .has_arg = known[i].kind != ARGUMENT_FLAG};
    }
    opterr = 0;
    optind = 1;
    for (;;) {
        int index = 0;
        int id = getopt_long(argc, argv, "", all, &index);
        if (id < 0)
            break;
        if (id == '?')
            return err_set(err, ERR_INVALID_ARGUMENT, "unknown option or no value: %s", argv[optind - 1]);
        int r = argument_take(&known[index], options, optarg);
        if (r < 0)
            return err_errno(err, r, "--%s %.64s", known[index].name, optarg);
    }
    if (optind != argc)
        return err_set(err, ERR_INVALID_ARGUMENT, "unknown option: %.64s", argv[optind]);
    return 0;
}

/* ---- cove-api ---- */

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
    ((struct options *)options)->core.domain = *argument ? argument : NULL;
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
    o->core.keep_events = (uint32_t)numbers[0];
    o->core.keep_ended = (uint32_t)numbers[1];
    o->core.keep_ended_ms = numbers[2];
    return text.p ? -EINVAL : 0;
}

static int options_tiers(void *options, const char *argument)
{
    return tier_list_parse(str_of(argument), &((struct options *)options)->tiers);
}

#define OPTIONS_AT(member) .at = offsetof(struct options, member)

static const struct argument options_known[] = {
    {"supervisor-fd", ARGUMENT_FD, OPTIONS_AT(core.engine.supervisor_fd)},
    {"pulse-fd", ARGUMENT_FD, OPTIONS_AT(pulse_fd)},
    {"key-fd", ARGUMENT_FD, OPTIONS_AT(key_fd)},
    {"tls-fd", ARGUMENT_FD, OPTIONS_AT(tls_fd)},
    {"listen-fd", ARGUMENT_TAKEN, .take = options_listen},
    {"state", ARGUMENT_TEXT, OPTIONS_AT(core.state_dir)},
    {"data", ARGUMENT_TEXT, OPTIONS_AT(data_dir)},
    {"domain", ARGUMENT_TAKEN, .take = options_domain},
    {"version", ARGUMENT_TEXT, OPTIONS_AT(core.version)},
    {"owner-uid", ARGUMENT_U32, OPTIONS_AT(owner_uid), .most = UINT32_MAX - 1},
    {"group-gid", ARGUMENT_U32, OPTIONS_AT(core.group_gid),
     .most = UINT32_MAX - 1}, /* whose members are tenants of their own */
    {"log-level", ARGUMENT_U32, OPTIONS_AT(log_level),
     .most = LOG_ERROR + LOG_AS_JSON}, /* 0 debug to 3 error; 4 more: as JSON */
    {"default-memory", ARGUMENT_U64, OPTIONS_AT(core.default_memory_bytes)},
    {"default-disk", ARGUMENT_U64, OPTIONS_AT(core.default_disk_bytes)},     /* 0: no limit */
    {"default-cpu-milli", ARGUMENT_U32, OPTIONS_AT(core.default_cpu_milli)}, /* thousandths */
    {"default-timeout-ms", ARGUMENT_U64, OPTIONS_AT(default_timeout_ms)},
    {"max-timeout-ms", ARGUMENT_U64, OPTIONS_AT(core.max_timeout_ms)},
    {"max-sandboxes", ARGUMENT_U32, OPTIONS_AT(core.max_sandboxes)},
    {"keep", ARGUMENT_TAKEN, .take = options_keep},
    {"builds", ARGUMENT_TEXT, OPTIONS_AT(builds)},
    {"trust", ARGUMENT_TEXT, OPTIONS_AT(core.trust)},
    {"run-code-open", ARGUMENT_FLAG, OPTIONS_AT(run_code_is_open)},
    {"protocol", ARGUMENT_U32, OPTIONS_AT(protocol)}, /* SUP_VERSION of who starts it */
    {"tiers", ARGUMENT_TAKEN, .take = options_tiers}, /* wire/tiers.h */
    {"default-tier", ARGUMENT_TEXT, OPTIONS_AT(core.engine.default_tier)},
    {0},
};

int options_parse(int argc, char **argv, struct options *ret_options, struct err *err)
{
    struct options o = {
        .protocol = SUP_VERSION,
        .pulse_fd = -1,
        .key_fd = -1,
        .tls_fd = -1,
        .log_level = LOG_INFO,
        .default_timeout_ms = 300000,
        .core = {.engine.supervisor_fd = -1,
                 .group_gid = (gid_t)-1,
                 .version = COVE_VERSION,
                 .default_memory_bytes = 512ULL << 20,
                 .default_cpu_milli = 2000,
                 .max_timeout_ms = 86400000,
                 .max_sandboxes = 1000},
    };
    if (arguments_parse(argc, argv, options_known, &o, err) < 0)
        return -1;
    if (o.protocol != SUP_VERSION)
        return err_set(err, ERR_FAILED_PRECONDITION,
                       "coved is of another version (it speaks protocol %u, this program %d): restart the service",
                       o.protocol, SUP_VERSION);
    if (o.core.engine.supervisor_fd < 0 || o.n_listen == 0 || !o.core.state_dir || !o.data_dir)
        return err_set(
            err, ERR_INVALID_ARGUMENT,
            "--supervisor-fd, --listen-fd, --state and --data are needed; coved starts this program, people don't");
    for (size_t i = 0; i < o.n_listen; i++)
        if (o.listen_tls[i] && o.tls_fd < 0)
            return err_set(err, ERR_INVALID_ARGUMENT, "a listener with TLS needs a certificate: --tls-fd");
    *ret_options = o;
    return 0;
}

/* ---- cove-egress ---- */

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
