/* SPDX-License-Identifier: Apache-2.0 */
/*
 * docker compose, as inspect_ai calls it: each service of a file becomes a container of its own through docker run,
 * which also decides what values may be. Keys that can't be done are refused by their names.
 */
#include "base/mem.h"
#include "base/path.h"
#include "cli/docker/docker.h"
#include "cli/print.h"
#include "config/yaml.h"

#include <ctype.h>
#include <stdlib.h>

enum { COMPOSE_TEXT_MAX = 1024 * 1024 };

/* What a service's key is on the command line of docker run; NULL: it has its own place, or is so in any case. */
static const struct {
    const char *key, *option;
} compose_keys[] = {
    {"image", NULL},
    {"build", NULL},
    {"command", NULL},
    {"entrypoint", NULL},
    {"init", NULL},
    {"stop_grace_period", NULL},
    {"cap_drop", NULL},
    {"environment", "-e"},
    {"labels", "-l"},
    {"working_dir", "-w"},
    {"user", "-u"},
    {"mem_limit", "-m"},
    {"cpus", "--cpus"},
    {"runtime", "--runtime"},
    {"network_mode", "--network"},
    {"security_opt", "--security-opt"},
};

/* ---- the file ---- */

/*
 * Of JSON text: $NAME, ${NAME}, ${NAME-word}, ${NAME:-word} by our environment; $$ is a dollar sign. -1: a form that is
 * not known.
 */
static int compose_expand(const char *text, struct buf *b)
{
    for (const char *dollar; (dollar = strchr(text, '$'));) {
        const bool is_braced = dollar[1] == '{';
        const char *from = dollar + 1 + is_braced;
        size_t n = strspn(from, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"), n_word = 0;
        AUTO_FREE char *name = mem_strndup(from, n);
        const char *value = getenv(name), *word = from + n;
        (void)!buf_append(b, text, (size_t)(dollar - text));
        if (dollar[1] == '$') {
            buf_append_char(b, '$');
            text = dollar + 2;
            continue;
        }
        if (is_braced) {
            const bool wants_text = str_starts(str_of(word), STR(":-")), has_word = wants_text || *word == '-';
            word += has_word + wants_text;
            n_word = has_word ? strcspn(word, "}") : 0;
            value = wants_text && value && !*value ? NULL : value;
        }
        if (n == 0 || (is_braced && word[n_word] != '}'))
            return -1;
        if (value) {
            AUTO_BUF struct buf quoted = BUF_INIT(COMPOSE_TEXT_MAX);
            buf_append_json_string(&quoted, str_of(value));
            (void)!buf_append(b, buf_data(&quoted) + 1, buf_len(&quoted) - 2);
        } else {
            (void)!buf_append(b, word, n_word);
        }
        text = word + n_word + is_braced;
    }
    return buf_append_cstr(b, text);
}

static int compose_check(struct docker *d, const char *name, const json_t *service)
{
    if (!json_is_string(json_object_get(service, "image")) && !json_object_get(service, "build"))
        return docker_refuse(d, "service \"%s\" has neither an image nor a build context specified", name);
    JSON_FOREACH_MEMBER (key, value, service) {
        size_t i = 0;
        while (i < ARRAY_SIZE(compose_keys) && strcmp(compose_keys[i].key, key) != 0)
            i++;
        if (i == ARRAY_SIZE(compose_keys) && !str_starts(str_of(key), STR("x-")))
            return docker_refuse(d, "services.%s.%s is not supported", name, key);
    }
    return 0;
}

/* The file's directory names a project that nobody named. */
static int compose_project(struct docker *d)
{
    const char *name = json_string_value(json_object_get(d->compose, "name"));
    if (!realpath(d->file, d->place))
        return docker_refuse(d, "%s: no such file or directory", d->file);
    *strrchr(d->place, '/') = '\0';
    d->project = d->project ? d->project : name ? name : path_base(str_of(d->place)).p;
    return 0;
}

static int compose_read(struct docker *d)
{
    AUTO_JSON json_t *raw = NULL;
    AUTO_BUF struct buf b = BUF_INIT(COMPOSE_TEXT_MAX);
    d->file = d->file ? d->file : "compose.yaml";
    if (yaml_read(d->file, &raw, &d->ctx->err) < 0)
        return docker_refuse(d, "%s", d->ctx->err.msg);
    AUTO_FREE char *text = json_dumps(raw, JSON_COMPACT);
    if (!text || compose_expand(text, &b) < 0 || !(d->compose = json_loadb(buf_data(&b), buf_len(&b), 0, NULL)))
        return docker_refuse(d, "%s: invalid interpolation format: there is $NAME, ${NAME}, ${NAME:-word} and $$",
                             d->file);
    const json_t *services = json_object_get(d->compose, "services");
    int r = compose_project(d);
    JSON_FOREACH_MEMBER (key, value, d->compose) {
        if (strcmp(key, "services") != 0 && strcmp(key, "name") != 0 && strcmp(key, "version") != 0 &&
            !str_starts(str_of(key), STR("x-")))
            return docker_refuse(d, "%s is not supported: there are services alone", key);
    }
    JSON_FOREACH_MEMBER (key, value, services)
        r = r ? r : compose_check(d, key, value);
    return r || json_object_size(services) ? r : docker_refuse(d, "empty compose file");
}

/* ---- command lines of docker ---- */

static void compose_word(json_t *line, const char *word)
{
    (void)json_array_append_new(line, json_string(word));
}

static int compose_run_line(struct docker *d, const json_t *line)
{
    size_t n = json_array_size(line);
    AUTO_FREE char **argv = mem_array(n + 1, sizeof(*argv));
    for (size_t i = 0; i < n; i++)
        argv[i] = (char *)(uintptr_t)json_string_value(json_array_get(line, i));
    return docker_do(d->ctx, (int)n, argv);
}

/* A scalar as it is written; NULL: it is none. Free with mem_free(). */
static char *compose_text(const json_t *value)
{
    return json_is_string(value)                             ? mem_strdup(json_string_value(value))
           : json_is_number(value) || json_is_boolean(value) ? json_dumps(value, JSON_ENCODE_ANY)
                                                             : NULL;
}

/* `option` with each value: of a scalar, a list, or a mapping as NAME=VALUE. */
static int compose_option(struct docker *d, json_t *line, const char *option, const json_t *value)
{
    int r = 0;
    AUTO_FREE char *text = compose_text(value);
    JSON_FOREACH (one, value)
        r = r ? r : json_is_string(one) ? compose_option(d, line, option, one) : -1;
    JSON_FOREACH_MEMBER (key, one, value) {
        AUTO_FREE char *member = compose_text(one);
        AUTO_FREE char *word = member ? mem_printf("%s=%s", key, member) : mem_strdup(key);
        compose_word(line, option);
        compose_word(line, word);
        r = member || json_is_null(one) ? r : -1;
    }
    if (text) {
        compose_word(line, option);
        compose_word(line, text);
    }
    return r || text || json_is_array(value) || json_is_object(value) ? r : -1;
}

/* As a shell makes words, of which nothing is replaced. -1: a quote is open. */
static int compose_split(const char *text, json_t *line)
{
    AUTO_BUF struct buf word = BUF_INIT(COMPOSE_TEXT_MAX);
    bool is_word = false;
    for (char quote = '\0';; text++) {
        if (quote ? *text == quote : *text == '\'' || *text == '"') {
            quote = quote ? '\0' : *text;
            is_word = true;
        } else if (*text == '\0' || (!quote && isspace((unsigned char)*text))) {
            if (is_word)
                (void)json_array_append_new(line, json_stringn(buf_len(&word) ? buf_data(&word) : "", buf_len(&word)));
            buf_clear(&word);
            is_word = false;
            if (*text == '\0')
                return quote ? -1 : 0;
        } else {
            if (*text == '\\' && text[1] && (!quote || (quote == '"' && strchr("\"\\", text[1]))))
                text++;
            buf_append_char(&word, *text);
            is_word = true;
        }
    }
}

static int compose_command(json_t *line, const json_t *value)
{
    JSON_FOREACH (one, value) {
        if (!json_is_string(one))
            return -1;
    }
    return json_is_string(value)           ? compose_split(json_string_value(value), line)
           : !value || json_is_null(value) ? 0
           : !json_is_array(value)         ? -1
                                           : json_array_extend(line, (json_t *)value);
}

/* ---- what is done to services ---- */

struct compose_each {
    struct docker *d;
    int (*fn)(struct docker *d, const char *name, const json_t *service);
};

static bool compose_is_meant(const struct docker *d, const char *name)
{
    for (int i = 0; i < d->n; i++)
        if (strcmp(d->operands[i], name) == 0)
            return true;
    return d->n == 0;
}

/* What is written meanwhile goes to stderr, as there. */
static int compose_do_each(struct context *ctx UNUSED, void *arg)
{
    struct compose_each *each = arg;
    int r = 0;
    JSON_FOREACH_MEMBER (name, service, json_object_get(each->d->compose, "services")) {
        if (r == 0 && compose_is_meant(each->d, name))
            r = each->fn(each->d, name, service);
    }
    return r;
}

static int compose_each(struct docker *d, int (*fn)(struct docker *d, const char *name, const json_t *service))
{
    struct compose_each each = {d, fn};
    int r = compose_read(d);
    for (int i = 0; r == 0 && i < d->n; i++)
        if (!json_object_get(json_object_get(d->compose, "services"), d->operands[i]))
            r = docker_refuse(d, "no such service: %s", d->operands[i]);
    return r ? r : template_build_aside(d->ctx, compose_do_each, &each);
}

static char *compose_image(const struct docker *d, const char *name, const json_t *service)
{
    const char *image = json_string_value(json_object_get(service, "image"));
    return image ? mem_strdup(image) : mem_printf("%s-%s", d->project, name);
}

static int compose_build_one(struct docker *d, const char *name, const json_t *service)
{
    const json_t *build = json_object_get(service, "build"), *args = json_object_get(build, "args");
    const char *context = json_string_value(json_is_object(build) ? json_object_get(build, "context") : build);
    const char *file = json_string_value(json_object_get(build, "dockerfile"));
    AUTO_FREE char *image = compose_image(d, name, service);
    char at[PATH_TEXT_MAX], file_at[PATH_TEXT_MAX];
    JSON_FOREACH_MEMBER (key, value, build) {
        if (strcmp(key, "context") != 0 && strcmp(key, "dockerfile") != 0 && strcmp(key, "args") != 0)
            return docker_refuse(d, "services.%s.build.%s is not supported", name, key);
    }
    if (!build)
        return 0;
    if (path_join(str_of(d->place), str_of(context ? context : "."), at) < 0 ||
        path_join(str_of(at), str_of(file ? file : "Dockerfile"), file_at) < 0)
        return docker_refuse(d, "services.%s.build: the path is too long", name);
    AUTO_JSON json_t *line = json_pack("[ssssss]", "build", "-t", image, "-f", file_at, at);
    if (args && compose_option(d, line, "--build-arg", args) < 0)
        return docker_refuse(d, "services.%s.build.args must be a mapping", name);
    return compose_run_line(d, line);
}

static int compose_pull_one(struct docker *d, const char *name, const json_t *service)
{
    AUTO_FREE char *image = compose_image(d, name, service);
    AUTO_JSON json_t *line = json_pack("[sss]", "pull", "--", image);
    return json_object_get(service, "build") || docker_has_image(d, image) ? 0 : compose_run_line(d, line);
}

static int compose_up_one(struct docker *d, const char *name, const json_t *service)
{
    AUTO_FREE char *container = mem_printf("%s-%s-1", d->project, name), *image = compose_image(d, name, service);
    AUTO_FREE char *project = mem_printf(COMPOSE_PROJECT "=%s", d->project);
    AUTO_FREE char *own = mem_printf(COMPOSE_SERVICE "=%s", name);
    AUTO_FREE char *file = mem_printf(COMPOSE_FILE "=%s/%s", d->place, path_base(str_of(d->file)).p);
    AUTO_JSON json_t *line =
        json_pack("[ssssssssss]", "run", "-d", "--name", container, "-l", project, "-l", own, "-l", file);
    AUTO_JSON json_t *before = NULL, *remove = json_pack("[ssss]", "rm", "-f", "--", container);
    int r = 0;
    if (docker_find(d, container, &before) == 0) {
        if (docker_is_up(d, before))
            return 0;
        r = compose_run_line(d, remove);
    }
    if (r == 0 && !docker_has_image(d, image))
        r = compose_build_one(d, name, service);
    if (r)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(compose_keys); i++) {
        const json_t *value = json_object_get(service, compose_keys[i].key);
        if (value && compose_keys[i].option && compose_option(d, line, compose_keys[i].option, value) < 0)
            return docker_refuse(d, "services.%s.%s has a value that is not supported", name, compose_keys[i].key);
    }
    compose_word(line, "--"); /* an image of a stranger's file is no option */
    compose_word(line, image);
    if (compose_command(line, json_object_get(service, "entrypoint")) < 0 ||
        compose_command(line, json_object_get(service, "command")) < 0)
        return docker_refuse(d, "services.%s: command and entrypoint are a text or a list of texts", name);
    return compose_run_line(d, line);
}

int docker_compose_up(struct docker *d)
{
    return d->detach ? compose_each(d, compose_up_one) : docker_refuse(d, "compose up needs --detach");
}

int docker_compose_build(struct docker *d)
{
    return compose_each(d, compose_build_one);
}

int docker_compose_pull(struct docker *d)
{
    return compose_each(d, compose_pull_one);
}

/* ---- what is asked about them ---- */

int docker_compose_config(struct docker *d)
{
    int r = compose_read(d);
    if (r)
        return r;
    if (!d->images)
        print_json(d->compose); /* JSON is YAML, too */
    JSON_FOREACH_MEMBER (name, service, d->images ? json_object_get(d->compose, "services") : NULL) {
        AUTO_FREE char *image = compose_image(d, name, service);
        print_line(image);
    }
    return 0;
}

/* The container's name of the service that `text` begins with, and the rest of it. Free with mem_free(). */
static char *compose_container(const struct docker *d, const char *text)
{
    size_t n = strcspn(text, ":");
    return mem_printf("%s-%.*s-1%s", d->project, (int)n, text, text + n);
}

int docker_compose_exec(struct docker *d)
{
    AUTO_JSON json_t *sandbox = NULL;
    int r = d->n < 2 ? docker_refuse(d, "requires at least 2 arguments") : d->project ? 0 : compose_read(d);
    AUTO_FREE char *name = r ? NULL : compose_container(d, d->operands[0]);
    if (r)
        return r;
    if (docker_find(d, name, &sandbox) < 0 || !docker_is_up(d, sandbox)) {
        (void)fprintf(stderr, "service \"%s\" is not running\n", d->operands[0]);
        return DOCKER_FAILED;
    }
    d->operands[0] = name;
    d->interactive = true;
    return docker_exec(d);
}

int docker_compose_cp(struct docker *d)
{
    int r = d->n != 2 ? docker_refuse(d, "requires exactly 2 arguments") : d->project ? 0 : compose_read(d);
    if (r)
        return r;
    const int remote = docker_is_remote(d->operands[0]) ? 0 : 1;
    AUTO_FREE char *place = compose_container(d, d->operands[remote]);
    d->operands[remote] = place;
    return docker_cp(d);
}

int docker_compose_ps(struct docker *d)
{
    int r = d->project ? 0 : compose_read(d);
    return r ? r : docker_ps(d);
}

int docker_compose_down(struct docker *d)
{
    AUTO_JSON json_t *all = NULL;
    int r = d->project ? 0 : compose_read(d), status = 0;
    if (r)
        return r;
    if (docker_containers(d, &all) < 0)
        return docker_fail(d, DOCKER_FAILED);
    JSON_FOREACH (one, all) {
        if (strcmp(docker_label(one, COMPOSE_PROJECT), d->project) == 0 &&
            service_remove(d->s, service_text(one, "id"), NULL) < 0)
            status = docker_fail(d, DOCKER_FAILED);
    }
    return status;
}

/* Those that have a container. */
int docker_compose_ls(struct docker *d)
{
    AUTO_JSON json_t *all = NULL, *projects = json_object(), *list = json_array();
    if (docker_containers(d, &all) < 0)
        return docker_fail(d, DOCKER_FAILED);
    JSON_FOREACH (one, all) {
        const char *name = docker_label(one, COMPOSE_PROJECT);
        const bool is_up = *name && docker_is_up(d, one);
        if (*name && (d->all || is_up))
            (void)json_object_set_new(projects, name,
                                      json_pack("{s:s, s:s, s:s}", "Name", name, "Status", is_up ? "running" : "exited",
                                                "ConfigFiles", docker_label(one, COMPOSE_FILE)));
    }
    JSON_FOREACH_MEMBER (name, one, projects)
        (void)json_array_append(list, one);
    print_json(list);
    return 0;
}
