/* SPDX-License-Identifier: Apache-2.0 */
/* What every user of jansson needs beside it. */
#pragma once

#include "base/str.h"

#include <jansson.h>

/*
 * For each member of an array (AT: with its number), or of an object, which must not change meanwhile; NULL has none.
 * More than one loop, because one can't declare variables of two types, as in base/list.h; `break` and `continue` are
 * of all.
 */
#define JSON_FOREACH_AT(at, var, array)                                                                                \
    for (size_t at = 0, var##_end_ = 1; at < var##_end_; at++)                                                         \
        for (json_t *var = (var##_end_ = 0, json_array_get((array), at)); var; var = NULL, var##_end_ = SIZE_MAX)
#define JSON_FOREACH(var, array) JSON_FOREACH_AT (var##_at_, var, array)

#define JSON_FOREACH_MEMBER(name, var, object)                                                                         \
    for (void *var##_at_ = json_object_iter((json_t *)(uintptr_t)(object)), *var##_on_; var##_at_;                     \
         var##_at_ = var##_on_ ? json_object_iter_next((json_t *)(uintptr_t)(object), var##_at_) : NULL)               \
        for (const char *name = (var##_on_ = NULL, json_object_iter_key(var##_at_)); name; name = NULL)                \
            for (json_t *var = json_object_iter_value(var##_at_); var; var = NULL, var##_on_ = var##_at_)

/* Empty, without a pointer, for what is no string. */
static inline struct str json_str(const json_t *string)
{
    return str_n(json_string_value(string), json_string_length(string));
}

/* The member, which is made of `value` when there is none. Steals value; borrowed. */
static inline UNUSED json_t *json_setdefault(json_t *object, const char *name, json_t *value)
{
    json_t *there = json_object_get(object, name);
    if (there)
        json_decref(value);
    else
        (void)json_object_set_new(object, name, value);
    return there ? there : json_object_get(object, name);
}

static inline UNUSED void json_decref_auto_(json_t **json)
{
    json_decref(*json);
}
#define AUTO_JSON __attribute__((cleanup(json_decref_auto_)))
