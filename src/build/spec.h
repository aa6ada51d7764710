/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a build is to do, in JSON. Unknown members are ignored.
 *
 *   {"image": "ubuntu:22.04" | "template": "base" | "archive": "<hash of an upload>" | "from": "base", "registry": {"username": .., "password": ..},
 *    "network": {"default": "deny", "rules": [...]},
 *    "force": false, "start_cmd": "..", "ready_cmd": "..", "tier": "gvisor", "memory": true,
 *    "steps": [{"type": "RUN", "args": ["make", "user"?], "force": false},
 *              {"type": "COPY", "args": ["src", "dest", "owner", "mode"], "files": "<64 hex>"},
 *              {"type": "ENV", "args": ["NAME", "value", ..]}, {"type": "WORKDIR", "args": ["/app"]},
 *              {"type": "USER", "args": ["name"]}]}
 *
 * "from" is FROM as a Dockerfile has it: a template here when one has that name, else an image.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"

enum build_step_type { BUILD_RUN, BUILD_COPY, BUILD_ENV, BUILD_WORKDIR, BUILD_USER };

enum {
    BUILD_STEPS_MAX = 1000,
    BUILD_ARGS_MAX = 512,
    BUILD_TEXT_MAX = 64 * 1024, /* bytes of one argument or command */
    BUILD_HASH_LEN = 64,
};

struct build_step {
    enum build_step_type type;
    const struct str *args; /* each terminated; at least as many as the type needs */
    size_t n_args;
    const char *files_hash; /* of COPY; else NULL */
    bool force;
};

struct build_spec {
    const char *image, *template_ref, *archive, *from; /* one of them; the others NULL */
    const char *username, *password;                   /* for the image's registry; NULL: none */
    bool force;
    const struct build_step *steps;
    size_t n_steps;
    const char *start_cmd, *ready_cmd; /* NULL: none */
    const char *network;               /* a policy of sandbox/network.h, as JSON; NULL: none */
    const char *tier;                  /* where it is built, and the weakest for its sandboxes; NULL: any */
    bool no_memory;                    /* that of the start command is not stored, where the tier could */
};

/* What the members are called; NULL: there is no such member. A façade whose JSON only has other names brings its
 * own. */
struct build_spec_names {
    const char *image, *template_ref, *archive, *from, *registry, *start_cmd, *ready_cmd, *files, *network, *tier,
        *memory;
};
extern const struct build_spec_names build_spec_names; /* those above */

/* All of it is copied into the arena. ERR_INVALID_ARGUMENT, ERR_UNIMPLEMENTED. */
int build_spec_read(const json_t *body, const struct build_spec_names *names, struct arena *arena,
                    struct build_spec *ret_spec, struct err *err) WARN_UNUSED;

const char *build_step_name(enum build_step_type type);
bool build_is_hash(struct str s); /* 64 lower-case hexadecimal digits */

/* "TYPE arg arg", cut to `max` bytes, for logs; of COPY source and destination alone. In the arena. */
const char *build_step_text(const struct build_step *step, struct arena *arena, size_t max);
