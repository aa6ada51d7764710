/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/signature.h"
#include "base/buf.h"
#include "base/mem.h"

#include <openssl/evp.h>

struct signer {
    const struct signature *what;
    EVP_MD_CTX *begun, *scratch; /* "path:operation:user:"; its copy, with the token */
};

static void signature_add(EVP_MD_CTX *sha, struct str s)
{
    int ok = EVP_DigestUpdate(sha, s.p ? s.p : "", s.n);
    assert(ok == 1);
}

struct signer *signer_new(const struct signature *what)
{
    struct signer *s = mem_new(struct signer);
    int ok;
    s->what = what;
    s->begun = EVP_MD_CTX_new();
    s->scratch = EVP_MD_CTX_new();
    ok = s->begun && s->scratch ? EVP_DigestInit_ex(s->begun, EVP_sha256(), NULL) : 0;
    assert(ok == 1);
    signature_add(s->begun, what->path);
    signature_add(s->begun, STR(":"));
    signature_add(s->begun, what->operation);
    signature_add(s->begun, STR(":"));
    signature_add(s->begun, what->user);
    signature_add(s->begun, STR(":"));
    return s;
}

void signer_free(struct signer *s)
{
    if (!s)
        return;
    EVP_MD_CTX_free(s->begun);
    EVP_MD_CTX_free(s->scratch);
    mem_free(s);
}

static void signature_sign(const struct signer *s, struct str token, char ret_text[static SIGNATURE_MAX])
{
    AUTO_BUF struct buf encoded = BUF_INIT(64);
    unsigned char digest[EVP_MAX_MD_SIZE];
    char expiration[32];
    unsigned n = 0;
    int ok = EVP_MD_CTX_copy_ex(s->scratch, s->begun);
    assert(ok == 1);
    signature_add(s->scratch, token);
    if (s->what->expires) {
        snprintf(expiration, sizeof(expiration), ":%lld", (long long)s->what->expiration);
        signature_add(s->scratch, str_of(expiration));
    }
    ok = EVP_DigestFinal_ex(s->scratch, digest, &n);
    assert(ok == 1 && n == 32);
    buf_append_base64(&encoded, str_n(digest, n));
    snprintf(ret_text, SIGNATURE_MAX, "v1_%.43s", buf_data(&encoded));
}

bool signer_matches(const struct signer *s, struct str token, struct str given)
{
    char expected[SIGNATURE_MAX];
    if (given.n != SIGNATURE_MAX - 1)
        return false;
    signature_sign(s, token, expected);
    return str_eq_secret(str_n(expected, SIGNATURE_MAX - 1), given);
}

void signature_make(const struct signature *what, struct str token, char ret_text[static SIGNATURE_MAX])
{
    AUTO(signer_free) struct signer *s = signer_new(what);
    signature_sign(s, token, ret_text);
}

bool signature_matches(const struct signature *what, struct str token, struct str given)
{
    AUTO(signer_free) struct signer *s = signer_new(what);
    return signer_matches(s, token, given);
}
