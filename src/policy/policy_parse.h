/* SPDX-License-Identifier: Apache-2.0 */
/* What the files share that read a policy's JSON. All return 0, or -1 with the error set, which begins with the
 * place. */
#pragma once

#include "policy/policy_internal.h"

enum { PARSE_DEPTH = 8 };

struct parse {
    struct policy *policy; /* being made */
    struct err *err;
    bool expands; /* a preset makes it longer than what was given */
    struct {
        const char *name; /* NULL: an index */
        size_t index;
    } place[PARSE_DEPTH]; /* where we are: "rules[3].ports[0]" */
    size_t depth;
};

int parse_refuse(struct parse *p, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* The place becomes text only in an error, which ends the parsing, so nobody has to leave it after one. Names are
 * borrowed. */
void parse_enter(struct parse *p, const char *name);
void parse_leave(struct parse *p);
/* for (size_t i = 0; parse_at(p, array, i); i++): the place is that element, and behind the last what it was before. */
bool parse_at(struct parse *p, const json_t *array, size_t index);

int parse_check_object(struct parse *p, const json_t *object, const char *members); /* words */
int parse_check_array(struct parse *p, const json_t *array, size_t min, size_t max);
int parse_string(struct parse *p, const json_t *value, struct str *ret_text); /* terminated, without a NUL in it */
bool parse_is_token(struct str text);                                         /* RFC 9110, section 5.6.2 */

int parse_target(struct parse *p, const json_t *json, struct target *ret_target);
int parse_scope(struct parse *p, const json_t *object, struct scope *ret_scope); /* "ports", "methods", "path" */
int parse_injection(struct parse *p, const json_t *json, struct injection *in);
