/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates that are built, and their builds. A template has an id, perhaps a name, and tags; each tag leads to one
 * build that is ready. A build is requested, begun, and ends as ready or failed; only when it is ready do the tags go
 * over to it.
 *
 * All of it is in memory and in the store. Whatever is returned is valid until the next call on the registry. Changes
 * go into the store's present batch; when that is undone, so are they, with the next call.
 */
#pragma once

#include "base/id.h"
#include "template/template.h"

enum template_status { TEMPLATE_WAITING, TEMPLATE_BUILDING, TEMPLATE_READY, TEMPLATE_FAILED };

enum {
    TEMPLATE_ID_LEN = 20,
    TEMPLATE_TAGS_MAX = 256,          /* of one template */
    TEMPLATE_UNTAGGED_MAX = 16,       /* builds of a template that no tag leads to: older ones are forgotten */
    TEMPLATE_BUILT_MAX = 20000,       /* templates and snapshots */
    TEMPLATE_LOG_LINES_MAX = 20000,   /* of one build */
    TEMPLATE_LOG_MESSAGE_MAX = 8192,  /* bytes of one line */
    TEMPLATE_LOG_BYTES_MAX = 4 << 20, /* of one build */
};

struct template_build {
    const char *id, *template_id;
    enum template_status status;
    bool is_snapshot;
    usec_t created, started, finished; /* real time; 0: not yet */
    uint32_t cpu_milli;                /* 0: the service's */
    uint64_t memory_bytes, disk_bytes, size_bytes;
    const char *reason,
        *reason_step; /* why it failed, and where: "base", "1", "finalize"; NULL: not known, or it has not */
    uint64_t n_logs;
    const struct template *made; /* NULL until it is ready */
};

struct template_tag {
    const char *tag, *build_id;
    usec_t created;
};

struct template_info {
    uint64_t tenant; /* of a file: the default one */
    const char *id;
    const char *name;            /* "[<namespace>/]<name>"; NULL: none */
    bool is_public, is_snapshot; /* snapshot: all that it has are */
    const struct template *file; /* it stands in a file: no builds, tags and times but its own */
    usec_t created, updated;
    uint64_t n_spawns;
    usec_t spawned; /* 0: never */
    size_t n_builds;
    const struct template_build *build; /* the one of "default", else the last ready one, else the last; NULL: a file */
    const struct template_tag *tags;    /* oldest first */
    size_t n_tags;
};

/* Here and below, view: store/tenant_rows.h. ref: id or name; a tag in it is not looked at. ERR_NOT_FOUND,
 * ERR_INVALID_ARGUMENT. */
int template_info_find(struct template_registry *r, uint64_t view, struct str ref, struct template_info *ret_info,
                       struct err *err) WARN_UNUSED;
/* Files and all others, by id. */
void template_info_each(struct template_registry *r, uint64_t view,
                        bool (*fn)(void *ctx, const struct template_info *info), void *ctx);

struct template_request {
    uint64_t tenant;
    struct str name; /* [namespace/]name[:tag] */
    const struct str *tags;
    size_t n_tags; /* with none, and none in the name: "default" */
    uint32_t cpu_milli;
    uint64_t memory_bytes, disk_bytes;
};
/* A build to come, of a template of that name, made when there is none. Earlier ones of it that still wait have failed.
 * ERR_INVALID_ARGUMENT, ERR_RESOURCE_EXHAUSTED. */
int template_request(struct template_registry *r, const struct template_request *request,
                     const struct template_build **ret_build, struct err *err) WARN_UNUSED;

/* How many templates and snapshots are a tenant's, or everybody's; and how many but for the one that ref names, which
 * would be changed. */
size_t template_count(struct template_registry *r, uint64_t view);
size_t template_bytes(struct template_registry *r, uint64_t view); /* of their variables and commands, in memory */
size_t template_count_beside(struct template_registry *r, uint64_t tenant, struct str ref);

/* NULL: unknown. */
const struct template_build *template_build_find(struct template_registry *r, uint64_t view, struct str id);
/* The tags that a build which is not ready yet will get. */
void template_build_tags(struct template_registry *r, const char *id, void (*fn)(void *ctx, const char *tag),
                         void *ctx);
/* Of one template, newest first. */
void template_builds_each(struct template_registry *r, const char *template_id,
                          bool (*fn)(void *ctx, const struct template_build *build), void *ctx);

/* ERR_NOT_FOUND, ERR_FAILED_PRECONDITION (it does not wait). */
int template_build_begin(struct template_registry *r, const char *id, struct err *err) WARN_UNUSED;

struct template_result {
    const char *layer;
    const char *start_cmd, *ready_cmd, *workdir, *user, *image; /* NULL: none */
    const char *const *envs;
    size_t n_envs;
    const char *tier; /* NULL: any */
    bool has_memory;
    uint64_t size_bytes;
    uint32_t cpu_milli; /* what its request did not say; 0: the service's */
    uint64_t memory_bytes;
};
/* ERR_NOT_FOUND: it was removed meanwhile. */
int template_build_done(struct template_registry *r, const char *id, const struct template_result *result,
                        struct err *err) WARN_UNUSED;
int template_build_fail(struct template_registry *r, const char *id, const char *step, const char *reason,
                        struct err *err) WARN_UNUSED;

/* ---- its log ---- */

enum template_level { TEMPLATE_DEBUG, TEMPLATE_INFO, TEMPLATE_WARN, TEMPLATE_ERROR };

/* Beyond the limits one line says so, and the rest is dropped. The message is made fit to be shown. step "": none. */
int template_log_add(struct template_registry *r, const char *build_id, enum template_level level, const char *step,
                     struct str message, struct err *err) WARN_UNUSED;

struct template_log {
    uint64_t seq; /* from 1 */
    usec_t at;
    enum template_level level;
    struct str step, message;
};
/* Lines from `least` up, without the first `skip` of them, at most `limit`. fn must not call the registry. */
int template_log_each(struct template_registry *r, const char *build_id, enum template_level least, uint64_t skip,
                      uint64_t limit, void (*fn)(void *ctx, const struct template_log *line), void *ctx,
                      struct err *err) WARN_UNUSED;

/* ---- tags ---- */

/*
 * target: [namespace/]name[:tag], what they are to lead to. ERR_NOT_FOUND, ERR_INVALID_ARGUMENT,
 * ERR_FAILED_PRECONDITION (a file), ERR_RESOURCE_EXHAUSTED. ret_build: its id.
 */
int template_tags_add(struct template_registry *r, uint64_t view, struct str target, const struct str *tags, size_t n,
                      const char **ret_build, struct err *err) WARN_UNUSED;
/* name: without a tag. Tags that are not there don't matter. "default" stays: ERR_INVALID_ARGUMENT. */
int template_tags_remove(struct template_registry *r, uint64_t view, struct str name, const struct str *tags, size_t n,
                         struct err *err) WARN_UNUSED;

int template_publish(struct template_registry *r, uint64_t view, struct str ref, bool is_public,
                     struct err *err) WARN_UNUSED;
