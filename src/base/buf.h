/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A growing byte buffer, made with its maximum. Bytes are appended at the end and consumed from the front.
 *
 *   struct buf b = BUF_INIT(64 * 1024);
 *   if (buf_append(&b, p, n) < 0) ...
 *   buf_fini(&b);
 *
 * Errors are sticky: after one append failed, all later ones fail with the same error and nothing is added, so that a
 * sequence of appends needs one check at its end (buf_error()).
 */
#pragma once

#include "base/str.h"

struct buf {
    char *data;   /* owned; NULL until something was appended */
    size_t start; /* consumed so far */
    size_t end;
    size_t cap;
    size_t max; /* buf_len() never exceeds this */
    int error;  /* 0, -ENOBUFS (maximum reached) or -ENOMEM */
};

#define BUF_INIT(max_bytes) ((struct buf){.max = (max_bytes)})

void buf_init(struct buf *b, size_t max_bytes);
void buf_fini(struct buf *b);
void buf_clear(struct buf *b); /* empties it, forgets the error, keeps the memory */

static inline size_t buf_len(const struct buf *b)
{
    return b->end - b->start;
}

static inline char *buf_data(const struct buf *b)
{
    return b->data ? b->data + b->start : NULL;
}

static inline struct str buf_str(const struct buf *b)
{
    return str_n(buf_data(b), buf_len(b));
}

static inline int buf_error(const struct buf *b)
{
    return b->error;
}

/* Room for n more bytes; returns where they go, or NULL with the error set. Follow with buf_commit(). */
char *buf_reserve(struct buf *b, size_t n) WARN_UNUSED;
void buf_commit(struct buf *b, size_t n);

int buf_append(struct buf *b, const void *p, size_t n);
int buf_append_str(struct buf *b, struct str s);
int buf_append_cstr(struct buf *b, const char *s);
int buf_append_char(struct buf *b, char c);
int buf_printf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
int buf_append_u64(struct buf *b, uint64_t v); /* decimal */

void buf_consume(struct buf *b, size_t n); /* n <= buf_len() */

/* Terminates (the NUL is not counted) and hands the memory out; NULL when an error is set. Free with mem_free(). */
char *buf_take(struct buf *b);

/* JSON text: appends s as a quoted string, escaping what must be escaped; bytes that are not UTF-8 become U+FFFD. */
int buf_append_json_string(struct buf *b, struct str s);

/* Standard-alphabet base64 with padding. */
int buf_append_base64(struct buf *b, struct str s);

/* Decodes standard base64 (padding optional, no blanks); -EILSEQ on anything else, with nothing appended and without an
 * error that sticks. */
int buf_append_unbase64(struct buf *b, struct str s) WARN_UNUSED;

int buf_append_hex(struct buf *b, struct str s); /* lower case */

static inline UNUSED void buf_fini_auto_(struct buf *b)
{
    buf_fini(b);
}
#define AUTO_BUF __attribute__((cleanup(buf_fini_auto_)))
