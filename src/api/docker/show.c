/* SPDX-License-Identifier: Apache-2.0 */
/* Containers as they are shown, and which one is meant. */
#include "api/docker/handlers.h"
#include "base/mem.h"

/* ---- which ---- */

enum { FILTERS_MAX = 100 };

struct show_search {
    struct str text;
    uint64_t tenant;
    struct sandbox *is, *named, *begins;
    size_t n_begin;
};

static bool show_compare(void *ctx, struct sandbox *sb)
{
    struct show_search *s = ctx;
    const struct sandbox_info *info = sandbox_info(sb);
    if (!sandbox_label(sb, STR(DOCKER_IMAGE)).n || info->hidden)
        return true;
    s->is = str_eqc(s->text, info->id) ? sb : s->is;
    s->named = info->tenant == s->tenant && str_eq(sandbox_label(sb, STR(DOCKER_NAME)), s->text) ? sb : s->named;
    s->begins = str_starts(str_of(info->id), s->text) ? sb : s->begins;
    s->n_begin += s->begins == sb;
    return !s->is;
}

struct sandbox *docker_find(const struct call *c, struct str text)
{
    struct show_search s = {.text = str_starts(text, STR("/")) ? str_sub(text, 1) : text,
                            .tenant = c->actor.who.tenant};
    if (s.text.n)
        access_each_sandbox(c, show_compare, &s);
    return s.is || s.named ? s.is ? s.is : s.named : s.n_begin == 1 ? s.begins : NULL;
}

/* ---- as JSON ---- */

static const char *const show_states[] = {
    [DOCKER_CREATED] = "created", [DOCKER_RUNNING] = "running", [DOCKER_PAUSED] = "paused", [DOCKER_EXITED] = "exited"};

static json_t *show_time(usec_t at)
{
    char text[CLOCK_TEXT_MAX];
    clock_format(at, 6, text);
    return json_string(at ? text : "0001-01-01T00:00:00Z");
}

static json_t *show_name(const struct sandbox *sb)
{
    struct str name = sandbox_label(sb, STR(DOCKER_NAME));
    return name.n ? json_sprintf("/%.*s", STR_ARG(name)) : json_sprintf("/%s", sandbox_info(sb)->id);
}

static json_t *show_labels(const struct sandbox *sb)
{
    const struct sandbox_info *info = sandbox_info(sb);
    json_t *all = json_object();
    for (size_t i = 0; i < info->n_metadata; i++) {
        const struct pair *one = &info->metadata[i];
        if (!str_starts(one->key, STR("docker.")))
            (void)json_object_setn_new(all, one->key.p, one->key.n, json_stringn(one->value.p, one->value.n));
    }
    return all;
}

static json_t *show_text(struct str text)
{
    return json_stringn(text.n ? text.p : "", text.n);
}

static json_t *show_mounts(const struct sandbox *sb)
{
    const struct sandbox_info *info = sandbox_info(sb);
    json_t *all = json_array();
    for (size_t i = 0; i < info->n_mounts; i++) {
        const struct volume_mount *m = &info->mounts[i];
        (void)json_array_append_new(all, json_pack("{s:s, s:o, s:o, s:s, s:b}", "Type", m->is_host ? "bind" : "volume",
                                                   m->is_host ? "Source" : "Name", show_text(m->name), "Destination",
                                                   show_text(m->path), "Mode", m->read_only ? "ro" : "rw", "RW",
                                                   !m->read_only));
    }
    return all;
}

/* Clients look up what is behind the colon: with Docker, of "sha256:". */
static json_t *show_image(const struct sandbox_info *info)
{
    return json_sprintf("template:%s", info->template_id);
}

void docker_inspect(struct call *c)
{
    const struct docker_box *box = docker_box_of(c);
    const struct sandbox_info *info = sandbox_info(c->sandbox);
    if (!box)
        return;
    const enum docker_state state = docker_box_state(box);
    AUTO_JSON json_t *kept = docker_config(c->sandbox);
    json_t *config = kept ? json_copy(kept) : json_object(), *host = json_object_get(kept, "HostConfig");
    struct str command = sandbox_label(c->sandbox, STR(DOCKER_COMMAND));
    host = host ? json_copy(host) : json_object();
    (void)json_object_del(config, "HostConfig");
    (void)json_object_del(config, "NetworkingConfig");
    (void)json_object_set_new(config, "Image", show_text(sandbox_label(c->sandbox, STR(DOCKER_IMAGE))));
    (void)json_object_set_new(config, "Labels", show_labels(c->sandbox));
    (void)json_object_set_new(config, "Env", json_array());
    (void)json_object_set_new(host, "LogConfig", json_pack("{s:s, s:{}}", "Type", "json-file", "Config"));
    call_value(c, 200,
               json_pack("{s:s, s:o, s:o, s:[], s:o, s:o, s:i, s:s, s:s, s:o, s:o, s:o,"
                         " s:{s:s, s:b, s:b, s:b, s:b, s:b, s:i, s:i, s:s, s:o, s:o}, s:{s:s, s:{}, s:{}}}",
                         "Id", info->id, "Created", show_time(info->started), "Path", show_text(command), "Args",
                         "Name", show_name(c->sandbox), "Image", show_image(info), "RestartCount", 0, "Driver", "cove",
                         "Platform", "linux", "Mounts", show_mounts(c->sandbox), "Config", config, "HostConfig", host,
                         "State", "Status", show_states[state], "Running",
                         state == DOCKER_RUNNING || state == DOCKER_PAUSED, "Paused", state == DOCKER_PAUSED,
                         "Restarting", false, "OOMKilled", false, "Dead", false, "Pid",
                         state == DOCKER_RUNNING ? (int)box->process.pid : 0, "ExitCode", docker_box_code(box), "Error",
                         "", "StartedAt", show_time(box->started ? box->started : info->started), "FinishedAt",
                         show_time(box->finished), "NetworkSettings", "IPAddress", "", "Networks", "Ports"));
}

/* ---- the list ---- */

struct show_list {
    struct call *call;
    const json_t *filters;
    json_t *shown;
    uint64_t limit;
    bool all;
};

/* {"label": ["a=1"]}, or {"label": {"a=1": true}}: of the values of one, any must fit; of labels, all. */
static bool show_fits(const struct sandbox *sb, const char *state, const char *name, const char *value)
{
    if (strcmp(name, "id") == 0)
        return str_starts(str_of(sandbox_info(sb)->id), str_of(value));
    if (strcmp(name, "status") == 0)
        return strcmp(state, value) == 0;
    if (strcmp(name, "name") == 0) {
        struct str has = sandbox_label(sb, STR(DOCKER_NAME));
        return has.n && memmem(has.p, has.n, value + (*value == '/'), strlen(value + (*value == '/')));
    }
    AUTO_FREE char *key = mem_strndup(value, strcspn(value, "="));
    struct str text = sandbox_label(sb, str_of(key));
    return text.p && (!value[strlen(key)] || str_eqc(text, value + strlen(key) + 1));
}

static bool show_passes(const struct show_list *l, const struct sandbox *sb, const char *state)
{
    JSON_FOREACH_MEMBER (name, values, l->filters) {
        size_t n = json_is_array(values) ? json_array_size(values) : json_object_size(values), fits = 0;
        JSON_FOREACH (one, values)
            fits += show_fits(sb, state, name, json_string_value(one));
        JSON_FOREACH_MEMBER (key, one, values)
            fits += show_fits(sb, state, name, key);
        if (strcmp(name, "label") == 0 ? fits < n : !fits)
            return false;
    }
    return true;
}

static bool show_list_one(void *ctx, struct sandbox *sb)
{
    struct show_list *l = ctx;
    const struct sandbox_info *info = sandbox_info(sb);
    if (!sandbox_label(sb, STR(DOCKER_IMAGE)).n || info->hidden)
        return true;
    const struct docker_box *box = docker_box(docker_of(l->call), sb);
    if (!box)
        return true;
    const enum docker_state state = docker_box_state(box);
    bool is_up = state == DOCKER_RUNNING || state == DOCKER_PAUSED;
    if ((!l->all && !json_object_get(l->filters, "status") && !is_up) || !show_passes(l, sb, show_states[state]))
        return true;
    (void)json_array_append_new(
        l->shown, json_pack("{s:s, s:[o], s:o, s:o, s:o, s:I, s:o, s:s, s:o, s:[], s:o, s:{s:s}, s:{s:{}}}", "Id",
                            info->id, "Names", show_name(sb), "Image", show_text(sandbox_label(sb, STR(DOCKER_IMAGE))),
                            "ImageID", show_image(info), "Command", show_text(sandbox_label(sb, STR(DOCKER_COMMAND))),
                            "Created", (json_int_t)(info->started / USEC_PER_SEC), "Labels", show_labels(sb), "State",
                            show_states[state], "Status",
                            is_up                     ? json_string("Up")
                            : state == DOCKER_CREATED ? json_string("Created")
                                                      : json_sprintf("Exited (%d)", docker_box_code(box)),
                            "Ports", "Mounts", show_mounts(sb), "HostConfig", "NetworkMode", "default",
                            "NetworkSettings", "Networks"));
    return !l->limit || json_array_size(l->shown) < l->limit;
}

static bool show_is_pattern(const char *name, const char *value)
{
    return strcmp(name, "name") == 0 && strpbrk(value, "^$*+?()[]{}|\\");
}

static int show_read_filters(struct call *c, json_t **ret_filters, struct err *err)
{
    static const char *const known[] = {"id", "name", "label", "status"};
    struct str text = STR("");
    size_t total = 0, patterns = 0;
    (void)call_query(c, "filters", &text);
    if (json_read_object(text, true, ret_filters, err) < 0 ||
        json_only(*ret_filters, known, ARRAY_SIZE(known), err) < 0)
        return err_prefix(err, "filters");
    JSON_FOREACH_MEMBER (name, values, *ret_filters) {
        if (!json_is_array(values) && !json_is_object(values))
            return err_set(err, ERR_INVALID_ARGUMENT, "filters: %.64s must be a list", name);
        total += json_array_size(values) + json_object_size(values);
        if (total > FILTERS_MAX) /* each is compared with each label of each container */
            return err_set(err, ERR_INVALID_ARGUMENT, "filters: more than %d", FILTERS_MAX);
        JSON_FOREACH (one, values)
            if (!json_is_string(one))
                return err_set(err, ERR_INVALID_ARGUMENT, "filters: %.64s must be a list of strings", name);
        JSON_FOREACH (one, values)
            patterns += show_is_pattern(name, json_string_value(one));
        JSON_FOREACH_MEMBER (key, one, values)
            patterns += show_is_pattern(name, key);
    }
    if (patterns)
        return err_set(err, ERR_INVALID_ARGUMENT, "filters: name is a part of the name, no regular expression");
    return 0;
}

void docker_list(struct call *c)
{
    AUTO_JSON json_t *filters = NULL;
    struct show_list l = {.call = c};
    struct str limit = STR("");
    l.all = docker_flag(c, "all");
    if (!call_ok(c, show_read_filters(c, &filters, &c->err)))
        return;
    if (call_query(c, "limit", &limit) && str_to_u64(limit, &l.limit) < 0)
        l.limit = 0; /* -1: all */
    l.filters = filters;
    l.shown = json_array();
    access_each_sandbox(c, show_list_one, &l);
    call_value(c, 200, l.shown);
}
