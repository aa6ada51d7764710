/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/names.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "config/config.h"
#include "coved/doctor.h"
#include "coved/groups.h"
#include "coved/serve.h"
#include "coved/state.h"
#include "coved/storage/prepare.h"
#include "coved/workers/keeper.h"
#include "wire/keeper.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* src/coved/help: that of all, of each command, and what stands behind each. */
extern const char script_coved[], script_run[], script_prepare[], script_doctor[], script_version[], script_common[];

static int main_fail(const struct err *err)
{
    (void)fprintf(stderr, "coved: %s\n", err->msg);
    return 1;
}

/* name: the command's, "" for none. */
static int wrong_usage(const char *name, const char *what, const char *word)
{
    (void)fprintf(stderr, "coved%s%s: %s%.64s\n  'coved %s%s--help' shows how it is used\n", *name ? " " : "", name,
                  what, word, name, *name ? " " : "");
    return 2;
}

/* Whoever started us may have left files open that are nobody else's business, the worker's least of all. */
static int close_inherited(int keep, struct err *err)
{
    bool failed = keep > 3 && close_range(3, (unsigned)keep - 1, 0) < 0;
    failed |= close_range(keep > 2 ? (unsigned)keep + 1 : 3, ~0U, 0) < 0;
    int r = failed ? -errno : keep > 2 ? fd_cloexec(keep, true) : 0;
    return r < 0 ? err_errno(err, r, "close inherited descriptors") : 0;
}

/* What may follow a command: one option, with a value where it needs one. */
struct option {
    const char *name;
    bool has_value;
};

struct coved_command {
    const char *name, *help;
    struct option options[3];
    bool needs_root, is_for_people; /* who see how far it is: what is logged at info is none of that */
    int (*run)(const struct config *config, const char *option, const char *value); /* option NULL: none was given */
};

/* Whatever the configuration says later, this service stays where it is. */
static int keep_service(const struct config *config, int ready_fd, struct err *err)
{
    char program[4096];
    AUTO_CLOSE int lock_fd = -1;
    struct accepted accepted;
    ssize_t n = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (n < 0 || setenv("COVE_STATE", config->state_dir, 1) < 0 || setenv("COVE_RUN", config->run_dir, 1) < 0 ||
        setenv("COVE_POOL", config_pools[config->pool_kind], 1) < 0)
        return err_errno(err, errno, "find our program");
    program[n] = 0;
    log_init("cove-keeper", config->log_level + (config->log_is_json ? LOG_AS_JSON : 0));
    if (state_prepare(config, err) < 0 || state_lock(config, STATE_LOCK, &lock_fd, err) < 0 ||
        accepted_open(config->run_dir, &accepted, err) < 0)
        return -1;
    int status = keeper_run(program, &accepted, ready_fd, err);
    if (status > 0)
        groups_end(config->state_dir); /* who is frozen would outlive us */
    return status;
}

/* What can be found out about a configuration without taking anything over. */
static int would_fit(const struct config *config, uint64_t version)
{
    char key[STATE_KEY_MAX];
    struct err err;
    if (version != KEEPER_VERSION)
        return 1;
    return config_check_listen(config, true, &err) < 0 || state_key(config, key, &err) < 0 ? main_fail(&err) : 0;
}

/* --keeper-fd and --fits are for a keeper to say. */
static int command_run(const struct config *config, const char *option, const char *value)
{
    struct err err;
    uint64_t number = 0;
    if (option && strcmp(option, "--fits") == 0)
        return str_to_u64(str_of(value), &number) == 0 ? would_fit(config, number) : 1;
    if (option && (str_to_u64(str_of(value), &number) < 0 || number <= 2 || number > INT_MAX))
        return wrong_usage("run", "it takes a descriptor from 3 on, not ", value);
    const int keep = option ? (int)number : -1;
    if (close_inherited(keep, &err) < 0)
        return main_fail(&err);
    fault_open();
    int r = option && strcmp(option, "--keeper-fd") == 0 ? serve(config, keep, &err) : keep_service(config, keep, &err);
    return r < 0 ? main_fail(&err) : r;
}

static int command_prepare(const struct config *config, const char *option, const char *value)
{
    struct err err;
    return prepare_base_template(config, option && !value, value, &err) < 0 ? main_fail(&err) : 0;
}

static int command_doctor(const struct config *config, const char *option, const char *value UNUSED)
{
    log_init("coved", LOG_ERROR); /* what it warns of has a row */
    return doctor(config, option != NULL);
}

static int command_version(const struct config *config UNUSED, const char *option UNUSED, const char *value UNUSED)
{
    (void)printf("coved %s\n", COVE_VERSION);
    return 0;
}

static const struct coved_command commands[] = {
    {"run", script_run, {{"--ready-fd", true}, {"--keeper-fd", true}, {"--fits", true}}, true, false, command_run},
    {"prepare", script_prepare, {{"--force", false}, {"--from", true}}, true, true, command_prepare},
    {"doctor", script_doctor, {{"--json", false}}, true, false, command_doctor},
    {"version", script_version, {{0}}, false, false, command_version},
};

static const struct coved_command *find_command(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static bool asks_for_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static int explain(const struct coved_command *command)
{
    (void)fputs(command ? command->help : script_coved, stdout);
    (void)fputs(script_common, stdout);
    return 0;
}

/* "help", "help COMMAND" */
static int explain_named(int argc, char **argv)
{
    const struct coved_command *command = argc ? find_command(argv[0]) : NULL;
    if (argc > 1)
        return wrong_usage("", "help takes one command, not also ", argv[1]);
    if (argc && !command)
        return wrong_usage("", "there is no command ", argv[0]);
    return explain(command);
}

static const struct option *find_option(const struct coved_command *command, const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(command->options); i++)
        if (command->options[i].name && strcmp(command->options[i].name, name) == 0)
            return &command->options[i];
    return NULL;
}

/* The words behind the command are judged before anything else: who writes them wrong need not be root to hear of
 * it. */
static int main_run_command(const struct coved_command *command, int argc, char **argv)
{
    AUTO(config_free) struct config *config = NULL;
    const struct option *option = NULL;
    struct err err;
    for (int i = 0; i < argc; i++)
        if (asks_for_help(argv[i]))
            return explain(command);
    if (argc > 0) {
        option = find_option(command, argv[0]);
        if (!option)
            return wrong_usage(command->name, argv[0][0] == '-' ? "unknown option " : "it takes no operand: ", argv[0]);
        if (option->has_value && argc < 2)
            return wrong_usage(command->name, "a value is missing behind ", argv[0]);
        if (argc > (option->has_value ? 2 : 1))
            return wrong_usage(command->name, "one option at a time, not also ", argv[option->has_value ? 2 : 1]);
    }
    if (command->needs_root) {
        log_init("coved", LOG_INFO);
        if (config_load(NULL, &config, &err) < 0 || config_read_trust(config, &err) < 0)
            return main_fail(&err);
        config->key_prefix = E2B_KEY_PREFIX;
        config->marker = E2B_MARKER;
        log_init("coved", command->is_for_people && config->log_level == LOG_INFO
                              ? LOG_WARN
                              : config->log_level + (config->log_is_json ? LOG_AS_JSON : 0));
        if (geteuid() != 0) {
            (void)err_set(&err, ERR_PERMISSION_DENIED, "making sandboxes needs root: run it with sudo");
            return main_fail(&err);
        }
    }
    return command->run(config, option ? option->name : NULL, option && option->has_value ? argv[1] : NULL);
}

static int run_line(int argc, char **argv)
{
    if (argc < 2)
        return wrong_usage("", "the command is missing: run, prepare, doctor, version or help", "");
    if (asks_for_help(argv[1]))
        return explain(NULL);
    if (strcmp(argv[1], "help") == 0)
        return explain_named(argc - 2, argv + 2);
    const struct coved_command *command = find_command(strcmp(argv[1], "--version") == 0 ? "version" : argv[1]);
    if (!command)
        return wrong_usage("", argv[1][0] == '-' ? "options come behind the command: " : "there is no command ",
                           argv[1]);
    return main_run_command(command, argc - 2, argv + 2);
}

/* Output that could not be written, as to a full disk, is a failure; a reader that left, as `head` does, is none. */
static int main_finish(int status)
{
    struct err err;
    errno = 0;
    bool failed = fflush(stdout) < 0;
    const int why = errno ? errno : EIO; /* of a piece that could not be written before, nobody knows any more */
    if ((!failed && !ferror(stdout)) || why == EPIPE || status != 0)
        return status;
    (void)err_errno(&err, why, "write the output");
    return main_fail(&err);
}

int main(int argc, char **argv)
{
    if (fd_standard(O_RDWR) < 0)
        return EXIT_FAILURE;
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, as some starters leave it, it lets no child be waited for */
    return main_finish(run_line(argc, argv));
}
