/* SPDX-License-Identifier: Apache-2.0 */
#include "image/registry/digest.h"
#include "base/mem.h"

#include <openssl/evp.h>

struct digest {
    EVP_MD_CTX *sha;
};

bool digest_is(struct str text)
{
    return text.n == DIGEST_LEN && str_starts(text, STR("sha256:")) && str_is_hex(str_sub(text, 7));
}

struct digest *digest_new(void)
{
    struct digest *d = mem_new(struct digest);
    d->sha = EVP_MD_CTX_new();
    assert(d->sha);
    int ok = EVP_DigestInit_ex(d->sha, EVP_sha256(), NULL);
    assert(ok == 1);
    return d;
}

void digest_free(struct digest *d)
{
    if (!d)
        return;
    EVP_MD_CTX_free(d->sha);
    mem_free(d);
}

void digest_add(struct digest *d, const void *p, size_t n)
{
    int ok = EVP_DigestUpdate(d->sha, p, n);
    assert(ok == 1);
}

void digest_take(struct digest *d, char ret_text[static DIGEST_TEXT_MAX])
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    int ok = EVP_DigestFinal_ex(d->sha, sum, &n);
    assert(ok == 1 && n == 32);
    memcpy(ret_text, "sha256:", sizeof("sha256:"));
    str_hex(sum, n, ret_text + 7);
}

void digest_of(struct str bytes, char ret_text[static DIGEST_TEXT_MAX])
{
    AUTO(digest_free) struct digest *d = digest_new();
    digest_add(d, bytes.p, bytes.n);
    digest_take(d, ret_text);
}
