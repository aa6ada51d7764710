/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this façade share. Private to src/api/docker. */
#pragma once

#include "api/docker/docker.h"
#include "api/kit/call.h"
#include "base/map.h"
#include "http/client/docker_names.h"
#include "sandbox/volume/volumes.h"

enum {
    DOCKER_BODY_MAX = 256 * 1024,
    DOCKER_LOG_MAX = 128 * 1024,  /* of what a container wrote last */
    DOCKER_EXECS_MAX = 64,        /* of one container: the oldest that ended is forgotten for a new one */
    DOCKER_EXECS_BYTES = 1 << 20, /* of one container: what those that were not started are to be */
    DOCKER_EXEC_ID = 64,
    DOCKER_HEAD = 8,
    DOCKER_EXECED = ROUTE_OWN, /* args[0] names an exec */
};

/*
 * Labels of containers that were made here: what the create said, but for variables; how the command ended, "" while it
 * runs.
 */
#define DOCKER_CONFIG "docker.config"
#define DOCKER_EXIT "docker.exit"

struct docker_api {
    struct facade facade;
    struct builder *builder;
    uid_t owner_uid;
    char *version;
    struct map boxes; /* struct docker_box by the sandbox's id, of those somebody has asked about */
    struct map execs; /* struct docker_exec by id */
};

static inline struct docker_api *docker_of(const struct call *c)
{
    return container_of(c->facade, struct docker_api, facade);
}

/*
 * A command: a container's own, or an exec. It is followed here for as long as it runs, whoever is connected: its
 * output goes to all streams, as fast as the slowest
 * takes it.
 */
struct docker_process;
/* starter NULL: has left; err NULL: it runs. */
typedef void (*docker_started_fn)(struct docker_process *p, struct call *starter, const struct err *err);
struct docker_process {
    struct docker_box *box;
    struct follow *follow; /* NULL: it does not run */
    struct list streams;   /* struct docker_stream */
    struct call *starter;  /* waits for its start; NULL: nobody */
    struct buf log;        /* frames as the API has them; its max is 0: none is kept */
    size_t held;           /* bytes that some stream has yet to send */
    uint32_t pid;
    int code;
    bool tty;
    docker_started_fn started;
    void (*over)(struct docker_process *p);
};

void docker_process_init(struct docker_process *p, struct docker_box *box, size_t log_max);
void docker_process_fini(struct docker_process *p); /* its streams end */
extern const struct exec_ops docker_process_ops;
/* -1: c->err. Else started() follows; with docker_process_await() the call is told, if it is still there. */
void docker_process_await(struct docker_process *p, struct call *c);
int docker_process_start(struct docker_process *p, struct call *c, const struct exec_spec *spec,
                         docker_started_fn started) WARN_UNUSED;
void docker_signal(struct call *c, const struct docker_process *p, int signal, void (*then)(struct call *c));
void docker_resize(struct call *c, const struct docker_process *p);

/*
 * The call's answer is its output, and its input when the client upgrades. From the log: `tail` lines, UINT64_MAX: all.
 */
enum docker_wants {
    DOCKER_STDIN = 1,
    DOCKER_STDOUT = 2,
    DOCKER_STDERR = 4,
    DOCKER_LOGS = 8,
    DOCKER_LIVE = 16,
    DOCKER_BARE = 32 /* parts have no head that tells their channel */
};
void docker_stream_open(struct call *c, struct docker_process *p, unsigned wants, uint64_t tail);

/*
 * A container that somebody asked about. Whether its command has ended, and how, stands in the sandbox's labels: this
 * follows it until then, and pauses the sandbox without
 * memory, or ends it with DOCKER_RM. Freed when the sandbox has ended.
 */
struct docker_box {
    struct docker_process process; /* its own command */
    struct docker_api *docker;     /* NULL: gone */
    struct sandbox *sb;            /* a reference */
    struct sandbox_watch watch;
    struct list waiters; /* struct docker_waiter */
    struct list execs;   /* struct docker_exec, oldest first */
    size_t n_execs, exec_bytes;
    usec_t started, finished; /* real time; 0: not here */
    unsigned refs;
    bool is_restarting; /* DOCKER_RM does not count */
    bool is_ending;     /* its command has ended, and the sandbox is on its way to where that leads */
};

struct docker_exec {
    struct docker_process process;
    char id[DOCKER_EXEC_ID + 1];
    struct list node;
    char *config; /* JSON, which takes many times as much once it is read; NULL: it was started */
};

enum docker_state { DOCKER_CREATED, DOCKER_RUNNING, DOCKER_PAUSED, DOCKER_EXITED };

struct docker_box *docker_box(struct docker_api *d, struct sandbox *sb); /* NULL: it is ending */
struct docker_box *docker_box_of(struct call *c);                        /* of c->sandbox; NULL: answered */
void docker_boxes_free(struct docker_api *d);
enum docker_state docker_box_state(const struct docker_box *box);
int docker_box_code(const struct docker_box *box);
json_t *docker_config(const struct sandbox *sb);       /* DOCKER_CONFIG; NULL: it was not made here */
struct docker_box *docker_box_running(struct call *c); /* the same, and it runs */
void docker_exec_free(struct docker_exec *e);

bool docker_flag(struct call *c, const char *name); /* of the query, as Docker reads one: "True" is one, too */
/*
 * By id, by name, or by the beginning of one id alone. NULL: none. Names are of the asker's own tenant: nobody else's
 * container goes by one.
 */
struct sandbox *docker_find(const struct call *c, struct str text);

/*
 * create.c: members of a body: `known` may say whatever they like, those of the table its words. Any other must ask for
 * nothing: else it is refused by its name.
 */
struct docker_member {
    const char *name, *words;
};
int docker_members(const json_t *object, const char *where, const char *known, const struct docker_member *members,
                   size_t n, struct err *err) WARN_UNUSED;

/* What a create asks for: m is zeroed, but for the name. The spec borrows from body, arena and m. */
struct docker_making {
    struct arena *arena;
    struct sandbox_spec spec;
    struct volume_mount mounts[VOLUME_MOUNTS_MAX];
    struct pair *labels;
    size_t n_labels;
    struct str image, name;
};
int docker_making_read(const json_t *body, struct arena *arena, struct docker_making *m, struct err *err) WARN_UNUSED;

/* A list of strings, or one; in the arena. NULL or null: none. */
int docker_strings(struct arena *arena, const json_t *value, const char *name, const struct str **ret_items,
                   size_t *ret_n, struct err *err) WARN_UNUSED;
int docker_env(struct arena *arena, const json_t *value, const struct pair **ret_envs, size_t *ret_n,
               struct err *err) WARN_UNUSED; /* "NAME=value" */

/* Handlers, by file. */
route_handler docker_create, docker_start;
void docker_stop(struct call *c); /* also kill and restart */
route_handler docker_wait, docker_remove, docker_list, docker_inspect;
void docker_logs(struct call *c); /* also attach */
route_handler docker_box_resize, docker_exec_create, docker_exec_start, docker_exec_inspect, docker_exec_resize,
    docker_archive_get, docker_archive_head, docker_archive_put, docker_images, docker_image, docker_image_pull,
    docker_image_remove;

extern const struct route docker_routes[]; /* behind the version */
extern const size_t docker_n_routes;
