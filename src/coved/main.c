/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "config/config.h"
#include "coved/doctor.h"
#include "coved/prepare.h"
#include "coved/serve.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
    "usage: coved COMMAND\n"
    "\n"
    "The privileged part of Cove: makes sandboxes and keeps its unprivileged workers running.\n"
    "\n"
    "  run [--ready-fd N]   run the service in the foreground until TERM or INT\n"
    "  prepare [--force]    build the base template if it is not there\n"
    "  prepare --from DIR   copy it from another state directory, whose pool is not a file\n"
    "  doctor [--json]      measure what this machine can enforce\n"
    "  version              print the version\n"
    "\n"
    "Configuration: /etc/cove/cove.yaml (COVE_CONFIG), COVE_STATE, COVE_RUN, COVE_POOL, COVE_LISTEN, COVE_LISTEN_TLS,\n"
    "COVE_API_KEY.\n"
    "Exit status: 0 success, 1 failure, 2 wrong usage.\n";

static int fail(const struct err *err)
{
    (void)fprintf(stderr, "coved: %s\n", err->msg);
    return 1;
}

static int wrong_usage(void)
{
    (void)fputs(usage, stderr);
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

static int command_run(const struct config *config, int argc, char **argv)
{
    struct err err;
    uint64_t ready_fd = 0;
    bool has_ready = argc == 2 && strcmp(argv[0], "--ready-fd") == 0 && str_to_u64(str_of(argv[1]), &ready_fd) == 0;
    if (argc != 0 && !(has_ready && ready_fd > 2 && ready_fd < 1024))
        return wrong_usage();
    int keep = has_ready ? (int)ready_fd : -1;
    if (close_inherited(keep, &err) < 0)
        return fail(&err);
    fault_open();
    return serve(config, keep, &err) < 0 ? fail(&err) : 0;
}

static int command_prepare(const struct config *config, int argc, char **argv)
{
    struct err err;
    bool force = argc == 1 && strcmp(argv[0], "--force") == 0;
    bool takes = argc == 2 && strcmp(argv[0], "--from") == 0;
    if (argc != 0 && !force && !takes)
        return wrong_usage();
    return prepare_base_template(config, force, takes ? argv[1] : NULL, &err) < 0 ? fail(&err) : 0;
}

static int command_doctor(const struct config *config, int argc, char **argv)
{
    bool json = argc == 1 && strcmp(argv[0], "--json") == 0;
    if (argc != 0 && !json)
        return wrong_usage();
    return doctor(config, json);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const struct config *config, int argc, char **argv);
    } commands[] = {{"run", command_run}, {"prepare", command_prepare}, {"doctor", command_doctor}};

    AUTO(config_free) struct config *config = NULL;
    struct err err;
    (void)signal(SIGCHLD, SIG_DFL); /* ignored, as some starters leave it, it lets no child be waited for */
    if (argc == 2 && strcmp(argv[1], "version") == 0) {
        (void)printf("coved %s\n", COVE_VERSION);
        return 0;
    }
    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0)) {
        (void)fputs(usage, stdout);
        return 0;
    }
    for (size_t i = 0; argc >= 2 && i < ARRAY_SIZE(commands); i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        log_init("coved", LOG_INFO);
        if (config_load(NULL, &config, &err) < 0)
            return fail(&err);
        log_init("coved", config->log_level);
        if (geteuid() != 0) {
            (void)err_set(&err, ERR_PERMISSION_DENIED, "making sandboxes needs root: run it with sudo");
            return fail(&err);
        }
        return commands[i].run(config, argc - 2, argv + 2);
    }
    return wrong_usage();
}
