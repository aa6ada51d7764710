/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON text of answers, part by part. A comma comes first where one is needed: behind anything but '{', '[', ':', ','
 * and the end of a line.
 */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"

struct pair;

void json_put_comma(struct buf *b);
void json_put_value(struct buf *b, json_t *value); /* takes it; NULL: null */
void json_put_str(struct buf *b, const char *name, struct str value);
void json_put_text(struct buf *b, const char *name, const char *value);                   /* NULL: null */
void json_put_time(struct buf *b, const char *name, usec_t at, int digits);               /* RFC 3339 */
void json_put_pairs(struct buf *b, const char *name, const struct pair *pairs, size_t n); /* an object of texts */
void json_put_strs(struct buf *b, const char *name, const struct str *strs, size_t n);    /* an array of them */

/* An object up to its first member, which is a text: for buf_append_char(b, '}') at its end. */
void json_open(struct buf *b, const char *name, struct str value);
