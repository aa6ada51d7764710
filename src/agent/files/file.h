/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the file verbs share. All of them work with the agent's own powers; the user decides what "~" and relative paths
 * mean and who owns what is made. Texts of failures are those that clients of other implementations know.
 */
#pragma once

#include "agent/agent.h"
#include "agent/files/entry.h"
#include "agent/verb.h"

struct file_request {
    struct user user;
    char path[PATH_TEXT_MAX];
};

/* Reads "str user, str path" and resolves the path. -1 with *f; f->code is 0 when it was malformed. Afterwards
 * file_request_fini(). */
int file_request_get(struct agent_stream *s, struct wire_reader *r, struct file_request *ret_q,
                     struct failure *f) WARN_UNUSED;
void file_request_fini(struct file_request *q);

static inline UNUSED void file_request_fini_auto_(struct file_request *q)
{
    file_request_fini(q);
}
#define AUTO_REQUEST __attribute__((cleanup(file_request_fini_auto_)))

/* Refuses with *f, or as malformed. */
void file_refuse(struct agent_stream *s, const struct failure *f);

/* entry_put() of one alone. */
int file_entry_put(struct buf *b, const struct agent *a, const char *path) WARN_UNUSED;

/* Ends with the entry of path as the tail, or with "<what>: lstat P: ..." when it can't be had. */
void file_end_with_entry(struct agent_stream *s, const char *path);

/* Makes the directories above path, owned by the user. */
int file_make_parents(const char *path, const struct user *u, struct failure *f) WARN_UNUSED;
