/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this machine can enforce, found out by doing it: each probe makes the thing in a child process of its own and
 * looks at what happened. Nothing is concluded from version numbers or configuration files. A full run takes about a
 * second.
 */
#pragma once

#include "kernel/tree/overlay.h"

enum probe_status {
    PROBE_OK,       /* enforced */
    PROBE_DEGRADED, /* a weaker or slower way is used; the detail says which */
    PROBE_MISSING,  /* optional and not there */
    PROBE_FAILED,   /* sandboxes can't be made without it */
};

struct probe_result {
    enum probe_status status;
    char detail[320]; /* what was measured, and what to do if it is not OK */
};

struct probe_env {
    /* a directory on the pool's file system, ours; probes make and remove what they need in it */
    const char *scratch_dir;
};

struct probe {
    const char *name; /* "user namespaces" */
    void (*run)(const struct probe_env *env, struct probe_result *ret_result);
};

/* In the order in which people read them. */
const struct probe *probe_list(size_t *ret_n);

/* 0 when sandboxes' root file systems can be mounted in this mode, else -errno. */
int probe_overlay(const struct probe_env *env, enum overlay_mode mode) WARN_UNUSED;

/* The first mode that works, the better one first. -errno: neither. */
int probe_overlay_mode(const struct probe_env *env, enum overlay_mode *ret_mode) WARN_UNUSED;

const char *probe_status_name(enum probe_status status);

/* For the files that hold the probes. */
void probe_say(struct probe_result *r, enum probe_status status, const char *fmt, ...) PRINTF_LIKE(3, 4);

/*
 * Runs fn in a forked child and returns its exit code (0 to 255), 256 + signal when it was killed, or -errno. Killed
 * after 5 s (-ETIMEDOUT).
 */
int probe_in_child(int (*fn)(const void *arg), const void *arg) WARN_UNUSED;

void probe_cgroup_memory(const struct probe_env *env, struct probe_result *r);
void probe_cgroup_pids(const struct probe_env *env, struct probe_result *r);
void probe_cgroup_cpu(const struct probe_env *env, struct probe_result *r);
void probe_cgroup_freeze(const struct probe_env *env, struct probe_result *r);
void probe_cgroup_reclaim(const struct probe_env *env, struct probe_result *r);
void probe_network(const struct probe_env *env, struct probe_result *r);
