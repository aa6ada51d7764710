/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sandbox's accounts. /etc/passwd and /etc/group belong to the sandbox and may be anything (a pipe, a device,
 * endless): they are read here, as regular files of at most 1 MiB; what is anything else counts as empty. "root" always
 * exists.
 */
#pragma once

#include "agent/failure.h"
#include "base/buf.h"

struct user_files { /* literals or the configuration's, borrowed */
    const char *passwd, *group;
};

struct agent;

enum { USER_GROUPS_MAX = 128 };

struct user {
    char *name, *home, *shell; /* owned */
    uid_t uid;
    gid_t gid;
    gid_t groups[USER_GROUPS_MAX]; /* the primary one first */
    size_t n_groups;
};

/* "" is WIRE_DEFAULT_USER. A number, or "number:number" with its group, needs no account, unless the agent is confined.
 * The groups are read only when asked for. Afterwards user_fini(), also after a failure. */
int user_lookup(const struct user_files *files, struct str name, bool want_groups, struct user *ret_user,
                struct failure *f) WARN_UNUSED;
void user_fini(struct user *u);

static inline UNUSED void user_fini_auto_(struct user *u)
{
    user_fini(u);
}
#define AUTO_USER __attribute__((cleanup(user_fini_auto_)))

/*
 * The path of a request as that user's shell would take it: "" and "~" are home, relative ones begin there and are
 * cleaned, absolute ones stay as they are (".." behind a symlink is the kernel's business).
 */
int user_path(const struct user *u, struct str path, char ret_path[static PATH_TEXT_MAX],
              struct failure *f) WARN_UNUSED;

/* Names for numbers, read on first use; and the prefix of the attributes that hold metadata. */
struct agent_names {
    struct user_files files;
    struct str attributes; /* borrowed from the agent */
    bool loaded;
    struct buf passwd, group;
    uint32_t last_uid, last_gid; /* of the two texts below, when they are not NULL */
    struct str last_owner, last_group;
    char digits[2][12];
};

void names_init(struct agent_names *n, const struct agent *a);
void names_fini(struct agent_names *n);
/* The number as text when nobody has it. Borrowed until the next call of the same function. */
struct str names_user(struct agent_names *n, uid_t uid);
struct str names_group(struct agent_names *n, gid_t gid);
