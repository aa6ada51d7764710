/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a directory that COPY may take: all below it but those that .dockerignore names. Blocking.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

enum { CONTEXT_HASH_LEN = 64, CONTEXT_FILES_MAX = 200000 };

struct local_context;

/* Reads names, not contents. ERR_NOT_FOUND, ERR_RESOURCE_EXHAUSTED. */
int build_context_open(const char *dir, struct local_context **ret_context, struct err *err) WARN_UNUSED;
void build_context_close(struct local_context *c);
DEFINE_AUTO(struct local_context *, build_context_close)

/* Called while contents are read, with the bytes of the source so far. Then they are known, too: of what was hashed or
 * packed last. */
typedef void (*build_context_seen_fn)(void *ctx, uint64_t bytes);
void build_context_watch(struct local_context *c, build_context_seen_fn seen, void *ctx);
uint64_t build_context_bytes(const struct local_context *c);

/* What the source (a path or pattern below the directory) names, as a hash of names, modes and contents. ERR_NOT_FOUND:
 * nothing. */
int build_context_hash(struct local_context *c, const char *source, char ret_hash[static CONTEXT_HASH_LEN + 1],
                       struct err *err) WARN_UNUSED;

/* The same files as a gzip'd tar into fd. */
int build_context_pack(struct local_context *c, const char *source, int fd, struct err *err) WARN_UNUSED;

/* SHA-256 of a file's bytes, in hex. */
int build_context_hash_file(const char *path, build_context_seen_fn seen, void *ctx,
                            char ret_hash[static CONTEXT_HASH_LEN + 1], struct err *err) WARN_UNUSED;

/*
 * What is below dirfd, at a path that a stranger may change while it is walked; over links below it, or over none. The
 * descriptor, or -errno: -EXDEV when it leads out.
 */
int build_context_beneath(int dirfd, const char *path, int flags, bool over_links) WARN_UNUSED;

/* Does the pattern (with *, ?, [..] and **) name this path, or a directory above it? For .dockerignore and its test. */
bool build_context_matches(struct str pattern, struct str path);
