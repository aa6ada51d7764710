/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What steps of a build leave behind besides files: variables, working directory, user. And the key of the cache: a
 * chain of SHA-256 over what was built on and each step since.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "build/spec.h"

enum { BUILD_KEY_LEN = 64, BUILD_ENVS_MAX = 256, BUILD_ENVS_BYTES = 1000 * 1024 };

struct build_env {
    char *name, *value;
};

/* Owns its texts. */
struct build_context {
    struct build_env envs[BUILD_ENVS_MAX];
    size_t n_envs;
    char *workdir; /* NULL: the user's home */
    char *user;    /* NULL: root */
    char *image;   /* what the image's configuration says it is to run: struct template's; NULL: no image, or nothing */
};

void build_context_fini(struct build_context *c);
const char *build_context_get(const struct build_context *c, struct str name); /* NULL: not set */

/* ERR_RESOURCE_EXHAUSTED: too many. */
int build_context_set(struct build_context *c, struct str name, struct str value, struct err *err) WARN_UNUSED;

/* As ENV does it: $NAME and ${NAME} in the value are replaced by what is in force, and by nothing when it is not set;
 * "\$" is a dollar sign. */
int build_context_set_expanded(struct build_context *c, struct str name, struct str value, struct err *err) WARN_UNUSED;

/* "NAME=value" lists, as templates and images have them. Those without a name are left out. */
int build_context_set_lines(struct build_context *c, const char *const *lines, size_t n, struct err *err) WARN_UNUSED;

void build_context_set_user(struct build_context *c, const char *user); /* NULL or "": root */
void build_context_set_workdir(struct build_context *c, const char *workdir);
void build_context_set_image(struct build_context *c, const char *image);

/* {"envs":[[name,value],..],"workdir":..,"user":..,"image":..?} and back. */
void build_context_format(const struct build_context *c, struct buf *b);
int build_context_parse(struct build_context *c, const char *text) WARN_UNUSED; /* -EINVAL */

/* The key's text in hex becomes that of all before and these parts. An empty text begins a chain. */
void build_key_add(char key[static BUILD_KEY_LEN + 1], const struct str *parts, size_t n);
void build_key_add_step(char key[static BUILD_KEY_LEN + 1], const struct build_step *step);
