/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of a sandbox as a call has it: in memory, or as a body at the pace of the slower side. The file is c->file, so
 * there is one at a time, and it ends with the call:
 *
 *     file_body_begun(f, file_read(sb, actor, user, path, 0, n, FILE_BODY(f, &file_body_text)));
 *
 * done() comes once, if the call is still there: with the error, also when the file could not even be begun, or the
 * entry of what was written.
 */
#pragma once

#include "api/kit/call.h"
#include "sandbox/files/files.h"

struct file_body {
    struct call *call;
    /* NULL: the error is answered */
    void (*done)(struct file_body *f, const struct file_entry *entry, const struct err *err);
    void (*open)(struct file_body *f, const struct file_entry *entry); /* out: begins the response. May be NULL else */
    struct buf b;                                                      /* text: what was read, no more than it takes */
    struct str bytes;                                                  /* bytes: what is to be written; borrowed */
    uint64_t size;                                                     /* text: of the whole file, when it was opened */
    size_t given;
    bool is_ready;
};

extern const struct file_read_ops file_body_text; /* into f->b */
extern const struct file_read_ops file_body_out; /* as the response's body; done() comes for an error before it alone */
extern const struct file_write_ops file_body_bytes; /* of f->bytes */
extern const struct file_write_ops file_body_in;    /* of the request's body: file_body_receive() behind it */

/* For out and in: the call's state, which nothing ends. */
struct file_body *
file_body_new(struct call *c, void (*done)(struct file_body *f, const struct file_entry *entry, const struct err *err),
              void (*open)(struct file_body *f, const struct file_entry *entry));
void file_body_init(struct file_body *f, struct call *c, size_t max);
void file_body_fini(struct file_body *f); /* as often as one likes; before the call's end */
void file_body_begun(struct file_body *f, int r);
void file_body_receive(struct file_body *f, int r);
#define FILE_BODY(f, ops) (ops), (f), &(f)->call->file, &(f)->call->err

/* file_body_out, for who ends it in another way. */
void file_body_opened(void *ctx, const struct file_entry *entry);
void file_body_data(void *ctx, struct str bytes);
void file_body_end(void *ctx, const struct err *err);
