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

static const char help[] = "NAME\n"
                           "       coved - make sandboxes and keep the service running\n"
                           "\n"
                           "SYNOPSIS\n"
                           "       coved run [--ready-fd N]\n"
                           "       coved prepare [--force | --from DIR]\n"
                           "       coved doctor [--json]\n"
                           "       coved version\n"
                           "       coved help [COMMAND]\n"
                           "\n"
                           "DESCRIPTION\n"
                           "       The privileged part of Cove. It alone makes namespaces, mounts and\n"
                           "       control groups, holds the listening sockets, and starts what speaks to\n"
                           "       clients and to the network as unprivileged processes, again when they\n"
                           "       die. All commands but version and help need root. What people use is\n"
                           "       cove(1).\n"
                           "\n"
                           "COMMANDS\n"
                           "       run        the service, in the foreground, until it is told to stop\n"
                           "       prepare    build the base template, when it is not there\n"
                           "       doctor     measure what this machine can enforce\n"
                           "       version    print the version\n"
                           "       help       explain a command, as coved COMMAND --help does\n";

/* Behind the help of each command. */
static const char common_help[] = "\n"
                                  "ENVIRONMENT\n"
                                  "       COVE_CONFIG        the configuration; by itself /etc/cove/cove.yaml\n"
                                  "       COVE_STATE         where templates, sandboxes' files, logs and keys are\n"
                                  "       COVE_RUN           where sockets are\n"
                                  "       COVE_LISTEN        where it listens: 127.0.0.1:7070; several with commas\n"
                                  "       COVE_LISTEN_TLS    the same with TLS, once cove domain set has given\n"
                                  "                          it a certificate\n"
                                  "       COVE_POOL          the kind of storage pool: auto, btrfs, reflink, copy\n"
                                  "       COVE_API_KEY       the clients' key; by itself one that is made at first\n"
                                  "       COVE_LOG           what is logged to stderr: debug, info, warn, error\n"
                                  "       What is set here goes before what the configuration says.\n"
                                  "\n"
                                  "EXIT STATUS\n"
                                  "       0  it worked\n"
                                  "       1  it did not; stderr says why\n"
                                  "       2  the command line is wrong\n";

static const char run_help[] = "NAME\n"
                               "       coved run - the service, in the foreground\n"
                               "\n"
                               "SYNOPSIS\n"
                               "       coved run [--ready-fd N]\n"
                               "\n"
                               "DESCRIPTION\n"
                               "       Takes over the paused sandboxes that an earlier run kept, answers\n"
                               "       requests, and logs to stderr. It needs the base template: see coved\n"
                               "       prepare. Nothing goes to the background: systemd, or make start in the\n"
                               "       source directory, does that.\n"
                               "\n"
                               "       It becomes a keeper, which does little and starts the process that does\n"
                               "       the work. When that one dies, sandboxes and open connections go on, and\n"
                               "       another one takes them over. When the keeper dies, everything ends.\n"
                               "\n"
                               "       TERM and INT stop it: sandboxes end in order, and paused ones keep their\n"
                               "       files. HUP and USR2 reload it, as cove reload does: the program and the\n"
                               "       configuration that are there now take over. USR1 makes it read the\n"
                               "       domain's certificate again, as cove domain does. Sandboxes don't notice.\n"
                               "\n"
                               "OPTIONS\n"
                               "       --ready-fd N\n"
                               "               Writes \"ready\" and a line break to this open descriptor, from 3\n"
                               "               on, once requests are answered. systemd is told, too, by\n"
                               "               NOTIFY_SOCKET.\n";

static const char prepare_help[] = "NAME\n"
                                   "       coved prepare - build the base template\n"
                                   "\n"
                                   "SYNOPSIS\n"
                                   "       coved prepare [--force | --from DIR]\n"
                                   "\n"
                                   "DESCRIPTION\n"
                                   "       Makes what sandboxes are made from by themselves: a Debian 12 with\n"
                                   "       Python, of packages from the mirror that the configuration says. How far\n"
                                   "       it is shows on stderr. When the template is there, of the same recipe,\n"
                                   "       nothing is done and nothing said.\n"
                                   "\n"
                                   "       TERM, INT and HUP end it and what it has started, and what is half made\n"
                                   "       is removed first. What one leaves that was killed, the next one removes.\n"
                                   "\n"
                                   "OPTIONS\n"
                                   "       --force\n"
                                   "               Builds it anew; sandboxes that run keep the one they have.\n"
                                   "       --from DIR\n"
                                   "               Copies it from another state directory instead, whose pool must\n"
                                   "               be one of plain directories (COVE_POOL=copy).\n";

static const char doctor_help[] = "NAME\n"
                                  "       coved doctor - measure what this machine can enforce\n"
                                  "\n"
                                  "SYNOPSIS\n"
                                  "       coved doctor [--json]\n"
                                  "\n"
                                  "DESCRIPTION\n"
                                  "       Tries what sandboxes need - namespaces, control groups, filters of\n"
                                  "       system calls, the storage pool, the network's capture - and prints one\n"
                                  "       line for each: ok, degraded, missing or failed, and what can be done\n"
                                  "       about it. Exits with 1 when something failed that sandboxes can't do\n"
                                  "       without.\n"
                                  "\n"
                                  "OPTIONS\n"
                                  "       --json  Prints {\"ok\":...,\"probes\":[...]} for programs.\n";

static const char version_help[] = "NAME\n"
                                   "       coved version - print the version\n"
                                   "\n"
                                   "SYNOPSIS\n"
                                   "       coved version\n";

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
    {"run", run_help, {{"--ready-fd", true}, {"--keeper-fd", true}, {"--fits", true}}, true, false, command_run},
    {"prepare", prepare_help, {{"--force", false}, {"--from", true}}, true, true, command_prepare},
    {"doctor", doctor_help, {{"--json", false}}, true, false, command_doctor},
    {"version", version_help, {{0}}, false, false, command_version},
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
    (void)fputs(command ? command->help : help, stdout);
    (void)fputs(common_help, stdout);
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
