/* SPDX-License-Identifier: Apache-2.0 */
#include "api/kit/json_read.h"
#include "sandbox/sandbox.h"

enum { VALUE_BYTES = 128 }; /* of memory; an empty object takes twice that, and is two with the comma */

/* For wrong members that are known; unknown ones are refused by some façades alone. */
#define json_malformed(err, ...)                                                                                       \
    ((void)err_set((err), ERR_INVALID_ARGUMENT, __VA_ARGS__), err_because((err), ERR_MALFORMED))

/*
 * jansson allows 2,048 levels and as many values as fit, and a value costs far more memory than its text: both are
 * counted before it sees a byte. Brackets outside of strings and commas are all it takes; whether they match is
 * jansson's business.
 */
static int check_shape(struct str text, size_t *ret_values, struct err *err)
{
    size_t depth = 0, values = 1;
    bool in_string = false;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
            continue;
        }
        switch (c) {
        case '"':
            in_string = true;
            break;
        case '{':
        case '[':
            if (++depth > JSON_DEPTH_MAX)
                return json_malformed(err, "JSON is nested deeper than %d levels", JSON_DEPTH_MAX);
            values++;
            break;
        case '}':
        case ']':
            depth -= depth > 0;
            break;
        case ',':
            values++;
            break;
        default:
            break;
        }
    }
    if (values > JSON_VALUES_MAX)
        return json_malformed(err, "the JSON has more than %d values", JSON_VALUES_MAX);
    *ret_values = values;
    return 0;
}

size_t json_weight(struct str text)
{
    size_t values = JSON_VALUES_MAX;
    struct err ignored;
    (void)!check_shape(text, &values, &ignored);
    return text.n + values * VALUE_BYTES;
}

int json_read(struct str text, json_t **ret_json, struct err *err)
{
    json_error_t error;
    size_t values;
    json_t *json;
    if (check_shape(text, &values, err) < 0)
        return -1;
    if (!text.p)
        text = STR("");
    json = json_loadb(text.p, text.n, JSON_REJECT_DUPLICATES, &error);
    if (!json)
        return json_malformed(err, "invalid JSON at byte %d: %s", error.position, error.text);
    *ret_json = json;
    return 0;
}

int json_read_object(struct str text, bool blank_is_empty, json_t **ret_json, struct err *err)
{
    json_t *json = NULL;
    if (blank_is_empty && str_is_of(text, " \t\r\n"))
        text = STR("{}");
    if (json_read(text, &json, err) < 0)
        return -1;
    if (!json_is_object(json)) {
        json_decref(json);
        return json_malformed(err, "the JSON text must be an object");
    }
    *ret_json = json;
    return 0;
}

enum { JSON_NAME_MAX = 64 };

/* As proto3 JSON writes it; false when that is the name itself. */
static bool snake_case(const char *name, char ret_snake[static JSON_NAME_MAX])
{
    bool differs = false;
    size_t n = 0;
    for (const char *c = name; *c && n + 3 < JSON_NAME_MAX; c++) {
        if (*c >= 'A' && *c <= 'Z') {
            ret_snake[n++] = '_';
            ret_snake[n++] = (char)(*c - 'A' + 'a');
            differs = true;
        } else {
            ret_snake[n++] = *c;
        }
    }
    ret_snake[n] = '\0';
    return differs;
}

static bool json_read_is_named(const char *key, const char *name)
{
    char snake[JSON_NAME_MAX];
    return strcmp(key, name) == 0 || (snake_case(name, snake) && strcmp(key, snake) == 0);
}

/* One of two spellings would be left unread. */
static int json_read_once(const json_t *object, const char *name, struct err *err)
{
    char snake[JSON_NAME_MAX];
    if (snake_case(name, snake) && json_object_get(object, name) && json_object_get(object, snake))
        return err_set(err, ERR_INVALID_ARGUMENT, "field \"%s\" is there twice: \"%s\", too", name, snake);
    return 0;
}

int json_only(const json_t *object, const char *const *names, size_t n, struct err *err)
{
    JSON_FOREACH_MEMBER (key, value, object) {
        bool is_known = false;
        for (size_t i = 0; i < n && !is_known; i++)
            is_known = json_read_is_named(key, names[i]);
        if (!is_known)
            return err_set(err, ERR_INVALID_ARGUMENT, "unknown field \"%.64s\"", key);
    }
    for (size_t i = 0; i < n; i++)
        if (json_read_once(object, names[i], err) < 0)
            return -1;
    return 0;
}

json_t *json_field(const json_t *object, const char *name)
{
    json_t *value = json_object_get(object, name);
    char snake[JSON_NAME_MAX];
    if (!value && snake_case(name, snake))
        value = json_object_get(object, snake);
    return json_is_null(value) ? NULL : value;
}

bool json_asks_nothing(const json_t *object, const char *name)
{
    const json_t *value = json_field(object, name);
    return !value || json_is_false(value) || (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static int wrong_type(struct err *err, const char *name, const char *wanted)
{
    return json_malformed(err, "field \"%s\" must be %s", name, wanted);
}

int json_get_str(const json_t *object, const char *name, struct str *ret_value, struct err *err)
{
    json_t *value = json_field(object, name);
    if (!value)
        return 0;
    if (!json_is_string(value))
        return wrong_type(err, name, "a string");
    *ret_value = json_str(value);
    return 1;
}

int json_get_bool(const json_t *object, const char *name, bool *ret_value, struct err *err)
{
    json_t *value = json_field(object, name);
    if (!value)
        return 0;
    if (!json_is_boolean(value))
        return wrong_type(err, name, "true or false");
    *ret_value = json_is_true(value);
    return 1;
}

int json_get_int(const json_t *object, const char *name, int64_t min, int64_t max, int64_t *ret_value, struct err *err)
{
    json_t *value = json_field(object, name);
    int64_t number;
    if (!value)
        return 0;
    if (json_is_integer(value)) {
        number = json_integer_value(value);
    } else if (json_is_real(value)) {
        double real = json_real_value(value);
        /* 300.0 is an integer to a JavaScript client; beyond 2^53 a double no longer says which one. */
        if (!(real >= -9007199254740992.0 && real <= 9007199254740992.0) || real != (double)(int64_t)real)
            return wrong_type(err, name, "an integer");
        number = (int64_t)real;
    } else {
        return wrong_type(err, name, "an integer");
    }
    if (number < min || number > max)
        return json_malformed(err, "field \"%s\" must be between %lld and %lld", name, (long long)min, (long long)max);
    *ret_value = number;
    return 1;
}

static int json_get(const json_t *object, const char *name, json_type type, const char *what, json_t **ret_value,
                    struct err *err)
{
    json_t *value = json_field(object, name);
    if (!value)
        return 0;
    if (json_typeof(value) != type)
        return wrong_type(err, name, what);
    *ret_value = value;
    return 1;
}

int json_get_object(const json_t *object, const char *name, json_t **ret_value, struct err *err)
{
    return json_get(object, name, JSON_OBJECT, "an object", ret_value, err);
}

int json_get_array(const json_t *object, const char *name, json_t **ret_value, struct err *err)
{
    return json_get(object, name, JSON_ARRAY, "an array", ret_value, err);
}

int json_get_strs(const json_t *object, const char *name, struct arena *arena, const struct str **ret_items,
                  size_t *ret_n, struct err *err)
{
    json_t *array = NULL;
    struct str *items;
    size_t n;
    int r = json_get_array(object, name, &array, err);
    if (r <= 0)
        return r;
    n = json_array_size(array);
    items = arena_alloc(arena, (n + 1) * sizeof(*items));
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_array_get(array, i);
        if (!json_is_string(value))
            return wrong_type(err, name, "an array of strings");
        items[i] = json_str(value);
    }
    *ret_items = items;
    *ret_n = n;
    return 1;
}

int json_get_pairs(const json_t *object, const char *name, struct arena *arena, const struct pair **ret_items,
                   size_t *ret_n, struct err *err)
{
    json_t *map = NULL, *value;
    struct pair *items;
    const char *key;
    size_t key_n, n = 0;
    int r = json_get_object(object, name, &map, err);
    if (r <= 0)
        return r;
    items = arena_alloc(arena, (json_object_size(map) + 1) * sizeof(*items));
    json_object_keylen_foreach(map, key, key_n, value)
    {
        if (!json_is_string(value))
            return wrong_type(err, name, "an object of strings");
        items[n++] = (struct pair){str_n(key, key_n), json_str(value)};
    }
    *ret_items = items;
    *ret_n = n;
    return 1;
}

/* 1, 0 when absent, -1. */
static int want_read(const json_t *object, const struct json_want *w, struct arena *arena, struct err *err)
{
    switch (w->type) {
    case JSON_WANTS_STR:
        return json_get_str(object, w->name, w->to.str, err);
    case JSON_WANTS_BOOL:
        return json_get_bool(object, w->name, w->to.boolean, err);
    case JSON_WANTS_INT:
        return json_get_int(object, w->name, w->min, w->max, w->to.number, err);
    case JSON_WANTS_OBJECT:
        return json_get_object(object, w->name, w->to.json, err);
    case JSON_WANTS_ARRAY:
        return json_get_array(object, w->name, w->to.json, err);
    case JSON_WANTS_STRS:
        return json_get_strs(object, w->name, arena, w->to.strs, w->n, err);
    case JSON_WANTS_PAIRS:
        return json_get_pairs(object, w->name, arena, w->to.pairs, w->n, err);
    case JSON_WANTS_ANY:
        break;
    }
    return 1;
}

int json_wants(const json_t *object, const struct json_want *wants, size_t n, struct arena *arena, bool only,
               struct err *err)
{
    JSON_FOREACH_MEMBER (key, value, object) {
        bool is_known = !only;
        for (size_t i = 0; i < n && !is_known; i++)
            is_known = json_read_is_named(key, wants[i].name);
        if (!is_known)
            return err_set(err, ERR_INVALID_ARGUMENT, "unknown field \"%.64s\"", key);
    }
    for (size_t i = 0; i < n; i++) {
        int r = only ? json_read_once(object, wants[i].name, err) : 0;
        r = r < 0 ? r : want_read(object, &wants[i], arena, err);
        if (r < 0)
            return -1;
        if (wants[i].is_required && (r == 0 || (wants[i].type == JSON_WANTS_STR && !wants[i].to.str->n)))
            return json_malformed(err, "property \"%s\" is missing", wants[i].name);
    }
    return 0;
}
