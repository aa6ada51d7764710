/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of src/template know of each other. */
#pragma once

#include "base/arena.h"
#include "base/list.h"
#include "base/map.h"
#include "store/store.h"
#include "store/tenant_rows.h"
#include "template/builds.h"
#include "template/name.h"

/* A build, with what sandboxes see of it once it is ready. */
struct build {
    struct template_build b; /* its strings are in the arena; made points to t */
    struct template t;       /* aliases are in alias_arena: they follow the tags */
    struct arena arena, alias_arena;
    struct template_entry *entry;
    struct list node; /* in entry->builds, oldest first */
    size_t n_tags;    /* that lead here */
    size_t bytes;     /* of build_take() */
    char (*wanted)[TEMPLATE_NAME_MAX + 1];
    size_t n_wanted;
    uint64_t log_bytes;
    bool log_full;
};

struct tag {
    char tag[TEMPLATE_NAME_MAX + 1];
    struct build *build;
    usec_t created;
};

/* A template that was built, or a snapshot. */
struct template_entry {
    char id[TEMPLATE_ID_LEN + 1];
    char space[TEMPLATE_NAME_MAX + 1], name[TEMPLATE_NAME_MAX + 1]; /* name "": none */
    char full[2 * TEMPLATE_NAME_MAX + 2];                           /* "space/name" */
    uint64_t tenant;
    bool is_public;
    usec_t created, updated;
    struct list builds;
    size_t n_builds;
    size_t bytes;     /* of them */
    struct tag *tags; /* oldest first */
    size_t n_tags;
    struct template_entry *same_name; /* of another namespace */
};

struct use {
    char *id;
    uint64_t count;
    usec_t last;
    struct list dirty; /* in registry->dirty while the store does not know */
};

struct template_registry {
    char *dir;
    struct timespec read_at; /* the directory's mtime when it was read */
    bool fresh;              /* read while it may still have changed within the clock's tick: read again */
    bool is_partial;         /* there may be more than what was read: read again */
    struct template **list;  /* by id */
    size_t n;
    struct list old;                   /* struct old_files, oldest first: of which somebody may still have one */
    char alias[TEMPLATE_NAME_MAX + 1]; /* what template_resolve() hands out */

    struct store *store; /* NULL: files alone */
    struct store_hook hook;
    bool stale;                        /* the batch was undone */
    struct map by_id, by_name, builds; /* struct template_entry; the first of its bare name; struct build by id */
    struct map uses;
    struct list dirty;
    struct template_tag *shown; /* of the last template_info */
};

/* registry.c */
void registry_refresh(struct template_registry *r); /* before each look: files and, after an undone batch, the store */
const struct template *registry_file(struct template_registry *r, struct str ref); /* by id or alias; NULL */
size_t registry_entries(const struct template_registry *r,
                        struct template_entry ***ret_entries); /* by id; mem_free() */
void registry_use(const struct template_registry *r, const char *id, struct template_info *ret_info);
void registry_forget_use(struct template_registry *r,
                         const char *id); /* the template is removed, and its row with it */

/* built.c: what is in memory, and its rows */
void built_clear(struct template_registry *r);
int built_load(struct template_registry *r, struct err *err) WARN_UNUSED;
/*
 * By id or name; NULL. A name is one of the view's own tenant. What is public can be looked at by all (`own` false): by
 * its id, and by its name when it is the default tenant's; nobody else can take a name that others rely on.
 */
struct template_entry *built_find(struct template_registry *r, uint64_t view, const struct template_name *name,
                                  bool own);
struct template_entry *built_new(struct template_registry *r, uint64_t tenant, const struct template_name *name,
                                 usec_t now);
bool entry_is_shown(const struct template_entry *e, uint64_t view); /* in lists */
struct build *build_new(struct template_entry *e, const char *id, struct template_registry *r);
void build_free(struct template_registry *r, struct build *b);
void entry_free(struct template_registry *r, struct template_entry *e);
struct tag *entry_tag(const struct template_entry *e, const char *tag); /* NULL: there is none */
struct build *entry_shown(struct template_entry *e);                    /* the build that stands for it; NULL */
void build_view(struct build *b);                                       /* after its tags changed, or it became ready */
int entry_store(struct template_registry *r, const struct template_entry *e, struct err *err) WARN_UNUSED;
int build_store(struct template_registry *r, const struct build *b, struct err *err) WARN_UNUSED;
/* Leads the tag to the build. ERR_RESOURCE_EXHAUSTED. */
int entry_set_tag(struct template_registry *r, struct template_entry *e, const char *tag, struct build *b,
                  struct err *err) WARN_UNUSED;
int entry_drop_tag(struct template_registry *r, struct template_entry *e, const char *tag, struct err *err) WARN_UNUSED;
int entry_prune(struct template_registry *r, struct template_entry *e,
                struct err *err) WARN_UNUSED; /* builds that nothing leads to */
/* The result's strings into the build's arena. */
void build_take(struct build *b, const struct template_result *result);
const char *keep(struct arena *a, const char *text); /* NULL for "" and NULL */
