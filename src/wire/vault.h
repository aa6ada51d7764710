/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is spoken on RUN/vault.sock: the owner of the machine names and removes secrets. coved makes the socket
 * (SOCK_STREAM, listening), cove-egress serves it to root and to the owner, `cove secret` asks. No answer ever holds a
 * value.
 *
 * A connection is one request and one answer; then it is closed. Both are a u32, the size of what follows, and:
 *
 *   request   u8 version, u8 op, str name (VAULT_LIST: empty), str value (only VAULT_SET)
 *   answer    u8 version, u8 code (enum err_code), then
 *               ERR_OK: u32 count, count * (str name, u64 set at, in microseconds since 1970); only VAULT_LIST counts more than 0
 *               else:   str message
 *
 * Integers and strs as in frame.h. What is too long, too short, or of another version is answered with
 * ERR_INVALID_ARGUMENT.
 */
#pragma once

#include "base/err.h"
#include "wire/frame.h"

enum {
    VAULT_VERSION = 1,
    VAULT_HEAD = 4, /* the size */
    VAULT_NAME_MAX = 64,
    VAULT_VALUE_MAX = 16 * 1024,
    VAULT_REQUEST_MAX = VAULT_HEAD + 2 + 4 + VAULT_NAME_MAX + 4 + VAULT_VALUE_MAX,
    VAULT_NAMES_MAX = 1024,
    VAULT_ANSWER_MAX = VAULT_HEAD + 2 + 4 + VAULT_NAMES_MAX * (4 + VAULT_NAME_MAX + 8),
};

enum vault_op { VAULT_SET = 1, VAULT_REMOVE = 2, VAULT_LIST = 3 };

struct vault_request {
    enum vault_op op;
    struct str name, value; /* borrowed */
};

/* How long the message is that `bytes` begins: 0 when that can't be seen yet, -EMSGSIZE when it is more than `most` or
 * nothing. */
ssize_t vault_message_size(struct str bytes, size_t most) WARN_UNUSED;

/*
 * A whole message, with its size. Lengths must be within the maxima above; what they mean (is this a name?) is the
 * vault's to judge. Memory is taken once and up front, so that the value lies nowhere but in `to`, from where its owner
 * wipes it. The buffer's error is sticky.
 */
void vault_request_append(struct buf *to, const struct vault_request *request);
int vault_request_parse(struct str message, struct vault_request *ret_request) WARN_UNUSED; /* -EPROTO */

void vault_answer_append_error(struct buf *to, const struct err *err);
size_t vault_answer_begin(struct buf *to); /* ERR_OK; then the names, then vault_answer_end() with what this returned */
void vault_answer_append_name(struct buf *to, struct str name, uint64_t set_at_us);
void vault_answer_end(struct buf *to, size_t at, uint32_t count);

struct vault_answer {
    enum err_code code;
    struct str message; /* unless ERR_OK; borrowed */
    uint32_t count;
    struct wire_reader names;
};

int vault_answer_parse(struct str message, struct vault_answer *ret_answer) WARN_UNUSED; /* -EPROTO */
bool vault_answer_next(struct vault_answer *answer, struct str *ret_name, uint64_t *ret_set_at_us);
