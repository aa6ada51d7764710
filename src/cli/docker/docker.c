/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/docker/docker.h"
#include "base/mem.h"
#include "base/path.h"
#include "cli/cmd/commands.h"
#include "cli/exec/environment.h"
#include "cli/exec/terminal.h"
#include "cli/files/copy.h"
#include "config/units.h"

#include <getopt.h>
#include <unistd.h>

enum {
    RUN = 1 << 0,
    EXEC = 1 << 1,
    PS = 1 << 2,
    IMAGES = 1 << 3,
    INSPECT = 1 << 4,
    LOGS = 1 << 5,
    STOP = 1 << 6,
    RM = 1 << 7,
    CP = 1 << 8,
    BUILD = 1 << 9,
    PULL = 1 << 10,
    NETWORK = 1 << 11,
    VERSION = 1 << 12,
    RMI = 1 << 13,
    COMPOSE = 1 << 14, /* before its verb */
    UP = 1 << 15,
    DOWN = 1 << 16,
    CONFIG = 1 << 17,
    SERVICES = 1 << 18, /* compose ps */
    PROJECTS = 1 << 19, /* compose ls */
    PULL_SERVICES = 1 << 20,
};

enum { OPTIONS_MAX = 40, OPTION_BASE = 1000 };

/* ---- what values mean ---- */

static int docker_add(struct docker *d, const char **list, size_t *n, const char *value)
{
    if (*n == DOCKER_LIST_MAX)
        return docker_refuse(d, "at most %d of one option", DOCKER_LIST_MAX);
    list[(*n)++] = value;
    return 0;
}

static int docker_take_env(struct docker *d, const char *value)
{
    return environment_take(d->ctx, &d->env, "env", value) < 0 ? docker_fail(d, DOCKER_USAGE) : 0;
}

static int docker_take_label(struct docker *d, const char *value)
{
    AUTO_FREE char *key = mem_strndup(value, strcspn(value, "="));
    const char *text = value[strlen(key)] ? value + strlen(key) + 1 : "";
    if (!*key || str_starts(str_of(key), STR("docker.")) || json_object_set_new(d->labels, key, json_string(text)) < 0)
        return docker_refuse(d, "--label %s", value);
    return 0;
}

static int docker_take_volume(struct docker *d, const char *value)
{
    return docker_add(d, d->volumes, &d->n_volumes, value);
}

static int docker_take_memory(struct docker *d, const char *value)
{
    return unit_parse_size(str_of(value), &d->memory_bytes) < 0 ? docker_refuse(d, "invalid size: '%s'", value) : 0;
}

static int docker_take_cpus(struct docker *d, const char *value)
{
    return unit_parse_cpus(str_of(value), &d->cpu_milli) < 0 ? docker_refuse(d, "failed to parse %s", value) : 0;
}

/* One by its own name is taken for an internal one: nothing is reached from it. */
static int docker_take_network(struct docker *d, const char *value)
{
    if (strcmp(value, "host") == 0 || strchr(value, ':'))
        return docker_refuse(d, "--network %s is not supported: a container has a network of its own", value);
    d->has_no_network = strcmp(value, "bridge") != 0 && strcmp(value, "default") != 0;
    return 0;
}

static int docker_take_runtime(struct docker *d, const char *value)
{
    if (strcmp(value, "runsc") != 0 && strcmp(value, "runc") != 0)
        return docker_refuse(d, "--runtime %s is not supported", value);
    d->tier = value[4] == 'c' && value[3] == 's' ? "gvisor" : NULL;
    return 0;
}

/* Where nothing leads: no program in a sandbox reaches this machine by that name. */
static int docker_take_host(struct docker *d, const char *value)
{
    return strcmp(value, "host.docker.internal:host-gateway") == 0
               ? 0
               : docker_refuse(d, "--add-host %s is not supported: names are the service's to answer", value);
}

static int docker_take_publish(struct docker *d, const char *value UNUSED)
{
    return docker_refuse(d, "--publish is not supported: 'cove url NAME PORT' prints the address of any port inside");
}

static int docker_take_security(struct docker *d, const char *value)
{
    return str_starts(str_of(value), STR("no-new-privileges"))
               ? 0
               : docker_refuse(d, "--security-opt %s is not supported: the boundary is the tier's", value);
}

static int docker_take_filter(struct docker *d, const char *value)
{
    if (!str_starts(str_of(value), STR("name=")) && !str_starts(str_of(value), STR("label=")) &&
        !str_starts(str_of(value), STR("id=")))
        return docker_refuse(d, "invalid filter '%s': there is name, id and label", value);
    if (*value == 'n' && strpbrk(value, "^$*+?()[]{}|\\"))
        return docker_refuse(d, "invalid filter '%s': a part of the name, no regular expression", value);
    return docker_add(d, d->filters, &d->n_filters, value);
}

static int docker_take_build_arg(struct docker *d, const char *value)
{
    return strchr(value, '=') ? docker_add(d, d->build_args, &d->n_build_args, value)
                              : docker_refuse(d, "--build-arg %s: write NAME=VALUE", value);
}

static int docker_take_tag(struct docker *d, const char *value)
{
    return docker_add(d, d->tags, &d->n_tags, value);
}

static int docker_take_policy(struct docker *d, const char *value)
{
    return strcmp(value, "missing") == 0 ? 0 : docker_refuse(d, "--policy %s is not supported", value);
}

static int docker_ignore(struct docker *d UNUSED, const char *value UNUSED)
{
    return 0; /* it is so in any case, or is nothing that anybody could tell */
}

/* ---- options ---- */

#define TEXT(member) offsetof(struct docker, member), NULL
#define FLAG(member) offsetof(struct docker, member), NULL
#define TAKEN(function) 0, function

static const struct docker_option {
    unsigned verbs;
    char letter;
    const char *name;
    bool has_value;
    size_t member; /* where it goes; 0: take */
    int (*take)(struct docker *d, const char *value);
} docker_options[] = {
    {RUN | EXEC, 'd', "detach", false, FLAG(detach)},
    {RUN | EXEC, 'i', "interactive", false, FLAG(interactive)},
    {RUN | EXEC, 't', "tty", false, FLAG(tty)},
    {RUN | EXEC, 'e', "env", true, TAKEN(docker_take_env)},
    {RUN | EXEC, 'w', "workdir", true, TEXT(cwd)},
    {RUN | EXEC, 'u', "user", true, TEXT(user)},
    {RUN, 0, "rm", false, FLAG(removes)},
    {RUN, 0, "name", true, TEXT(name)},
    {RUN, 0, "entrypoint", true, TEXT(entrypoint)},
    {RUN, 0, "pull", true, TEXT(pull)},
    {RUN, 'v', "volume", true, TAKEN(docker_take_volume)},
    {RUN, 'l', "label", true, TAKEN(docker_take_label)},
    {RUN, 'm', "memory", true, TAKEN(docker_take_memory)},
    {RUN, 0, "cpus", true, TAKEN(docker_take_cpus)},
    {RUN, 0, "network", true, TAKEN(docker_take_network)},
    {RUN, 0, "net", true, TAKEN(docker_take_network)},
    {RUN, 0, "runtime", true, TAKEN(docker_take_runtime)},
    {RUN, 'p', "publish", true, TAKEN(docker_take_publish)},
    {RUN, 'P', "publish-all", false, TAKEN(docker_take_publish)},
    {RUN, 0, "add-host", true, TAKEN(docker_take_host)},
    {RUN, 0, "security-opt", true, TAKEN(docker_take_security)},
    {RUN, 0, "init", false, TAKEN(docker_ignore)},
    {RUN, 'h', "hostname", true, TAKEN(docker_ignore)},
    {RUN, 0, "cap-drop", true, TAKEN(docker_ignore)},
    {PS | SERVICES | PROJECTS, 'a', "all", false, FLAG(all)},
    {PS, 'f', "filter", true, TAKEN(docker_take_filter)},
    {PS | IMAGES, 0, "no-trunc", false, TAKEN(docker_ignore)},
    {PS | IMAGES | PULL | BUILD | CP | SERVICES, 'q', "quiet", false, FLAG(quiet)},
    {INSPECT | VERSION, 'f', "format", true, TEXT(format)},
    {PS | IMAGES | SERVICES | PROJECTS, 0, "format", true, TEXT(format)},
    {SERVICES, 0, "status", true, TEXT(status)},
    {LOGS, 'f', "follow", false, FLAG(follow)},
    {STOP, 't', "time", true, TAKEN(docker_ignore)},
    {RM | RMI, 'f', "force", false, FLAG(force)},
    {RM, 'v', "volumes", false, TAKEN(docker_ignore)},
    {BUILD, 't', "tag", true, TAKEN(docker_take_tag)},
    {BUILD, 'f', "file", true, TEXT(file)},
    {BUILD, 0, "build-arg", true, TAKEN(docker_take_build_arg)},
    {BUILD, 0, "no-cache", false, FLAG(no_cache)},
    {NETWORK, 0, "internal", false, FLAG(internal)},
    {CP, 'L', "follow-link", false, FLAG(follow)},
    {COMPOSE, 'p', "project-name", true, TEXT(project)},
    {COMPOSE, 'f', "file", true, TEXT(file)},
    {COMPOSE, 0, "ansi", true, TAKEN(docker_ignore)},
    {COMPOSE, 0, "progress", true, TAKEN(docker_ignore)},
    {UP, 'd', "detach", false, FLAG(detach)},
    {UP, 0, "wait", false, TAKEN(docker_ignore)},
    {UP, 0, "wait-timeout", true, TAKEN(docker_ignore)},
    {DOWN, 'v', "volumes", false, TAKEN(docker_ignore)},
    {CONFIG, 0, "images", false, FLAG(images)},
    {PULL_SERVICES, 0, "ignore-buildable", false, TAKEN(docker_ignore)},
    {PULL_SERVICES, 0, "policy", true, TAKEN(docker_take_policy)},
};

/* The verb, its options, operands. 0, or what to exit with. */
static int docker_read(struct docker *d, unsigned verb, int argc, char **argv)
{
    struct option all[OPTIONS_MAX] = {0};
    char letters[2 * OPTIONS_MAX + 3] = ":";
    size_t n = 0, n_letters = 1;
    int id;
    if (verb & (RUN | EXEC | COMPOSE))
        memcpy(letters, "+:", n_letters = 2);
    for (size_t i = 0; i < ARRAY_SIZE(docker_options); i++) {
        const struct docker_option *o = &docker_options[i];
        if (!(o->verbs & verb))
            continue;
        all[n++] = (struct option){o->name, o->has_value ? required_argument : no_argument, NULL, OPTION_BASE + (int)i};
        if (o->letter) {
            letters[n_letters++] = o->letter;
            if (o->has_value)
                letters[n_letters++] = ':';
        }
    }
    opterr = optind = 0;
    while ((id = getopt_long(argc, argv, letters, all, NULL)) != -1) {
        const struct docker_option *o = NULL;
        if (id == ':')
            return docker_refuse(d, "flag needs an argument: %s", argv[optind - 1]);
        if (id == '?' && optopt && optopt < OPTION_BASE)
            return docker_refuse(d, "unknown shorthand flag: '%c' in %s", optopt, argv[optind - 1]);
        if (id == '?')
            return docker_refuse(d, "unknown flag: %s", argv[optind - 1]);
        for (size_t i = 0; !o && i < ARRAY_SIZE(docker_options); i++)
            if ((docker_options[i].verbs & verb) && (id == OPTION_BASE + (int)i || id == docker_options[i].letter))
                o = &docker_options[i];
        assert(o);
        int r = o->take ? o->take(d, optarg) : 0;
        if (r)
            return r;
        if (!o->take && o->has_value)
            *(const char **)((char *)d + o->member) = optarg;
        else if (!o->take)
            *((bool *)d + o->member) = true;
    }
    d->operands = argv + optind;
    d->n = argc - optind;
    return 0;
}

/* ---- verbs that are an order each ---- */

int docker_containers(struct docker *d, json_t **ret_array)
{
    AUTO_JSON json_t *all = NULL;
    json_t *ours = json_array();
    if (service_own_sandboxes(d->s, &all) < 0) {
        json_decref(ours);
        return -1;
    }
    JSON_FOREACH (one, all)
        if (*docker_label(one, DOCKER_IMAGE))
            (void)json_array_append(ours, one);
    *ret_array = ours;
    return 0;
}

/* No name stands for another one's id. */
static int docker_fits(const json_t *one, const char *text)
{
    const char *id = service_text(one, "id");
    if (strcmp(id, text) == 0)
        return 3;
    if (strcmp(docker_label(one, DOCKER_NAME), text) == 0)
        return 2;
    return *text && str_starts(str_of(id), str_of(text));
}

int docker_find(struct docker *d, const char *text, json_t **ret_sandbox)
{
    AUTO_JSON json_t *all = NULL;
    json_t *found = NULL;
    int best = 0;
    if (docker_containers(d, &all) < 0)
        return -1;
    JSON_FOREACH (one, all) {
        const int fits = docker_fits(one, text);
        found = fits > best ? one : found;
        best = MAX(best, fits);
    }
    if (!found)
        return err_set(&d->ctx->err, ERR_NOT_FOUND, "No such container: %.100s", text);
    *ret_sandbox = json_incref(found);
    return 0;
}

/* What is done to each operand, and printed when it was. */
static int docker_each(struct docker *d, int (*fn)(struct docker *d, const json_t *sandbox))
{
    int status = 0;
    if (d->n == 0)
        return docker_refuse(d, "\"docker %s\" requires at least 1 argument.", d->verb);
    for (int i = 0; i < d->n; i++) {
        AUTO_JSON json_t *one = NULL;
        if (docker_find(d, d->operands[i], &one) < 0 || fn(d, one) < 0)
            status = docker_fail(d, DOCKER_FAILED);
        else
            (void)printf("%s\n", d->operands[i]);
    }
    return status;
}

static int docker_remove(struct docker *d, const json_t *sandbox)
{
    const char *state = json_string_value(json_object_get(sandbox, "state"));
    if (strcmp(d->verb, "rm") == 0 && !d->force && state && strcmp(state, "paused") != 0)
        return err_set(
            &d->ctx->err, ERR_FAILED_PRECONDITION,
            "cannot remove container \"/%.100s\": container is running: stop the container before removing or "
            "force remove",
            docker_label(sandbox, DOCKER_NAME));
    return service_remove(d->s, service_text(sandbox, "id"), NULL);
}

/* Its processes end, its files stay. */
static int docker_stop(struct docker *d, const json_t *sandbox)
{
    AUTO_FREE char *target = service_target(service_text(sandbox, "id"), "/pause");
    AUTO_JSON json_t *body = json_pack("{s:b}", "memory", 0);
    const char *state = json_string_value(json_object_get(sandbox, "state"));
    if (*docker_label(sandbox, DOCKER_RM))
        return docker_remove(d, sandbox);
    return state && strcmp(state, "paused") == 0 ? 0 : service_call(d->s, "POST", target, body, NULL, NULL);
}

static int docker_verb_stop(struct docker *d)
{
    return docker_each(d, docker_stop);
}

static int docker_verb_rm(struct docker *d)
{
    return docker_each(d, docker_remove);
}

bool docker_is_remote(const char *text)
{
    size_t n = strcspn(text, ":/");
    return n > 0 && text[n] == ':';
}

/* As an archive on stdout, which tar makes inside. */
static int docker_cp_out(struct docker *d, const char *id, const char *path)
{
    AUTO_FREE char *name = mem_strndup(path_base(str_of(path)).p, path_base(str_of(path)).n);
    AUTO_FREE char *dir = mem_strndup(path_dir(str_of(path)).p, path_dir(str_of(path)).n);
    char word[] = "exec", tar[] = "tar", options[] = "-ch", place[] = "-C", end[] = "--";
    options[2] = d->follow ? 'h' : '\0';
    char *argv[] = {word, (char *)(uintptr_t)id, tar, options, place, dir, end, name, NULL};
    return docker_do(d->ctx, ARRAY_SIZE(argv) - 1, argv);
}

int docker_cp(struct docker *d)
{
    AUTO_JSON json_t *sandbox = NULL;
    if (d->n != 2)
        return docker_refuse(d, "\"docker cp\" requires exactly 2 arguments.");
    const char *from = d->operands[0], *to = d->operands[1];
    const bool is_from = docker_is_remote(from);
    if (is_from == docker_is_remote(to) || strcmp(from, "-") == 0)
        return docker_refuse(d, "one side must be NAME:PATH, and the other a path here; what comes in is not -");
    const char *remote = is_from ? from : to, *path = strchr(remote, ':') + 1;
    AUTO_FREE char *name = mem_strndup(remote, (size_t)(path - remote) - 1);
    if (docker_find(d, name, &sandbox) < 0)
        return docker_fail(d, DOCKER_FAILED);
    struct copy c = {.ctx = d->ctx, .service = d->s, .id = service_text(sandbox, "id"), .user = "root"};
    if (strcmp(to, "-") == 0)
        return docker_cp_out(d, c.id, path);
    return (is_from ? copy_from_sandbox(&c, path, to) : copy_to_sandbox(&c, from, path)) < 0
               ? docker_fail(d, DOCKER_FAILED)
               : 0;
}

static int docker_verb_rmi(struct docker *d)
{
    int status = d->n ? 0 : docker_refuse(d, "\"docker rmi\" requires at least 1 argument.");
    for (int i = 0; i < d->n; i++) {
        AUTO_FREE char *name = docker_template(d->operands[i]);
        AUTO_FREE char *target = service_path(d->ctx, "/cove/v1/templates?ref=", name, "");
        if (!target || service_call(d->s, "DELETE", target, NULL, NULL, NULL) < 0)
            status = docker_fail(d, DOCKER_FAILED);
        else
            (void)printf("Untagged: %s\n", d->operands[i]);
    }
    return status;
}

int docker_pull_image(struct docker *d, const char *image, bool is_quiet)
{
    AUTO_FREE char *name = docker_template(image);
    struct template_build_options o = {.name = name, .from_image = image, .context = ".", .quiet = is_quiet};
    return template_build_run(d->ctx, &o);
}

static int docker_verb_pull(struct docker *d)
{
    if (d->n != 1)
        return docker_refuse(d, "\"docker pull\" requires exactly 1 argument.");
    int status = docker_pull_image(d, d->operands[0], true);
    if (status == 0)
        (void)printf("%s\n", d->operands[0]);
    return status;
}

static int docker_verb_build(struct docker *d)
{
    AUTO_FREE char *name = d->n_tags ? docker_template(d->tags[0]) : NULL;
    struct template_build_options o = {
        .name = name, .context = d->n ? d->operands[0] : ".", .file = d->file, .is_docker = true};
    if (d->n != 1 || d->n_tags > 1)
        return docker_refuse(d, "\"docker build\" requires a directory, and takes one --tag");
    o.quiet = d->quiet;
    o.no_cache = d->no_cache;
    o.n_build_args = d->n_build_args;
    memcpy(o.build_args, d->build_args, sizeof(d->build_args));
    int status = template_build_run(d->ctx, &o);
    if (status == 0 && !d->quiet && name && strcmp(name, d->tags[0]) != 0)
        (void)fprintf(stderr, "%s is the template %s: 'cove run --template %s'\n", d->tags[0], name, name);
    return status;
}

/* An internal network needs nothing to be there: what is in it reaches nobody (docker_take_network). */
static int docker_verb_network(struct docker *d)
{
    const char *what = d->n ? d->operands[0] : "";
    if (d->n == 2 && strcmp(what, "create") == 0 && d->internal) {
        (void)printf("%s\n", d->operands[1]);
        return 0;
    }
    if (d->n == 1 && strcmp(what, "ls") == 0) {
        (void)fputs("NETWORK ID     NAME      DRIVER    SCOPE\nbridge         bridge    cove      local\n"
                    "none           none      null      local\n",
                    stdout);
        return 0;
    }
    if (d->n == 2 && strcmp(what, "inspect") == 0)
        (void)fprintf(stderr, "Error response from daemon: network %s not found\n", d->operands[1]);
    else
        (void)fprintf(
            stderr,
            "Error response from daemon: network %s is not supported: there is create --internal, inspect and "
            "ls, for containers don't reach each other\n",
            what);
    return DOCKER_FAILED;
}

#define DOCKER_COMPOSE "2.24.0"

static int docker_verb_version(struct docker *d)
{
    const bool is_compose = d->verb[0] == 'c';
    AUTO_JSON json_t *all = is_compose
                                ? json_pack("{s:s}", "version", DOCKER_COMPOSE)
                                : json_pack("{s:{s:s}, s:{s:s, s:{s:s}}}", "Client", "Version", DOCKER_ENGINE, "Server",
                                            "Version", DOCKER_ENGINE, "Platform", "Name", "cove " COVE_VERSION);
    if (d->format)
        return docker_print(d, all);
    (void)printf("Docker %sversion %s, build cove-%s\n", is_compose ? "Compose " : "",
                 is_compose ? DOCKER_COMPOSE : DOCKER_ENGINE, COVE_VERSION);
    return 0;
}

static const struct docker_verb {
    const char *name;
    unsigned options;
    docker_verb *run;
} docker_verbs[] = {
    {"run", RUN, docker_run},
    {"exec", EXEC, docker_exec},
    {"cp", CP, docker_cp},
    {"images", IMAGES, docker_images},
    {"pull", PULL, docker_verb_pull},
    {"ps", PS, docker_ps},
    {"logs", LOGS, docker_logs},
    {"stop", STOP, docker_verb_stop},
    {"kill", STOP, docker_verb_stop},
    {"rm", RM, docker_verb_rm},
    {"rmi", RMI, docker_verb_rmi},
    {"network", NETWORK, docker_verb_network},
    {"build", BUILD, docker_verb_build},
    {"inspect", INSPECT, docker_inspect},
    {"version", VERSION, docker_verb_version},
    {"--version", VERSION, docker_verb_version},
    {"compose build", 0, docker_compose_build},
    {"compose config", CONFIG, docker_compose_config},
    {"compose cp", CP, docker_compose_cp},
    {"compose down", DOWN, docker_compose_down},
    {"compose exec", EXEC, docker_compose_exec},
    {"compose ls", PROJECTS, docker_compose_ls},
    {"compose ps", SERVICES, docker_compose_ps},
    {"compose pull", PULL_SERVICES, docker_compose_pull},
    {"compose up", UP, docker_compose_up},
    {"compose version", VERSION, docker_verb_version},
};

/* ---- small things ---- */

int docker_fail(struct docker *d, int status)
{
    terminal_line(stderr, "Error response from daemon: %s", d->ctx->err.msg);
    return status;
}

int docker_refuse(struct docker *d, const char *fmt, ...)
{
    char text[512];
    FORMAT_ARGS(text, fmt);
    terminal_line(stderr, "docker: %s", text);
    terminal_line(stderr, "See 'cove docker --help'.");
    d->ctx->err.code = ERR_INVALID_ARGUMENT;
    return DOCKER_USAGE;
}

const char *docker_label(const json_t *sandbox, const char *name)
{
    return service_text(json_object_get(sandbox, "metadata"), name);
}

/* Of docker's other commands, the nearest one. */
static const char *docker_instead(const char *verb)
{
    static const char *const others[][2] = {{"commit", "cove snapshot NAME TEMPLATE"},
                                            {"container", "cove docker ps"},
                                            {"create", "cove docker run -d"},
                                            {"diff", "cove diff NAME"},
                                            {"events", "cove events"},
                                            {"image", "cove docker images"},
                                            {"info", "cove doctor"},
                                            {"login", "cove template build --registry-user"},
                                            {"pause", "cove pause NAME"},
                                            {"port", "cove url NAME PORT"},
                                            {"restart", "cove docker run"},
                                            {"start", "cove docker run"},
                                            {"stats", "cove stats"},
                                            {"system", "cove gc"},
                                            {"tag", "cove template tag"},
                                            {"top", "cove ps NAME"},
                                            {"unpause", "cove resume NAME"},
                                            {"volume", "cove volume"}};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        if (strcmp(others[i][0], verb) == 0)
            return others[i][1];
    return NULL;
}

int docker_do(struct context *ctx, int argc, char **argv)
{
    struct docker d = {.ctx = ctx, .labels = json_object()};
    AUTO_FREE char *verb = mem_strdup(argv[0]);
    int status = 0;
    if (strcmp(argv[0], "compose") == 0 && (status = docker_read(&d, COMPOSE, argc, argv)) == 0 && d.n) {
        argc = d.n;
        argv = d.operands;
        mem_free(verb);
        verb = mem_printf("compose %s", argv[0]);
    }
    size_t i = 0;
    d.verb = verb;
    while (i < ARRAY_SIZE(docker_verbs) && strcmp(docker_verbs[i].name, verb) != 0)
        i++;
    if (status == 0 && i == ARRAY_SIZE(docker_verbs)) {
        const char *instead = docker_instead(verb);
        status = docker_refuse(&d, "'%.40s' is not a docker command here%s%s%s", verb, instead ? ": try '" : "",
                               instead ? instead : "", instead ? "'" : "");
    }
    if (status == 0)
        status = docker_read(&d, docker_verbs[i].options, argc, argv);
    if (status == 0 && !(d.s = service_open(ctx)))
        status = docker_fail(&d, DOCKER_USAGE);
    else if (status == 0)
        status = docker_verbs[i].run(&d);
    service_close(d.s);
    json_decref(d.env);
    json_decref(d.labels);
    json_decref(d.compose);
    return status;
}

static int docker_main(struct context *ctx)
{
    if ((ctx->argc < 2 || strcmp(ctx->argv[1], "--version") != 0) && context_read(ctx, NULL) < 0)
        return context_exit(ctx);
    int at = MAX(ctx->argi, 1);
    if (at + 1 < ctx->argc && (strcmp(ctx->argv[at], "image") == 0 || strcmp(ctx->argv[at], "container") == 0))
        at++; /* "image inspect" */
    return at == ctx->argc || ctx->json ? context_usage(ctx, ctx->json ? "there is --format, and no --json"
                                                                       : "which verb? 'cove docker --help' lists them")
                                        : docker_do(ctx, ctx->argc - at, ctx->argv + at);
}

const struct command cmd_docker = {
    .name = "docker",
    .summary = "Docker's command line, for agents that call it",
    .text = &text_docker,
    .operands = "=run exec ps images inspect logs stop kill rm rmi cp pull build network compose version",
    .flags_end_at_operand = true,
    .run = docker_main,
};
