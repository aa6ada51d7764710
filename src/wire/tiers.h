/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which boundaries there are on this machine, weakest first: coved looks once, and tells cove-api when it starts it.
 * Both answer by the same list, and in the same words; what counts is coved's answer.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

enum { TIER_LIST_MAX = 8, TIER_LABEL_MAX = 16, TIER_WHY_MAX = 256 };

struct tier_list {
    size_t n;
    struct {
        char name[TIER_LABEL_MAX];
        char missing[TIER_WHY_MAX]; /* why it can't be had, and what would help; "": it can */
        bool memory;                /* it saves memory to disk, and goes on from there */
        bool volumes;               /* and directories of the host can be mounted */
        bool named;                 /* never had by who names none */
    } at[TIER_LIST_MAX];
};

/* Lines "name=why", the name with "+memory", "+volumes" and "+named" behind it where it has them. -EBADMSG. */
void tier_list_format(const struct tier_list *list, struct buf *b);
int tier_list_parse(struct str text, struct tier_list *ret_list) WARN_UNUSED;

bool tier_list_find(const struct tier_list *list, struct str name, size_t *ret_at);
/* ERR_UNIMPLEMENTED: it does not save memory. The message says which do. */
int tier_list_saves(const struct tier_list *list, const char *name, struct err *err) WARN_UNUSED;
int tier_list_mounts(const struct tier_list *list, const char *name, struct err *err) WARN_UNUSED; /* the same */
/*
 * ERR_INVALID_ARGUMENT: there is no such tier; ERR_FAILED_PRECONDITION: it isn't available. The message says which are.
 */
int tier_list_choose(const struct tier_list *list, struct str name, size_t *ret_at, struct err *err) WARN_UNUSED;
