/* SPDX-License-Identifier: Apache-2.0 */
/* A borrowed run of bytes, by value. Not terminated, may hold NUL; whoever made it owns the memory. */
#pragma once

#include "base/def.h"

#include <string.h>

struct str {
    const char *p;
    size_t n;
};

#define STR(literal) ((struct str){"" literal, sizeof(literal) - 1})
#define STR_NULL ((struct str){NULL, 0})
#define STR_ARG(s) ((int)(s).n), ((s).p)                              /* for "%.*s" */
#define STR_ARG_MAX(s, max) ((int)MIN((s).n, (size_t)(max))), ((s).p) /* the same: no more than the beginning */

static inline struct str str_of(const char *cstr)
{
    return (struct str){cstr, cstr ? strlen(cstr) : 0};
}

static inline struct str str_n(const void *p, size_t n)
{
    return (struct str){p, n};
}

static inline bool str_eq(struct str a, struct str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline bool str_eqc(struct str a, const char *b)
{
    return str_eq(a, str_of(b));
}

static inline char str_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}
bool str_eq_nocase(struct str a, struct str b); /* ASCII only */
bool str_starts(struct str s, struct str prefix);
bool str_ends(struct str s, struct str suffix);
ssize_t str_find_char(struct str s, char c);   /* offset, or -1 */
struct str str_trim(struct str s);             /* spaces and tabs on both sides */
struct str str_sub(struct str s, size_t from); /* the rest from `from`, empty when beyond the end */
struct str str_before(struct str s, char c);   /* what stands before the first c; all of it, where there is none */

/*
 * Cuts the part before the next `sep` off *s into *ret_part. After the last part *s is STR_NULL, for which it returns
 * false; an empty string that is not STR_NULL has one part, an empty one.
 */
bool str_split(struct str *s, char sep, struct str *ret_part);

/* Whole-string decimal numbers: no sign for u64, no blanks, -EINVAL or -ERANGE else. */
int str_to_u64(struct str s, uint64_t *ret_value) WARN_UNUSED;
int str_to_i64(struct str s, int64_t *ret_value) WARN_UNUSED;

/* Hexadecimal text of n bytes, in lower case and terminated: ret_text has room for 2 * n + 1. */
void str_hex(const void *bytes, size_t n, char *ret_text);
bool str_is_hex(struct str s); /* nothing but lower-case digits */
int str_hex_value(char c);     /* of a digit in either case; -1: it is none */

/* Sets of characters, in which "a-z" is a range: "A-Za-z0-9._-". A '-' that is meant stands last. NUL is in none. */
bool str_set_has(const char *set, char c);
size_t str_span(struct str s, const char *set); /* how many at the beginning are of the set */
bool str_is_of(struct str s, const char *set);  /* all are */
size_t str_span_variable(struct str s);         /* the name of a variable at the beginning; 0: there is none */

/* Which of these words it is, which have a blank between them: "debug info warn error". -1: none. */
int str_word(struct str s, const char *words);

bool str_has_nul(struct str s);
bool str_is_utf8(struct str s); /* well-formed: no overlong forms, surrogates or values above U+10FFFF */

/* Compares in time that depends on the lengths only: for tokens and signatures. */
bool str_eq_secret(struct str a, struct str b);
/* "name", "name:port", "[v6]", "[v6]:port": name without brackets; port 0 when absent. -EINVAL for anything else. */
int str_split_host(struct str host, struct str *ret_name, uint16_t *ret_port) WARN_UNUSED;
