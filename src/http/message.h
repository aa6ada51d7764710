/* SPDX-License-Identifier: Apache-2.0 */
/* What requests and responses have in common: methods, header fields, status texts. All strings are borrowed. */
#pragma once

#include "base/str.h"

struct buf;

enum http_method {
    HTTP_METHOD_OTHER, /* http_method_name() of the request says which */
    HTTP_METHOD_GET,
    HTTP_METHOD_HEAD,
    HTTP_METHOD_POST,
    HTTP_METHOD_PUT,
    HTTP_METHOD_PATCH,
    HTTP_METHOD_DELETE,
    HTTP_METHOD_OPTIONS,
};

struct http_header {
    struct str name, value;
};

/* {STR("content-type"), STR("application/json")} as a list element, from two literals or two struct str. */
#define HTTP_HEADER(name_literal, value_literal) ((struct http_header){STR(name_literal), STR(value_literal)})
#define HTTP_HEADER_STR(name_literal, value_str) ((struct http_header){STR(name_literal), (value_str)})

#define HTTP_JSON HTTP_HEADER("content-type", "application/json")

const char *http_status_text(int status); /* "Not Found"; "Status" for an unknown one, never NULL */

bool http_is_token(struct str s);       /* RFC 9110 token: what a header's name must be */
bool http_is_field_value(struct str s); /* no control characters but TAB, no blanks around it: safe to send */

void http_append_field(struct buf *b, struct str name, struct str value); /* "name: value\r\n" */

/* Is `token` an element of the comma-separated list `value` ("keep-alive, Upgrade")? Case-insensitive. */
bool http_list_has(struct str value, struct str token);

/*
 * Cuts the next parameter ("; name=value", value a token or a quoted string) off *params, which is what follows the
 * first ';' of e.g. content-type. A quoted value is given without its quotes but with its backslashes. False at the end
 * or when malformed (then params->n is not 0).
 */
bool http_param_next(struct str *params, struct str *ret_name, struct str *ret_value);
