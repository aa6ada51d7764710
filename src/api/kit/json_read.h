/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON from outside, decoded with limits and read field by field.
 *
 * The text must be one object or array, well-formed UTF-8, without a NUL in its strings, without a key twice in one
 * object, at most JSON_DEPTH_MAX deep and of at most JSON_VALUES_MAX values. How long it may be is decided by who reads
 * the body.
 *
 * The json_get_* functions return 1 when the field is there, 0 when it is absent or null (the output stays untouched),
 * and -1 with ERR_INVALID_ARGUMENT when it is of another type or out of range. Strings point into the json_t.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"

enum { JSON_DEPTH_MAX = 32, JSON_VALUES_MAX = 16384 };

struct pair;

int json_read(struct str text, json_t **ret_json, struct err *err) WARN_UNUSED;

size_t json_weight(struct str text); /* bytes of memory that it takes when it was read, beside itself; at most */

/* The same, and it must be an object. Blank text counts as {} when blank_is_empty. */
int json_read_object(struct str text, bool blank_is_empty, json_t **ret_json, struct err *err) WARN_UNUSED;

/* ERR_INVALID_ARGUMENT naming a member that is not among `names` (in either form, see json_field()): where a typo must
 * not be silently ignored. */
int json_only(const json_t *object, const char *const *names, size_t n, struct err *err) WARN_UNUSED;

/* The member under `name` (lowerCamelCase), or under its snake_case form as proto3 JSON allows; NULL when absent or
 * null. */
json_t *json_field(const json_t *object, const char *name);

/* Is that member absent, null, false or empty, that is: does it ask for nothing? */
bool json_asks_nothing(const json_t *object, const char *name);

int json_get_str(const json_t *object, const char *name, struct str *ret_value, struct err *err) WARN_UNUSED;
int json_get_bool(const json_t *object, const char *name, bool *ret_value, struct err *err) WARN_UNUSED;
int json_get_int(const json_t *object, const char *name, int64_t min, int64_t max, int64_t *ret_value,
                 struct err *err) WARN_UNUSED;
int json_get_object(const json_t *object, const char *name, json_t **ret_value, struct err *err) WARN_UNUSED;
int json_get_array(const json_t *object, const char *name, json_t **ret_value, struct err *err) WARN_UNUSED;

/* Array of strings, and object of strings (in the order given). The vectors live in the arena. */
int json_get_strs(const json_t *object, const char *name, struct arena *arena, const struct str **ret_items,
                  size_t *ret_n, struct err *err) WARN_UNUSED;
int json_get_pairs(const json_t *object, const char *name, struct arena *arena, const struct pair **ret_items,
                   size_t *ret_n, struct err *err) WARN_UNUSED;

/* ---- many at once ---- */

/* A member and where it goes; the variable stays as it is when the member is absent or null. */
struct json_want {
    const char *name;
    enum {
        JSON_WANTS_STR,
        JSON_WANTS_BOOL,
        JSON_WANTS_INT,
        JSON_WANTS_OBJECT,
        JSON_WANTS_ARRAY,
        JSON_WANTS_STRS,
        JSON_WANTS_PAIRS,
        JSON_WANTS_ANY
    } type;
    union {
        struct str *str;
        bool *boolean;
        int64_t *number;
        json_t **json;
        const struct str **strs;
        const struct pair **pairs;
    } to;
    int64_t min, max; /* of a number */
    size_t *n;        /* of strings and pairs */
    bool is_required;
};

/* clang-format off */
#define JSON_WANT_(name, type, member, to, min, max, n, is_required)                                                   \
    {(name), (type), {.member = (to)}, (min), (max), (n), (is_required)}
/* clang-format on */
#define JSON_WANT_STR(name, to) JSON_WANT_(name, JSON_WANTS_STR, str, to, 0, 0, NULL, false)
#define JSON_NEED_STR(name, to) JSON_WANT_(name, JSON_WANTS_STR, str, to, 0, 0, NULL, true) /* nor empty */
#define JSON_WANT_BOOL(name, to) JSON_WANT_(name, JSON_WANTS_BOOL, boolean, to, 0, 0, NULL, false)
#define JSON_WANT_INT(name, min, max, to) JSON_WANT_(name, JSON_WANTS_INT, number, to, min, max, NULL, false)
#define JSON_NEED_INT(name, min, max, to) JSON_WANT_(name, JSON_WANTS_INT, number, to, min, max, NULL, true)
#define JSON_WANT_OBJECT(name, to) JSON_WANT_(name, JSON_WANTS_OBJECT, json, to, 0, 0, NULL, false)
#define JSON_NEED_OBJECT(name, to) JSON_WANT_(name, JSON_WANTS_OBJECT, json, to, 0, 0, NULL, true)
#define JSON_WANT_ARRAY(name, to) JSON_WANT_(name, JSON_WANTS_ARRAY, json, to, 0, 0, NULL, false)
#define JSON_WANT_STRS(name, to, n) JSON_WANT_(name, JSON_WANTS_STRS, strs, to, 0, 0, n, false)
#define JSON_WANT_PAIRS(name, to, n) JSON_WANT_(name, JSON_WANTS_PAIRS, pairs, to, 0, 0, n, false)
#define JSON_WANT_ANY(name)                                                                                            \
    JSON_WANT_(name, JSON_WANTS_ANY, str, NULL, 0, 0, NULL, false) /* known, and read elsewhere */

/* only: other members are ERR_INVALID_ARGUMENT. */
int json_wants(const json_t *object, const struct json_want *wants, size_t n, struct arena *arena, bool only,
               struct err *err) WARN_UNUSED;

#define JSON_WANTS_(object, arena, only, err, ...)                                                                     \
    json_wants((object), (const struct json_want[]){__VA_ARGS__},                                                      \
               ARRAY_SIZE(((const struct json_want[]){__VA_ARGS__})), (arena), (only), (err))
#define JSON_WANTS(object, arena, err, ...) JSON_WANTS_(object, arena, true, err, __VA_ARGS__)
#define JSON_WANTS_OF(object, arena, err, ...) JSON_WANTS_(object, arena, false, err, __VA_ARGS__) /* among others */
