/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of src/build know of each other: one build that runs, and who calls whom.
 *
 * A job is in one operation at a time (an operation of the core that can't be cancelled is counted in `held`).
 * job_fail() and job_end() may be called from any callback; afterwards the job is over, and its memory goes when
 * nothing holds it.
 */
#pragma once

#include "base/list.h"
#include "build/builder.h"
#include "build/cache.h"
#include "build/context.h"
#include "sandbox/action.h"
#include "sandbox/exec/exec.h"
#include "sandbox/files/files.h"
#include "sandbox/life/layers.h"
#include "sandbox/life/snapshot.h"
#include "sandbox/quota.h"
#include "sandbox/templates.h"
#include "template/builds.h"

#include <uv.h>

/* The shell scripts of this folder. */
extern const char script_account[], script_copy[], script_user[], script_workdir[];

enum {
    JOBS_WAITING_MAX = 512,
    REPORTS_MAX = 64,
    LINE_MAX_BYTES = 4096,
    LAYER_TEXT_MAX = 72 + 1,
};

struct builder {
    struct builder_config config;
    struct uploads *uploads;
    struct cache *cache;
    struct layers_root root;
    struct list waiting, running, ended; /* struct build_job; ended ones that something still holds */
    size_t n_waiting, n_running;
    struct list reports; /* report.c; oldest first */
    size_t n_reports;
    uv_timer_t *tick; /* while something runs: deadlines, retries, logs */
    uv_idle_t *go;    /* begins builds in a turn of their own */
    bool closing;
    uint8_t salt[32]; /* of this process alone: passwords in keys of the cache can't be tried out from what is stored */
};

struct build_job;

/* A process of a step, or the start command. */
struct build_process {
    struct build_job *job;
    struct follow *follow; /* NULL: none runs */
    const char *prefix;    /* of its lines in the log */
    enum template_level level;
    bool is_quiet;                /* nothing of it is logged but kept in `output` */
    char line[2][LINE_MAX_BYTES]; /* what is not a whole line yet: stdout, stderr */
    size_t n_line[2];
    char output[512]; /* the last of what it wrote, for messages */
    size_t n_output;
    /* err NULL: it ended with this code (128 + signal). */
    void (*done)(struct build_job *j, int code, const struct err *err);
};

enum build_phase { PHASE_BASE, PHASE_STEPS, PHASE_FINALIZE };

struct build_job {
    struct builder *b;
    struct list node;
    char id[ID_UUID_LEN + 1], template_id[TEMPLATE_ID_LEN + 1];
    char actor_name[64];
    struct actor actor;
    uint64_t cause;       /* the action, in tenant_log() */
    struct charge charge; /* of the spec */
    struct arena arena;
    struct build_spec spec;
    uint32_t cpu_milli;
    uint64_t memory_bytes;

    enum build_phase phase;
    size_t step;        /* of PHASE_STEPS, from 0 */
    char step_text[24]; /* "base", "1", "finalize": where it is, for the log */
    char prefix[64];    /* "base", "builder 1/3" */
    struct build_context ctx;
    char layer[LAYER_TEXT_MAX]; /* what there is so far */
    char next[LAYER_NAME_LEN + 1];
    char key[BUILD_KEY_LEN + 1];
    const char *template_ref;            /* what its sandboxes are made from, nominally; their layer is ours */
    const char *from_start, *from_ready; /* of the template it begins with, as are these sizes; 0: it says none */
    uint32_t from_cpu_milli;
    uint64_t from_memory_bytes;
    uint64_t size_bytes; /* of all layers so far */
    bool is_size_known;
    size_t n_cached;
    unsigned n_denied; /* by the network policy */
    char *denied;      /* what was told of the last; NULL: none */
    bool ran;          /* a step was run: nothing behind it comes from the cache */
    bool ignore_cache;
    bool over, canceled;
    char why[128]; /* it was cancelled */

    usec_t deadline, step_started, began; /* monotonic */
    struct sandbox *sb;                   /* referenced; NULL: none */
    struct sandbox_watch watch;
    bool watching, has_bash;
    unsigned held;
    void (*with_sandbox)(struct build_job *j);
    struct build_process process, start;
    uint64_t disk_bytes;           /* of the sandbox, at the last layer */
    uint64_t image_bytes;          /* of the image under it, until it is counted */
    struct build_step_size stored; /* of the layer that was stored last, or found */

    /* COPY */
    struct file_call *file;
    int upload_fd; /* -1: none */
    uint64_t upload_size, upload_sent;

    /* an image */
    struct image_link *image;

    /* finalize */
    usec_t retry_at, ready_until; /* monotonic; 0: not set */
    const char *tier;             /* that its sandboxes need; NULL: any */
    bool with_memory, has_memory; /* what runs in the end is to be stored; it is */
    bool is_up, start_ended;
    unsigned tries;
};

/* job.c */
void job_start(struct build_job *j);
void job_next(struct build_job *j);  /* the step at j->step is done with: the one behind it */
void job_steps(struct build_job *j); /* the base is there */
void job_log(struct build_job *j, enum template_level level, const char *fmt, ...) PRINTF_LIKE(3, 4);
void job_record(const struct build_job *j,
                const char *reason); /* its end, in the log of the service; reason NULL: it is ready */
void job_fail(struct build_job *j, const char *fmt, ...) PRINTF_LIKE(2, 3);
void job_done(struct build_job *j); /* ready */
void job_tick(struct build_job *j, usec_t now);
bool job_is_over(const struct build_job *j);
/* Calls fn when there is a sandbox on j->layer that runs; else the job fails. */
void job_need_sandbox(struct build_job *j, void (*fn)(struct build_job *j));
void job_drop_sandbox(struct build_job *j);
/*
 * Stores the sandbox's files as the layer of the step and its key; then fn. with_memory: and its memory, or, when that
 * can't be, nothing, and with_memory is off.
 */
void job_store(struct build_job *j, void (*fn)(struct build_job *j));
/* The context as it is goes into the cache, with the layer and j->stored. */
void job_remember(struct build_job *j);
bool job_recall(struct build_job *j); /* by j->key; true: layer, context and j->stored are those of then */

/* builder.c */
void builder_job_ended(struct build_job *j); /* it is over: the next one may begin */
void builder_wake(struct builder *b);        /* in a later turn: frees what is over, begins what waits */

/* report.c */
/* Writes down what j->stored is of the step that is done, and says so in the log. what: "done", "3 MiB sent, done" */
void job_tell_done(struct build_job *j, const char *what);
void job_tell_cached(struct build_job *j, const char *text);
const char *size_text(struct arena *arena, const struct build_step_size *size); /* " (1.5 MiB)", or "" */
void reports_forget(struct builder *b, const char *build_id);
void reports_free(struct builder *b);

/* process.c */
struct build_command {
    const char *shell_text;  /* run by the shell */
    const char *const *args; /* its $1 and so on, NULL-terminated; NULL: none */
    const char *user;        /* NULL: the context's, or root */
    const char *workdir;     /* NULL: the home */
    bool with_context;       /* variables of the context */
    uint64_t timeout_ms;
};
/* p->done comes, also for what can't be started. */
void process_run(struct build_process *p, struct build_job *j, const struct build_command *c);
void process_stop(struct build_process *p); /* no done any more; what runs goes on until its sandbox ends */

/* base.c, image.c, copy.c, finalize.c */
void base_start(struct build_job *j);
void image_start(struct build_job *j); /* base_have_image() follows */
void image_stop(struct build_job *j);
void base_have_image(struct build_job *j);
void copy_start(struct build_job *j, const struct build_step *step);
void copy_stop(struct build_job *j);
void finalize_start(struct build_job *j);
void finalize_tick(struct build_job *j, usec_t now);
