/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that clients send for COPY, and archives of images: one file each, <data>/uploads/<hash>. What the hash is of
 * is the client's business; it only names the file.
 *
 *  1. A file appears when all of it is there. What failed, was given up or was cut by a crash leaves nothing.
 *  2. What there is stands in memory, with its sizes: the directory is read once.
 *  3. The disk keeps its reserve: bytes are taken while it does. Those that are older than an hour make room for it,
 *     and for the bound on all of them the oldest of the tenant that has most.
 *  4. A link is good until a file was sent by it, once. Then it takes that file's very bytes again - somebody's answer
 *     got lost - and changes nothing; another content needs another link, which needs the key. One upload at a time
 *     goes by a link, and not at a crawl.
 *  5. By the key the first content of a hash stays, too. Some of the slots for uploads under way are the key's alone.
 */
#pragma once

#include "base/clock.h"
#include "base/err.h"

struct uploads;
struct upload;

enum { UPLOAD_TOKEN_LEN = 40, UPLOAD_HASH_LEN = 64 };

/*
 * What a tenant's file is called here: the client's hash, which for other tenants than the default one is hashed with
 * the tenant's number, and marked. So no tenant has, or spoils, another's.
 */
void upload_name(uint64_t tenant, const char *hash, char ret_name[static UPLOAD_HASH_LEN + 1]);

#define UPLOAD_BYTES_MAX (UINT64_C(8) << 30)   /* of one */
#define UPLOADS_BYTES_MAX (UINT64_C(32) << 30) /* of all; under way, a tenant has a share of it */

/* What stays free on the disk. AUTO: as for sandboxes, 2 % of it, but 1 GiB at least and 8 GiB at most. */
#define UPLOADS_RESERVE_AUTO UINT64_C(0)
#define UPLOADS_RESERVE_NONE UINT64_MAX

int uploads_new(const char *data_dir, uint64_t reserve_bytes, struct uploads **ret_uploads,
                struct err *err) WARN_UNUSED;
void uploads_free(struct uploads *u); /* uploads that are under way must be gone */

bool uploads_has(struct uploads *u, const char *hash);
uint64_t uploads_bytes(const struct uploads *u); /* of all, those under way too */

/* A link's secret: whoever shows it may send this one file, for an hour. */
void uploads_grant(struct uploads *u, uint64_t tenant, const char *hash, char ret_token[static UPLOAD_TOKEN_LEN + 1]);

/*
 * size: what was announced, -1: nothing was. ERR_OUT_OF_RANGE: it is too large; ERR_RESOURCE_EXHAUSTED: too many at a
 * time, or the disk is full, which upload_is_full() tells apart; ERR_PERMISSION_DENIED: the link is none, too old, or
 * was used for something else; ERR_ALREADY_EXISTS: by the key, and other content is there; ERR_DEADLINE_EXCEEDED: by a
 * link, and too slow.
 */
int upload_begin(struct uploads *u, uint64_t tenant, const char *hash, int64_t size, struct upload **ret_upload,
                 struct err *err) WARN_UNUSED;
int upload_begin_by_link(struct uploads *u, struct str hash, struct str token, int64_t size, struct upload **ret_upload,
                         struct err *err) WARN_UNUSED;
/* The same errors. After one, upload_cancel(). */
int upload_write(struct upload *up, struct str bytes, struct err *err) WARN_UNUSED;
int upload_end(struct upload *up, struct err *err) WARN_UNUSED; /* it is there; frees, also when it fails */
void upload_cancel(struct upload *up);                          /* frees; NULL is fine */
bool upload_is_slow(usec_t lasted, uint64_t bytes);
bool upload_is_full(const struct err *err);

/* For reading. -1: ERR_NOT_FOUND. */
int uploads_open(struct uploads *u, const char *hash, int *ret_fd, uint64_t *ret_size, struct err *err) WARN_UNUSED;
