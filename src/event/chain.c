/* SPDX-License-Identifier: Apache-2.0 */
#include "event/chain.h"
#include "base/mem.h"

#include <openssl/evp.h>

struct chain {
    EVP_MD *sha256; /* fetched once: looking it up costs more than hashing a record */
    EVP_MD_CTX *ctx;
    struct buf record;
};

struct chain *chain_new(void)
{
    struct chain *c = mem_new(struct chain);
    c->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
    c->ctx = EVP_MD_CTX_new();
    /* Each byte of a text takes at most six; the data is there as it is. */
    buf_init(&c->record, EVENT_DATA_MAX + 6 * (EVENT_ID_MAX + EVENT_ACTOR_MAX) + 1024);
    return c;
}

void chain_free(struct chain *c)
{
    if (!c)
        return;
    EVP_MD_CTX_free(c->ctx);
    EVP_MD_free(c->sha256);
    buf_fini(&c->record);
    mem_free(c);
}

void chain_format_record(const struct event *e, struct buf *b)
{
    event_format_members(e, false, b);
    buf_append_char(b, '}');
}

int chain_next(struct chain *c, const unsigned char previous[EVENT_HASH_SIZE], const struct event *e,
               unsigned char ret_hash[static EVENT_HASH_SIZE], struct err *err)
{
    buf_clear(&c->record);
    chain_format_record(e, &c->record);
    if (buf_error(&c->record))
        return 1;
    unsigned char hash[EVENT_HASH_SIZE];
    if (!c->sha256 || !c->ctx || EVP_DigestInit_ex2(c->ctx, c->sha256, NULL) != 1 ||
        EVP_DigestUpdate(c->ctx, previous, EVENT_HASH_SIZE) != 1 ||
        EVP_DigestUpdate(c->ctx, buf_data(&c->record), buf_len(&c->record)) != 1 ||
        EVP_DigestFinal_ex(c->ctx, hash, NULL) != 1)
        return err_set(err, ERR_INTERNAL, "event log: SHA-256 is not available from OpenSSL");
    memcpy(ret_hash, hash, EVENT_HASH_SIZE);
    return 0;
}
