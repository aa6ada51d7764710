/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/signature.h"

#include "base/buf.h"
#include "base/mem.h"

#include <openssl/sha.h>
#include <stdio.h>

enum { TEXT_MAX = 256 * 1024 };

int signature_make(const struct signature *what, struct str token, char ret_text[static SIGNATURE_MAX])
{
    AUTO_BUF struct buf text = BUF_INIT(TEXT_MAX);
    AUTO_BUF struct buf encoded = BUF_INIT(64);
    unsigned char digest[SHA256_DIGEST_LENGTH];

    buf_append_str(&text, what->path);
    buf_append_char(&text, ':');
    buf_append_str(&text, what->operation);
    buf_append_char(&text, ':');
    buf_append_str(&text, what->user);
    buf_append_char(&text, ':');
    buf_append_str(&text, token);
    if (what->expires)
        buf_printf(&text, ":%lld", (long long)what->expiration);
    if (buf_error(&text) < 0)
        return buf_error(&text);

    SHA256((const unsigned char *)buf_data(&text), buf_len(&text), digest);
    mem_wipe(buf_data(&text), buf_len(&text));
    buf_append_base64(&encoded, str_n(digest, sizeof(digest)));
    snprintf(ret_text, SIGNATURE_MAX, "v1_%.43s", buf_data(&encoded));
    return 0;
}

bool signature_matches(const struct signature *what, struct str token, struct str given)
{
    char expected[SIGNATURE_MAX];

    return given.n == SIGNATURE_MAX - 1 && signature_make(what, token, expected) == 0 &&
           str_eq_secret(str_n(expected, SIGNATURE_MAX - 1), given);
}
