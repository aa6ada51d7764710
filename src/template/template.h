/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Templates: what sandboxes are made from. Those that were built and snapshots stand in the store and in memory
 * (template/builds.h). The others, the base template above all, are files, <state>/templates/<anything>.conf, lines
 * `key = value`, '#' begins a comment:
 *
 *   id = base-3f0c          unique; [A-Za-z0-9._-], at most 63 characters
 *   alias = base            any number; [a-z0-9_-], at most 63 characters, with an optional "namespace/" before and ":tag" behind ("default" when left out)
 *   layer = sha256-<64 hex> the read-only root file system in the pool
 *   cpu_milli = 2000        and memory_bytes, disk_bytes, size_bytes: optional, 0 says nothing
 *   built = 2026-11-21T10:03:07Z
 *   start_cmd = ...         optional, as is tier = gvisor
 *   env = NAME=value        any number
 *
 * A file that is not so is left out and logged once; the others go on. The directory is read again when it changed,
 * which a resolve finds out with one stat().
 */
#pragma once

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"

struct store;
struct template_registry;

enum { TEMPLATE_NAME_MAX = 63, TEMPLATE_LAYER_LEN = 7 + 64, TEMPLATE_ALIASES_MAX = 32, TEMPLATE_ENVS_MAX = 256 };

struct template
{
    const char *id;
    const char *layer;
    const char *const *aliases; /* as written */
    size_t n_aliases;
    uint32_t cpu_milli;
    uint64_t memory_bytes, disk_bytes, size_bytes;
    usec_t built;            /* real time, 0: unknown */
    const char *start_cmd;   /* NULL: none */
    const char *const *envs; /* "NAME=value" */
    size_t n_envs;

    const char *build_id; /* a UUID; of a file: made from the layer's digest */

    /* The rest is of templates that were built or are snapshots; nothing of it but `tier` stands in a file. */
    bool is_snapshot;
    const char *ref;       /* what clients know a snapshot by: "<id>:default", or "<namespace>/<name>:<tag>" */
    const char *name;      /* "[<namespace>/]<name>"; of a snapshot always with its namespace. NULL: none */
    const char *source;    /* the sandbox that it is a snapshot of; NULL: none */
    const char *ready_cmd; /* NULL: none */
    const char *workdir;   /* of the start command and of processes that say none; NULL: the user's home */
    const char *user;      /* likewise; NULL: "user" */
    /* {"argv":[..],"workdir":..,"user":..}, as the image's configuration says, for services alone; NULL: not known */
    const char *image;
    bool has_memory;  /* saved with the layer: what is made of it goes on from there, and runs no start command */
    const char *tier; /* the boundary of who asks for none, and the weakest that may be asked for; NULL: any */
};

/* dir need not exist yet. */
struct template_registry *template_registry_new(const char *dir);
void template_registry_free(struct template_registry *r);

/*
 * Reads what the store holds, and from now on writes there, in its present batch; without, there are files alone.
 * Builds that an earlier worker did not bring to their end have failed. The store outlives the registry.
 */
int template_registry_load(struct template_registry *r, struct store *store, struct err *err) WARN_UNUSED;

/* The namespace of names that come without one, where one has to be shown. */
#define TEMPLATE_NAMESPACE "local"

/*
 * view: whose templates there are (store/tenant_rows.h), beside files and public ones. ref: id or alias, with optional
 * "namespace/" and ":tag". What was built hides a file's alias. Valid until the next call on the registry.
 * ERR_NOT_FOUND, ERR_INVALID_ARGUMENT (not a name). ret_alias (may be NULL): the alias that matched without namespace
 * and tag, NULL when the id did.
 */
int template_resolve(struct template_registry *r, uint64_t view, struct str ref, const struct template **ret_template,
                     const char **ret_alias, struct err *err) WARN_UNUSED;

/*
 * Snapshots. name: "" or [namespace/]name[:tag]; an existing name's tag moves to the new one. Kept in the store, in its
 * present batch. *ret_template is valid until the next call on the registry.
 */
struct template_snapshot {
    uint64_t tenant;
    const struct template *of; /* what the sandbox was made from: commands, variables, sizes; NULL: gone by now */
    const char *layer;
    const char *source; /* the sandbox */
    const char *tier;   /* its own */
    bool has_memory;
    struct str name;
    uint32_t cpu_milli;
    uint64_t memory_bytes, disk_bytes;
};
int template_add_snapshot(struct template_registry *r, const struct template_snapshot *snapshot,
                          const struct template **ret_template, struct err *err) WARN_UNUSED;

/* Forgets a template or snapshot with all its builds and names. ERR_NOT_FOUND; ERR_FAILED_PRECONDITION: one that stands
 * in a file. */
int template_remove(struct template_registry *r, uint64_t view, struct str ref, struct err *err) WARN_UNUSED;

/* True: ref is "name:tag" of a snapshot whose name has other tags, each a snapshot of its own; template_remove_tag()
 * forgets that one. By id it is all of them. */
bool template_is_one_of_several(struct template_registry *r, uint64_t view, struct str ref);
int template_remove_tag(struct template_registry *r, uint64_t view, struct str ref, struct err *err) WARN_UNUSED;

/* A sandbox was made of it: counted. */
void template_spawned(struct template_registry *r, const char *id);

/* Every layer that a template or snapshot stands on; fails when there may be more than can be read now. */
int template_each_layer(struct template_registry *r, void (*fn)(void *ctx, const char *layer), void *ctx,
                        struct err *err) WARN_UNUSED;

/* Calls fn for each that sandboxes can be made from, until it returns false: files, then the others, by id and tag, so
 * one with two tags comes twice. */
void template_each(struct template_registry *r, uint64_t view, bool (*fn)(void *ctx, const struct template *t),
                   void *ctx);

/* Parses one file's text. For the registry and the fuzzer; template_free() frees. */
int template_parse(struct str text, struct template **ret_template, struct err *err) WARN_UNUSED;
void template_free(struct template *t);
DEFINE_AUTO(struct template *, template_free)
