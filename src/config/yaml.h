/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A document that people write, as JSON: for policies. One document of mappings, lists and scalars; plain scalars that
 * look like it are numbers (whole ones), true, false and null, all others and all quoted ones are strings. No anchors,
 * aliases, tags or repeated keys. Text that begins with '{' or '[' is read as JSON.
 */
#pragma once

#include "base/err.h"
#include "base/json.h"

enum { YAML_TEXT_MAX = 256 * 1024, YAML_DEPTH_MAX = 16, YAML_VALUES_MAX = 65536 };

/* name stands for the file in messages. ERR_INVALID_ARGUMENT, with "<name>:<line>: ". */
int yaml_parse(const char *name, struct str text, json_t **ret_json, struct err *err) WARN_UNUSED;

/* Where in a file of that kind a place is ("rules[3].argv"), or else what it is in; 0: it can't be said. Reads the file
 * again. */
size_t yaml_line(const char *path, const char *place) WARN_UNUSED;

/* The same of a file, "-" for stdin. Blocks. */
int yaml_read(const char *path, json_t **ret_json, struct err *err) WARN_UNUSED;
