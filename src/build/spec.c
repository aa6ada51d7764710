/* SPDX-License-Identifier: Apache-2.0 */
#include "build/spec.h"
#include "base/buf.h"
#include "base/mem.h"
#include "sandbox/network/network.h"

static const struct {
    const char *name;
    size_t least, most;
} types[] = {
    [BUILD_RUN] = {"RUN", 1, 2},         [BUILD_COPY] = {"COPY", 2, 4}, [BUILD_ENV] = {"ENV", 2, BUILD_ARGS_MAX},
    [BUILD_WORKDIR] = {"WORKDIR", 1, 1}, [BUILD_USER] = {"USER", 1, 2},
};

const struct build_spec_names build_spec_names = {"image",     "template", "archive", "from", "registry", "start_cmd",
                                                  "ready_cmd", "files",    "network", "tier", "memory"};

const char *build_step_name(enum build_step_type type)
{
    return types[type].name;
}

bool build_is_hash(struct str s)
{
    return s.n == BUILD_HASH_LEN && str_is_hex(s);
}

static int wrong(struct err *err, const char *what, const char *why)
{
    return err_set(err, ERR_INVALID_ARGUMENT, "%s: %s", what, why);
}

/* 1, 0 when it is absent, null or empty. */
static int spec_text_of(const json_t *object, const char *name, struct arena *arena, const char **ret_text,
                        struct err *err)
{
    const json_t *value = json_object_get(object, name);
    if (!value || json_is_null(value))
        return 0;
    if (!json_is_string(value))
        return wrong(err, name, "must be a string");
    size_t n = json_string_length(value);
    const char *text = json_string_value(value);
    if (n > BUILD_TEXT_MAX || memchr(text, '\0', n))
        return wrong(err, name, n > BUILD_TEXT_MAX ? "too long" : "holds a NUL");
    if (n == 0)
        return 0;
    *ret_text = arena_strndup(arena, text, n);
    return 1;
}

static int flag_of(const json_t *object, const char *name, bool *ret_flag, struct err *err)
{
    const json_t *value = json_object_get(object, name);
    if (!value || json_is_null(value))
        return 0;
    if (!json_is_boolean(value))
        return wrong(err, name, "must be true or false");
    *ret_flag = json_is_true(value);
    return 1;
}

static int read_args(const json_t *step, struct build_step *s, struct arena *arena, struct err *err)
{
    const json_t *args = json_object_get(step, "args");
    size_t n = json_array_size(args);
    if (args && !json_is_null(args) && !json_is_array(args))
        return wrong(err, "args", "must be a list");
    if (n < types[s->type].least || n > types[s->type].most)
        return err_set(err, ERR_INVALID_ARGUMENT, "%s: takes %zu to %zu arguments, not %zu", types[s->type].name,
                       types[s->type].least, types[s->type].most, n);
    if (s->type == BUILD_ENV && n % 2)
        return wrong(err, "ENV", "requires both a key and value arguments");
    struct str *list = arena_alloc(arena, n * sizeof(*list));
    JSON_FOREACH_AT (i, arg, args) {
        struct str text = json_str(arg);
        if (!json_is_string(arg) || text.n > BUILD_TEXT_MAX || str_has_nul(text))
            return wrong(err, "args", "must be strings of at most 64 KiB without NUL");
        list[i] = arena_str(arena, text);
    }
    s->args = list;
    s->n_args = n;
    return 0;
}

static int check_args(const struct build_step *s, struct err *err)
{
    const char *name = types[s->type].name;
    if (s->type != BUILD_ENV && (s->n_args == 0 || s->args[0].n == 0))
        return wrong(err, name, "its first argument is empty");
    if (s->type == BUILD_COPY && s->args[1].n == 0)
        return wrong(err, name, "there is no destination");
    if (s->type == BUILD_COPY && !s->files_hash)
        return wrong(err, name, "requires files hash to be set");
    for (size_t i = 0; s->type == BUILD_ENV && i < s->n_args; i += 2)
        if (s->args[i].n == 0 || str_find_char(s->args[i], '=') >= 0)
            return wrong(err, name, "a variable without a proper name");
    if (s->type == BUILD_COPY && s->n_args == 4) {
        for (size_t i = 0; i < s->args[3].n; i++)
            if (s->args[3].n > 5 || s->args[3].p[i] < '0' || s->args[3].p[i] > '7')
                return wrong(err, name, "its mode is not octal");
    }
    return 0;
}

static int read_step(const json_t *step, const struct build_spec_names *names, struct arena *arena,
                     struct build_step *ret_step, struct err *err)
{
    const char *type = NULL, *hash = NULL;
    struct build_step s = {0};
    if (!json_is_object(step))
        return wrong(err, "step", "must be an object");
    if (spec_text_of(step, "type", arena, &type, err) < 0 || spec_text_of(step, names->files, arena, &hash, err) < 0 ||
        flag_of(step, "force", &s.force, err) < 0)
        return -1;
    size_t t = 0;
    while (t < ARRAY_SIZE(types) && !(type && str_eq_nocase(str_of(type), str_of(types[t].name))))
        t++;
    if (t == ARRAY_SIZE(types))
        return err_set(err, ERR_INVALID_ARGUMENT, "there are no steps of the type '%.32s'", type ? type : "");
    s.type = (enum build_step_type)t;
    if (hash && !build_is_hash(str_of(hash)))
        return wrong(err, names->files, "must be 64 lower-case hexadecimal digits");
    s.files_hash = s.type == BUILD_COPY ? hash : NULL;
    if (read_args(step, &s, arena, err) < 0 || check_args(&s, err) < 0)
        return -1;
    *ret_step = s;
    return 0;
}

static int read_steps(const json_t *body, const struct build_spec_names *names, struct arena *arena,
                      struct build_spec *spec, struct err *err)
{
    const json_t *steps = json_object_get(body, "steps");
    size_t n = json_array_size(steps);
    if (steps && !json_is_null(steps) && !json_is_array(steps))
        return wrong(err, "steps", "must be a list");
    if (n > BUILD_STEPS_MAX)
        return err_set(err, ERR_INVALID_ARGUMENT, "steps: more than %d", BUILD_STEPS_MAX);
    struct build_step *list = arena_alloc(arena, (n + 1) * sizeof(*list));
    JSON_FOREACH_AT (i, step, steps)
        if (read_step(step, names, arena, &list[i], err) < 0)
            return err_prefix(err, "step %zu", i + 1);
    spec->steps = list;
    spec->n_steps = n;
    return 0;
}

static int read_registry(const json_t *body, const char *name, struct arena *arena, struct build_spec *spec,
                         struct err *err)
{
    const json_t *registry = json_object_get(body, name);
    const char *type = NULL;
    if (!registry || json_is_null(registry))
        return 0;
    if (!json_is_object(registry))
        return wrong(err, name, "must be an object");
    if (spec_text_of(registry, "type", arena, &type, err) < 0)
        return -1;
    if (type && strcmp(type, "registry") != 0)
        return err_set(
            err, ERR_UNIMPLEMENTED,
            "%s: only registries with a user name and a password are supported (type \"registry\"), not \"%.16s\"",
            name, type);
    if (spec_text_of(registry, "username", arena, &spec->username, err) < 0 ||
        spec_text_of(registry, "password", arena, &spec->password, err) < 0)
        return -1;
    return 0;
}

static int spec_read_network(const json_t *body, const char *name, struct arena *arena, struct build_spec *spec,
                             struct err *err)
{
    const json_t *policy = name ? json_object_get(body, name) : NULL;
    if (!policy)
        return 0;
    if (network_check_policy(policy, err) < 0)
        return err_prefix(err, "%s", name);
    char *text = json_dumps(policy, JSON_COMPACT);
    spec->network = arena_printf(arena, "%s", text);
    mem_free(text);
    return 0;
}

int build_spec_read(const json_t *body, const struct build_spec_names *names, struct arena *arena,
                    struct build_spec *ret_spec, struct err *err)
{
    struct build_spec spec = {0};
    bool memory = true;
    if (spec_text_of(body, names->image, arena, &spec.image, err) < 0 ||
        spec_text_of(body, names->template_ref, arena, &spec.template_ref, err) < 0 ||
        spec_text_of(body, names->archive, arena, &spec.archive, err) < 0 ||
        spec_text_of(body, names->from, arena, &spec.from, err) < 0 ||
        spec_text_of(body, names->start_cmd, arena, &spec.start_cmd, err) < 0 ||
        spec_text_of(body, names->ready_cmd, arena, &spec.ready_cmd, err) < 0 ||
        spec_text_of(body, names->tier, arena, &spec.tier, err) < 0 || flag_of(body, names->memory, &memory, err) < 0 ||
        flag_of(body, "force", &spec.force, err) < 0 || read_registry(body, names->registry, arena, &spec, err) < 0 ||
        spec_read_network(body, names->network, arena, &spec, err) < 0 ||
        read_steps(body, names, arena, &spec, err) < 0)
        return -1;
    int n = (spec.image != NULL) + (spec.template_ref != NULL) + (spec.archive != NULL) + (spec.from != NULL);
    if (n == 0)
        return err_set(err, ERR_INVALID_ARGUMENT, "must specify either %s or %s", names->image, names->template_ref);
    if (n > 1)
        return err_set(err, ERR_INVALID_ARGUMENT, "cannot specify both %s and %s", names->image, names->template_ref);
    if (spec.archive && !build_is_hash(str_of(spec.archive)))
        return wrong(err, names->archive, "must be 64 lower-case hexadecimal digits");
    spec.no_memory = !memory;
    *ret_spec = spec;
    return 0;
}

const char *build_step_text(const struct build_step *step, struct arena *arena, size_t max)
{
    AUTO_BUF struct buf b = BUF_INIT(BUILD_TEXT_MAX * 4);
    size_t n = step->type == BUILD_COPY ? 2 : step->type == BUILD_RUN ? 1 : step->n_args;
    buf_append_cstr(&b, types[step->type].name);
    for (size_t i = 0; i < n && buf_len(&b) <= max; i++) {
        buf_append_char(&b, step->type == BUILD_ENV && i % 2 ? '=' : ' ');
        buf_append_str(&b, str_n(step->args[i].p, MIN(step->args[i].n, max)));
    }
    struct str s = buf_str(&b);
    bool cut = s.n > max;
    s.n = MIN(s.n, max);
    while (cut && s.n && !str_is_utf8(s))
        s.n--;
    return arena_printf(arena, "%.*s%s", STR_ARG(s), cut ? "..." : "");
}
