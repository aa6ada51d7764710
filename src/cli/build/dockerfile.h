/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a Dockerfile as the steps of a template (build/spec.h in the service). What a template can't be made of is
 * refused with its line: here-documents, archives and URLs in ADD. Stages are the steps of each from its image on: one
 * that begins with another has that one's in front. What has no meaning here (EXPOSE, LABEL, ...) is noted.
 */
#pragma once

#include "base/arena.h"
#include "base/err.h"

enum {
    DOCKERFILE_MAX = 1 << 20,
    DOCKERFILE_STEPS_MAX = 900,
    DOCKERFILE_NOTES_MAX = 64,
    DOCKERFILE_ARGS_MAX = 256,
    DOCKERFILE_STAGES_MAX = 32
};

struct dockerfile_step {
    const char *type;    /* "RUN", "COPY", "ENV", "WORKDIR", "USER" */
    const char *args[4]; /* RUN: command; COPY: source, destination, owner, mode ("": none); ENV: name, value */
    size_t n_args;
    unsigned line;
    const char *from; /* COPY --from: an image, or the name of a stage; NULL: the context */
    int stage;        /* which one; -1: none */
};

struct dockerfile_stage {
    const char *name;  /* "2" when it has none */
    const char *image; /* perhaps "scratch" */
    const struct dockerfile_step *steps;
    size_t n_steps;
};

/* Everything is in the arena. */
struct dockerfile {
    const char *image; /* perhaps "scratch" */
    const struct dockerfile_step *steps;
    size_t n_steps;
    struct dockerfile_stage stages[DOCKERFILE_STAGES_MAX]; /* before the last one, which the above is */
    size_t n_stages;
    const char *start_cmd; /* of ENTRYPOINT and CMD; NULL: none */
    const char *notes[DOCKERFILE_NOTES_MAX];
    size_t n_notes;
};

/* build_args: "NAME=value". `name` stands for the file in messages: "<name>:<line>: ". ERR_INVALID_ARGUMENT,
 * ERR_UNIMPLEMENTED. */
int dockerfile_parse(const char *name, struct str text, const char *const *build_args, size_t n_build_args,
                     struct arena *arena, struct dockerfile *ret_file, struct err *err) WARN_UNUSED;

/* 'It''s' as one word for a shell. In the arena. */
const char *dockerfile_quote(struct arena *arena, struct str word);
