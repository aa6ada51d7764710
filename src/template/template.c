/* SPDX-License-Identifier: Apache-2.0 */
#include "template/template.h"
#include "base/arena.h"
#include "base/id.h"
#include "base/mem.h"

/* The public part first: template_free() gets a pointer to it. */
struct parsed {
    struct template t;
    struct arena arena;
    const char *aliases[TEMPLATE_ALIASES_MAX];
    const char *envs[TEMPLATE_ENVS_MAX];
    char build_id[ID_UUID_LEN + 1];
};

/* A build is known by what it made: the beginning of the layer's digest in the form of a UUID, version 8 ("custom", RFC
 * 9562). */
static void set_build_id(struct parsed *p)
{
    const char *hex = p->t.layer + strlen("sha256-");
    size_t n = 0;
    for (size_t i = 0; i < 32; i++) {
        if (i == 8 || i == 12 || i == 16 || i == 20)
            p->build_id[n++] = '-';
        p->build_id[n++] = i == 12 ? '8' : i == 16 ? "89ab"[hex[i] & 3] : hex[i];
    }
    p->t.build_id = p->build_id;
}

static bool is_made_of(struct str s, const char *set)
{
    return s.n && s.n <= TEMPLATE_NAME_MAX && str_is_of(s, set);
}

static bool is_id(struct str s)
{
    return is_made_of(s, "A-Za-z0-9._-") && s.p[0] != '.';
}

static bool is_alias(struct str s)
{
    ssize_t slash = str_find_char(s, '/');
    if (slash >= 0) {
        if (!is_made_of(str_n(s.p, (size_t)slash), "A-Za-z0-9_-"))
            return false;
        s = str_sub(s, (size_t)slash + 1);
    }
    ssize_t colon = str_find_char(s, ':');
    if (colon >= 0) {
        if (!is_made_of(str_sub(s, (size_t)colon + 1), "A-Za-z0-9._-"))
            return false;
        s.n = (size_t)colon;
    }
    return is_made_of(s, "A-Za-z0-9_-");
}

static bool is_layer(struct str s)
{
    return s.n == TEMPLATE_LAYER_LEN && str_starts(s, STR("sha256-")) && str_is_hex(str_sub(s, 7));
}

static int bad_value(struct err *err, const char *key, const char *why)
{
    return err_set(err, ERR_INVALID_ARGUMENT, "%s: %s", key, why);
}

static int set_text(struct parsed *p, const char *key, struct str value, bool ok, const char **ret_to, struct err *err)
{
    if (!ok)
        return bad_value(err, key, "not in its form");
    if (*ret_to)
        return bad_value(err, key, "given twice");
    *ret_to = arena_strndup(&p->arena, value.p, value.n);
    return 0;
}

static int add_text(struct parsed *p, const char *key, struct str value, bool ok, const char **list, size_t *n,
                    size_t max, struct err *err)
{
    if (*n == max)
        return bad_value(err, key, "too many");
    list[*n] = NULL;
    if (set_text(p, key, value, ok, &list[*n], err) < 0)
        return -1;
    ++*n;
    return 0;
}

static int set_number(const char *key, struct str value, uint64_t max, uint64_t *ret_to, struct err *err)
{
    uint64_t v;
    if (str_to_u64(value, &v) < 0 || v > max)
        return bad_value(err, key, "not a number in its range");
    *ret_to = v;
    return 0;
}

static int template_set(struct parsed *p, struct str key, struct str value, struct err *err)
{
    struct template *t = &p->t;
    uint64_t cpu = t->cpu_milli;
    if (str_eqc(key, "id"))
        return set_text(p, "id", value, is_id(value), &t->id, err);
    if (str_eqc(key, "layer"))
        return set_text(p, "layer", value, is_layer(value), &t->layer, err);
    if (str_eqc(key, "alias"))
        return add_text(p, "alias", value, is_alias(value), p->aliases, &t->n_aliases, TEMPLATE_ALIASES_MAX, err);
    if (str_eqc(key, "env"))
        return add_text(p, "env", value, str_find_char(value, '=') > 0, p->envs, &t->n_envs, TEMPLATE_ENVS_MAX, err);
    if (str_eqc(key, "start_cmd"))
        return set_text(p, "start_cmd", value, value.n > 0, &t->start_cmd, err);
    if (str_eqc(key, "tier"))
        return set_text(p, "tier", value, value.n > 0, &t->tier, err);
    if (str_eqc(key, "cpu_milli")) {
        if (set_number("cpu_milli", value, 1000 * 1000, &cpu, err) < 0)
            return -1;
        t->cpu_milli = (uint32_t)cpu;
        return 0;
    }
    if (str_eqc(key, "memory_bytes"))
        return set_number("memory_bytes", value, INT64_MAX, &t->memory_bytes, err);
    if (str_eqc(key, "disk_bytes"))
        return set_number("disk_bytes", value, INT64_MAX, &t->disk_bytes, err);
    if (str_eqc(key, "size_bytes"))
        return set_number("size_bytes", value, INT64_MAX, &t->size_bytes, err);
    if (str_eqc(key, "built"))
        return clock_parse(value, &t->built) < 0 ? bad_value(err, "built", "not a time") : 0;
    return 0; /* of a newer Cove */
}

void template_free(struct template *t)
{
    if (!t)
        return;
    struct parsed *p = container_of(t, struct parsed, t);
    arena_fini(&p->arena);
    mem_free(p);
}

int template_parse(struct str text, struct template **ret_template, struct err *err)
{
    struct parsed *p = mem_new(struct parsed);
    AUTO(template_free) struct template *t = &p->t;
    t->aliases = p->aliases;
    t->envs = p->envs;
    if (str_has_nul(text) || !str_is_utf8(text))
        return err_set(err, ERR_INVALID_ARGUMENT, "not text");
    struct str line;
    for (unsigned number = 1; str_split(&text, '\n', &line); number++) {
        line = str_trim(line);
        if (line.n && line.p[line.n - 1] == '\r')
            line = str_trim(str_n(line.p, line.n - 1));
        if (!line.n || line.p[0] == '#')
            continue;
        ssize_t eq = str_find_char(line, '=');
        if (eq <= 0)
            return err_set(err, ERR_INVALID_ARGUMENT, "line %u: not `key = value`", number);
        if (template_set(p, str_trim(str_n(line.p, (size_t)eq)), str_trim(str_sub(line, (size_t)eq + 1)), err) < 0)
            return err_prefix(err, "line %u", number);
    }
    if (!t->id || !t->layer)
        return err_set(err, ERR_INVALID_ARGUMENT, "no %s", t->id ? "layer" : "id");
    set_build_id(p);
    *ret_template = TAKE_PTR(t);
    return 0;
}
