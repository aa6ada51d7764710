/* SPDX-License-Identifier: Apache-2.0 */
/* docker ps, images and inspect: what is there, as tables, and by --format. */
#include "base/mem.h"
#include "cli/docker/docker.h"
#include "cli/exec/terminal.h"
#include "cli/print.h"

#include <signal.h>
#include <unistd.h>

/* ---- --format: {{json .}}, and {{.Field}} with what lies in it ---- */

static const json_t *docker_field(const json_t *object, struct str path)
{
    struct str part;
    while (object && str_split(&path, '.', &part)) {
        AUTO_FREE char *name = mem_strndup(part.p, part.n);
        if (part.n)
            object = json_object_get(object, name);
    }
    return object;
}

/* Text between the braces; -1: it can't be done. */
static int docker_format_one(const json_t *object, struct str what, struct buf *b)
{
    const bool is_json = str_starts(what, STR("json ")), is_tty = isatty(STDOUT_FILENO) == 1;
    what = str_trim(is_json ? str_sub(what, 5) : what);
    const json_t *value = what.n && what.p[0] == '.' ? docker_field(object, str_sub(what, 1)) : NULL;
    if (!value || (!is_json && (json_is_object(value) || json_is_array(value))))
        return -1;
    if (!is_json && json_is_string(value)) {
        if (is_tty)
            terminal_escape(b, str_of(json_string_value(value)));
        else
            buf_append_cstr(b, json_string_value(value));
        return 0;
    }
    AUTO_FREE char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | (is_tty ? JSON_ENSURE_ASCII : 0));
    buf_append_cstr(b, text ? text : "");
    return 0;
}

int docker_print(struct docker *d, const json_t *object)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    const char *rest = strcmp(d->format, "json") == 0 ? "{{json .}}" : d->format;
    for (const char *open; (open = strstr(rest, "{{")); rest = strstr(open, "}}") + 2) {
        const char *close = strstr(open, "}}");
        (void)!buf_append(&b, rest, (size_t)(open - rest));
        if (!close || docker_format_one(object, str_trim(str_n(open + 2, (size_t)(close - open) - 2)), &b) < 0)
            return docker_refuse(d,
                                 "template parsing error: --format %s: there is {{json .}}, and {{.Field}} of a field "
                                 "that is there",
                                 d->format);
    }
    buf_append_cstr(&b, rest);
    (void)fwrite(buf_data(&b), 1, buf_len(&b), stdout);
    (void)fputc('\n', stdout);
    return 0;
}

/* A row for each, in the order of `heads`, whose fields are `fields`. */
static int docker_table(struct docker *d, const json_t *all, const char *const *heads, const char *const *fields,
                        size_t n)
{
    struct table t;
    if (d->format || d->quiet) {
        JSON_FOREACH (one, all) {
            int r = 0;
            if (d->quiet)
                print_line(json_string_value(json_object_get(one, "ID")));
            else
                r = docker_print(d, one);
            if (r)
                return r;
        }
        return 0;
    }
    table_init(&t, n);
    for (size_t k = 0; k < n; k++)
        table_add(&t, str_of(heads[k]));
    JSON_FOREACH (one, all) {
        for (size_t k = 0; k < n; k++)
            table_add(&t, str_of(json_string_value(json_object_get(one, fields[k]))));
    }
    table_print(&t, stdout);
    table_fini(&t);
    return 0;
}

/* ---- containers ---- */

bool docker_is_up(struct docker *d, const json_t *sandbox)
{
    AUTO_FREE char *target = service_target(service_text(sandbox, "id"), "/processes");
    AUTO_JSON json_t *all = NULL;
    const char *state = json_string_value(json_object_get(sandbox, "state"));
    if (!state || strcmp(state, "running") != 0 || service_call(d->s, "GET", target, NULL, NULL, &all) < 0)
        return false;
    JSON_FOREACH (one, json_object_get(all, "processes")) {
        const char *tag = json_string_value(json_object_get(one, "tag"));
        if (tag && strcmp(tag, DOCKER_TAG) == 0)
            return true;
    }
    return false;
}

static json_t *docker_describe(struct docker *d, const json_t *sandbox)
{
    const bool is_up = docker_is_up(d, sandbox);
    const char *at = json_string_value(json_object_get(sandbox, "started_at")),
               *name = docker_label(sandbox, DOCKER_NAME);
    int code = 0;
    if (!is_up && (docker_record(d, sandbox, false, &code) < 0 || code < 0))
        code = 128 + SIGKILL; /* the record has no end of what stop ended */
    AUTO_FREE char *status = is_up ? mem_strdup("Up") : mem_printf("Exited (%d)", code);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i}", "ID", service_text(sandbox, "id"),
                     "Image", docker_label(sandbox, DOCKER_IMAGE), "Command", docker_label(sandbox, DOCKER_COMMAND),
                     "CreatedAt", at ? at : "", "Names", name, "State", is_up ? "running" : "exited", "Status", status,
                     "Ports", "", "Name", name, "Project", docker_label(sandbox, COMPOSE_PROJECT), "Service",
                     docker_label(sandbox, COMPOSE_SERVICE), "ExitCode", code);
}

static bool docker_matches(const struct docker *d, const json_t *sandbox)
{
    if (d->project && strcmp(docker_label(sandbox, COMPOSE_PROJECT), d->project) != 0)
        return false;
    for (size_t i = 0; i < d->n_filters; i++) {
        const char *value = strchr(d->filters[i], '=') + 1;
        AUTO_FREE char *key = mem_strndup(value, strcspn(value, "="));
        const json_t *label = json_object_get(json_object_get(sandbox, "metadata"), key);
        const char *text = json_string_value(label);
        if (d->filters[i][0] == 'n'   ? !strstr(docker_label(sandbox, DOCKER_NAME), value)
            : d->filters[i][0] == 'i' ? !str_starts(str_of(service_text(sandbox, "id")), str_of(value))
                                      : !text || (value[strlen(key)] && strcmp(value + strlen(key) + 1, text) != 0))
            return false;
    }
    return true;
}

int docker_ps(struct docker *d)
{
    static const char *const heads[] = {"CONTAINER ID", "IMAGE", "COMMAND", "CREATED", "STATUS", "PORTS", "NAMES"};
    static const char *const fields[] = {"ID", "Image", "Command", "CreatedAt", "Status", "Ports", "Names"};
    AUTO_JSON json_t *all = NULL, *shown = json_array();
    if (docker_containers(d, &all) < 0)
        return docker_fail(d, DOCKER_FAILED);
    JSON_FOREACH (one, all) {
        json_t *line = docker_matches(d, one) ? docker_describe(d, one) : NULL;
        const char *wanted = d->status ? d->status : d->all ? NULL : "running";
        if (line && (!wanted || strcmp(json_string_value(json_object_get(line, "State")), wanted) == 0))
            (void)json_array_append(shown, line);
        json_decref(line);
    }
    return docker_table(d, shown, heads, fields, ARRAY_SIZE(heads));
}

/* ---- images ---- */

static void docker_add_image(const json_t *one, const char *tag, const char *wanted, json_t *ret)
{
    const char *name = json_string_value(json_object_get(one, "name")), *id = service_text(one, "id");
    const char *at = json_string_value(json_object_get(one, "updated_at"));
    const bool is_default = !tag || strcmp(tag, "default") == 0;
    AUTO_FREE char *full = is_default ? mem_strdup(name ? name : id) : mem_printf("%s:%s", name ? name : id, tag);
    if (!wanted || strcmp(wanted, full) == 0 || strcmp(wanted, id) == 0)
        (void)json_array_append_new(ret, json_pack("{s:s, s:s, s:s, s:s, s:s}", "Repository", name ? name : "<none>",
                                                   "Tag", is_default ? "latest" : tag, "ID", id, "CreatedAt",
                                                   at ? at : "", "Size", "-"));
}

/* image NULL: all. One entry for each tag. */
static int docker_list_images(struct docker *d, const char *image, json_t *ret)
{
    AUTO_FREE char *wanted = image ? docker_template(image) : NULL;
    AUTO_JSON json_t *answer = NULL;
    if (service_call(d->s, "GET", "/cove/v1/templates", NULL, NULL, &answer) < 0)
        return -1;
    JSON_FOREACH (one, json_object_get(answer, "templates")) {
        const json_t *tags = json_object_get(one, "tags");
        const char *status = json_string_value(json_object_get(one, "status"));
        if (status && strcmp(status, "ready") != 0) /* building, or failed: nothing can be made from it */
            continue;
        if (!json_array_size(tags)) /* the one that comes with the service */
            docker_add_image(one, NULL, wanted, ret);
        JSON_FOREACH (tag, tags)
            docker_add_image(one, json_string_value(json_object_get(tag, "tag")), wanted, ret);
    }
    return 0;
}

bool docker_has_image(struct docker *d, const char *image)
{
    AUTO_JSON json_t *all = json_array();
    return docker_list_images(d, image, all) == 0 && json_array_size(all);
}

int docker_images(struct docker *d)
{
    static const char *const heads[] = {"REPOSITORY", "TAG", "IMAGE ID", "CREATED", "SIZE"};
    static const char *const fields[] = {"Repository", "Tag", "ID", "CreatedAt", "Size"};
    AUTO_JSON json_t *all = json_array();
    if (d->n > 1)
        return docker_refuse(d, "\"docker images\" requires at most 1 argument.");
    if (docker_list_images(d, d->n ? d->operands[0] : NULL, all) < 0)
        return docker_fail(d, DOCKER_FAILED);
    return docker_table(d, all, heads, fields, ARRAY_SIZE(heads));
}

/* ---- inspect ---- */

int docker_inspect(struct docker *d)
{
    AUTO_JSON json_t *found = json_array();
    int status = d->n ? 0 : docker_refuse(d, "\"docker inspect\" requires at least 1 argument.");
    for (int i = 0; i < d->n; i++) {
        AUTO_JSON json_t *sandbox = NULL, *images = json_array();
        if (docker_find(d, d->operands[i], &sandbox) == 0) {
            AUTO_JSON json_t *one = docker_describe(d, sandbox);
            const char *state = service_text(one, "State");
            (void)json_array_append_new(
                found,
                json_pack("{s:s, s:o, s:{s:s, s:b, s:O}, s:{s:s}, s:{s:{}}}", "Id", service_text(sandbox, "id"), "Name",
                          json_sprintf("/%s", docker_label(sandbox, DOCKER_NAME)), "State", "Status", state, "Running",
                          strcmp(state, "running") == 0, "ExitCode", json_object_get(one, "ExitCode"), "Config",
                          "Image", docker_label(sandbox, DOCKER_IMAGE), "NetworkSettings", "Ports"));
        } else if (docker_list_images(d, d->operands[i], images) == 0 && json_array_size(images)) {
            (void)json_array_append_new(found, json_pack("{s:O, s:[s]}", "Id",
                                                         json_object_get(json_array_get(images, 0), "ID"), "RepoTags",
                                                         d->operands[i]));
        } else {
            (void)fprintf(stderr, "Error: No such object: %s\n", d->operands[i]);
            status = DOCKER_FAILED;
        }
    }
    if (!d->format) {
        print_json(found);
        return status;
    }
    JSON_FOREACH (one, found) {
        int r = docker_print(d, one);
        status = r ? r : status;
    }
    return status;
}
