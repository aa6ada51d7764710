/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files that clients send for COPY, and archives of images: one file each, <data>/uploads/<hash>. What the hash is of is the client's business; it only
 * names the file. A file appears when all of it is there; what a crash leaves half goes at the next start. The oldest make room.
 */
#pragma once

#include "base/err.h"
#include "base/str.h"

struct uploads;
struct upload;

enum { UPLOAD_TOKEN_LEN = 40, UPLOAD_HASH_LEN = 64 };

#define UPLOAD_BYTES_MAX (UINT64_C(8) << 30)   /* of one */
#define UPLOADS_BYTES_MAX (UINT64_C(32) << 30) /* of all */

int uploads_new(const char *data_dir, struct uploads **ret_uploads, struct err *err) WARN_UNUSED;
void uploads_free(struct uploads *u); /* uploads that are under way must be gone */

bool uploads_has(struct uploads *u, const char *hash);

/* A ticket for whoever shows it to send this one file, for an hour. */
void uploads_grant(struct uploads *u, const char *hash, char ret_token[static UPLOAD_TOKEN_LEN + 1]);
bool uploads_is_granted(struct uploads *u, struct str hash, struct str token);

/* size: what was announced, -1: nothing was. ERR_OUT_OF_RANGE: it is too large; ERR_RESOURCE_EXHAUSTED: too many at a time. */
int upload_begin(struct uploads *u, const char *hash, int64_t size, struct upload **ret_upload,
                 struct err *err) WARN_UNUSED;
int upload_write(struct upload *up, struct str bytes, struct err *err) WARN_UNUSED;
int upload_end(struct upload *up, struct err *err) WARN_UNUSED; /* it is there; frees, also when it fails */
void upload_cancel(struct upload *up);                          /* frees; NULL is fine */

/* For reading. -1: ERR_NOT_FOUND. */
int uploads_open(struct uploads *u, const char *hash, int *ret_fd, uint64_t *ret_size, struct err *err) WARN_UNUSED;
