/* SPDX-License-Identifier: Apache-2.0 */
/* Identities and randomness from the kernel. */
#pragma once

#include "base/str.h"

enum {
    ID_SANDBOX_LEN = 21, /* 'i' + 20 characters of lower-case base36 */
    ID_UUID_LEN = 36,
};

void id_random_bytes(void *p, size_t n); /* getrandom(2); aborts when the kernel refuses */

void id_sandbox(char ret_id[static ID_SANDBOX_LEN + 1]);
bool id_is_sandbox(struct str s);

/* What names a sandbox where only its ports are meant: 'p' + 20 such characters. */
void id_port_alias(char ret_alias[static ID_SANDBOX_LEN + 1]);
bool id_is_port_alias(struct str s);

void id_uuid(char ret_uuid[static ID_UUID_LEN + 1]); /* version 4 */

/* n random characters of [a-z0-9], terminated: ret_s has room for n + 1. */
void id_token(char *ret_s, size_t n);
